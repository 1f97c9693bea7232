"""The kernel that runs a program over payloads and appends what it reads to columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import INT64, INT64S, Int, called, compiled, inlined
from segment_reader.kernels.memory import copy, int64_at, store_byte
from segment_reader.kernels.words import load_32, load_64, store_32, store_64
from tiering.values.avro import program as ops
from tiering.values.avro import tables
from tiering.values.avro.memory import byte, clear_bit, int32_of, set_bit
from tiering.values.avro.reading import (
    BAD_LENGTH,
    COPY_SLACK,
    TRUNCATED,
    decimal_of,
    number,
    put_bytes,
    uuid_of,
)
from tiering.values.avro.tables import (
    BITMAP,
    BORDERS,
    CAPACITY,
    CURSOR,
    LIMIT,
    MOST,
    ROOM,
    SAVED,
    VALUES,
    nullify,
    put,
    restore_bits,
    table_word,
)
from tiering.values.codec import Fault
from tiering.values.payload_bytes import is_text

__all__ = ["PLACES", "decode_payloads"]

PLACES: Final = 13
"""`places`: addresses of the program, the columns, the levels, frames (depth + 1 rows of 8 int64),
symbol borders, symbols, the payloads' bytes and their borders, faults, inexact; then the number of
columns, of levels, and whether strings are checked one by one."""

_PROGRAM, _COLUMNS, _LEVELS, _FRAMES, _SYMBOL_BORDERS, _SYMBOLS = range(6)
_DATA, _PAYLOADS, _FAULTS, _INEXACT, _COLUMN_COUNT, _LEVEL_COUNT, _CHECKED = range(6, PLACES)

_BAD_INDEX: Final = -int(Fault.BAD_INDEX)
_BAD_TEXT: Final = -int(Fault.BAD_TEXT)
_TRAILING: Final = int(Fault.TRAILING_BYTES)
_COLUMN_FULL: Final = -100
_LEVEL_FULL: Final = -101

_INT32_MAX: Final = 2**31 - 1
_INT32_MIN: Final = -(2**31)
_MILLIS_MAX: Final = (2**63 - 1) // 1000
_NAN_32: Final = 0x7FC00000
_NAN_64: Final = 0x7FF8000000000000
_INFINITY_32: Final = 0x7F800000
_INFINITY_64: Final = 0x7FF0000000000000

_FRAME_LEFT, _FRAME_ELEMENT, _FRAME_LEVEL = range(3)
"""Of an outer loop: items that its block has left, its element, and that element's level."""

_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _text_at(size: Int, at: Int, end: Int) -> Int:
    """Where a string of `size` ends, or its fault."""
    if size < 0 or size > _INT32_MAX:
        return np.int64(BAD_LENGTH)
    return np.int64(TRUNCATED) if size > end - at else np.int64(at + size)


@inlined
def _room(columns: Int, column: Int, i: Int, size: Int, state: Int) -> Int:
    """0 if a column has room for `size` more bytes, or what to stop with."""
    need = int32_of(table_word(columns, column, BORDERS), i * 4) + size
    if need + COPY_SLACK <= table_word(columns, column, ROOM):
        return np.int64(0)
    if need > table_word(columns, column, LIMIT):
        return np.int64(BAD_LENGTH)
    store_64(state, 0, column)
    store_64(state, 8, need + COPY_SLACK)
    return np.int64(_COLUMN_FULL)


@inlined
def _append(columns: Int, column: Int, i: Int, data: Int, at: Int, size: Int, limit: Int) -> None:
    """Append bytes that there is room for."""
    borders = table_word(columns, column, BORDERS)
    start = int32_of(borders, i * 4)
    put_bytes(table_word(columns, column, VALUES), start, data, at, size, limit)
    store_32(borders, i * 4 + 4, start + size)


