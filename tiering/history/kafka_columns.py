"""Kafka's own columns of a topic's table by field id, also those that were dropped since.

Dropping a column changes the table's schema only: data files written before still have it, under
the id that it always had (Iceberg spec, "Schema evolution"). A column that is added again under
the same name has another id and is another column.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, NestedField, StructType

from tiering.conversion.record_columns import field_ids
from tiering.table.schema import raw_schema

__all__ = ["dropped_columns", "kafka_schema"]

_DROPPED: Final = "dropped_{}"
"""Name of a dropped column in a schema of ours: its own may have been given to another one."""


def dropped_columns(metadata: TableMetadata) -> tuple[str, ...]:
    """Kafka's columns that the current schema lacks, by the names that they were made with."""
    present = metadata.schema().field_ids
    gone = (field_id for field_id in sorted(_leaf_ids()) if field_id not in present)
    return tuple(dict.fromkeys(_first_name(field_id, present) for field_id in gone))


def kafka_schema(metadata: TableMetadata, *, dropped: bool = True) -> Schema:
    """Kafka's columns of a table, each as the newest schema that has all of it; with `dropped`
    False only what the current schema has.

    A column that is taken from an older schema is optional: files written since lack it.
    """
    current = metadata.schema()
    fields = []
    for made in raw_schema().fields:
        field = _field(current, made.field_id)
        if dropped and (field is None or not _ids(field) >= _ids(made)):
            field = _dropped_field(metadata, made)
        if field is not None:
            fields.append(field)
    return Schema(*fields)


def _leaf_ids() -> set[int]:
    ids = field_ids()
    return {
        *(ids.partition, ids.offset, ids.timestamp, ids.timestamp_type, ids.leader_epoch),
        *(ids.key, ids.header_key, ids.header_value, ids.value),
    }


def _first_name(field_id: int, present: set[int]) -> str:
    """Name of a column as the table was made, of the whole one where no part of it is left."""
    name = raw_schema().find_column_name(field_id) or ""
    top = name.partition(".")[0]
    whole = raw_schema().find_field(top).field_id in present
    return name.replace(".element.", ".") if whole else top


def _dropped_field(metadata: TableMetadata, made: NestedField) -> NestedField:
    """The field as it was before it, or a part of it, was dropped."""
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    found = (_field(schema, made.field_id) for schema in schemas)
    # Where the schemas have been cleaned up, as the table was made.
    whole = next((f for f in found if f is not None and _ids(f) >= _ids(made)), made)
    kind = whole.field_type
    if isinstance(kind, ListType) and isinstance(kind.element_type, StructType):
        children = (_optional(child, child.name) for child in kind.element_type.fields)
        kind = ListType(
            element_id=kind.element_id,
            element_type=StructType(*children),
            element_required=kind.element_required,
        )
    return _optional(whole.model_copy(update={"field_type": kind}), _DROPPED.format(made.field_id))


def _optional(field: NestedField, name: str) -> NestedField:
    return NestedField(field.field_id, name, field.field_type, required=False)


def _field(schema: Schema, field_id: int) -> NestedField | None:
    return next((field for field in schema.fields if field.field_id == field_id), None)


def _ids(field: NestedField) -> set[int]:
    return set(Schema(field).field_ids)
