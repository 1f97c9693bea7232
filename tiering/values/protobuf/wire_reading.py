"""Where the fields of messages are: compiled loops over the wire format.

A loop takes many messages of one type and notes for each field its last value, or the number of its
elements; what is inside messages is the same again, one level deeper. See the encoding reference of
Protocol Buffers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import (
    BYTES,
    INT32S,
    INT64_MATRIX,
    INT64S,
    READ_INT64S,
    UINT8S,
    VOID,
    Int,
    called,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import address_of, byte_at, copy
from segment_reader.kernels.words import load_32, load_64

__all__ = [
    "ODD",
    "OTHER",
    "UNKNOWN",
    "copy_spans",
    "fill_elements",
    "scan_messages",
    "skip_indexes",
]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int32s = np.ndarray[Any, np.dtype[np.int32]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]

UNKNOWN: Final = 1
"""A message has fields that have no column."""
ODD: Final = 2
"""A message needs a full parser: parts to be merged, several members of a oneof, groups."""
OTHER: Final = 4
"""A payload is of another message type than the file's first."""

_TRUNCATED: Final = np.int64(-1)
_BAD_LENGTH: Final = np.int64(-3)
_BAD_DOCUMENT: Final = np.int64(-6)

_GROUP_DEPTH_MAX: Final = 100


@inlined
def _varint(origin: Int, at: Int, end: Int) -> tuple[Int, Int]:
    """A number and the place behind it, or minus a `Fault`."""
    result, shift = np.uint64(0), np.uint64(0)
    for i in range(10):
        if at + i >= end:
            return np.uint64(0), _TRUNCATED
        byte = byte_at(origin, at + i)
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return result, at + i + np.int64(1)
        shift += np.uint64(7)
    return np.uint64(0), _BAD_LENGTH


@inlined
def _field(origin: Int, at: Int, end: Int) -> tuple[Int, Int, Int, Int, Int]:
    """A field's number, its wire type, its value (or where its bytes are), how many bytes it has,
    and the place behind it, or minus a `Fault`. Groups' tags stand for themselves."""
    tag, at = _varint(origin, at, end)
    zero = np.int64(0)
    if at < 0:
        return zero, zero, zero, zero, at
    number, wire = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
    if tag > np.uint64(0xFFFFFFFF) or number == 0:
        return zero, zero, zero, zero, _BAD_DOCUMENT
    if wire == 0:
        raw, at = _varint(origin, at, end)
        return number, wire, np.int64(raw), zero, at
    if wire == 2:
        size, at = _varint(origin, at, end)
        if at < 0:
            return zero, zero, zero, zero, at
        if size > np.uint64(0x7FFFFFFF):
            return zero, zero, zero, zero, _BAD_LENGTH
        length = np.int64(size)
        if length > end - at:
            return zero, zero, zero, zero, _TRUNCATED
        return number, wire, at, length, at + length
    if wire == 1:
        if end - at < 8:
            return zero, zero, zero, zero, _TRUNCATED
        return number, wire, np.int64(load_64(origin, at)), zero, at + np.int64(8)
    if wire == 5:
        if end - at < 4:
            return zero, zero, zero, zero, _TRUNCATED
        return number, wire, np.int64(load_32(origin, at)), zero, at + np.int64(4)
    if wire == 3 or wire == 4:
        return number, wire, zero, zero, at
    return zero, zero, zero, zero, _BAD_DOCUMENT


@called
def _behind_group(origin: Int, at: Int, end: Int) -> Int:
    """Behind the end of the group that begins before `at`. Who reads groups for good is the full
    parser; this one doesn't see whether tags fit each other."""
    depth = np.int64(1)
    while depth > 0:
        _, wire, _, _, at = _field(origin, at, end)
        if at < 0:
            return at
        if wire == 3:
            depth += np.int64(1)
            if depth > _GROUP_DEPTH_MAX:
                return _BAD_DOCUMENT
        elif wire == 4:
            depth -= np.int64(1)
    return at


@inlined
def _position(numbers: _Int32s, number: Int, guess: Int) -> Int:
    """Which of the ascending numbers it is; -1 for none. `guess` is tried first."""
    if guess < len(numbers) and numbers[guess] == number:
        return guess
    low, high = np.int64(0), np.int64(len(numbers))
    while low < high:
        middle = (low + high) >> np.int64(1)
        if numbers[middle] < number:
            low = middle + np.int64(1)
        else:
            high = middle
    if low < len(numbers) and numbers[low] == number:
        return low
    return np.int64(-1)


@called
def _packed_count(origin: Int, at: Int, length: Int, wire: Int) -> Int:
    """How many elements a packed field has, or minus a `Fault`."""
    if wire == 1 or wire == 5:
        size = np.int64(8) if wire == 1 else np.int64(4)
        return length // size if length % size == 0 else _BAD_LENGTH
    count, run = np.int64(0), np.int64(0)
    for i in range(at, at + length):
        run += np.int64(1)
        if run > 10:
            return _BAD_LENGTH
        if byte_at(origin, i) < np.uint64(0x80):
            count += np.int64(1)
            run = np.int64(0)
    return count if run == 0 else _TRUNCATED