@inlined
def _spoiled(columns: Int, column: Int, i: Int, flag: Int) -> None:
    """A value that its column can't hold."""
    clear_bit(table_word(columns, column, BITMAP), i)
    store_byte(flag, 0, 1)


@inlined
def _float(values: Int, i: Int, data: Int, at: Int, flag: Int) -> None:
    bits = np.int64(load_32(data, at))
    if (bits & 0x7FFFFFFF) > _INFINITY_32 and bits != _NAN_32:
        bits = np.int64(_NAN_32)
        store_byte(flag, 0, 1)
    store_32(values, i * 4, bits)


@inlined
def _double(values: Int, i: Int, data: Int, at: Int, flag: Int) -> None:
    bits = np.int64(load_64(data, at))
    if (bits & 0x7FFFFFFFFFFFFFFF) > _INFINITY_64 and bits != _NAN_64:
        bits = np.int64(_NAN_64)
        store_byte(flag, 0, 1)
    store_64(values, i * 8, bits)


@inlined
def _decimal(
    columns: Int, column: Int, i: Int, line: Int, data: Int, at: Int, size: Int, flag: Int
) -> None:
    low, high, fits = decimal_of(data, at, size, int64_at(line, 3), int64_at(line, 4))
    values = table_word(columns, column, VALUES)
    store_64(values, i * 16, low)
    store_64(values, i * 16 + 8, high)
    if not fits:
        _spoiled(columns, column, i, flag)


@inlined
def _uuid(columns: Int, column: Int, i: Int, data: Int, at: Int, size: Int, flag: Int) -> None:
    low, high, is_one = uuid_of(data, at, size)
    values = table_word(columns, column, VALUES)
    store_64(values, i * 16, low)
    store_64(values, i * 16 + 8, high)
    if not is_one:
        _spoiled(columns, column, i, flag)


@inlined
def _boolean(values: Int, i: Int, truth: Int) -> None:
    if truth:
        set_bit(values, i)
    else:
        clear_bit(values, i)


@inlined
def _block(
    data: Int, at: Int, end: Int, limit: Int, level_row: Int, i: Int, least: Int, state: Int
) -> tuple[Int, Int]:
    """Items of the block that begins here, and the position behind its head."""
    items, at = number(data, at, end, limit)
    if at >= 0 and items < 0:
        items = -items  # the block's bytes follow, for those who want to pass over it
        size, at = number(data, at, end, limit)
        if at >= 0 and (items < 0 or size < 0):
            at = np.int64(BAD_LENGTH)
    if at >= 0 and items > 0:
        if items > _INT32_MAX:
            at = np.int64(BAD_LENGTH)
        elif items * least > end - at:
            at = np.int64(TRUNCATED)
        elif i + items > int64_at(level_row, MOST):
            at = np.int64(BAD_LENGTH)
        elif i + items > int64_at(level_row, CAPACITY):
            store_64(state, 8, i + items)
            at = np.int64(_LEVEL_FULL)
    return items, at


@called
def _other_branches(columns: Int, line: Int, branches: Int, taken: Int, level: Int, i: Int) -> None:
    """Make the columns of a union's other branches null."""
    for k in range(branches):
        if k != taken:
            branch = line + (k + 1) * ops.LINE_BYTES
            nullify(columns, int64_at(branch, 3), int64_at(branch, 4), level, i)


