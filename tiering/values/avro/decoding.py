"""The kernel that runs a program over payloads and appends what it reads to columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import INT64, INT64S, Int, called, compiled, inlined
from segment_reader.kernels.memory import int64_at, store_byte
from segment_reader.kernels.words import store_32, store_64
from tiering.values.avro import program as ops
from tiering.values.avro import tables
from tiering.values.avro.leaves import BAD_INDEX, COLUMN_FULL, INT32_MAX, read_leaf
from tiering.values.avro.memory import int32_of
from tiering.values.avro.reading import BAD_LENGTH, TRUNCATED, number
from tiering.values.avro.tables import (
    BORDERS,
    CAPACITY,
    CURSOR,
    MOST,
    SAVED,
    VALUES,
    nullify,
    put,
    restore_bits,
    table_word,
)
from tiering.values.codec import Fault

__all__ = ["decode_payloads"]

_TRAILING: Final = int(Fault.TRAILING_BYTES)
_LEVEL_FULL: Final = -101


_FRAME_LEFT, _FRAME_ELEMENT, _FRAME_LEVEL = range(3)
"""Of an outer loop: items that its block has left, its element, and that element's level."""

_Int64s = np.ndarray[Any, np.dtype[np.int64]]


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
        if items > INT32_MAX:
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
    program, columns = int64_at(places, tables.PROGRAM), int64_at(places, tables.COLUMNS)
    levels, frames = int64_at(places, tables.LEVELS), int64_at(places, tables.FRAMES)
    flag = int64_at(places, tables.INEXACT) + row
    line, i, level, depth, left = program, row, np.int64(0), np.int64(0), np.int64(0)
    while True:
        op, column = int64_at(line, ops.OP), int64_at(line, ops.COLUMN)
        value = np.int64(0)
        if op >= ops.NUMBERS:
            value, at = number(data, at, end, limit)
            if at < 0:
                break
        here, line = line, line + ops.LINE_BYTES
        if op == ops.OPTIONAL:
            null = int64_at(here, 2)
            if value == null:
                nullify(columns, int64_at(here, 4), int64_at(here, 5), level, i)
                line = program + int64_at(here, 3) * ops.LINE_BYTES
            elif value != 1 - null:
                at = np.int64(BAD_INDEX)
                break
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
                at = np.int64(BAD_INDEX)
                break
            if value == int64_at(here, 6):
                nullify(columns, int64_at(here, 4), int64_at(here, 5), level, i)
                line = program + int64_at(here, 3) * ops.LINE_BYTES
            else:
                branch = here + (value + 1) * ops.LINE_BYTES
                store_32(table_word(columns, column + 1, VALUES), i * 4, int64_at(branch, 5))
                _other_branches(columns, here, int64_at(here, 2), value, level, i)
                line = program + int64_at(branch, 2) * ops.LINE_BYTES
        elif op == ops.ONLY:
            if value != 0:
                at = np.int64(BAD_INDEX)
                break
        elif op == ops.JUMP:
            line = program + int64_at(here, 2) * ops.LINE_BYTES
        elif op == ops.END:
            break
        elif op != ops.RECORD:
            at = read_leaf(places, here, i, value, data, at, end, limit, flag, state)
            if at < 0:
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
    columns, levels = places[tables.COLUMNS], places[tables.LEVELS]
    payloads, faults = places[tables.PAYLOADS], places[tables.FAULTS]
    limit = int32_of(payloads, np.int64(stop) * 4)
    for r in range(row, stop):
        for level in range(1, places[tables.LEVEL_COUNT]):
            put(levels, level, SAVED, table_word(levels, level, CURSOR))
        at, end = int32_of(payloads, r * 4), int32_of(payloads, r * 4 + 4)
        reached = _payload(table, places[tables.DATA], at, end, limit, r, wish + 8)
        if reached == end:
            continue
        restore_bits(columns, places[tables.COLUMN_COUNT], levels, r)
        for level in range(1, places[tables.LEVEL_COUNT]):
            put(levels, level, CURSOR, table_word(levels, level, SAVED))
        store_byte(places[tables.INEXACT], r, 0)
        if reached <= COLUMN_FULL:
            state[0] = COLUMN_FULL - reached
            return r
        store_byte(faults, r, _TRAILING if reached >= 0 else -reached)
        nullify(columns, 0, places[tables.COLUMN_COUNT], 0, r)
    return stop
