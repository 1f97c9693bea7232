"""The memory that columns are decoded into, and Arrow arrays of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiering.values.avro.layout import Column, Layout, Storage
from tiering.values.avro.reading import COPY_SLACK
from tiering.values.avro.tables import (
    BITMAP,
    BORDERS,
    CAPACITY,
    CURSOR,
    LEVEL,
    LIMIT,
    MOST,
    ROOM,
    STORAGE,
    VALUES,
    WIDTH,
)

__all__ = ["ColumnBuffers"]

_WORDS: Final = 8
_COLUMN_BYTES_MAX: Final = 2**31 - 1

_FIRST_SHARE: Final = 16
"""Strings first get room for a part of the payloads, which then shows how much all of them need."""

_LIKELY_TIMES_MAX: Final = 32
"""How many times its size a column gets because of what the first payloads were like."""

_GROWTH_MAX: Final = 64
_FREE_BYTES: Final = 256 * 1024 * 1024
"""Columns may take that many times the payloads' size, and so much beside it: a byte of a payload
can stand for a long enum symbol, or for a null record in a list with columns by the hundred. What
goes beyond that (BAD_LENGTH) was made to be large. The rows themselves don't count."""

_Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True)
class _Buffer:
    valid: _Bytes
    values: _Bytes
    borders: npt.NDArray[np.int32]


