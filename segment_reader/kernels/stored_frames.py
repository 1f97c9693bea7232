"""Kafka's four compressed formats holding bytes that are not compressed.

| codec | frame |
| --- | --- |
| gzip | RFC 1952, stored blocks of RFC 1951 |
| snappy | xerial's blocks, of one literal each |
| lz4 | LZ4 frame of independent blocks, flagged as uncompressed |
| zstd | RFC 8878, raw blocks, with content size |
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import Int, inlined
from segment_reader.kernels.memory import copy_bytes, load_u64

__all__ = [
    "GZIP_BLOCK",
    "LZ4_BLOCK",
    "SNAPPY_BLOCK",
    "ZSTD_BLOCK",
    "ZSTD_SINGLE_SEGMENT_MAX",
    "crc32",
    "store_big_endian",
    "store_gzip",
    "store_lz4",
    "store_snappy",
    "store_zstd",
]

GZIP_BLOCK: Final = 65535
SNAPPY_BLOCK: Final = 32 * 1024
LZ4_BLOCK: Final = 64 * 1024
ZSTD_BLOCK: Final = 128 * 1024
ZSTD_SINGLE_SEGMENT_MAX: Final = 1024 * 1024
"""Larger frames name a window of this size, so that no reader has to hold them whole."""

_ZSTD_WINDOW_DESCRIPTOR: Final = (20 - 10) << 3
_CRC32_POLYNOMIAL: Final = 0xEDB88320

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def _crc32_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    rows = np.zeros((8, 256), dtype=np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32_POLYNOMIAL if crc & 1 else 0)
        rows[0, byte] = crc
    for row in range(1, 8):
        rows[row] = (rows[row - 1] >> 8) ^ rows[0][rows[row - 1] & 0xFF]
    return rows


_CRC32_TABLES: Final = _crc32_tables()


@inlined
def crc32(buffer: Int, at: Int, end: Int) -> Int:
    """gzip's CRC-32 of buffer[at:end], as uint64."""
    crc = np.uint64(0xFFFFFFFF)
    while at + 8 <= end:
        mixed = load_u64(buffer, at) ^ crc
        crc = np.uint64(0)
        for row in range(8):
            crc ^= np.uint64(_CRC32_TABLES[7 - row, mixed & np.uint64(0xFF)])
            mixed >>= np.uint64(8)
        at += 8
    while at < end:
        low = (crc ^ np.uint64(buffer[at])) & np.uint64(0xFF)
        crc = np.uint64(_CRC32_TABLES[0, low]) ^ (crc >> np.uint64(8))
        at += 1
    return crc ^ np.uint64(0xFFFFFFFF)


@inlined
def store_big_endian(out: Int, at: Int, value: Int, size: Int) -> Int:
    """Write the low `size` bytes of an int64, highest first; the position after them."""
    for i in range(size):
        out[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)
    return at + size


@inlined
def _store_little_endian(out: Int, at: Int, value: Int, size: Int) -> Int:
    for i in range(size):
        out[at + i] = np.uint8((value >> (8 * i)) & 0xFF)
    return at + size


@inlined
def store_gzip(out: Int, at: Int, records: Int, start: Int, size: Int) -> Int:
    """Write one gzip member; the position after it. `size` is positive, here and below."""
    at = _store_little_endian(out, at, np.int64(0x00088B1F), 8)
    at = _store_little_endian(out, at, np.int64(0xFF00), 2)  # no time, unknown system
    done = np.int64(0)
    while done < size:
        block = min(np.int64(GZIP_BLOCK), size - done)
        out[at] = np.uint8(1 if done + block == size else 0)
        at = _store_little_endian(out, at + 1, block, 2)
        at = _store_little_endian(out, at, block ^ 0xFFFF, 2)
        copy_bytes(out, at, records, start + done, block)
        at += block
        done += block
    at = _store_little_endian(out, at, np.int64(crc32(records, start, start + size)), 4)
    return _store_little_endian(out, at, size, 4)


@inlined
def store_snappy(out: Int, at: Int, records: Int, start: Int, size: Int) -> Int:
    """Write xerial's header and blocks; the position after them."""
    at = store_big_endian(out, at, np.int64(-0x7DACB1BEAFAFA700), 8)  # "\x82SNAPPY\0"
    at = store_big_endian(out, at, np.int64(1), 4)
    at = store_big_endian(out, at, np.int64(1), 4)
    done = np.int64(0)
    while done < size:
        block = min(np.int64(SNAPPY_BLOCK), size - done)
        size_at = at
        at += 4
        left = block
        while left >= 0x80:
            out[at] = np.uint8(left & 0x7F | 0x80)
            left >>= 7
            at += 1
        out[at] = np.uint8(left)
        at += 1
        if block <= 60:
            out[at] = np.uint8((block - 1) << 2)
            at += 1
        else:
            length_bytes = 1 if block <= 256 else 2
            out[at] = np.uint8((59 + length_bytes) << 2)
            at = _store_little_endian(out, at + 1, block - 1, length_bytes)
        copy_bytes(out, at, records, start + done, block)
        at += block
        done += block
        store_big_endian(out, size_at, at - size_at - 4, 4)
    return at


@inlined
def store_lz4(out: Int, at: Int, records: Int, start: Int, size: Int) -> Int:
    """Write one LZ4 frame; the position after it."""
    at = _store_little_endian(out, at, np.int64(0x184D2204), 4)
    # Version 1, independent blocks of 64 KiB, no sizes or checksums; the header's checksum byte.
    at = _store_little_endian(out, at, np.int64(0x824060), 3)
    done = np.int64(0)
    while done < size:
        block = min(np.int64(LZ4_BLOCK), size - done)
        at = _store_little_endian(out, at, block | np.int64(0x80000000), 4)
        copy_bytes(out, at, records, start + done, block)
        at += block
        done += block
    return _store_little_endian(out, at, np.int64(0), 4)


@inlined
def store_zstd(out: Int, at: Int, records: Int, start: Int, size: Int) -> Int:
    """Write one zstd frame; the position after it."""
    at = _store_little_endian(out, at, np.int64(0xFD2FB528), 4)
    if size < 256:
        out[at] = np.uint8(0x20)
        at = _store_little_endian(out, at + 1, size, 1)
    elif size < 65536 + 256:
        out[at] = np.uint8(0x60)
        at = _store_little_endian(out, at + 1, size - 256, 2)
    elif size <= ZSTD_SINGLE_SEGMENT_MAX:
        out[at] = np.uint8(0xA0)
        at = _store_little_endian(out, at + 1, size, 4)
    else:
        out[at] = np.uint8(0x80)
        out[at + 1] = np.uint8(_ZSTD_WINDOW_DESCRIPTOR)
        at = _store_little_endian(out, at + 2, size, 4)
    done = np.int64(0)
    while done < size:
        block = min(np.int64(ZSTD_BLOCK), size - done)
        last = np.int64(1 if done + block == size else 0)
        at = _store_little_endian(out, at, last | (block << 3), 3)
        copy_bytes(out, at, records, start + done, block)
        at += block
        done += block
    return at
