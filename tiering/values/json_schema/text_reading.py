"""Where the parts of JSON documents are: compiled loops over text that is known to be JSON.

A loop takes many objects or arrays and notes where each property or element begins and ends; what
is inside those is the same again, one level deeper.
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
    compiled,
    inlined,
)
from segment_reader.kernels.memory import address_of, byte_at, copy, same_bytes, store_byte
from tiering.values.json_grammar import behind_space

__all__ = [
    "BEYOND",
    "FRACTION",
    "READ",
    "count_elements",
    "find_elements",
    "find_properties",
    "read_integers",
    "read_numbers",
    "trim_spans",
    "unescape_strings",
]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int32s = np.ndarray[Any, np.dtype[np.int32]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]

READ: Final = 0
BEYOND: Final = 1
"""A number that its type doesn't hold, or that takes a slower way to read."""
FRACTION: Final = 2
"""A number with a fraction or an exponent."""

_EXACT_MANTISSA_MAX: Final = 1 << 53
_EXACT_POWER_MAX: Final = 22
_POWERS: Final = np.array([10.0**i for i in range(_EXACT_POWER_MAX + 1)])


@inlined
def _behind_quoted(origin: Int, at: Int) -> Int:
    """Behind the string that begins at `at`."""
    at += np.int64(1)
    while True:
        byte = byte_at(origin, at)
        at += np.int64(1)
        if byte == 0x22:
            return at
        if byte == 0x5C:
            at += np.int64(1)


@inlined
def _behind_value(origin: Int, at: Int, end: Int) -> Int:
    """Behind the value that begins at `at`."""
    byte = byte_at(origin, at)
    if byte == 0x22:
        return _behind_quoted(origin, at)
    if byte != 0x7B and byte != 0x5B:
        while at < end:
            byte = byte_at(origin, at)
            if byte == 0x2C or byte == 0x5D or byte == 0x7D or byte <= 0x20:
                break
            at += np.int64(1)
        return at
    depth = np.int64(0)
    while True:
        byte = byte_at(origin, at)
        if byte == 0x22:
            at = _behind_quoted(origin, at)
            continue
        at += np.int64(1)
        if byte == 0x7B or byte == 0x5B:
            depth += np.int64(1)
        elif byte == 0x7D or byte == 0x5D:
            depth -= np.int64(1)
            if depth == 0:
                return at


@inlined
def _next_value(origin: Int, at: Int, end: Int, named: bool) -> tuple[Int, Int, Int, Int]:
    """From behind a bracket or comma: where the name begins and ends (with its quotes), and where
    the value does. The name begins at -1 where there is nothing more."""
    at = behind_space(origin, at, end)
    byte = byte_at(origin, at)
    if byte == 0x7D or byte == 0x5D:
        return np.int64(-1), at, at, at
    name, behind = at, at
    if named:
        behind = _behind_quoted(origin, at)
        at = behind_space(origin, behind, end) + np.int64(1)  # the colon
        at = behind_space(origin, at, end)
    return name, behind, at, _behind_value(origin, at, end)


@inlined
def _behind_comma(origin: Int, at: Int, end: Int) -> Int:
    at = behind_space(origin, at, end)
    return at + np.int64(1) if byte_at(origin, at) == 0x2C else at


@compiled(VOID(BYTES, INT64S, INT64S))
def trim_spans(data: _Bytes, starts: _Int64s, ends: _Int64s) -> None:
    """Take white space off either end. No span is white space only."""
    origin = address_of(data)
    for i in range(len(starts)):
        starts[i] = behind_space(origin, starts[i], ends[i])
        while byte_at(origin, ends[i] - np.int64(1)) <= 0x20:
            ends[i] -= np.int64(1)


