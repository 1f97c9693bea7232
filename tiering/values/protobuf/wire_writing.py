"""Fields in the wire format, many of one field at a time: a piece of bytes per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from segment_reader.kernels.compiler import (
    BYTES,
    INT64,
    INT64S,
    READ_INT64S,
    UINT8S,
    VOID,
    Int,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import address_of, copy, store_byte
from segment_reader.kernels.words import store_32, store_64
from tiering.values.pieces import Pieces

__all__ = ["number_pieces", "span_pieces", "tag_bytes"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]
_Bools = npt.NDArray[np.bool_]


def tag_bytes(number: int, wire_type: int) -> npt.NDArray[np.uint8]:
    """What stands before a field's value."""
    rest, found = number << 3 | wire_type, []
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return np.array([*found, rest], dtype=np.uint8)


def number_pieces(
    tag: npt.NDArray[np.uint8], wire_type: int, values: npt.NDArray[np.int64], present: _Bools
) -> Pieces:
    """The tag, which may be empty, and the value: its bits, as int64."""
    count = len(values)
    data = np.empty(count * (len(tag) + 10), dtype=np.uint8)
    offsets = np.zeros(count + 1, dtype=np.int64)
    chosen = np.ascontiguousarray(present).view(np.uint8)
    _put_numbers(tag, wire_type, np.ascontiguousarray(values), chosen, data, offsets)
    return Pieces(data=data, offsets=offsets)


def span_pieces(
    tag: npt.NDArray[np.uint8],
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    present: _Bools,
) -> Pieces:
    """The tag, the number of bytes, the bytes `data[start:end]`."""
    count = len(starts)
    lengths = np.where(present, ends - starts, 0)
    made = np.empty(int(lengths.sum()) + count * (len(tag) + 5), dtype=np.uint8)
    offsets = np.zeros(count + 1, dtype=np.int64)
    chosen = np.ascontiguousarray(present).view(np.uint8)
    _put_spans(tag, data, np.ascontiguousarray(starts), lengths, chosen, made, offsets)
    return Pieces(data=made, offsets=offsets)


@inlined
def _put_varint(target: Int, at: Int, value: Int) -> Int:
    while value >= np.uint64(0x80):
        store_byte(target, at, value | np.uint64(0x80))
        value >>= np.uint64(7)
        at += np.int64(1)
    store_byte(target, at, value)
    return at + np.int64(1)


@compiled(VOID(BYTES, INT64, READ_INT64S, BYTES, UINT8S, INT64S))
def _put_numbers(
    tag: _Bytes, wire: Int, values: _Int64s, present: _Bytes, data: _Bytes, offsets: _Int64s
) -> None:
    target, at = address_of(data), np.int64(0)
    for i in range(len(values)):
        if present[i]:
            for byte in tag:
                store_byte(target, at, np.uint64(byte))
                at += np.int64(1)
            if wire == 0:
                at = _put_varint(target, at, np.uint64(values[i]))
            elif wire == 1:
                store_64(target, at, np.uint64(values[i]))
                at += np.int64(8)
            else:
                store_32(target, at, np.uint64(values[i]))
                at += np.int64(4)
        offsets[i + 1] = at


@compiled(VOID(BYTES, BYTES, READ_INT64S, READ_INT64S, BYTES, UINT8S, INT64S))
def _put_spans(
    tag: _Bytes,
    data: _Bytes,
    starts: _Int64s,
    lengths: _Int64s,
    present: _Bytes,
    made: _Bytes,
    offsets: _Int64s,
) -> None:
    origin, target, at = address_of(data), address_of(made), np.int64(0)
    for i in range(len(starts)):
        if present[i]:
            for byte in tag:
                store_byte(target, at, np.uint64(byte))
                at += np.int64(1)
            at = _put_varint(target, at, np.uint64(lengths[i]))
            if lengths[i] > 0:
                copy(target, at, origin, starts[i], lengths[i])
                at += lengths[i]
        offsets[i + 1] = at