@inlined
def _payload(places: Int, data: Int, at: Int, end: Int, limit: Int, row: Int, state: Int) -> Int:
    """Append what a payload holds; where it ended, or negative why it didn't."""
    program, columns = int64_at(places, _PROGRAM), int64_at(places, _COLUMNS)
    levels, frames = int64_at(places, _LEVELS), int64_at(places, _FRAMES)
    symbols, checked = int64_at(places, _SYMBOLS), int64_at(places, _CHECKED)
    flag = int64_at(places, _INEXACT) + row
    line, i, level, depth, left = program, row, np.int64(0), np.int64(0), np.int64(0)
    while True:
        op, column = int64_at(line, ops.OP), int64_at(line, ops.COLUMN)
        value = np.int64(0)
        if op >= ops.NUMBERS:
            value, at = number(data, at, end, limit)
            if at < 0:
                break
        values = table_word(columns, column, VALUES)
        here, line = line, line + ops.LINE_BYTES
        if op == ops.STRING or op == ops.BYTES:
            behind = _text_at(value, at, end)
            if behind < 0:
                at = behind
                break
            full = _room(columns, column, i, value, state)
            if full < 0:
                at = full
                break
            if checked and op == ops.STRING and not is_text(np.uint64(data), at, behind):
                at = np.int64(_BAD_TEXT)
                break
            _append(columns, column, i, data, at, value, limit)
            at = behind
        elif op == ops.LONG:
            store_64(values, i * 8, value)
        elif op == ops.INT:
            if value < _INT32_MIN or value > _INT32_MAX:
                at = np.int64(BAD_LENGTH)
                break
            store_32(values, i * 4, value)
        elif op == ops.OPTIONAL:
            null = int64_at(here, 2)
            if value == null:
                nullify(columns, int64_at(here, 4), int64_at(here, 5), level, i)
                line = program + int64_at(here, 3) * ops.LINE_BYTES
            elif value != 1 - null:
                at = np.int64(_BAD_INDEX)
                break
        elif op == ops.BOOLEAN:
            if at >= end:
                at = np.int64(TRUNCATED)
                break
            truth = byte(data, at)
            if truth > 1:
                at = np.int64(BAD_LENGTH)
                break
            _boolean(values, i, truth)
            at += 1
        elif op == ops.DOUBLE:
            if end - at < 8:
                at = np.int64(TRUNCATED)
                break
            _double(values, i, data, at, flag)
            at += 8
        elif op == ops.FLOAT:
            if end - at < 4:
                at = np.int64(TRUNCATED)
                break
            _float(values, i, data, at, flag)
            at += 4
        elif op == ops.TIMESTAMP_MILLIS:
            if value > _MILLIS_MAX or value < -_MILLIS_MAX:
                store_64(values, i * 8, 0)
                _spoiled(columns, column, i, flag)
            else:
                store_64(values, i * 8, value * 1000)
        elif op == ops.ENUM:
            if value < 0 or value >= int64_at(here, 2):
                at = np.int64(_BAD_INDEX)
                break
            borders, symbol = int64_at(places, _SYMBOL_BORDERS), int64_at(here, 3) + value
            start = int64_at(borders, symbol)
            size = int64_at(borders, symbol + 1) - start
            full = _room(columns, column, i, size, state)
            if full < 0:
                at = full
                break
            _append(columns, column, i, symbols, start, size, start + COPY_SLACK)
        elif op == ops.LIST:
            depth += 1
            frame = depth
            put(frames, frame, _FRAME_LEFT, left)
            put(frames, frame, _FRAME_ELEMENT, i)
            put(frames, frame, _FRAME_LEVEL, level)
            level = int64_at(here, 2)
            i, left = table_word(levels, level, CURSOR) - 1, np.int64(1)
            line = program + int64_at(here, 3) * ops.LINE_BYTES
        elif op == ops.ITEM_END:
            i, left = i + 1, left - 1
            if left == 0:
                level_row = levels + level * tables.ROW_BYTES
                left, at = _block(data, at, end, limit, level_row, i, int64_at(here, 4), state)
                if at < 0:
                    store_64(state, 0, level)
                    break
            if left > 0:
                line = program + int64_at(here, 3) * ops.LINE_BYTES
            else:
                put(levels, level, CURSOR, i)
                borders, size = table_word(columns, column, BORDERS), i
                left = table_word(frames, depth, _FRAME_LEFT)
                i = table_word(frames, depth, _FRAME_ELEMENT)
                level = table_word(frames, depth, _FRAME_LEVEL)
                depth -= 1
                store_32(borders, i * 4 + 4, size)
        elif op == ops.UNION:
            if value < 0 or value >= int64_at(here, 2):
                at = np.int64(_BAD_INDEX)
                break
            if value == int64_at(here, 6):
                nullify(columns, int64_at(here, 4), int64_at(here, 5), level, i)
                line = program + int64_at(here, 3) * ops.LINE_BYTES
            else:
                branch = here + (value + 1) * ops.LINE_BYTES
                store_32(table_word(columns, column + 1, VALUES), i * 4, int64_at(branch, 5))
                _other_branches(columns, here, int64_at(here, 2), value, level, i)
                line = program + int64_at(branch, 2) * ops.LINE_BYTES
        elif op == ops.FIXED:
            size = int64_at(here, 2)
            if end - at < size:
                at = np.int64(TRUNCATED)
                break
            copy(values, i * size, data, at, size)
            at += size
        elif op == ops.DECIMAL_BYTES:
            behind = _text_at(value, at, end)
            if behind < 0:
                at = behind
                break
            _decimal(columns, column, i, here, data, at, value, flag)
            at = behind
        elif op == ops.DECIMAL_FIXED:
            size = int64_at(here, 2)
            if end - at < size:
                at = np.int64(TRUNCATED)
                break
            _decimal(columns, column, i, here, data, at, size, flag)
            at += size
        elif op == ops.UUID_TEXT:
            behind = _text_at(value, at, end)
            if behind < 0:
                at = behind
                break
            _uuid(columns, column, i, data, at, value, flag)
            at = behind
        elif op == ops.ONLY:
            if value != 0:
                at = np.int64(_BAD_INDEX)
                break
        elif op == ops.JUMP:
            line = program + int64_at(here, 2) * ops.LINE_BYTES
        elif op == ops.END:
            break
    if at < 0:
        _close(levels, frames, depth, level, i)
    return at


