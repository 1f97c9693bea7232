"""What isn't a list, map, union or record, read from a payload and appended to its column."""

from __future__ import annotations

from typing import Final

import numpy as np

from segment_reader.kernels.compiler import Int, inlined
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
    put_bytes,
)
from tiering.values.avro.tables import BITMAP, BORDERS, LIMIT, ROOM, VALUES, table_word
from tiering.values.codec import Fault
from tiering.values.payload_bytes import is_text

__all__ = ["BAD_INDEX", "COLUMN_FULL", "INT32_MAX", "read_leaf"]

BAD_INDEX: Final = -int(Fault.BAD_INDEX)
COLUMN_FULL: Final = -100
"""What a position is when a column has no room."""

INT32_MAX: Final = 2**31 - 1
_INT32_MIN: Final = -(2**31)
_BAD_TEXT: Final = -int(Fault.BAD_TEXT)
_MILLIS_MAX: Final = (2**63 - 1) // 1000
_NAN_32: Final = 0x7FC00000
_NAN_64: Final = 0x7FF8000000000000
_INFINITY_32: Final = 0x7F800000
_INFINITY_64: Final = 0x7FF0000000000000


@inlined
def _text_at(size: Int, at: Int, end: Int) -> Int:
    """Where a string of `size` ends, or its fault."""
    if size < 0 or size > INT32_MAX:
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
    return np.int64(COLUMN_FULL)


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
def _boolean(values: Int, i: Int, truth: Int) -> None:
    if truth:
        set_bit(values, i)
    else:
        clear_bit(values, i)


@inlined
def _timestamp(columns: Int, column: Int, i: Int, millis: Int, flag: Int) -> None:
    values = table_word(columns, column, VALUES)
    if millis > _MILLIS_MAX or millis < -_MILLIS_MAX:
        store_64(values, i * 8, 0)
        _spoiled(columns, column, i, flag)
    else:
        store_64(values, i * 8, millis * 1000)


@inlined
def _symbol(places: Int, columns: Int, column: Int, i: Int, symbol: Int, state: Int) -> Int:
    """Append an enum's symbol; 0, or what to stop with."""
    borders, symbols = int64_at(places, tables.SYMBOL_BORDERS), int64_at(places, tables.SYMBOLS)
    start = int64_at(borders, symbol)
    size = int64_at(borders, symbol + 1) - start
    full = _room(columns, column, i, size, state)
    if full == 0:
        _append(columns, column, i, symbols, start, size, start + COPY_SLACK)
    return full


@inlined
def _unmeasured_leaf(
    columns: Int, column: Int, line: Int, i: Int, data: Int, at: Int, end: Int, flag: Int
) -> Int:
    """Leaves whose size the schema says; the position behind, or its fault."""
    op, values = int64_at(line, ops.OP), table_word(columns, column, VALUES)
    size = int64_at(line, 2)
    if op == ops.BOOLEAN:
        size = np.int64(1)
    elif op == ops.FLOAT:
        size = np.int64(4)
    elif op == ops.DOUBLE:
        size = np.int64(8)
    if end - at < size:
        return np.int64(TRUNCATED)
    if op == ops.BOOLEAN:
        truth = byte(data, at)
        if truth > 1:
            return np.int64(BAD_LENGTH)
        _boolean(values, i, truth)
    elif op == ops.FLOAT:
        _float(values, i, data, at, flag)
    elif op == ops.DOUBLE:
        _double(values, i, data, at, flag)
    elif op == ops.FIXED:
        copy(values, i * size, data, at, size)
    else:
        _decimal(columns, column, i, line, data, at, size, flag)
    return np.int64(at + size)


@inlined
def _sized_leaf(
    places: Int,
    columns: Int,
    column: Int,
    line: Int,
    i: Int,
    size: Int,
    data: Int,
    at: Int,
    end: Int,
    limit: Int,
    flag: Int,
    state: Int,
) -> Int:
    """Leaves that begin with their size, which is read; the position behind, or its fault."""
    op, behind = int64_at(line, ops.OP), _text_at(size, at, end)
    if behind < 0:
        return np.int64(behind)
    if op == ops.DECIMAL_BYTES:
        _decimal(columns, column, i, line, data, at, size, flag)
        return np.int64(behind)
    full = _room(columns, column, i, size, state)
    if full < 0:
        return np.int64(full)
    checked = op == ops.STRING and int64_at(places, tables.CHECKED) != 0
    if checked and not is_text(np.uint64(data), at, behind):
        return np.int64(_BAD_TEXT)
    _append(columns, column, i, data, at, size, limit)
    return np.int64(behind)


@inlined
def read_leaf(
    places: Int,
    line: Int,
    i: Int,
    value: Int,
    data: Int,
    at: Int,
    end: Int,
    limit: Int,
    flag: Int,
    state: Int,
) -> Int:
    """Append element i; the position behind, or its fault. `value` is the varint that it begins
    with, if it does."""
    columns, column = int64_at(places, tables.COLUMNS), int64_at(line, ops.COLUMN)
    op, values = int64_at(line, ops.OP), table_word(columns, column, VALUES)
    if op < ops.NUMBERS:
        return _unmeasured_leaf(columns, column, line, i, data, at, end, flag)
    if op == ops.LONG:
        store_64(values, i * 8, value)
    elif op == ops.INT:
        if value < _INT32_MIN or value > INT32_MAX:
            return np.int64(BAD_LENGTH)
        store_32(values, i * 4, value)
    elif op == ops.TIMESTAMP_MILLIS:
        _timestamp(columns, column, i, value, flag)
    elif op == ops.ENUM:
        if value < 0 or value >= int64_at(line, 2):
            return np.int64(BAD_INDEX)
        full = _symbol(places, columns, column, i, value + int64_at(line, 3), state)
        if full < 0:
            return np.int64(full)
    else:
        return _sized_leaf(
            places, columns, column, line, i, value, data, at, end, limit, flag, state
        )
    return np.int64(at)
