"""Record bytes of batches against those that were made again, byte by byte."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import BYTES, INT64, READ_INT64S, Int, compiled
from segment_reader.kernels.memory import address_of, same_bytes
from segment_reader.kernels.varints import varint

__all__ = ["first_difference", "gone_records"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]

_RANGES: Final = (BYTES, READ_INT64S, READ_INT64S)


@compiled(INT64(*_RANGES, *_RANGES))
def first_difference(
    one: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    other: _Bytes,
    other_starts: _Int64s,
    other_ends: _Int64s,
) -> int:
    """Index of the first range of `one` that doesn't have the bytes of `other`'s, or -1."""
    for i in range(len(starts)):
        size = ends[i] - starts[i]
        if size != other_ends[i] - other_starts[i] or not same_bytes(
            address_of(one), starts[i], address_of(other), other_starts[i], size
        ):
            return i
    return -1


@compiled(INT64(BYTES, BYTES))
def gone_records(whole: _Bytes, left: _Bytes) -> int:
    """How many records must be taken out of a batch's `whole` ones for `left` to remain, or -1.

    A record says its own offset, so no two of a batch are the same.
    """
    at: Int = np.int64(0)
    kept: Int = np.int64(0)
    gone = 0
    while at < len(whole):
        size, body = varint(address_of(whole), at, len(whole))
        if body < 0 or size < 0 or body + size > len(whole):
            return -1
        length = body + size - at
        if kept + length <= len(left) and same_bytes(
            address_of(whole), at, address_of(left), kept, length
        ):
            kept += length
        else:
            gone += 1
        at += length
    return gone if kept == len(left) else -1
