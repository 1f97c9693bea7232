"""Kafka's four compression codecs, written: many payloads at a time, in forms every client reads.

| codec | form |
| --- | --- |
| gzip | one member (RFC 1952) |
| snappy | xerial's blocks of 32 KiB, as Java producers write them |
| lz4 | one frame of independent blocks of 64 KiB, no checksums of contents (KIP-57) |
| zstd | one frame with content size (KIP-110) |

A call takes all payloads at once and runs without the interpreter's lock: a library that is
called per batch gives the lock away and waits for it each time, which beside one busy thread made
200 batches of 16 KiB take 600 ms in place of 9. So zstd is called through its interface for many
buffers, and the other three are kernels of ours; libraries come in where those leave too much.

The first level is for speed. Measured on JSON-like records of 512 bytes, one core of a shared
machine, MB/s of records and how many times smaller they get, in batches of 16 KiB and of 1 MiB:

| | 16 KiB | 1 MiB |
| --- | --- | --- |
| **zstd -7** | 1007, 1.51 | 1066, 1.56 |
| zstd 1 (negative levels leave literals as they are) | 394, 2.73 | 432, 2.94 |
| zstd 3, as producers use it | 230, 2.69 | 224, 2.85 |
| **lz4, kernel** (acceleration 8) | 1405, 1.42 | 1373, 1.52 |
| lz4, library (1, as producers use it) | 493, 1.56 | 480, 1.64 |
| **snappy, kernel** (acceleration 8) | 1457, 1.42 | 1548, 1.48 |
| snappy, library | 559, 1.52 | 501, 1.57 |
| **gzip, kernel** (acceleration 8) | 315, 2.31 | 340, 2.57 |
| gzip, library (1) | 135, 2.42 | 150, 2.53 |
| gzip, zlib (6, as producers use it) | 46, 2.53 | 32, 2.68 |

Stored gzip would be 2000 MB/s and 2.5 times the original, zstd -7 is 1.8 times; all others are
within 1.1 times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import cramjam
import lz4.frame
import numpy as np
import numpy.typing as npt
import zstandard

from segment_reader.batches import Codec
from segment_reader.kernels import deflate, huffman, packing
from segment_reader.kernels.matches import TABLE_BYTES
from segment_reader.kernels.stored_frames import (
    GZIP_BLOCK,
    LZ4_BLOCK,
    SNAPPY_BLOCK,
    ZSTD_BLOCK,
    ZSTD_SINGLE_SEGMENT_MAX,
)

__all__ = ["STEPS", "Frames", "stored_sizes"]

_Int64s = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Payloads, compressed: number i is data[borders[i]:borders[i + 1]]."""

    data: _Bytes
    borders: _Int64s


Packer = Callable[[_Bytes, _Int64s, _Int64s], Frames]
"""Compresses the payloads at the given starts and of the given sizes of an array."""


class _Workspace(threading.local):
    """What a thread uses again: zstd's compressors can't be shared and are costly to make."""

    def __init__(self) -> None:
        self.table = np.empty(TABLE_BYTES, np.uint8)
        self.sequences = np.empty(deflate.SEQUENCES, np.int64)
        self.symbols = np.zeros((huffman.WORK_ROWS, deflate.SYMBOLS), np.int64)
        self._zstd: dict[int, zstandard.ZstdCompressor] = {}

    def zstd(self, level: int) -> zstandard.ZstdCompressor:
        made = self._zstd.get(level)
        if made is None:
            made = zstandard.ZstdCompressor(level=level, write_content_size=True)
            self._zstd[level] = made
        return made


_WORKSPACE: Final = _Workspace()