@compiled(
    VOID(
        *(BYTES, READ_INT64S, READ_INT64S, INT32S, UINT8S, UINT8S, UINT8S, INT32S, INT64S),
        *(INT64_MATRIX, INT64_MATRIX, UINT8S, UINT8S),
    )
)
def scan_messages(
    data: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    numbers: _Int32s,
    wires: _Bytes,
    repeated: _Bytes,
    merged: _Bytes,
    oneofs: _Int32s,
    chosen: _Int64s,
    values: Any,
    lengths: Any,
    faults: _Bytes,
    marks: _Bytes,
) -> None:
    """Find the fields of messages.

    Of the type's fields, by ascending number: `wires` the wire type, `merged` whether it holds
    messages, `oneofs` which oneof it belongs to or -1; `chosen` is room for as many as there are.

    `values[field, message]` becomes the value, or where its bytes begin; `lengths`, which come as
    -1, 0 or the number of bytes. Of repeated fields, whose `lengths` come as 0, the number of
    elements. `faults` become a `Fault`, `marks` UNKNOWN and ODD; both come as 0.
    """
    origin, fields = address_of(data), len(numbers)
    for i in range(len(chosen)):
        chosen[i] = -1
    for i in range(len(starts)):
        at, end, guess = starts[i], ends[i], np.int64(0)
        while at < end:
            number, wire, value, length, at = _field(origin, at, end)
            if at >= 0 and wire == 4:
                at = _BAD_DOCUMENT
            if at < 0:
                break
            if wire == 3:
                marks[i] |= np.uint8(UNKNOWN | ODD)
                at = _behind_group(origin, at, end)
                if at < 0:
                    break
                continue
            f = _position(numbers, number, guess)
            if f < 0:
                marks[i] |= np.uint8(UNKNOWN)
            elif wire == wires[f]:
                guess = f + np.int64(1)
                if repeated[f]:
                    lengths[f, i] += 1
                    guess = f
                else:
                    if merged[f] and lengths[f, i] >= 0:
                        marks[i] |= np.uint8(ODD)
                    group = oneofs[f]
                    if group >= 0:
                        before = chosen[group]
                        if before >= 0 and before // fields == i and before % fields != f:
                            marks[i] |= np.uint8(ODD)
                        chosen[group] = i * fields + f
                    values[f, i], lengths[f, i] = value, length
            elif wire == 2 and repeated[f] and wires[f] != 2:
                guess = f + np.int64(1)
                count = _packed_count(origin, value, length, np.int64(wires[f]))
                if count < 0:
                    at = count
                    break
                lengths[f, i] += count
            else:
                marks[i] |= np.uint8(UNKNOWN)
        if at < 0:
            faults[i] = np.uint8(-at)
            for f in range(fields):
                lengths[f, i] = np.int64(0) if repeated[f] else np.int64(-1)


@compiled(
    VOID(
        *(BYTES, READ_INT64S, READ_INT64S, INT32S, UINT8S, UINT8S, UINT8S),
        *(INT64S, INT64S, INT64S),
    )
)
def fill_elements(
    data: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    numbers: _Int32s,
    wires: _Bytes,
    repeated: _Bytes,
    faults: _Bytes,
    places: _Int64s,
    values: _Int64s,
    lengths: _Int64s,
) -> None:
    """Find the elements of repeated fields in messages that `scan_messages` has been through.

    `places[field]` is where the field's first element goes in `values` and `lengths`; it becomes
    where its last has ended.
    """
    origin = address_of(data)
    for i in range(len(starts)):
        at, end, guess = starts[i], ends[i], np.int64(0)
        if faults[i]:
            continue
        while at < end:
            number, wire, value, length, at = _field(origin, at, end)
            if wire == 3:
                at = _behind_group(origin, at, end)
                continue
            f = _position(numbers, number, guess)
            if f < 0:
                continue
            guess = f if repeated[f] else f + np.int64(1)
            if not repeated[f]:
                continue
            if wire == wires[f]:
                values[places[f]], lengths[places[f]] = value, length
                places[f] += 1
            elif wire == 2 and wires[f] != 2:
                inside = value
                while inside < value + length:
                    if wires[f] == 0:
                        raw, inside = _varint(origin, inside, value + length)
                    elif wires[f] == 1:
                        raw, inside = load_64(origin, inside), inside + np.int64(8)
                    else:
                        raw, inside = load_32(origin, inside), inside + np.int64(4)
                    values[places[f]], lengths[places[f]] = np.int64(raw), 0
                    places[f] += 1


@compiled(VOID(BYTES, INT64S, READ_INT64S, UINT8S, UINT8S))
def skip_indexes(
    data: _Bytes, starts: _Int64s, ends: _Int64s, faults: _Bytes, marks: _Bytes
) -> None:
    """Move `starts` behind the message indexes of the Confluent wire format: zigzag varints, their
    number first; a lone 0 means the file's first message type. Others are marked OTHER."""
    origin = address_of(data)
    for i in range(len(starts)):
        raw, at = _varint(origin, starts[i], ends[i])
        count = np.int64(raw >> np.uint64(1))
        others = False
        if at >= 0 and (raw & np.uint64(1) or count > ends[i] - at):
            at = _BAD_LENGTH  # negative, or more than there is room for
        elif at >= 0:
            others = bool(count > 1)
            for _ in range(count):
                raw, at = _varint(origin, at, ends[i])
                if at < 0:
                    break
                others = others or bool(raw != 0)
        if at < 0:
            faults[i] = np.uint8(-at)
            starts[i] = ends[i]
        else:
            starts[i] = at
            if others:
                marks[i] |= np.uint8(OTHER)


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT32S, UINT8S))
def copy_spans(
    data: _Bytes, starts: _Int64s, lengths: _Int64s, offsets: _Int32s, target: _Bytes
) -> None:
    """Copy spans behind each other: Arrow's offsets and data. Negative lengths are 0."""
    origin, into, at = address_of(data), address_of(target), np.int64(0)
    offsets[0] = 0
    for i in range(len(starts)):
        if lengths[i] > 0:
            copy(into, at, origin, starts[i], lengths[i])
            at += lengths[i]
        offsets[i + 1] = at