@compiled(
    VOID(
        *(BYTES, READ_INT64S, READ_INT64S, BYTES, READ_INT64S, READ_INT64S),
        *(INT64_MATRIX, INT64_MATRIX, UINT8S),
    )
)
def find_properties(
    data: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    names: _Bytes,
    name_ends: _Int64s,
    named: _Int64s,
    value_starts: Any,
    value_ends: Any,
    marks: _Bytes,
) -> None:
    """Find properties of objects. Spelling `i` of a name ends at `name_ends[i]` of `names`, where
    the next begins; it names the property `named[i]`. Each property's first spelling comes first.

    `value_starts[property, object]` comes as -1 and stays so where it's absent. `marks`, which come
    as 0, become 1 for objects that have another property, or one twice; the last is taken.
    """
    origin, known, count = address_of(data), address_of(names), len(name_ends)
    for i in range(len(starts)):
        at, end, guess = starts[i] + np.int64(1), ends[i], np.int64(0)
        while True:
            name, behind, value, at = _next_value(origin, at, end, True)
            if name < 0:
                break
            length = behind - name - np.int64(2)
            found = np.int64(-1)
            for step in range(count):
                f = guess + step
                if f >= count:
                    f -= count
                begin = name_ends[f - 1] if f > 0 else np.int64(0)
                if name_ends[f] - begin == length and same_bytes(
                    known, begin, origin, name + np.int64(1), length
                ):
                    found = named[f]
                    break
            if found < 0 or value_starts[found, i] >= 0:
                marks[i] = 1
            if found >= 0:
                value_starts[found, i], value_ends[found, i] = value, at
                guess = found + np.int64(1)
                if guess >= count:
                    guess = np.int64(0)
            at = _behind_comma(origin, at, end)


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64S))
def count_elements(data: _Bytes, starts: _Int64s, ends: _Int64s, counts: _Int64s) -> None:
    """How many elements arrays, or properties objects, have."""
    origin = address_of(data)
    for i in range(len(starts)):
        at, end = starts[i] + np.int64(1), ends[i]
        named = bool(byte_at(origin, starts[i]) == 0x7B)
        count = np.int64(0)
        while True:
            name, _, _, at = _next_value(origin, at, end, named)
            if name < 0:
                break
            count += np.int64(1)
            at = _behind_comma(origin, at, end)
        counts[i] = count


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64S, INT64S, INT64S, INT64S))
def find_elements(
    data: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    name_starts: _Int64s,
    name_ends: _Int64s,
    value_starts: _Int64s,
    value_ends: _Int64s,
) -> None:
    """Where they are, of all arrays or objects behind each other. Names are with their quotes."""
    origin, n = address_of(data), np.int64(0)
    for i in range(len(starts)):
        at, end = starts[i] + np.int64(1), ends[i]
        named = bool(byte_at(origin, starts[i]) == 0x7B)
        while True:
            name, behind, value, at = _next_value(origin, at, end, named)
            if name < 0:
                break
            name_starts[n], name_ends[n] = name, behind
            value_starts[n], value_ends[n] = value, at
            n += np.int64(1)
            at = _behind_comma(origin, at, end)


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64S, UINT8S))
def read_integers(
    data: _Bytes, starts: _Int64s, ends: _Int64s, values: _Int64s, states: _Bytes
) -> None:
    """Numbers as int64; `states` become READ, BEYOND or FRACTION."""
    origin = address_of(data)
    for i in range(len(starts)):
        at, end = starts[i], ends[i]
        negative = bool(at < end and byte_at(origin, at) == 0x2D)
        if negative:
            at += np.int64(1)
        result, state = np.uint64(0), np.uint8(READ)
        while at < end:
            digit = byte_at(origin, at) - np.uint64(0x30)
            if digit > np.uint64(9):
                state = np.uint8(FRACTION)
                break
            if result > np.uint64(922337203685477580):
                state = np.uint8(BEYOND)
            result = result * np.uint64(10) + digit
            at += np.int64(1)
        most = np.uint64(0x7FFFFFFFFFFFFFFF) + np.uint64(1 if negative else 0)
        if state == READ and result > most:
            state = np.uint8(BEYOND)
        states[i] = state
        values[i] = np.int64(np.uint64(0) - result) if negative else np.int64(result)


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64S, UINT8S))
def read_numbers(
    data: _Bytes, starts: _Int64s, ends: _Int64s, bits: _Int64s, states: _Bytes
) -> None:
    """Numbers as the bits of doubles, where one operation on exact numbers gives them (Clinger);
    BEYOND where more care is needed."""
    origin = address_of(data)
    values = bits.view(np.float64)
    for i in range(len(starts)):
        at, end = starts[i], ends[i]
        negative = bool(at < end and byte_at(origin, at) == 0x2D)
        if negative:
            at += np.int64(1)
        mantissa, power, digits = np.int64(0), np.int64(0), np.int64(0)
        behind_point = False
        while at < end:
            byte = byte_at(origin, at)
            if byte == 0x2E:
                behind_point = True
            elif byte < 0x30 or byte > 0x39:
                break
            else:
                if mantissa > 0 or byte > 0x30:
                    digits += np.int64(1)
                if digits < 18:
                    mantissa = mantissa * np.int64(10) + np.int64(byte) - np.int64(0x30)
                if behind_point:
                    power -= np.int64(1)
            at += np.int64(1)
        if at < end:  # an exponent
            at += np.int64(1)
            down = bool(byte_at(origin, at) == 0x2D)
            if down or byte_at(origin, at) == 0x2B:
                at += np.int64(1)
            exponent = np.int64(0)
            while at < end:
                if exponent < 100000:
                    exponent = (
                        exponent * np.int64(10) + np.int64(byte_at(origin, at)) - np.int64(0x30)
                    )
                at += np.int64(1)
            power += -exponent if down else exponent
        exact = digits < 18 and mantissa <= _EXACT_MANTISSA_MAX
        if exact and -_EXACT_POWER_MAX <= power <= _EXACT_POWER_MAX:
            value = np.float64(mantissa)
            value = value * _POWERS[power] if power >= 0 else value / _POWERS[-power]
            values[i] = -value if negative else value
            states[i] = READ
        else:
            states[i] = BEYOND


