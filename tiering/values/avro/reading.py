"""Avro's primitive values, read (Avro 1.12, "Binary Encoding").

Positions are offsets from an address. `end` is where the payload ends, `limit` where the memory
does that may be read. Where reading fails, the position is a `Fault`, negated.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from segment_reader.kernels.compiler import Int, called, inlined
from segment_reader.kernels.memory import copy
from segment_reader.kernels.words import copy_16, load_64, trailing_zeros
from tiering.values.avro.memory import byte
from tiering.values.codec import Fault

__all__ = ["COPY_SLACK", "decimal_of", "number", "put_bytes", "zigzag"]

TRUNCATED: Final = -int(Fault.TRUNCATED)
BAD_LENGTH: Final = -int(Fault.BAD_LENGTH)

COPY_SLACK: Final = 32
"""Bytes that `put_bytes` may write behind what it's asked for."""

_GOES_ON: Final = np.uint64(0x8080808080808080)
_BITS_7: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_LOW_7: Final = np.uint64(0x007F007F007F007F)
_HIGH_7: Final = np.uint64(0x7F007F007F007F00)
_LOW_14: Final = np.uint64(0x00003FFF00003FFF)
_HIGH_14: Final = np.uint64(0x3FFF00003FFF0000)
_LOW_28: Final = np.uint64(0x000000000FFFFFFF)
_HIGH_28: Final = np.uint64(0x0FFFFFFF00000000)
_ONES: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


@inlined
def zigzag(raw: Int) -> Int:
    """The signed number that a uint64 stands for."""
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))


@inlined
def _packed(raw: Int) -> Int:
    """Eight groups of 7 bits, one per byte, pushed together."""
    raw = (raw & _LOW_7) | ((raw & _HIGH_7) >> np.uint64(1))
    raw = (raw & _LOW_14) | ((raw & _HIGH_14) >> np.uint64(2))
    return (raw & _LOW_28) | ((raw & _HIGH_28) >> np.uint64(4))


@called
def _number_by_bytes(data: Int, at: Int, end: Int) -> tuple[Int, Int]:
    raw = np.uint64(0)
    for i in range(10):
        if at + i >= end:
            return np.int64(0), np.int64(TRUNCATED)
        one = np.uint64(byte(data, at + i))
        raw |= (one & np.uint64(0x7F)) << np.uint64(7 * i)
        if one < np.uint64(0x80):
            return zigzag(raw), np.int64(at + i + 1)
    return np.int64(0), np.int64(BAD_LENGTH)


@inlined
def number(data: Int, at: Int, end: Int, limit: Int) -> tuple[Int, Int]:
    """A zigzag varint of at most 64 bits and the position behind it."""
    if at < end:
        first = byte(data, at)
        if first < 0x80:
            return np.int64((first >> 1) ^ -(first & 1)), np.int64(at + 1)
    if at + 8 <= limit:
        raw = load_64(data, at)
        stops = ~raw & _GOES_ON
        if stops != np.uint64(0):
            bits = trailing_zeros(stops) + 1
            behind = at + (bits >> 3)
            if behind > end:
                return np.int64(0), np.int64(TRUNCATED)
            raw &= _BITS_7 & (_ONES >> np.uint64(64 - bits))
            return zigzag(_packed(raw)), np.int64(behind)
    return _number_by_bytes(data, at, end)


@inlined
def put_bytes(target: Int, to: Int, data: Int, at: Int, size: Int, limit: Int) -> None:
    """Copy `size` bytes. Short ones as whole words, with COPY_SLACK behind them."""
    if size <= COPY_SLACK and at + COPY_SLACK <= limit:
        copy_16(target, to, data, at)
        copy_16(target, to + 16, data, at + 16)
    elif size > 0:
        copy(target, to, data, at, size)


@called
def decimal_of(data: Int, at: Int, size: Int, low_limit: Int, high_limit: Int) -> tuple[Int, ...]:
    """Lower and upper half of a two's complement big-endian number, and whether it is below a
    limit (its size at least, whatever its sign)."""
    negative = size > 0 and byte(data, at) >= 0x80
    sign = _ONES if negative else np.uint64(0)
    filler = 255 if negative else 0
    low, high = sign, sign
    for i in range(size):
        one = byte(data, at + i)
        if i < size - 16:
            if one != filler:
                return np.uint64(0), np.uint64(0), False
        else:
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(one)
    if negative != (high >> np.uint64(63) != np.uint64(0)):
        return np.uint64(0), np.uint64(0), False
    size_low, size_high = low, high
    if negative:
        size_low = ~low + np.uint64(1)
        size_high = ~high + (np.uint64(1) if size_low == np.uint64(0) else np.uint64(0))
    most_low, most_high = np.uint64(low_limit), np.uint64(high_limit)
    fits = size_high < most_high or (size_high == most_high and size_low < most_low)
    return low, high, fits
