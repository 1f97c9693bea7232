"""Bits, and bytes as signed integers, at an address. They check no bounds: callers do.

Addresses are int64 here, as they come out of tables; mixing them with uint64 would make numba turn
to floats.
"""

from __future__ import annotations

import numpy as np

from segment_reader.kernels.compiler import Int, inlined
from segment_reader.kernels.memory import byte_at, store_byte
from segment_reader.kernels.words import load_32

__all__ = ["byte", "clear_bit", "has_bit", "int32_of", "set_bit"]


@inlined
def byte(address: Int, at: Int) -> Int:
    """The byte `at` behind an address, as int64."""
    return np.int64(byte_at(address, at))


@inlined
def int32_of(address: Int, at: Int) -> Int:
    """The int32 `at` bytes behind an address, as int64."""
    return np.int64(np.int32(load_32(address, at)))


@inlined
def has_bit(bits: Int, i: Int) -> Int:
    """Bit i of a bitmap."""
    return (byte(bits, i >> 3) >> (i & 7)) & 1


@inlined
def set_bit(bits: Int, i: Int) -> None:
    """Set bit i of a bitmap."""
    store_byte(bits, i >> 3, byte(bits, i >> 3) | (1 << (i & 7)))


@inlined
def clear_bit(bits: Int, i: Int) -> None:
    """Clear bit i of a bitmap."""
    store_byte(bits, i >> 3, byte(bits, i >> 3) & (255 - (1 << (i & 7))))