@inlined
def _hex_number(origin: Int, at: Int) -> Int:
    result = np.uint64(0)
    for i in range(4):
        byte = byte_at(origin, at + i)
        digit = byte - np.uint64(0x30) if byte < 0x40 else (byte | np.uint64(0x20)) - np.uint64(87)
        result = (result << np.uint64(4)) | digit
    return result


@inlined
def _put_character(target: Int, at: Int, code: Int) -> Int:
    """In UTF-8; the place behind it."""
    six, more = np.uint64(0x3F), np.uint64(0x80)
    if code < 0x80:
        store_byte(target, at, code)
        return at + np.int64(1)
    if code < 0x800:
        store_byte(target, at, np.uint64(0xC0) | (code >> np.uint64(6)))
        store_byte(target, at + np.int64(1), more | (code & six))
        return at + np.int64(2)
    if code < 0x10000:
        store_byte(target, at, np.uint64(0xE0) | (code >> np.uint64(12)))
        store_byte(target, at + np.int64(1), more | ((code >> np.uint64(6)) & six))
        store_byte(target, at + np.int64(2), more | (code & six))
        return at + np.int64(3)
    store_byte(target, at, np.uint64(0xF0) | (code >> np.uint64(18)))
    store_byte(target, at + np.int64(1), more | ((code >> np.uint64(12)) & six))
    store_byte(target, at + np.int64(2), more | ((code >> np.uint64(6)) & six))
    store_byte(target, at + np.int64(3), more | (code & six))
    return at + np.int64(4)


@inlined
def _escaped(byte: Int) -> Int:
    if byte == 0x62:
        return np.uint64(0x08)
    if byte == 0x66:
        return np.uint64(0x0C)
    if byte == 0x6E:
        return np.uint64(0x0A)
    if byte == 0x72:
        return np.uint64(0x0D)
    if byte == 0x74:
        return np.uint64(0x09)
    return byte


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT32S, UINT8S, UINT8S))
def unescape_strings(
    data: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    offsets: _Int32s,
    target: _Bytes,
    broken: _Bytes,
) -> None:
    """Strings, which begin and end with their quotes, as Arrow's offsets and data. `broken`, which
    come as 0, become 1 for half a surrogate pair: no Unicode text. Empty spans are empty texts."""
    origin, into, at = address_of(data), address_of(target), np.int64(0)
    offsets[0] = 0
    for i in range(len(starts)):
        place, end, begin = starts[i] + np.int64(1), ends[i] - np.int64(1), at
        while place < end:
            run = place
            while place < end and byte_at(origin, place) != 0x5C:
                place += np.int64(1)
            if place > run:
                copy(into, at, origin, run, place - run)
                at += place - run
            if place >= end:
                break
            byte = byte_at(origin, place + np.int64(1))
            place += np.int64(2)
            if byte != 0x75:
                store_byte(into, at, _escaped(byte))
                at += np.int64(1)
                continue
            code = _hex_number(origin, place)
            place += np.int64(4)
            pair = bool(0xD800 <= code < 0xDC00 and place + 6 <= end)
            if pair and byte_at(origin, place) == 0x5C:
                low = np.uint64(0)
                if byte_at(origin, place + np.int64(1)) == 0x75:
                    low = _hex_number(origin, place + np.int64(2))
                if 0xDC00 <= low < 0xE000:
                    code = (
                        np.uint64(0x10000)
                        + ((code - np.uint64(0xD800)) << np.uint64(10))
                        + (low - np.uint64(0xDC00))
                    )
                    place += np.int64(6)
            if 0xD800 <= code < 0xE000:
                broken[i] = 1
                break
            at = _put_character(into, at, code)
        if broken[i]:
            at = begin
        offsets[i + 1] = at
