"""The codec of JSON values that a JSON Schema describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from tiering.values.codec import Decoded, Fault
from tiering.values.json_schema.decoding import DocumentReader
from tiering.values.json_schema.encoding import DocumentWriter
from tiering.values.json_schema.layout import Form, layout, schema_of, struct_type
from tiering.values.json_schema.text_reading import trim_spans
from tiering.values.json_text import document_faults
from tiering.values.payload_bytes import payload_bytes
from tiering.values.pieces import pieces_array

__all__ = ["JsonSchemaCodec"]

_CELLS_MAX: Final = 1 << 21
"""Payloads times columns that are read at once."""


class JsonSchemaCodec:
    """See `ValueCodec`. Raises UnsupportedSchema for a definition that gives no columns.

    A value is checked against the types of the schema, not against its other rules. `null` and an
    absent property both are null columns.
    """

    def __init__(self, definition: str, references: Sequence[tuple[str, str]] = ()) -> None:
        """`references` are (name, definition), those first that others refer to."""
        self._layout = layout(definition, references)
        self._schema = schema_of(self._layout)
        self._arrow = struct_type(self._layout)

    @property
    def schema(self) -> Schema:
        """See `ValueCodec`."""
        return self._schema

    @property
    def arrow(self) -> pa.StructType:
        """See `ValueCodec`."""
        return self._arrow

    @property
    def aliases(self) -> Mapping[int, tuple[str, ...]]:
        """None."""
        return {}

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """See `ValueCodec`."""
        step = max(_CELLS_MAX // len(self._arrow), 1024)
        parts = [
            self._decode(payloads.slice(start, step))
            for start in range(0, max(len(payloads), 1), step)
        ]
        if len(parts) == 1:
            return parts[0]
        return Decoded(
            columns=pa.concat_arrays([each.columns for each in parts]),
            faults=np.concatenate([each.faults for each in parts]),
            inexact=np.concatenate([each.inexact for each in parts]),
        )

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """See `ValueCodec`."""
        writer = DocumentWriter(len(columns))
        rows = np.arange(len(columns), dtype=np.int64)
        null = columns.is_null().to_numpy(zero_copy_only=False)
        if self._layout.form is Form.OBJECT:
            made = writer.object(self._layout, columns.flatten(), rows)
        else:
            value = columns.flatten()[0]
            made = writer.value(self._layout, value, rows)
            null = null | value.is_null().to_numpy(zero_copy_only=False)
        return pieces_array(made, null | writer.unwritable)

    def _decode(self, payloads: pa.BinaryArray) -> Decoded:
        found = payload_bytes(payloads)
        faults = document_faults(found)
        rows = np.flatnonzero(faults == Fault.NONE)
        reader = DocumentReader(found.data, faults)
        starts, ends = found.starts[rows], found.ends[rows]
        trim_spans(found.data, starts, ends)
        if self._layout.form is Form.OBJECT:
            whole = reader.column(self._layout, starts, ends, rows)
            reader.inexact[rows[whole.is_null().to_numpy(zero_copy_only=False)]] = True
            columns = whole.flatten()
        else:
            columns = [reader.column(self._layout, starts, ends, rows)]
        bad = faults != Fault.NONE
        if bad.any():
            places = np.full(len(faults), -1, dtype=np.int64)
            places[rows] = np.arange(len(rows))
            kept = pa.array(places, mask=bad)
            columns = [each.take(kept) for each in columns]
        made = pa.StructArray.from_arrays(
            columns, fields=list(self._arrow), mask=pa.array(bad) if bad.any() else None
        )
        return Decoded(columns=made, faults=faults, inexact=reader.inexact & ~bad)