class ColumnBuffers:
    """Room for the columns of `rows` payloads, which grows as the kernel asks for it.

    Attributes:
        columns, levels: tables for the kernel (see `tables`).
    """

    def __init__(self, layout: Layout, rows: int, payload_bytes: int) -> None:
        self._layout = layout
        self._rows = rows
        self.columns = np.zeros((len(layout.columns), _WORDS), np.int64)
        self.levels = np.zeros((layout.levels, _WORDS), np.int64)
        texts = sum(column.storage is Storage.BYTES for column in layout.columns)
        self._first_room = payload_bytes // max(_FIRST_SHARE * texts, 1) + 4 * COPY_SLACK
        self._likely_max = payload_bytes + 4 * COPY_SLACK
        self._bytes_max = _GROWTH_MAX * payload_bytes + _FREE_BYTES
        self.levels[:, CAPACITY] = max(rows, 1)
        for level in range(layout.levels):
            self.levels[level, MOST] = 8 * self._bytes_max // _element_bits(layout, level)
        self._buffers = [self._made(column) for column in layout.columns]

    def _made(self, column: Column) -> _Buffer:
        capacity = int(self.levels[column.level, CAPACITY])
        borders = np.zeros(0, np.int32)
        if column.storage in (Storage.LISTS, Storage.BYTES):
            borders = np.empty(capacity + 1, np.int32)
            borders[0] = 0
        size = self._first_room if column.storage is Storage.BYTES else _size(column, capacity)
        made = _Buffer(_ones(capacity), np.empty(size, np.uint8), borders)
        form = column.level, int(column.storage), column.width
        self.columns[column.index, [LEVEL, STORAGE, WIDTH]] = form
        most = min(self._bytes_max, _COLUMN_BYTES_MAX) - COPY_SLACK
        self.columns[column.index, LIMIT] = most
        self._enter(column.index, made)
        return made

    def _enter(self, index: int, made: _Buffer) -> None:
        self.columns[index, [BITMAP, VALUES, BORDERS, ROOM]] = (
            made.valid.ctypes.data,
            made.values.ctypes.data,
            made.borders.ctypes.data,
            len(made.values),
        )

    def grow_column(self, index: int, need_bytes: int, done: float) -> None:
        """Make room for the bytes of a column; `done` is the share of payloads that is read."""
        buffer = self._buffers[index]
        old = buffer.values
        buffer.values = np.empty(self._grown(len(old), need_bytes, done), np.uint8)
        buffer.values[: len(old)] = old
        self._enter(index, buffer)

    def grow_level(self, level: int, need: int, done: float) -> None:
        """Make room for more elements of a level."""
        elements = int(self.levels[level, CURSOR])
        capacity = self._grown(int(self.levels[level, CAPACITY]), need, done)
        self.levels[level, CAPACITY] = capacity
        for column in self._layout.columns:
            if column.level != level:
                continue
            old = self._buffers[column.index]
            new = self._made_larger(column, old, elements, capacity)
            self._buffers[column.index] = new
            self._enter(column.index, new)

    def _made_larger(self, column: Column, old: _Buffer, elements: int, capacity: int) -> _Buffer:
        valid, values, borders = _ones(capacity), old.values, old.borders
        used = (elements + 7) // 8
        valid[:used] = old.valid[:used]
        if column.storage in (Storage.LISTS, Storage.BYTES):
            borders = np.empty(capacity + 1, np.int32)
            borders[: elements + 1] = old.borders[: elements + 1]
        else:
            values = np.empty(_size(column, capacity), np.uint8)
            used = _size(column, elements)
            values[:used] = old.values[:used]
        return _Buffer(valid, values, borders)

    def _grown(self, size: int, need: int, done: float) -> int:
        """What all payloads need if the others are like those so far; more than `size` anyway.

        Strings, and items, are no more than the payloads' bytes, but for symbols of enums.
        """
        likely = min(int(need / done * 1.1), _LIKELY_TIMES_MAX * need, self._likely_max)
        return min(max(need, size + size // 2, likely), max(need, _COLUMN_BYTES_MAX))

    def texts_valid(self) -> bool:
        """Whether all strings are UTF-8."""
        return all(
            self._is_valid(column)
            for column in self._layout.columns
            if column.storage is Storage.BYTES and column.arrow == pa.string()
        )

    def _is_valid(self, column: Column) -> bool:
        data = self._text(column)
        if not len(data) or data.max() < 0x80:
            return True
        borders = pa.py_buffer(self._buffers[column.index].borders)
        texts = pa.Array.from_buffers(
            pa.string(), self._elements(column), [None, borders, pa.py_buffer(data)], 0
        )
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    def _text(self, column: Column) -> _Bytes:
        buffer = self._buffers[column.index]
        return buffer.values[: buffer.borders[self._elements(column)]]

    def _elements(self, column: Column) -> int:
        return int(self.levels[column.level, CURSOR]) if column.level else self._rows

    def array(self, column: Column | None = None) -> Any:
        """A column as an Arrow array; the struct of all of them for None."""
        column = self._layout.root if column is None else column
        buffer, elements = self._buffers[column.index], self._elements(column)
        values = pa.py_buffer(buffer.values[: _size(column, elements)])
        borders = pa.py_buffer(buffer.borders[: elements + 1])
        buffers = {
            Storage.STRUCT: (),
            Storage.BITS: (values,),
            Storage.WORDS: (values,),
            Storage.LISTS: (borders,),
            Storage.BYTES: (borders, values),
        }[column.storage]
        if column.storage is Storage.BYTES:
            buffers = (borders, pa.py_buffer(self._text(column)))
        children = [self.array(child) for child in column.children]
        valid, nulls = _validity(buffer.valid, elements)
        return pa.Array.from_buffers(
            column.arrow, elements, [valid, *buffers], nulls, children=children or None
        )


def _ones(elements: int) -> _Bytes:
    return np.full((elements + 7) // 8, 0xFF, np.uint8)


def _element_bits(layout: Layout, level: int) -> int:
    """Bits that an element of a level takes in all columns of it, strings not counted."""
    storage_bits = {Storage.BITS: 1, Storage.LISTS: 32, Storage.BYTES: 32}
    columns = [column for column in layout.columns if column.level == level]
    return sum(1 + 8 * each.width + storage_bits.get(each.storage, 0) for each in columns) or 1


def _size(column: Column, elements: int) -> int:
    """Bytes of the values of a column, but for strings."""
    if column.storage is Storage.BITS:
        return (elements + 7) // 8
    return column.width * elements


def _validity(valid: _Bytes, elements: int) -> tuple[Any, int]:
    """A bitmap and its number of nulls, or None where nothing is null."""
    whole, rest = elements // 8, elements % 8
    ones = int(np.bitwise_count(valid[:whole]).sum())
    if rest:
        ones += (int(valid[whole]) & ((1 << rest) - 1)).bit_count()
    if ones == elements:
        return None, 0
    return pa.py_buffer(valid[: whole + bool(rest)]), elements - ones
