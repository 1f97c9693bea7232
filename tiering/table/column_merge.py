"""One writer's fields into a table's columns: which is which, and what the columns become. Pure.

A field's column is, in this order: the one that fields of this name went into; the one that is
called so; the one that was called so; the one that the field's aliases name. Else it gets a new
one. Columns that somebody else has added are never used, and those dropped stay dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    UUIDType,
)

from tiering.table.written_names import KEY_ROOT, VALUE_ROOT, WrittenName, WrittenNames
from tiering.values.units import UNITS

__all__ = ["ColumnMerge", "Incompatible", "distinct_name", "folded"]

_ROOTS: Final = (VALUE_ROOT, KEY_ROOT)
_UUID_BYTES: Final = 16


class Incompatible(ValueError):
    """A field whose values can't go into its column: says which, and both types."""


class ColumnMerge:
    """One writer's schema on its way into the columns of a table.

    Args:
        former: the table's schemas, the newest first.
        ours: ids of the columns that fields of this part of a record went into.
        names: as known; is added to.
        aliases: earlier names, by the codec's ids.
        reserved: folded names that no top-level column of ours may have.
        last_id: the highest field id that the table has given to a column.

    Attributes:
        columns: what `into` has bound: the codec's ids to the table's.
        last_id: as above, with the new columns.
    """

    def __init__(
        self,
        *,
        former: Sequence[Schema],
        ours: Set[int],
        names: WrittenNames,
        aliases: Mapping[int, tuple[str, ...]],
        reserved: Set[str],
        last_id: int,
    ) -> None:
        self.columns: dict[int, int] = {}
        self.last_id = last_id
        self._former = former
        self._ours = ours
        self._names = names
        self._aliases = aliases
        self._reserved = reserved
        self._given: dict[int, str] = {}

    def into(
        self,
        parent: int,
        siblings: Sequence[NestedField],
        written: Sequence[NestedField],
        path: str = "",
    ) -> tuple[NestedField, ...]:
        """The fields of one struct (or the top level) with all that was written into it.

        Args:
            parent: the struct's field id, or one of the roots.
            siblings: what the struct has.
            written: the writer's fields there, with the codec's ids.
            path: the struct's, with a dot at its end; for messages.

        Raises Incompatible; `columns`, `last_id` and the names are worth nothing then.
        """
        matching = _Matching(parent, siblings, written, self._names, self._ours)
        matching.by_written_name()
        matching.by_column_name()
        matching.by_former_name(self._former)
        matching.by_alias(self._aliases)
        fields = {each.field_id: each for each in siblings}
        for each in written:
            table_id = matching.found.get(each.field_id)
            if table_id is not None:
                fields[table_id] = self._merged(fields[table_id], each, path)
        for each in written:
            if each.field_id in matching.by_aliases:
                self._rename(parent, fields, matching.found[each.field_id] or 0, each.name)
        for each in written:
            if each.field_id not in matching.found:
                self._add(parent, fields, each, path)
        self._remember(parent, written)
        return tuple(fields.values())

    def _merged(self, column: NestedField, written: NestedField, path: str) -> NestedField:
        self.columns[written.field_id] = column.field_id
        path = f"{path}{column.name}"
        units = {column.doc, written.doc}
        if len(units) == 2 and units <= UNITS:
            raise Incompatible(f"column {path} has {column.doc}, the schema {written.doc}")
        kind = self._type(column.field_id, column.field_type, written.field_type, path)
        return column.model_copy(update={"field_type": kind})

    def _rename(
        self, parent: int, fields: dict[int, NestedField], table_id: int, name: str
    ) -> None:
        """As the writers have; but a name that somebody has chosen for the table stays."""
        column = fields[table_id]
        if column.name in self._names.names(table_id):
            taken = self._taken(parent, (f for i, f in fields.items() if i != table_id))
            self._given[table_id] = distinct_name(name, taken)
            fields[table_id] = column.model_copy(update={"name": self._given[table_id]})

    def _add(
        self, parent: int, fields: dict[int, NestedField], written: NestedField, path: str
    ) -> None:
        table_id = self._new_id(written.field_id)
        name = distinct_name(written.name, self._taken(parent, fields.values()))
        self._given[table_id] = name
        kind = self._type(table_id, None, written.field_type, f"{path}{name}")
        fields[table_id] = NestedField(table_id, name, kind, required=False, doc=written.doc)

    def _taken(self, parent: int, fields: Iterable[NestedField]) -> set[str]:
        return {folded(f.name) for f in fields} | (self._reserved if parent in _ROOTS else set())

    def _new_id(self, codec_id: int) -> int:
        self.last_id += 1
        self.columns[codec_id] = self.last_id
        return self.last_id

    def _remember(self, parent: int, written: Sequence[NestedField]) -> None:
        present = {each.name for each in written}
        for each in written:
            table_id = self.columns.get(each.field_id)
            if table_id is None:
                continue
            given = self._given.get(table_id, each.name)
            given = "" if given == each.name else given
            self._names.add(
                WrittenName(parent=parent, name=each.name, field_id=table_id, given=given)
            )
            for alias in self._aliases.get(each.field_id, ()):
                # Records of before the rename may still come, by a schema that isn't known yet.
                if alias not in present and not self._names.of(parent, alias):
                    self._names.add(WrittenName(parent=parent, name=alias, field_id=table_id))

    def _type(
        self, parent: int, column: IcebergType | None, written: IcebergType, path: str
    ) -> IcebergType:
        """What a column (None: a new one) becomes by what is written into it."""
        written = _stored(written)
        if isinstance(written, StructType) and isinstance(column, StructType | None):
            siblings = () if column is None else column.fields
            return StructType(*self.into(parent, siblings, written.fields, f"{path}."))
        if isinstance(written, ListType) and isinstance(column, ListType | None):
            return self._list_type(column, written, path)
        if isinstance(written, MapType) and isinstance(column, MapType | None):
            return self._map_type(column, written, path)
        if column is None:
            return written
        kind = _wider(column, written)
        if kind is None:
            raise Incompatible(f"column {path} is {column}, the schema has {written}")
        return kind

    def _list_type(self, column: ListType | None, written: ListType, path: str) -> IcebergType:
        path = f"{path}.element"
        if column is None:
            element_id = self._new_id(written.element_id)
            kind = self._type(element_id, None, written.element_type, path)
            return ListType(element_id=element_id, element_type=kind, element_required=False)
        self.columns[written.element_id] = column.element_id
        kind = self._type(column.element_id, column.element_type, written.element_type, path)
        # Made anew: a copy would keep what PyIceberg has cached of the old one.
        return ListType(
            element_id=column.element_id,
            element_type=kind,
            element_required=column.element_required,
        )

    def _map_type(self, column: MapType | None, written: MapType, path: str) -> IcebergType:
        if column is None:
            key_id, value_id = self._new_id(written.key_id), self._new_id(written.value_id)
            return MapType(
                key_id=key_id,
                key_type=self._type(key_id, None, written.key_type, f"{path}.key"),
                value_id=value_id,
                value_type=self._type(value_id, None, written.value_type, f"{path}.value"),
                value_required=False,
            )
        # Iceberg lets nobody change what a map's keys are.
        if _wider(column.key_type, _stored(written.key_type)) != column.key_type:
            raise Incompatible(
                f"column {path}.key is {column.key_type}, the schema has {written.key_type}"
            )
        self.columns[written.key_id] = column.key_id
        self.columns[written.value_id] = column.value_id
        kind = self._type(column.value_id, column.value_type, written.value_type, f"{path}.value")
        return MapType(
            key_id=column.key_id,
            key_type=column.key_type,
            value_id=column.value_id,
            value_type=kind,
            value_required=column.value_required,
        )


