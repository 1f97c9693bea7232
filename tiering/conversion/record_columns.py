"""From decoded records to the columns of a topic's table, matched by Iceberg field id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StructType,
)

from tiering.errors import FatalError
from tiering.table.schema import (
    ERROR_CLASS_FIELD,
    ERROR_PART_FIELD,
    ERROR_REASON_FIELD,
    KEY_SCHEMA_ID_FIELD,
    SCHEMA_ID_FIELD,
    raw_schema,
)
from tiering.values.arrow_fields import arrow_field, field_id, leaf_paths
from tiering.values.stored_schema import Part, StoredSchema, stored_schemas

__all__ = ["FieldIds", "TableColumns", "field_ids"]

_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
_NO_TIMESTAMP_MS: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldIds:
    """Ids of Kafka's own columns: as a table is made with them, so for its whole life.

    `key` and `value` are, in a table with typed columns, what these don't hold.
    """

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    leader_epoch: int
    key: int
    headers: int
    header_key: int
    header_value: int
    value: int
    schema_id: int
    key_schema_id: int


@lru_cache(maxsize=1)
def field_ids() -> FieldIds:
    """The ids of `raw_schema`."""
    ids = raw_schema()._name_to_id
    return FieldIds(
        partition=ids["kafka_partition"],
        offset=ids["kafka_offset"],
        timestamp=ids["kafka_timestamp"],
        timestamp_type=ids["kafka_timestamp_type"],
        leader_epoch=ids["kafka_leader_epoch"],
        key=ids["kafka_key"],
        headers=ids["kafka_headers"],
        header_key=ids["kafka_headers.element.key"],
        header_value=ids["kafka_headers.element.value"],
        value=ids["value"],
        schema_id=SCHEMA_ID_FIELD,
        key_schema_id=KEY_SCHEMA_ID_FIELD,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The columns that a topic's files have: Kafka's own, as far as the table still has them,
    and those that values (and keys) written with a schema go into.

    A column that somebody else has added is not written at all: by the specification ("Column
    projection") every reader then takes its initial default, or null. A renamed one is written
    under its present name, a dropped one is left out.

    Attributes:
        arrow: the files' schema; every field carries its Iceberg id.
        table: the table's Iceberg schema.
        schemas: writers' schemas that the table knows.
    """

    arrow: pa.Schema
    table: Schema
    schemas: Mapping[tuple[Part, int], StoredSchema] = field(default_factory=dict)

    @classmethod
    def of(cls, schema_json: str, properties: Mapping[str, str] | None = None) -> TableColumns:
        """Columns for a table schema (JSON of the spec) and its properties that hold schemas.

        Raises FatalError where a column has a type that Kafka's records don't fit, or where
        partition and offset are missing.
        """
        return _table_columns(schema_json, tuple(sorted((properties or {}).items())))

    def rows(
        self,
        records: pa.RecordBatch,
        partition: int,
        given: Mapping[int, pa.Array] | None = None,
    ) -> pa.RecordBatch:
        """Records of RECORD_SCHEMA as rows of the table. Keys and values are not copied.

        `given` are columns by field id, instead of what the records have for them.
        """
        given = given or {}
        arrays = []
        for each in self.arrow:
            number = field_id(each)
            if number in given:
                arrays.append(given[number])
            elif number in _SOURCES:
                arrays.append(_SOURCES[number](records, partition, each.type))
            else:
                arrays.append(pa.nulls(records.num_rows, each.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    @property
    def typed(self) -> tuple[int, ...]:
        """Where the columns are that aren't Kafka's own."""
        return tuple(i for i, f in enumerate(self.arrow) if field_id(f) not in _KAFKA_IDS)

    def index(self, number: int) -> int | None:
        """Where the column of that field id is, or None."""
        places = (i for i, each in enumerate(self.arrow) if field_id(each) == number)
        return next(places, None)

    def paths(self, *ids: int) -> list[str]:
        """Parquet paths of the leaf columns of these ids, as far as there are any."""
        return [path for number, path in self.leaves() if number in ids]

    def leaves(self) -> list[tuple[int, str]]:
        """(field id, Parquet path) of every leaf column, in the file's order."""
        return [leaf for each in self.arrow for leaf in leaf_paths(each)]


@lru_cache(maxsize=256)
def _table_columns(schema_json: str, properties: tuple[tuple[str, str], ...]) -> TableColumns:
    schema = Schema.model_validate_json(schema_json)
    schemas = stored_schemas(dict(properties))
    bound = {number for stored in schemas.values() for number in stored.columns.values()}
    fields = [
        arrow_field(_kafka_field(f) if f.field_id in _SOURCES else f)
        for f in schema.fields
        if f.field_id in _KAFKA_IDS or f.field_id in bound
    ]
    columns = TableColumns(arrow=pa.schema(fields), table=schema, schemas=schemas)
    ids = field_ids()
    for number, name in ((ids.partition, "kafka_partition"), (ids.offset, "kafka_offset")):
        if columns.index(number) is None:
            raise FatalError(f"the table's column {name} was dropped; offsets need it")
    return columns


def _kafka_field(field: NestedField) -> NestedField:
    """One of Kafka's own columns, of headers what Kafka has of them. Raises FatalError where
    records don't fit its type."""
    kind = field.field_type
    known = raw_schema().find_type(field.field_id)
    if isinstance(kind, ListType) and isinstance(known, ListType):
        return field.model_copy(update={"field_type": _kafka_headers(kind)})
    widened = isinstance(known, IntegerType) and isinstance(kind, LongType)
    if kind != known and not widened:
        raise FatalError(f"column {field.name} has become {kind}; Kafka's records have {known}")
    return field


def _kafka_headers(kind: ListType) -> ListType:
    if not isinstance(kind.element_type, StructType):
        raise FatalError(f"the headers' elements have become {kind.element_type}")
    ids = (field_ids().header_key, field_ids().header_value)
    known = (_kafka_field(f) for f in kind.element_type.fields if f.field_id in ids)
    return ListType(
        element_id=kind.element_id,
        element_type=StructType(*known),
        element_required=kind.element_required,
    )


_Source = Callable[[Any, int, Any], Any]


def _partition(records: Any, partition: int, kind: Any) -> Any:
    width = np.int64 if kind == pa.int64() else np.int32
    return pa.array(np.full(records.num_rows, partition, width), kind)


def _column(name: str) -> _Source:
    def source(records: Any, partition: int, kind: Any) -> Any:
        column = records.column(name)
        return column if column.type == kind else column.cast(kind)

    return source


def _timestamp(records: Any, partition: int, kind: Any) -> Any:
    """Microseconds; null for Kafka's -1 and for what 64 bits of microseconds can't hold."""
    milliseconds = records.column("timestamp_ms").to_numpy()
    missing = milliseconds == _NO_TIMESTAMP_MS
    missing |= milliseconds > _TIMESTAMP_MS_MAX
    missing |= milliseconds < -_TIMESTAMP_MS_MAX
    if not missing.any():
        return pa.array(milliseconds * 1000, kind)
    kept = np.where(missing, 0, milliseconds) * 1000
    return pa.array(kept, pa.int64(), mask=missing).view(kind)


def _headers(records: Any, partition: int, kind: Any) -> Any:
    """The lists under the table's field names, with the children that the table still has."""
    lists = records.column("headers")
    structs = lists.flatten()
    offsets = lists.offsets
    if len(offsets) and offsets[0].as_py():
        offsets = pa.array(offsets.to_numpy() - offsets[0].as_py(), pa.int32())
    ids = field_ids()
    sources = {ids.header_key: 0, ids.header_value: 1}
    fields = list(kind.value_type)
    children = structs.flatten()
    chosen = [children[sources[field_id(field)]] for field in fields]
    elements = pa.StructArray.from_arrays(chosen, fields=fields)
    return pa.ListArray.from_arrays(offsets, elements, type=kind)


def _sources() -> dict[int, _Source]:
    ids = field_ids()
    return {
        ids.partition: _partition,
        ids.offset: _column("offset"),
        ids.timestamp: _timestamp,
        ids.timestamp_type: _column("timestamp_type"),
        ids.leader_epoch: _column("leader_epoch"),
        ids.key: _column("key"),
        ids.headers: _headers,
        ids.value: _column("value"),
    }


_SOURCES: Final = _sources()
_KAFKA_IDS: Final = frozenset(
    {
        *_SOURCES,
        *(SCHEMA_ID_FIELD, KEY_SCHEMA_ID_FIELD),
        *(ERROR_CLASS_FIELD, ERROR_REASON_FIELD, ERROR_PART_FIELD),
    }
)