def _kernel(codec: Codec, acceleration: int, records: _Bytes, at: _Int64s, n: _Int64s) -> Frames:
    stored = stored_sizes(np.full(len(n), codec, np.int64), n)
    target = np.empty(int(stored.sum()) + packing.FRAME_SLACK, np.uint8)
    borders = np.empty(len(n) + 1, np.int64)
    own = _WORKSPACE
    if codec == Codec.GZIP:
        work = deflate.Work(own.table, own.sequences, own.symbols)
        deflate.pack_gzip(records, at, n, acceleration, work, target, borders)
    else:
        pack = packing.pack_lz4 if codec == Codec.LZ4 else packing.pack_snappy
        pack(records, at, n, acceleration, own.table, target, borders)
    return Frames(data=target, borders=borders)


def _zstd(level: int, records: _Bytes, at: _Int64s, n: _Int64s) -> Frames:
    compressor = _WORKSPACE.zstd(level)
    if len(n) == 1:  # several at a time cost more to begin with
        return _joined([compressor.compress(records.data[at[0] : at[0] + n[0]])])
    segments = np.column_stack((at, n)).astype(np.uint64)
    source = zstandard.BufferWithSegments(records.data, segments.tobytes())
    made = compressor.multi_compress_to_buffer(source)
    return _joined(cast(list[bytes], [made[i] for i in range(len(n))]))  # buffers, all of them


def _library(
    compress: Callable[[memoryview], bytes], records: _Bytes, at: _Int64s, n: _Int64s
) -> Frames:
    places = zip(at.tolist(), n.tolist(), strict=True)
    return _joined([compress(records.data[start : start + size]) for start, size in places])


def _joined(frames: list[bytes]) -> Frames:
    borders = np.zeros(len(frames) + 1, np.int64)
    np.cumsum([len(frame) for frame in frames], out=borders[1:])
    return Frames(data=np.frombuffer(b"".join(frames), np.uint8), borders=borders)


def _gzip(level: int, records: memoryview) -> bytes:
    return bytes(cramjam.gzip.compress(records, level))


def _lz4(level: int, records: memoryview) -> bytes:
    return bytes(
        lz4.frame.compress(
            records,
            compression_level=level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )


STEPS: Final[Mapping[Codec, tuple[Packer, ...]]] = {
    Codec.GZIP: (
        partial(_kernel, Codec.GZIP, 8),
        partial(_library, partial(_gzip, 6)),
        partial(_library, partial(_gzip, 9)),
    ),
    Codec.SNAPPY: (partial(_kernel, Codec.SNAPPY, 8), partial(_kernel, Codec.SNAPPY, 1)),
    Codec.LZ4: (
        partial(_kernel, Codec.LZ4, 8),
        partial(_kernel, Codec.LZ4, 1),
        partial(_library, partial(_lz4, 9)),
    ),
    Codec.ZSTD: tuple(partial(_zstd, level) for level in (-7, 1, 9, 19)),
}
"""Per codec, what to try one after the other until the size is right, the fastest first."""


def stored_sizes(codec: _Int64s, raw: _Int64s) -> _Int64s:
    """Bytes that payloads of `raw` bytes take in the codec's framing without being compressed."""
    tail = raw % SNAPPY_BLOCK
    whole = SNAPPY_BLOCK + 4 + 3 + 3
    literal = np.where(tail <= 60, 1, np.where(tail <= 256, 2, 3))
    varint = np.where(tail < 1 << 7, 1, np.where(tail < 1 << 14, 2, 3))
    in_tail = np.where(tail > 0, 4 + varint + literal + tail, 0)
    zstd_header = np.where(raw < 256, 6, np.where(raw < 65536 + 256, 7, 9))
    zstd_header = np.where(raw <= ZSTD_SINGLE_SEGMENT_MAX, zstd_header, 10)
    sizes = {
        Codec.GZIP: raw + 18 + 5 * -(-raw // GZIP_BLOCK),
        Codec.SNAPPY: 16 + raw // SNAPPY_BLOCK * whole + in_tail,
        Codec.LZ4: raw + 11 + 4 * -(-raw // LZ4_BLOCK),
        Codec.ZSTD: raw + zstd_header + 3 * -(-raw // ZSTD_BLOCK),
    }
    return np.select([codec == one for one in sizes], list(sizes.values()), raw)
