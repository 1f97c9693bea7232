"""What new writers' schemas make of a topic's table: its next schema and properties. Pure.

A table is raw until the first schema comes. Then its column `value` becomes `kafka_value` (for
values that no columns can hold) and it gets `kafka_schema_id`; typed columns have ids from 1003 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping
from pyiceberg.types import IntegerType, NestedField, StructType

from tiering.errors import FatalError
from tiering.table.column_merge import ColumnMerge, Incompatible, distinct_name, folded
from tiering.table.schema import KEY_SCHEMA_ID_FIELD, SCHEMA_ID_FIELD, raw_schema
from tiering.table.written_names import (
    KEY_ROOT,
    VALUE_ROOT,
    WRITTEN_NAMES_PREFIX,
    WrittenNames,
    names_property,
)
from tiering.values.codec import WHOLE_VALUE
from tiering.values.projection import ROOT
from tiering.values.stored_schema import (
    SCHEMA_PROPERTY_PREFIX,
    Part,
    StoredSchema,
    schema_properties,
    stored_schemas,
)

__all__ = [
    "SCHEMAS_BYTES_MAX",
    "Arrival",
    "Evolution",
    "evolve",
]

_SCHEMA_ID: Final = NestedField(
    SCHEMA_ID_FIELD,
    "kafka_schema_id",
    IntegerType(),
    doc="id of the schema that the value is written with",
)
_KEY_SCHEMA_ID: Final = NestedField(
    KEY_SCHEMA_ID_FIELD,
    "kafka_key_schema_id",
    IntegerType(),
    doc="id of the schema that the key is written with",
)
SCHEMAS_BYTES_MAX: Final = 1024 * 1024
"""Of all stored schemas of a table, with the names of their fields: every commit writes them."""

_RAW_VALUE_ID: Final = raw_schema().find_field("value").field_id
_KEPT_VALUE: Final = "kafka_value"
_KEY_COLUMN: Final = "key"
_NAME_MAPPING: Final = "schema.name-mapping.default"
_ENGINES_OWN: Final = ("_file", "_pos", "_partition", "_spec_id", "_deleted", "_row_id",
                       "_last_updated_sequence_number")  # fmt: skip
"""Columns that every Iceberg table has in Spark: it refuses tables with columns called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A schema that some record was written with.

    Attributes:
        stored: with empty `columns`.
        schema, aliases: its codec's; no schema where the values are kept as they are.
    """

    stored: StoredSchema
    schema: Schema | None = None
    aliases: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """What is to be committed.

    Attributes:
        schema: what the table's current schema must be, with its id.
        is_new: whether the table doesn't have that schema yet.
        is_change: whether there is anything to commit at all.
        stored: the schema of each arrival, with `columns` or `refused`.
        properties: those that change.
    """

    schema: Schema
    is_new: bool
    is_change: bool
    stored: tuple[StoredSchema, ...]
    properties: Mapping[str, str]


def evolve(metadata: TableMetadata, arrivals: Sequence[Arrival]) -> Evolution:
    """Take schemas into a table, one after the other.

    A schema that the table has already changes nothing. One whose fields don't fit the columns
    is `refused`, and the columns stay as they are without it.

    Raises:
        FatalError: a schema id came with another definition than before; the table's schemas
            would be too large; a column id that is ours is taken.
    """
    draft = _Draft.of(metadata)
    stored = tuple(draft.taken(arrival) for arrival in arrivals)
    properties = _changed_properties(metadata, draft)
    schema, is_new = _next_schema(metadata, draft.fields)
    is_change = schema.schema_id != metadata.current_schema_id or bool(properties)
    return Evolution(
        schema=schema, is_new=is_new, is_change=is_change, stored=stored, properties=properties
    )


@dataclass(slots=True)
class _Draft:
    """A table's columns in the making."""

    metadata: TableMetadata
    fields: tuple[NestedField, ...]
    last_id: int
    names: WrittenNames
    stored: dict[tuple[Part, int], StoredSchema]
    new: list[StoredSchema]
    new_names: dict[str, str]

    @staticmethod
    def of(metadata: TableMetadata) -> _Draft:
        return _Draft(
            metadata=metadata,
            fields=metadata.schema().fields,
            last_id=metadata.last_column_id,
            names=WrittenNames.of_properties(metadata.properties),
            stored=stored_schemas(metadata.properties),
            new=[],
            new_names={},
        )

    def taken(self, arrival: Arrival) -> StoredSchema:
        """The arrival's schema as the table keeps it."""
        wanted = arrival.stored
        known = self.stored.get((wanted.part, wanted.schema_id))
        if known is not None:
            _check_same(known, wanted)
            return known
        self._become_typed(wanted.part)
        if arrival.schema is not None:
            try:
                wanted = self._merged(arrival, arrival.schema)
            except Incompatible as error:
                wanted = replace(wanted, columns={}, refused=str(error))
        self.stored[wanted.part, wanted.schema_id] = wanted
        self.new.append(wanted)
        return wanted

    def _become_typed(self, part: Part) -> None:
        if not self.stored:
            if self.last_id >= _SCHEMA_ID.field_id:
                raise FatalError(
                    f"the table has given field ids up to {self.last_id} to other columns, and "
                    f"Onecopy needs {_SCHEMA_ID.field_id} for {_SCHEMA_ID.name}"
                )
            self.fields = tuple(map(self._kept_value, self.fields))
            self._add_own(_SCHEMA_ID)
        if part == "key" and not any(p == "key" for p, _ in self.stored):
            schemas = (*self.metadata.schemas, Schema(*self.fields))
            if any(_KEY_SCHEMA_ID.field_id in s.field_ids for s in schemas):
                raise FatalError(
                    f"another column has the field id {_KEY_SCHEMA_ID.field_id}, and Onecopy "
                    f"needs it for {_KEY_SCHEMA_ID.name}"
                )
            self._add_own(_KEY_SCHEMA_ID)

    def _kept_value(self, column: NestedField) -> NestedField:
        if column.field_id != _RAW_VALUE_ID or column.name != "value":
            return column
        others = {folded(f.name) for f in self.fields if f is not column}
        return column.model_copy(update={"name": distinct_name(_KEPT_VALUE, others)})

    def _add_own(self, column: NestedField) -> None:
        name = distinct_name(column.name, {folded(f.name) for f in self.fields})
        self.fields += (column.model_copy(update={"name": name}),)
        self.last_id = max(self.last_id, column.field_id)

    def _merged(self, arrival: Arrival, schema: Schema) -> StoredSchema:
        part = arrival.stored.part
        names = self.names.copy()
        merge = ColumnMerge(
            former=sorted(self.metadata.schemas, key=lambda s: s.schema_id, reverse=True),
            ours=self._ours(part),
            names=names,
            aliases=arrival.aliases,
            reserved=_reserved(self.metadata),
            last_id=max(self.last_id, _KEY_SCHEMA_ID.field_id),
        )
        if part == "value":
            fields = merge.into(VALUE_ROOT, self.fields, schema.fields)
        elif schema.fields:
            fields = merge.into(KEY_ROOT, self.fields, [self._key_field(schema)])
        else:
            fields = self.fields
        if merge.columns:
            added = names.since(self.names)
            self.new_names |= names_property(part, arrival.stored.schema_id, added)
            self.fields, self.names, self.last_id = fields, names, merge.last_id
        return replace(arrival.stored, columns=merge.columns, refused="")

    def _ours(self, part: Part) -> set[int]:
        of_part = (each for (p, _), each in self.stored.items() if p == part)
        return {table_id for each in of_part for table_id in each.columns.values()}

    def _key_field(self, schema: Schema) -> NestedField:
        """A key's one column: a struct for a record, else the value itself.

        A record with a single field of the name that whole values have can't be told from one: it
        is taken for whole, unless keys have had more fields before.
        """
        first = schema.fields[0]
        if len(schema.fields) == 1 and first.name == WHOLE_VALUE:
            ours = self._ours("key")
            structs = (f for f in self.fields if isinstance(f.field_type, StructType))
            if not any(f.field_id in ours for f in structs):
                return first.model_copy(update={"name": _KEY_COLUMN})
        return NestedField(ROOT, _KEY_COLUMN, StructType(*schema.fields), required=False)


