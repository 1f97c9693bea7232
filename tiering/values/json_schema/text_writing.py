"""Parts of JSON text, many of one property at a time: a piece of bytes per row."""

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
from segment_reader.kernels.memory import address_of, byte_at, copy, store_byte
from tiering.values.pieces import Pieces

__all__ = ["bracketed", "prefixed", "quoted"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


def prefixed(
    prefix: bytes,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
) -> Pieces:
    """The prefix and `data[start:end]`; nothing where not present."""
    lengths = np.where(present, ends - starts, 0)
    made = np.empty(int(lengths.sum()) + len(prefix) * int(present.sum()), dtype=np.uint8)
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    chosen = np.ascontiguousarray(present).view(np.uint8)
    before = np.frombuffer(prefix, dtype=np.uint8)
    _put_spans(before, data, np.ascontiguousarray(starts), lengths, chosen, made, offsets)
    return Pieces(data=made, offsets=offsets)


def quoted(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> Pieces:
    """Texts as JSON strings: only what must be escaped is, in the shortest way."""
    sizes = np.zeros(len(starts) + 1, dtype=np.int64)
    _quote(data, starts, ends, 0, np.zeros(0, np.uint8), sizes)
    made = np.empty(int(sizes[-1]), dtype=np.uint8)
    _quote(data, starts, ends, 1, made, sizes)
    return Pieces(data=made, offsets=sizes)


def bracketed(
    pieces: Pieces, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], brackets: bytes
) -> Pieces:
    """`data[first:last]` of pieces that each begin with a comma: the first becomes a bracket, the
    other bracket comes behind."""
    offsets = np.zeros(len(first) + 1, dtype=np.int64)
    np.cumsum(np.maximum(last - first, 1) + 1, out=offsets[1:])
    made = np.empty(int(offsets[-1]), dtype=np.uint8)
    spans = (np.ascontiguousarray(first), np.ascontiguousarray(last))
    _bracket(pieces.data, *spans, brackets[0], brackets[1], made, offsets)
    return Pieces(data=made, offsets=offsets)


@compiled(VOID(BYTES, BYTES, READ_INT64S, READ_INT64S, BYTES, UINT8S, INT64S))
def _put_spans(
    prefix: _Bytes,
    data: _Bytes,
    starts: _Int64s,
    lengths: _Int64s,
    present: _Bytes,
    made: _Bytes,
    offsets: _Int64s,
) -> None:
    origin, target, at = address_of(data), address_of(made), np.int64(0)
    before, size = address_of(prefix), np.int64(len(prefix))
    for i in range(len(starts)):
        if present[i]:
            copy(target, at, before, np.int64(0), size)
            at += size
            if lengths[i] > 0:
                copy(target, at, origin, starts[i], lengths[i])
                at += lengths[i]
        offsets[i + 1] = at


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64, INT64, UINT8S, READ_INT64S))
def _bracket(
    data: _Bytes,
    first: _Int64s,
    last: _Int64s,
    opening: Int,
    closing: Int,
    made: _Bytes,
    offsets: _Int64s,
) -> None:
    origin, target = address_of(data), address_of(made)
    for i in range(len(first)):
        at, end = offsets[i], offsets[i + 1]
        length = last[i] - first[i]
        if length > 1:
            copy(target, at + np.int64(1), origin, first[i] + np.int64(1), length - np.int64(1))
        store_byte(target, at, np.uint64(opening))
        store_byte(target, end - np.int64(1), np.uint64(closing))


@inlined
def _short_escape(byte: Int) -> Int:
    """The letter behind the backslash; 0 for none."""
    if byte == 0x22 or byte == 0x5C:
        return byte
    if byte == 0x0A:
        return np.uint64(0x6E)
    if byte == 0x09:
        return np.uint64(0x74)
    if byte == 0x0D:
        return np.uint64(0x72)
    if byte == 0x08:
        return np.uint64(0x62)
    if byte == 0x0C:
        return np.uint64(0x66)
    return np.uint64(0)


@inlined
def _hex_digit(number: Int) -> Int:
    return number + (np.uint64(0x30) if number < 10 else np.uint64(0x57))


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64, UINT8S, INT64S))
def _quote(
    data: _Bytes, starts: _Int64s, ends: _Int64s, writing: Int, made: _Bytes, offsets: _Int64s
) -> None:
    """`offsets` become where each ends; bytes are written if told so."""
    origin, target, at = address_of(data), address_of(made), np.int64(0)
    for i in range(len(starts)):
        if writing:
            store_byte(target, at, np.uint64(0x22))
        at += np.int64(1)
        for place in range(starts[i], ends[i]):
            byte = byte_at(origin, place)
            if byte >= 0x20 and byte != 0x22 and byte != 0x5C:
                if writing:
                    store_byte(target, at, byte)
                at += np.int64(1)
                continue
            letter = _short_escape(byte)
            size = np.int64(2) if letter else np.int64(6)
            if writing:
                store_byte(target, at, np.uint64(0x5C))
                store_byte(target, at + np.int64(1), letter if letter else np.uint64(0x75))
                if not letter:
                    store_byte(target, at + np.int64(2), np.uint64(0x30))
                    store_byte(target, at + np.int64(3), np.uint64(0x30))
                    store_byte(target, at + np.int64(4), _hex_digit(byte >> np.uint64(4)))
                    store_byte(target, at + np.int64(5), _hex_digit(byte & np.uint64(15)))
            at += size
        if writing:
            store_byte(target, at, np.uint64(0x22))
        at += np.int64(1)
        offsets[i + 1] = at