@called
def _close(levels: Int, frames: Int, depth: Int, level: Int, i: Int) -> None:
    """Say how far the open loops had come."""
    while depth > 0:
        put(levels, level, CURSOR, i)
        i = table_word(frames, depth, _FRAME_ELEMENT)
        level = table_word(frames, depth, _FRAME_LEVEL)
        depth -= 1


@compiled(INT64(INT64S, INT64, INT64, INT64S))
def decode_payloads(places: _Int64s, row: int, stop: int, state: _Int64s) -> int:
    """Append payloads [row, stop); the row after the last one that is done.

    Where that isn't `stop`, `state` says which column or level has no room: what it is of (0 a
    column, 1 a level), its number, and how much room there must be, in bytes or elements.
    """
    table, wish = np.int64(places.ctypes.data), np.int64(state.ctypes.data)
    columns, levels = places[_COLUMNS], places[_LEVELS]
    payloads, faults = places[_PAYLOADS], places[_FAULTS]
    limit = int32_of(payloads, np.int64(stop) * 4)
    for r in range(row, stop):
        for level in range(1, places[_LEVEL_COUNT]):
            put(levels, level, SAVED, table_word(levels, level, CURSOR))
        at, end = int32_of(payloads, r * 4), int32_of(payloads, r * 4 + 4)
        reached = _payload(table, places[_DATA], at, end, limit, r, wish + 8)
        if reached == end:
            continue
        restore_bits(columns, places[_COLUMN_COUNT], levels, r)
        for level in range(1, places[_LEVEL_COUNT]):
            put(levels, level, CURSOR, table_word(levels, level, SAVED))
        store_byte(places[_INEXACT], r, 0)
        if reached <= _COLUMN_FULL:
            state[0] = _COLUMN_FULL - reached
            return r
        store_byte(faults, r, _TRAILING if reached >= 0 else -reached)
        nullify(columns, 0, places[_COLUMN_COUNT], 0, r)
    return stop
