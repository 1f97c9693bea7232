"""The zigzag varints of Kafka's records, read as Kafka reads them."""

from __future__ import annotations

import numpy as np

from segment_reader.kernels.compiler import Int, inlined
from segment_reader.kernels.memory import byte_at

__all__ = ["varint", "varlong"]


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