def _check_same(known: StoredSchema, wanted: StoredSchema) -> None:
    def definition(schema: StoredSchema) -> tuple[object, ...]:
        return (schema.format, schema.framing, schema.definition, schema.references)

    if definition(known) != definition(wanted):
        raise FatalError(
            f"schema {known.schema_id} of {known.part}s: the registry has another definition than "
            "the table was written with; a schema id must keep its meaning for ever"
        )


def _reserved(metadata: TableMetadata) -> set[str]:
    """Folded names that no column of a writer's may have, whether they are in use or not."""
    ours = [f.name for f in raw_schema().fields if f.field_id != _RAW_VALUE_ID]
    ours += [_KEPT_VALUE, _SCHEMA_ID.name, _KEY_SCHEMA_ID.name]
    # Iceberg looks up partition fields and columns in one name space.
    partitions = [f.name for spec in metadata.partition_specs for f in spec.fields]
    return {folded(name) for name in (*ours, *_ENGINES_OWN, *partitions)}


def _next_schema(metadata: TableMetadata, fields: tuple[NestedField, ...]) -> tuple[Schema, bool]:
    """(the schema of these columns, whether it must be added). One that the table has had before
    keeps its id."""
    current = metadata.schema()
    for schema in (current, *metadata.schemas):
        same_keys = schema.identifier_field_ids == current.identifier_field_ids
        if schema.fields == fields and same_keys:
            return schema, False
    schema_id = max(schema.schema_id for schema in metadata.schemas) + 1
    keys = current.identifier_field_ids
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=keys), True