class _Matching:
    """Which column each field of one struct goes into.

    Attributes:
        found: the codec's id to the table's; None where the column was dropped. Fields that
            aren't here are new.
        by_aliases: those of them (codec's ids) that only an alias has found.
    """

    def __init__(
        self,
        parent: int,
        siblings: Sequence[NestedField],
        written: Sequence[NestedField],
        names: WrittenNames,
        ours: Set[int],
    ) -> None:
        self.found: dict[int, int | None] = {}
        self.by_aliases: set[int] = set()
        self._parent = parent
        self._written = written
        self._names = names
        self._ours = ours
        self._live = {f.field_id: f for f in siblings if f.field_id in ours}
        self._by_name = {f.name: f.field_id for f in self._live.values()}
        self._taken: set[int] = set()

    def by_written_name(self) -> None:
        """Those first whose column still has the name that it got for them."""
        for each in self._left():
            for entry in self._names.of(self._parent, each.name):
                column = self._live.get(entry.field_id)
                if column is not None and column.name in (each.name, entry.given):
                    self._take(each, entry.field_id)
        for each in self._left():
            self._take_newest(each, each.name)

    def by_column_name(self) -> None:
        for each in self._left():
            table_id = self._by_name.get(each.name)
            if table_id is not None and not self._names.is_given(table_id, each.name):
                self._take(each, table_id)

    def by_former_name(self, former: Sequence[Schema]) -> None:
        left = self._left()
        for schema in former if left else ():
            for column in _children(schema, self._parent):
                for each in left:
                    is_it = column.name == each.name and column.field_id in self._ours
                    if is_it and not self._names.is_given(column.field_id, each.name):
                        self._take(each, column.field_id)

    def by_alias(self, aliases: Mapping[int, tuple[str, ...]]) -> None:
        for each in self._left():
            for alias in aliases.get(each.field_id, ()):
                self._take_newest(each, alias)
                table_id = self._by_name.get(alias)
                if table_id is not None:
                    self._take(each, table_id)
                if self.found.get(each.field_id) is not None:
                    self.by_aliases.add(each.field_id)

    def _left(self) -> list[NestedField]:
        return [each for each in self._written if each.field_id not in self.found]

    def _take_newest(self, written: NestedField, name: str) -> None:
        """The newest column of that name which no other field of this schema has."""
        entries = self._names.of(self._parent, name)
        free = (e.field_id for e in entries if e.field_id not in self._taken)
        table_id = next(free, None)
        if table_id is not None:
            self._take(written, table_id)

    def _take(self, written: NestedField, table_id: int) -> None:
        if written.field_id in self.found or table_id in self._taken:
            return
        self._taken.add(table_id)
        self.found[written.field_id] = table_id if table_id in self._live else None


