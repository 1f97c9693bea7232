"""Batches made in plain Python, right or wrong: what Kafka would refuse to write."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import cramjam
import google_crc32c
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
T0 = 1_700_000_000_000
Headers = tuple[tuple[bytes, bytes | None], ...]


def zigzag(number: int) -> bytes:
    """A varint or varlong, zigzag."""
    return unsigned((number << 1) ^ (number >> 63) if number < 0 else number << 1)


def unsigned(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@dataclass(frozen=True)
class MadeRecord:
    offset_delta: int
    timestamp_delta: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Headers = ()

    def encode(self) -> bytes:
        body = b"\0" + zigzag(self.timestamp_delta) + zigzag(self.offset_delta)
        body += _field(self.key) + _field(self.value) + zigzag(len(self.headers))
        body += b"".join(_field(key) + _field(value) for key, value in self.headers)
        return zigzag(len(body)) + body


def _field(content: bytes | None) -> bytes:
    return zigzag(-1) if content is None else zigzag(len(content)) + content


def snappy_xerial(data: bytes, block: int = 32 * 1024) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block):
        packed = bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        out += struct.pack(">i", len(packed)) + packed
    return out


def zstd_frames(data: bytes, frame: int = 1000) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False)
    pieces = [data[start : start + frame] for start in range(0, len(data), frame)]
    return b"".join(packer.compress(piece) for piece in pieces)


def gzip_members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


COMPRESS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (NONE, lambda data: data),
    "gzip": (GZIP, gzip.compress),
    "gzip-members": (GZIP, gzip_members),
    "snappy-raw": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy-xerial": (SNAPPY, snappy_xerial),
    "lz4": (LZ4, lambda data: bytes(lz4.frame.compress(data, store_size=False))),
    "lz4-checksums": (
        LZ4,
        lambda data: bytes(lz4.frame.compress(data, content_checksum=True, block_checksum=True)),
    ),
    "zstd": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
    "zstd-frames": (ZSTD, zstd_frames),
}


@dataclass(frozen=True)
class MadeBatch:
    """A batch's fields as they go on disk; `payload` is compressed already."""

    base_offset: int
    payload: bytes
    count: int
    last_offset_delta: int
    leader_epoch: int = 0
    attributes: int = 0
    base_timestamp: int = T0
    max_timestamp: int = T0
    producer_id: int = -1
    magic: int = 2
    size_error: int = 0

    @classmethod
    def of(
        cls,
        base_offset: int,
        records: Sequence[MadeRecord],
        compression: str = "none",
        attributes: int = 0,
        **fields: int,
    ) -> MadeBatch:
        codec, compress = COMPRESS[compression]
        made = cls(
            base_offset=base_offset,
            payload=compress(b"".join(record.encode() for record in records)),
            count=len(records),
            last_offset_delta=records[-1].offset_delta if records else 0,
            attributes=attributes | codec,
        )
        return replace(made, **fields)  # type: ignore[arg-type]

    def encode(self) -> bytes:
        covered = struct.pack(
            ">hiqqqhii",
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            -1,
            -1,
            self.count,
        )
        covered += self.payload
        crc = google_crc32c.value(covered)
        size = len(covered) + 9 + self.size_error
        return (
            struct.pack(">qiibI", self.base_offset, size, self.leader_epoch, self.magic, crc)
            + covered
        )


def plain(base_offset: int, count: int, compression: str = "none", size: int = 20) -> MadeBatch:
    """`count` ordinary records."""
    records = [
        MadeRecord(i, i, b"key-%d" % i, (b"value-%d-" % (base_offset + i)) * (size // 8))
        for i in range(count)
    ]
    return MadeBatch.of(base_offset, records, compression)
