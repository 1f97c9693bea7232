"""From rows of a topic's table back to records: what the table holds of them, and what is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from segment_reader import RECORD_SCHEMA
from tiering.conversion.record_columns import FieldIds, TableColumns, field_ids
from tiering.values.stored_schema import Part
from tiering.values.written_values import written_values

__all__ = ["as_held", "records_from_rows"]

_NO_TIMESTAMP_MS: Final = -1
_NO_LEADER_EPOCH: Final = -1
_CREATE_TIME: Final = 0


def as_held(columns: TableColumns, partition: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What becomes of records (RECORD_SCHEMA) that go into the table and come back.

    A timestamp that the table has no value for is gone, so is whatever a dropped column held.
    """

    def held(records: pa.RecordBatch) -> pa.RecordBatch:
        return records_from_rows(columns.rows(records, partition), columns)

    return held


def records_from_rows(rows: pa.RecordBatch, columns: TableColumns) -> pa.RecordBatch:
    """The inverse of `TableColumns.rows`: rows with `columns`, in their order, as RECORD_SCHEMA.

    What the table has no column for comes as Kafka's "none": no timestamp, null key and value, no
    headers. So does a null that only another writer can have put there. Keys and values are not
    copied, unless they are written again from typed columns.
    """
    ids = field_ids()

    def column(field_id: int) -> Any:
        place = columns.index(field_id)
        return None if place is None else rows.column(place)

    count = rows.num_rows
    arrays = [
        column(ids.offset),
        _milliseconds(column(ids.timestamp), count),
        _filled(column(ids.timestamp_type), _CREATE_TIME, count),
        _filled(column(ids.leader_epoch), _NO_LEADER_EPOCH, count),
        _written("key", column(ids.key), column(ids.key_schema_id), rows, columns),
        _written("value", column(ids.value), column(ids.schema_id), rows, columns),
        _headers(column(ids.headers), _header_places(columns, ids), count),
    ]
    kinds = RECORD_SCHEMA.types
    typed = [a if a.type == t else a.cast(t) for a, t in zip(arrays, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(typed, schema=RECORD_SCHEMA)


def _milliseconds(timestamps: Any, count: int) -> Any:
    """Whole milliseconds of a column of microseconds."""
    if timestamps is None:
        return pa.array(np.full(count, _NO_TIMESTAMP_MS, np.int64))
    microseconds = timestamps.view(pa.int64())
    if not microseconds.null_count:
        return pa.array(microseconds.to_numpy() // 1000)
    missing = microseconds.is_null().to_numpy(zero_copy_only=False)
    milliseconds = microseconds.fill_null(0).to_numpy() // 1000
    return pa.array(np.where(missing, _NO_TIMESTAMP_MS, milliseconds))


def _filled(values: Any, instead: int, count: int) -> Any:
    if values is None:
        return pa.array(np.full(count, instead, np.int32))
    return values.fill_null(instead) if values.null_count else values


def _written(part: Part, raw: Any, schema_ids: Any, rows: Any, columns: TableColumns) -> Any:
    """Keys or values: as they were kept, or else from their typed columns."""
    raw = _or_nulls(raw, rows.num_rows)
    if schema_ids is None or not columns.typed:
        return raw
    arrays = [rows.column(i) for i in columns.typed]
    fields = [columns.arrow.field(i) for i in columns.typed]
    return written_values(raw, schema_ids, arrays, fields, columns.schemas, part)


def _or_nulls(values: Any, count: int) -> Any:
    return pa.nulls(count, pa.binary()) if values is None else values


def _header_places(columns: TableColumns, ids: FieldIds) -> tuple[int | None, int | None]:
    """Where a header's key and value are among its children."""
    place = columns.index(ids.headers)
    if place is None:
        return None, None
    children = list(columns.arrow.field(place).type.value_type)
    by_id = {int(f.metadata[b"PARQUET:field_id"]): i for i, f in enumerate(children)}
    return by_id.get(ids.header_key), by_id.get(ids.header_value)


def _headers(lists: Any, places: tuple[int | None, int | None], count: int) -> Any:
    kind = RECORD_SCHEMA.field("headers").type
    if lists is None:
        return pa.ListArray.from_arrays(
            pa.array(np.zeros(count + 1, np.int32)), pa.array([], kind.value_type), type=kind
        )
    elements = lists.flatten()
    children = elements.flatten()
    key, value = places
    keys = pa.array([""] * len(elements)) if key is None else children[key].fill_null("")
    values = _or_nulls(None if value is None else children[value], len(elements))
    named = [c if c.type == f.type else c.cast(f.type) for c, f in _paired(keys, values, kind)]
    structs = pa.StructArray.from_arrays(named, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(_offsets(lists), structs, type=kind)


def _paired(keys: Any, values: Any, kind: Any) -> list[tuple[Any, Any]]:
    return list(zip((keys, values), kind.value_type, strict=True))


def _offsets(lists: Any) -> Any:
    """Where each list begins among the flattened elements, from 0; a null list is an empty one."""
    if lists.null_count:
        lengths = lists.value_lengths().fill_null(0).to_numpy()
        return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    offsets = lists.offsets.to_numpy()
    return pa.array(offsets - offsets[0] if len(offsets) and offsets[0] else offsets, pa.int32())
