"""Where a topic table keeps Kafka's own columns, and how a file's columns become the table's.

Columns are found by Iceberg field id, so a renamed column stays what it was (Iceberg spec,
"Column projection").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    _pyarrow_schema_ensure_small_types,
    _to_requested_schema,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import ListType, MapType

from tiering.errors import BadInput, FatalError

__all__ = ["Projection", "TopicColumns"]

_REQUIRED: Final = ("kafka_partition", "kafka_offset", "kafka_timestamp")
_NEEDED: Final = ("kafka_partition", "kafka_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicColumns:
    """Field ids of Kafka's own columns; None where the table has no such column any more (the
    timestamp's is given all the same: files have bounds of it)."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int | None
    leader_epoch: int | None
    key: int | None
    headers: int | None
    header_key: int | None
    header_value: int | None
    value: int | None

    @classmethod
    def of(cls, metadata: TableMetadata, *, table: str) -> TopicColumns:
        """Find the ids by name in the table's first schema, which other names came after.

        Raises FatalError naming `table` if it was never a topic's table.
        """
        schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
        first = next((s for s in schemas if all(s._name_to_id.get(n) for n in _REQUIRED)), None)
        if first is None:
            raise FatalError(f"table {table} has no columns {', '.join(_REQUIRED)}: not a topic")
        ids = first._name_to_id
        kept = metadata.schema().field_ids
        for name in _NEEDED:
            if ids[name] not in kept:
                raise FatalError(f"table {table}: column {name} was dropped; offsets need it")

        def optional(name: str) -> int | None:
            return ids.get(name) if ids.get(name) in kept else None

        return cls(
            partition=ids["kafka_partition"],
            offset=ids["kafka_offset"],
            timestamp=ids["kafka_timestamp"],
            timestamp_type=optional("kafka_timestamp_type"),
            leader_epoch=optional("kafka_leader_epoch"),
            key=optional("kafka_key"),
            headers=optional("kafka_headers"),
            header_key=optional("kafka_headers.element.key"),
            header_value=optional("kafka_headers.element.value"),
            value=optional("value"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Columns asked for: as Iceberg fields, and as the Arrow schema every batch comes in."""

    requested: Schema
    arrow: pa.Schema
    name_mapping: NameMapping

    @classmethod
    def of(cls, metadata: TableMetadata, columns: Sequence[str] | None) -> Projection:
        """Project onto top-level `columns` of the current schema, in that order; None: all.

        Raises BadInput for a column the table does not have, and for one named twice.
        """
        fields = {field.name: field for field in metadata.schema().fields}
        names = list(fields) if columns is None else list(columns)
        if not names:
            raise BadInput("columns: name at least one column, or leave it out for all")
        for name in names:
            if name not in fields:
                raise BadInput(f"no column {name!r}; the table has {', '.join(fields)}")
        if len(set(names)) < len(names):
            raise BadInput(f"a column is named twice in {', '.join(names)}")
        return cls._of(metadata, Schema(*(fields[name] for name in names)))

    @classmethod
    def of_field(cls, metadata: TableMetadata, field_id: int) -> Projection:
        """Project onto the one column of that field id. Raises FatalError if it was dropped."""
        if field_id not in metadata.schema().field_ids:
            raise FatalError(f"the table's column with field id {field_id} was dropped")
        return cls._of(metadata, Schema(metadata.schema().find_field(field_id)))

    @classmethod
    def of_leaves(cls, metadata: TableMetadata, field_ids: Collection[int]) -> Projection:
        """Project onto the leaf columns of these ids, in the table's order."""
        return cls._of(
            metadata, prune_columns(metadata.schema(), set(field_ids), select_full_types=False)
        )

    @classmethod
    def of_schema(cls, metadata: TableMetadata, requested: Schema) -> Projection:
        """Project onto fields by their ids, whether or not the current schema has them."""
        return cls._of(metadata, requested)

    @classmethod
    def _of(cls, metadata: TableMetadata, requested: Schema) -> Projection:
        arrow = schema_to_pyarrow(requested, include_field_ids=False)
        return cls(
            requested=requested,
            arrow=_pyarrow_schema_ensure_small_types(arrow),
            name_mapping=metadata.name_mapping() or metadata.schema().name_mapping,
        )

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Ids of the requested columns, in their order."""
        return tuple(field.field_id for field in self.requested.fields)

    def apply(self, batch: pa.RecordBatch, file_ids: Sequence[int]) -> pa.RecordBatch:
        """Give `batch`, whose columns carry `file_ids`, the requested names, types and order.

        Columns that the file was written without come as null (or their initial default).
        """
        place = {field_id: i for i, field_id in enumerate(file_ids)}
        columns = []
        for field_id, kind in zip(self.field_ids, self.arrow.types, strict=True):
            column = batch.column(place[field_id]) if field_id in place else None
            if column is None or (column.type != kind and _small(column.type) != kind):
                return self._convert(batch)
            # The usual file: same types, at most other names. Nothing is copied, or only the
            # positions of large binary columns.
            columns.append(column if column.type == kind else column.cast(kind))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        file_schema = pyarrow_to_schema(batch.schema, self.name_mapping, True)
        missing = {
            field.field_id: field.initial_default
            for field in self.requested.fields
            if field.field_id not in file_schema.field_ids and field.initial_default is not None
        }
        shared = {
            field_id
            for field_id in self.requested.field_ids & file_schema.field_ids
            if not isinstance(self.requested.find_type(field_id), (ListType, MapType))
        }
        converted = _to_requested_schema(
            self.requested,
            prune_columns(file_schema, shared, select_full_types=False),
            batch,
            downcast_ns_timestamp_to_us=True,
            projected_missing_fields=missing,
            allow_timestamp_tz_mismatch=True,
        )
        return converted.cast(self.arrow)


@lru_cache(maxsize=256)
def _small(kind: pa.DataType) -> pa.DataType:
    """`kind` with the small variants of its variable-length types, as batches have them."""
    small: pa.Schema = _pyarrow_schema_ensure_small_types(pa.schema([pa.field("x", kind)]))
    return small.field(0).type
