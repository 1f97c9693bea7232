"""The kernel that runs a program over columns and writes the payloads that they stand for."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import INT64, INT64S, Int, compiled, inlined
from segment_reader.kernels.memory import copy, int64_at, store_byte
from segment_reader.kernels.words import load_32, load_64, store_32, store_64
from tiering.values.avro import program as ops
from tiering.values.avro.memory import clear_bit, has_bit, int32_of
from tiering.values.avro.reading import put_bytes
from tiering.values.avro.tables import BITMAP, BORDERS, LIMIT, ROOM, VALUES, put, table_word
from tiering.values.avro.writing import put_big_endian, put_decimal, put_number

__all__ = ["ENCODE_PLACES", "encode_payloads"]

ENCODE_PLACES: Final = 7
"""`places`: addresses of the program, the columns, frames (depth + 1 rows of 8 int64), the bytes to
write, their borders, the validity bitmap; then how many bytes there may be."""

_PROGRAM, _COLUMNS, _FRAMES, _TARGET, _PAYLOADS, _VALID, _BYTES_MAX = range(ENCODE_PLACES)

_UNWRITABLE: Final = -1
_INT32_MAX: Final = 2**31 - 1

_FRAME_STOP, _FRAME_ELEMENT = range(2)
"""Of an outer loop: where its items end, and its element."""

_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _is_null(columns: Int, column: Int, i: Int) -> Int:
    bitmap = table_word(columns, column, BITMAP)
    return bitmap != 0 and has_bit(bitmap, i + table_word(columns, column, ROOM)) == 0


@inlined
def _put_text(columns: Int, column: Int, i: Int, target: Int, at: Int, limit: Int) -> Int:
    borders = table_word(columns, column, BORDERS)
    start = int32_of(borders, i * 4)
    size = int32_of(borders, i * 4 + 4) - start
    at = put_number(target, at, size)
    put_bytes(target, at, table_word(columns, column, VALUES), start, size, limit)
    return np.int64(at + size)


@inlined
def _branch_of(line: Int, tag: Int) -> Int:
    """The branch of a union that has a tag, or -1."""
    null, count = int64_at(line, 6), int64_at(line, 2)
    branch = tag + 1 if 0 <= null <= tag else tag
    return np.int64(branch) if tag >= 0 and branch < count else np.int64(-1)


@inlined
def _payload(program: Int, columns: Int, frames: Int, target: Int, at: Int, row: Int) -> Int:
    """Write a row's payload; the position behind it, or -1."""
    line, i, depth, stop = program, row, np.int64(0), np.int64(0)
    while True:
        op, column = int64_at(line, ops.OP), int64_at(line, ops.COLUMN)
        here, line = line, line + ops.LINE_BYTES
        if op == ops.END:
            break
        if op == ops.OPTIONAL:
            null = int64_at(here, 2)
            if _is_null(columns, column, i):
                store_byte(target, at, null << 1)
                line = program + int64_at(here, 3) * ops.LINE_BYTES
            else:
                store_byte(target, at, (1 - null) << 1)
            at += 1
            continue
        if op == ops.ITEM_END:
            i += 1
            if i < stop:
                line = program + int64_at(here, 3) * ops.LINE_BYTES
            else:
                store_byte(target, at, 0)
                at += 1
                stop = table_word(frames, depth, _FRAME_STOP)
                i = table_word(frames, depth, _FRAME_ELEMENT)
                depth -= 1
            continue
        if op == ops.JUMP:
            line = program + int64_at(here, 2) * ops.LINE_BYTES
            continue
        if op == ops.ONLY:
            store_byte(target, at, 0)
            at += 1
            continue
        if _is_null(columns, column, i):
            if op == ops.UNION and int64_at(here, 6) >= 0:
                at = put_number(target, at, int64_at(here, 6))
                line = program + int64_at(here, 3) * ops.LINE_BYTES
                continue
            at = np.int64(_UNWRITABLE)
            break
        values = table_word(columns, column, VALUES)
        if op == ops.STRING or op == ops.BYTES:
            limit = table_word(columns, column, LIMIT)
            at = _put_text(columns, column, i, target, at, limit)
        elif op == ops.LONG:
            at = put_number(target, at, int64_at(values, i))
        elif op == ops.INT:
            at = put_number(target, at, int32_of(values, i * 4))
        elif op == ops.BOOLEAN:
            store_byte(target, at, has_bit(values, i + table_word(columns, column, ROOM)))
            at += 1
        elif op == ops.DOUBLE:
            store_64(target, at, load_64(values, i * 8))
            at += 8
        elif op == ops.FLOAT:
            store_32(target, at, load_32(values, i * 4))
            at += 4
        elif op == ops.TIMESTAMP_MILLIS:
            micros = int64_at(values, i)
            if micros % 1000 != 0:
                at = np.int64(_UNWRITABLE)
                break
            at = put_number(target, at, micros // 1000)
        elif op == ops.ENUM:
            symbol = int32_of(values, i * 4)
            if symbol < 0:
                at = np.int64(_UNWRITABLE)
                break
            at = put_number(target, at, symbol)
        elif op == ops.LIST:
            borders = table_word(columns, column, BORDERS)
            start, behind = int32_of(borders, i * 4), int32_of(borders, i * 4 + 4)
            if start == behind:
                store_byte(target, at, 0)
                at += 1
                line = program + (int64_at(here, 3) + 1) * ops.LINE_BYTES
            else:
                at = put_number(target, at, behind - start)
                depth += 1
                put(frames, depth, _FRAME_STOP, stop)
                put(frames, depth, _FRAME_ELEMENT, i)
                i, stop = start, behind
        elif op == ops.UNION:
            tag_column = column + 1
            tags = table_word(columns, tag_column, VALUES)
            branch = _branch_of(here, int32_of(tags, i * 4))
            if branch < 0 or _is_null(columns, tag_column, i):
                at = np.int64(_UNWRITABLE)
                break
            at = put_number(target, at, branch)
            line = here + (branch + 1) * ops.LINE_BYTES
            line = program + int64_at(line, 2) * ops.LINE_BYTES
        elif op == ops.FIXED:
            size = int64_at(here, 2)
            copy(target, at, values, i * size, size)
            at += size
        elif op == ops.DECIMAL_BYTES:
            at = put_decimal(target, at, values + i * 16)
        elif op == ops.DECIMAL_FIXED:
            at = put_big_endian(target, at, values + i * 16, int64_at(here, 2))
    return at


@compiled(INT64(INT64S, INT64))
def encode_payloads(places: _Int64s, rows: int) -> int:
    """Write the payloads of all rows one after the other; how many rows there was room for.

    A row that can't be written has an empty payload and its bit of the bitmap cleared. The target
    holds as much as the columns can give at most.
    """
    program, columns, frames = places[_PROGRAM], places[_COLUMNS], places[_FRAMES]
    target, payloads, valid = places[_TARGET], places[_PAYLOADS], places[_VALID]
    at = np.int64(0)
    store_32(payloads, 0, 0)
    for row in range(rows):
        reached = _payload(program, columns, frames, target, at, row)
        if reached < 0:
            clear_bit(valid, row)
            reached = at
        at = reached
        if at > places[_BYTES_MAX]:
            return row
        store_32(payloads, row * 4 + 4, at)
    return rows
