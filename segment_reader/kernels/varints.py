"""The zigzag varints of Kafka's records, read as Kafka reads them and written as it writes them."""

from __future__ import annotations

import numpy as np

from segment_reader.kernels.compiler import Int, inlined
from segment_reader.kernels.memory import byte_at, significant_bits, store_byte

__all__ = ["put_varlong", "varint", "varlong", "varlong_bytes"]


@inlined
def varint(origin: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """Zigzag int32 at `at` and the position after it; -1 past the end, -2 for over 5 bytes."""
    result = np.uint64(0)
    shift = np.uint64(0)
    for i in range(5):
        if at + i >= end:
            return np.int64(0), np.int64(-1)
        byte = byte_at(origin, at + i)
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            low = np.uint32(result)  # Kafka drops what does not fit, too
            value = np.int32(low >> np.uint32(1)) ^ -np.int32(low & np.uint32(1))
            return np.int64(np.int32(value)), at + i + 1
        shift += np.uint64(7)
    return np.int64(0), np.int64(-2)


@inlined
def varlong(origin: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """Zigzag int64 at `at` and the position after it; -1 past the end, -2 for over 10 bytes."""
    result = np.uint64(0)
    shift = np.uint64(0)
    for i in range(10):
        if at + i >= end:
            return np.int64(0), np.int64(-1)
        byte = byte_at(origin, at + i)
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), at + i + 1
        shift += np.uint64(7)
    return np.int64(0), np.int64(-2)


@inlined
def _zigzag(value: Int) -> Int:
    return np.uint64(value << np.int64(1)) ^ np.uint64(value >> np.int64(63))


@inlined
def varlong_bytes(value: Int) -> Int:
    """How many bytes an int64 takes. Numbers of 32 bits are the same as varint and varlong."""
    return (significant_bits(_zigzag(value)) + np.int64(6)) // np.int64(7)


@inlined
def put_varlong(target: Int, at: Int, value: Int) -> Int:
    """Write an int64 at `at` behind an address, in as few bytes as it needs; where it ends."""
    rest = _zigzag(value)
    while rest >= np.uint64(0x80):
        store_byte(target, at, rest | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += np.int64(1)
    store_byte(target, at, rest)
    return at + np.int64(1)
