"""Where Arrow arrays lie, for the kernel that encodes them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiering.values.avro.layout import Column, Layout, Storage
from tiering.values.avro.program import Program
from tiering.values.avro.tables import BITMAP, BORDERS, LIMIT, ROOM, VALUES
from tiering.values.avro.writing import WRITE_SLACK

__all__ = ["ColumnViews"]

_WORDS: Final = 8


class ColumnViews:
    """The arrays of a struct, whatever they are slices of.

    Attributes:
        columns: a table for the kernel (see `tables`); as long as this lives, what it points to
            does.
        bytes_max: how many bytes all payloads take at most.
    """

    def __init__(self, layout: Layout, program: Program, columns: Any) -> None:
        self._program = program
        self._kept: list[Any] = []
        self.columns = np.zeros((len(layout.columns), _WORDS), np.int64)
        self._elements = [0] * layout.levels
        self._text_bytes = 0
        self._enter(layout.root, columns, 0, len(columns))
        numbers = zip(self._elements, program.level_bytes, strict=True)
        self.bytes_max = sum(n * most for n, most in numbers) + self._text_bytes + WRITE_SLACK

    def _enter(self, column: Column, array: Any, first: int, stop: int) -> None:
        """Take down an array, of which elements [first, stop) are used."""
        array = _plain(column, array)
        self._kept.append(array)
        self._elements[column.level] = stop - first
        buffers, row = array.buffers(), self.columns[column.index]
        row[ROOM] = array.offset
        if array.null_count and buffers[0] is not None:
            row[BITMAP] = buffers[0].address
        if column.storage is Storage.STRUCT:
            for i, child in enumerate(column.children):
                self._enter(child, array.field(i), first, stop)
        elif column.index in self._program.enums:
            self._enter_enum(column, array)
        elif column.storage is Storage.BITS:
            row[VALUES] = _address(buffers[1])
        elif column.storage is Storage.WORDS:
            row[VALUES] = _address(buffers[1]) + array.offset * column.width
        else:
            row[BORDERS] = _address(buffers[1]) + array.offset * 4
            begin, end = _borders(array, buffers[1], first, stop)
            if column.storage is Storage.LISTS:
                self._enter(column.children[0], array.values, begin, end)
            elif buffers[2] is not None:
                row[VALUES], row[LIMIT] = buffers[2].address, buffers[2].size
                self._text_bytes += end - begin

    def _enter_enum(self, column: Column, array: Any) -> None:
        """Symbols by their number, -1 for a string that is none."""
        symbols = pa.array(self._program.enums[column.index], pa.string())
        numbers = pc.fill_null(pc.index_in(array, value_set=symbols), -1)
        self._kept.append(numbers)
        self.columns[column.index, VALUES] = _address(numbers.buffers()[1]) + numbers.offset * 4


def _plain(column: Column, array: Any) -> Any:
    """The array in the form that the column has, which it nearly always is."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if column.storage is Storage.STRUCT:
        if not pa.types.is_struct(kind) or kind.num_fields != len(column.children):
            raise TypeError(f"columns are {kind}, not {column.arrow}")
        return array
    if column.storage is Storage.LISTS:
        alike = pa.types.is_map if pa.types.is_map(column.arrow) else pa.types.is_list
        return array if alike(kind) else array.cast(column.arrow)
    return array if kind == column.arrow else array.cast(column.arrow)


def _address(buffer: Any) -> int:
    return 0 if buffer is None else int(buffer.address)


def _borders(array: Any, buffer: Any, first: int, stop: int) -> tuple[int, int]:
    if first == stop:
        return 0, 0  # Arrow may leave them out
    borders = np.frombuffer(buffer, np.int32, len(array) + 1, array.offset * 4)
    return int(borders[first]), int(borders[stop])
