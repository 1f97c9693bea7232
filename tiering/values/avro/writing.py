"""Avro's primitive values, written as its own encoders do (Avro 1.12, "Binary Encoding").

They write at an address and return the position behind. Up to `WRITE_SLACK` bytes behind that may
be written, too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from segment_reader.kernels.compiler import Int, called, inlined
from segment_reader.kernels.memory import byte_at, significant_bits, store_byte
from segment_reader.kernels.words import load_64, store_64
from tiering.values.avro.memory import byte
from tiering.values.avro.reading import COPY_SLACK

__all__ = ["WRITE_SLACK", "put_big_endian", "put_decimal", "put_number"]

WRITE_SLACK: Final = COPY_SLACK

_GOES_ON: Final = np.uint64(0x8080808080808080)
_LOW_28: Final = np.uint64(0x000000000FFFFFFF)
_HIGH_28: Final = np.uint64(0x00FFFFFFF0000000)
_LOW_14: Final = np.uint64(0x00003FFF00003FFF)
_HIGH_14: Final = np.uint64(0x0FFFC0000FFFC000)
_LOW_7: Final = np.uint64(0x007F007F007F007F)
_HIGH_7: Final = np.uint64(0x3F803F803F803F80)
_ONES: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


@called
def _put_by_bytes(target: Int, at: Int, raw: Int) -> Int:
    while raw >= np.uint64(0x80):
        store_byte(target, at, raw | np.uint64(0x80))
        raw >>= np.uint64(7)
        at += 1
    store_byte(target, at, raw)
    return np.int64(at + 1)


@inlined
def put_number(target: Int, at: Int, value: Int) -> Int:
    """A zigzag varint in as few bytes as it needs."""
    raw = np.uint64(value << 1) ^ np.uint64(value >> 63)
    if raw < np.uint64(0x80):
        store_byte(target, at, raw)
        return np.int64(at + 1)
    if raw >= np.uint64(1 << 56):
        return _put_by_bytes(target, at, raw)
    size = (significant_bits(raw) + 6) // 7
    raw = (raw & _LOW_28) | ((raw & _HIGH_28) << np.uint64(4))
    raw = (raw & _LOW_14) | ((raw & _HIGH_14) << np.uint64(2))
    raw = (raw & _LOW_7) | ((raw & _HIGH_7) << np.uint64(1))
    store_64(
        target, at, raw | (_GOES_ON & ((np.uint64(1) << np.uint64(8 * size - 8)) - np.uint64(1)))
    )
    return np.int64(at + size)


@called
def put_big_endian(target: Int, at: Int, source: Int, size: Int) -> Int:
    """The 16 bytes of an int128 in big-endian order, its sign repeated or cut to `size` bytes."""
    sign = np.uint64(0xFF) if byte(source, 15) >= 0x80 else np.uint64(0)
    for i in range(size):
        place = size - 1 - i
        store_byte(target, at + i, byte_at(source, place) if place < 16 else sign)
    return np.int64(at + size)


@called
def put_decimal(target: Int, at: Int, source: Int) -> Int:
    """An int128's length and as few bytes of its two's complement as it needs, big-endian."""
    low, high = load_64(source, 0), load_64(source, 8)
    if high >> np.uint64(63) != np.uint64(0):
        low, high = ~low, ~high
    bits = significant_bits(low)
    if high != np.uint64(0):
        bits = 64 + significant_bits(high)
    elif low == np.uint64(0):
        bits = np.int64(0)
    size = bits // 8 + 1
    store_byte(target, at, size << 1)
    return put_big_endian(target, at + 1, source, size)
