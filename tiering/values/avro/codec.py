"""Payloads of one Avro schema <-> columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from tiering.values.avro.buffers import ColumnBuffers
from tiering.values.avro.decoding import decode_payloads
from tiering.values.avro.encoding import encode_payloads
from tiering.values.avro.layout import Layout, layout_of
from tiering.values.avro.program import Program, compiled_program
from tiering.values.avro.schema import parse_schema
from tiering.values.avro.views import ColumnViews
from tiering.values.codec import Decoded

__all__ = ["AvroCodec"]

_FRAME_BYTES: Final = 64
_PAYLOAD_BYTES_MAX: Final = 2**31 - 1
"""Of an Arrow array with 32 bit offsets."""


class AvroCodec:
    """A `ValueCodec` for Avro's binary encoding.

    Raises:
        UnsupportedSchema: It is recursive, or larger than what tables can hold.
        ValueError: The text is no Avro schema, or uses a type that isn't there.
    """

    def __init__(self, definition: str, references: Sequence[tuple[str, str]] = ()) -> None:
        node = parse_schema(definition, references)
        self._layout: Final[Layout] = layout_of(node)
        self._program: Final[Program] = compiled_program(node, self._layout)

    @property
    def schema(self) -> Schema:
        """The columns, with ids of their own."""
        return self._layout.schema

    @property
    def arrow(self) -> pa.StructType:
        """The columns' Arrow type."""
        return self._layout.root.arrow

    @property
    def aliases(self) -> Mapping[int, tuple[str, ...]]:
        """Earlier names of record fields, by field id."""
        return self._layout.aliases

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Columns of payloads (see `ValueCodec.decode`)."""
        call = _Decoding(self._layout, self._program, payloads)
        call.run(checked=False)
        if not call.columns.texts_valid():
            call = _Decoding(self._layout, self._program, payloads)
            call.run(checked=True)
        return Decoded(
            columns=call.columns.array(), faults=call.faults, inexact=call.inexact.view(np.bool_)
        )

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """Payloads of columns (see `ValueCodec.encode`).

        Raises:
            TypeError: The columns are of another type.
            ValueError: The payloads together are larger than an Arrow array of 32 bit offsets.
        """
        views, rows = ColumnViews(self._layout, self._program, columns), len(columns)
        frames = np.zeros(self._program.depth + 1, f"V{_FRAME_BYTES}")
        target, borders = np.empty(views.bytes_max, np.uint8), np.empty(rows + 1, np.int32)
        valid = np.full((rows + 7) // 8, 0xFF, np.uint8)
        tables = (self._program.lines, views.columns, frames, target, borders, valid)
        places = [*(table.ctypes.data for table in tables), _PAYLOAD_BYTES_MAX]
        done = encode_payloads(np.array(places, np.int64), rows)
        if done < rows:
            raise ValueError(f"only {done} of {rows} payloads fit into one array")
        data = pa.py_buffer(target[: borders[rows]])
        buffers = [pa.py_buffer(valid), pa.py_buffer(borders), data]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, -1)


class _Decoding:
    """One call of `decode`."""

    def __init__(self, layout: Layout, program: Program, payloads: Any) -> None:
        if payloads.type != pa.binary():
            raise TypeError(f"payloads are {payloads.type}, not binary")
        self._layout, self._program = layout, program
        self._rows = len(payloads)
        _, borders, self._data = payloads.buffers()
        self._borders = _borders(borders, payloads.offset, self._rows)
        size = int(self._borders[-1] - self._borders[0])
        self.columns = ColumnBuffers(layout, self._rows, size)
        self.faults = np.zeros(self._rows, np.uint8)
        self.inexact = np.zeros(self._rows, np.uint8)

    def run(self, *, checked: bool) -> None:
        """Read all payloads; `checked` for each string's UTF-8."""
        frames = np.zeros(self._program.depth + 1, f"V{_FRAME_BYTES}")
        addresses = (
            self._program.lines,
            self.columns.columns,
            self.columns.levels,
            frames,
            self._program.symbol_borders,
            self._program.symbols,
        )
        places = [array.ctypes.data for array in addresses]
        places += [self._data.address if self._data is not None else 0, self._borders.ctypes.data]
        places += [self.faults.ctypes.data, self.inexact.ctypes.data]
        places += [len(self._layout.columns), self._layout.levels, int(checked)]
        of_call, wish = np.array(places, np.int64), np.zeros(3, np.int64)
        row = 0
        while row < self._rows:
            row = decode_payloads(of_call, row, self._rows, wish)
            if row < self._rows:
                is_level, number, need = wish.tolist()
                grow = self.columns.grow_level if is_level else self.columns.grow_column
                grow(number, need, (row + 1) / self._rows)


def _borders(buffer: Any, offset: int, rows: int) -> npt.NDArray[np.int32]:
    if not rows:
        return np.zeros(1, np.int32)  # Arrow may leave them out
    return np.frombuffer(buffer, np.int32, rows + 1, offset * 4)