def distinct_name(name: str, taken: Set[str]) -> str:
    """A column name for a field: `.` becomes `_`, and what is taken gets `_2`, `_3` ... behind.

    Args:
        taken: folded names.
    """
    plain = name.replace(".", "_") or "_"
    candidate, number = plain, 1
    while folded(candidate) in taken:
        number += 1
        candidate = f"{plain}_{number}"
    return candidate


def folded(name: str) -> str:
    """Equal for names that some engine takes for the same: Spark ignores case."""
    return name.upper().lower()


def _children(schema: Schema, parent: int) -> Sequence[NestedField]:
    if parent in _ROOTS:
        return schema.fields
    holder = schema._lazy_id_to_field.get(parent)
    kind = None if holder is None else holder.field_type
    return kind.fields if isinstance(kind, StructType) else ()


def _stored(written: IcebergType) -> IcebergType:
    """The type that tables have for a writer's.

    Not `uuid`: Java's order of them isn't that of Parquet's statistics, so Spark (Iceberg 1.12)
    finds few of the rows that a filter asks for.
    """
    return FixedType(_UUID_BYTES) if isinstance(written, UUIDType) else written


def _wider(column: IcebergType, written: IcebergType) -> IcebergType | None:
    """The type that holds both; None where Iceberg can't make the one into the other."""
    if not isinstance(column, PrimitiveType) or not isinstance(written, PrimitiveType):
        return None
    if column == written:
        return column
    if isinstance(column, DecimalType) and isinstance(written, DecimalType):
        if column.scale != written.scale:
            return None
        return column if column.precision >= written.precision else written
    for narrow, wide in ((IntegerType, LongType), (FloatType, DoubleType)):
        if {type(column), type(written)} == {narrow, wide}:
            return wide()
    return None
