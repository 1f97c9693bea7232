"""The columns that records are made of, by field id, also those that were dropped since.

They are Kafka's own, and those that values written with a schema went into.

Dropping a column changes the table's schema only: data files written before still have it, under
the id that it always had (Iceberg spec, "Schema evolution"). A column that is added again under
the same name has another id and is another column.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tiering.conversion.record_columns import field_ids
from tiering.table.schema import KEY_SCHEMA_ID_FIELD, SCHEMA_ID_FIELD, raw_schema
from tiering.values.stored_schema import stored_schemas

__all__ = ["dropped_columns", "kafka_schema"]

_DROPPED: Final = "dropped_{}"
"""Name of a dropped column in a schema of ours: its own may have been given to another one."""


def dropped_columns(metadata: TableMetadata) -> tuple[str, ...]:
    """Kafka's columns that the current schema lacks, by the names that they were made with, and
    typed ones (of values or keys) by those that they had last."""
    present = metadata.schema().field_ids
    gone = (field_id for field_id in sorted(_leaf_ids()) if field_id not in present)
    names = [_first_name(field_id, present) for field_id in gone]
    for field_id in sorted(_typed_ids(metadata) - set(present)):
        found = (schema.find_column_name(field_id) for schema in _newest_first(metadata))
        name = next((name for name in found if name is not None), None)
        if name is not None:
            names.append(name)
    return tuple(dict.fromkeys(names))


def kafka_schema(metadata: TableMetadata, *, dropped: bool = True) -> Schema:
    """Kafka's columns of a table, each as the newest schema that has all of it, and then its typed
    ones; with `dropped` False only what the current schema has.

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
    return Schema(*fields, *_typed_fields(metadata, dropped=dropped))


def _leaf_ids() -> set[int]:
    ids = field_ids()
    return {
        *(ids.partition, ids.offset, ids.timestamp, ids.timestamp_type, ids.leader_epoch),
        *(ids.key, ids.header_key, ids.header_value, ids.value),
    }


def _typed_ids(metadata: TableMetadata) -> set[int]:
    """Ids of everything that a stored schema has put into the table, and of the schema ids."""
    schemas = stored_schemas(metadata.properties).values()
    bound = {field_id for stored in schemas for field_id in stored.columns.values()}
    own = {"value": SCHEMA_ID_FIELD, "key": KEY_SCHEMA_ID_FIELD}
    return bound | {own[stored.part] for stored in schemas}


def _typed_fields(metadata: TableMetadata, *, dropped: bool) -> list[NestedField]:
    """Typed columns as the current schema has them, with what was dropped of them."""
    wanted = _typed_ids(metadata)
    found: dict[int, NestedField] = {}
    schemas = [metadata.schema(), *_newest_first(metadata)] if dropped else [metadata.schema()]
    for number, schema in enumerate(schemas):
        for field in schema.fields:
            if field.field_id not in wanted:
                continue
            known = found.get(field.field_id)
            if known is not None:
                found[field.field_id] = _with_lost(known, field, wanted)
            elif number == 0:
                found[field.field_id] = field
            else:
                found[field.field_id] = _optional(field, _DROPPED.format(field.field_id))
    return [found[field_id] for field_id in sorted(found)]


def _newest_first(metadata: TableMetadata) -> list[Schema]:
    return sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)


def _with_lost(field: NestedField, older: NestedField, wanted: set[int]) -> NestedField:
    """The field with those parts of an older form that it lacks and that are `wanted`."""
    kind = _kind_with_lost(field.field_type, older.field_type, wanted)
    return field if kind is field.field_type else field.model_copy(update={"field_type": kind})


def _kind_with_lost(kind: IcebergType, older: IcebergType, wanted: set[int]) -> IcebergType:
    if isinstance(kind, StructType) and isinstance(older, StructType):
        olds = {field.field_id: field for field in older.fields}
        have = {field.field_id for field in kind.fields}
        kept = [
            _with_lost(f, olds[f.field_id], wanted) if f.field_id in olds else f
            for f in kind.fields
        ]
        lost = [f for i, f in olds.items() if i in wanted and i not in have]
        optional = (_optional(field, _DROPPED.format(field.field_id)) for field in lost)
        return StructType(*kept, *optional) if lost or kept != list(kind.fields) else kind
    if isinstance(kind, ListType) and isinstance(older, ListType):
        element = _kind_with_lost(kind.element_type, older.element_type, wanted)
        return kind.model_copy(update={"element_type": element})
    if isinstance(kind, MapType) and isinstance(older, MapType):
        value = _kind_with_lost(kind.value_type, older.value_type, wanted)
        return kind.model_copy(update={"value_type": value})
    return kind


def _first_name(field_id: int, present: set[int]) -> str:
    """Name of a column as the table was made, of the whole one where no part of it is left."""
    name = raw_schema().find_column_name(field_id) or ""
    top = name.partition(".")[0]
    whole = raw_schema().find_field(top).field_id in present
    return name.replace(".element.", ".") if whole else top


def _dropped_field(metadata: TableMetadata, made: NestedField) -> NestedField:
    """The field as it was before it, or a part of it, was dropped."""
    found = (_field(schema, made.field_id) for schema in _newest_first(metadata))
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
