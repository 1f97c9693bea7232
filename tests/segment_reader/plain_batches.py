"""A log cut into batches and decompressed with nothing but the codecs' own libraries."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass

import cramjam
import lz4.frame
import zstandard

_HEADER = struct.Struct(">qiibIhiqqqhii")
_XERIAL_MAGIC = b"\x82SNAPPY\x00"


@dataclass(frozen=True)
class PlainBatch:
    """A batch's header fields as they are in the log, and its records decompressed."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    records: bytes


def plain_batches(log: bytes) -> list[PlainBatch]:
    batches, at = [], 0
    while at < len(log):
        base, length, epoch, magic, crc, attributes, *rest = _HEADER.unpack_from(log, at)
        assert magic == 2
        size = 12 + length
        payload = log[at + _HEADER.size : at + size]
        records = decompressed(attributes & 7, payload) if payload else b""
        batches.append(PlainBatch(at, size, base, epoch, crc, attributes, *rest, records))
        at += size
    assert at == len(log)
    return batches


def decompressed(codec: int, payload: bytes) -> bytes:
    if codec == 1:
        return gzip.decompress(payload)
    if codec == 2:
        return _snappy(payload)
    if codec == 3:
        return bytes(lz4.frame.decompress(payload))
    if codec == 4:
        reader = zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True)
        return bytes(reader.read())
    assert codec == 0
    return payload


def _snappy(payload: bytes) -> bytes:
    if not payload.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(payload))
    blocks, at = [], 16
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        blocks.append(bytes(cramjam.snappy.decompress_raw(payload[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(blocks)