def _changed_properties(metadata: TableMetadata, draft: _Draft) -> dict[str, str]:
    if not draft.new:
        return {}
    wanted = {**schema_properties(draft.new), **draft.new_names}
    if _NAME_MAPPING in metadata.properties:
        mapping = metadata.properties[_NAME_MAPPING]
        wanted[_NAME_MAPPING] = _mapping(mapping, metadata.schema(), Schema(*draft.fields))
    changed = {k: v for k, v in wanted.items() if metadata.properties.get(k) != v}
    size = sum(
        len(name) + len(value)
        for name, value in {**metadata.properties, **changed}.items()
        if name.startswith((SCHEMA_PROPERTY_PREFIX, WRITTEN_NAMES_PREFIX))
    )
    if size > SCHEMAS_BYTES_MAX:
        raise FatalError(
            f"with {len(draft.new)} new schemas the table would keep {size} bytes of schemas in "
            f"its properties, the limit is {SCHEMAS_BYTES_MAX}: are its writers making a new "
            "schema for each record?"
        )
    return changed


def _mapping(text: str, before: Schema, after: Schema) -> str:
    """The names for files without field ids, with columns that were renamed and added."""
    old, new = before._lazy_id_to_field, after._lazy_id_to_field
    updates = {i: f for i, f in new.items() if i in old and old[i].name != f.name}
    adds: dict[int, list[NestedField]] = {}
    for parent, fields in [(-1, after.fields), *_structs(after)]:
        known = parent == -1 or parent in old
        added = [f for f in fields if f.field_id not in old]
        if known and added:
            adds[parent] = added
    return update_mapping(parse_mapping_from_json(text), updates, adds).model_dump_json()


def _structs(schema: Schema) -> list[tuple[int, Sequence[NestedField]]]:
    return [
        (field_id, each.field_type.fields)
        for field_id, each in schema._lazy_id_to_field.items()
        if isinstance(each.field_type, StructType)
    ]
