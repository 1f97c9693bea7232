"""The columns of a schema: their place in tables, their Arrow type and how their bytes lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from tiering.values.avro.tree import (
    Array,
    Leaf,
    LeafKind,
    Map,
    Node,
    Record,
    Union,
    holds_column,
)
from tiering.values.codec import WHOLE_VALUE

__all__ = ["Column", "Layout", "Storage", "layout_of"]


class Storage(IntEnum):
    """How a column lies in memory, beside its validity bitmap."""

    STRUCT = 0
    """Nothing of its own."""
    BITS = 1
    WORDS = 2
    """`width` bytes per element."""
    LISTS = 3
    """Borders in a level below."""
    BYTES = 4
    """Borders in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A node of the tree of Arrow arrays.

    Attributes:
        index: number in pre-order.
        stop: the number after the last one inside it.
        level: which cursor counts its elements: 0 are payloads, each list or map has another one
            for what is in it.
        inner: the level of what is in a list or map.
        width: bytes per element, for WORDS.
        children: as Arrow has them; a map's is the struct of its entries.
    """

    index: int
    stop: int
    level: int
    storage: Storage
    arrow: Any
    width: int = 0
    inner: int = 0
    children: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All columns: `root` is the struct of those at the top, and `columns` are in pre-order."""

    schema: Schema
    aliases: Mapping[int, tuple[str, ...]]
    root: Column
    columns: tuple[Column, ...]
    levels: int


_MICROS: Final = pa.timestamp("us")
_MICROS_UTC: Final = pa.timestamp("us", tz="UTC")

_LEAVES: Final[Mapping[LeafKind, tuple[IcebergType, Any, Storage, int]]] = {
    LeafKind.BOOLEAN: (BooleanType(), pa.bool_(), Storage.BITS, 0),
    LeafKind.INT: (IntegerType(), pa.int32(), Storage.WORDS, 4),
    LeafKind.LONG: (LongType(), pa.int64(), Storage.WORDS, 8),
    LeafKind.FLOAT: (FloatType(), pa.float32(), Storage.WORDS, 4),
    LeafKind.DOUBLE: (DoubleType(), pa.float64(), Storage.WORDS, 8),
    LeafKind.BYTES: (BinaryType(), pa.binary(), Storage.BYTES, 0),
    LeafKind.STRING: (StringType(), pa.string(), Storage.BYTES, 0),
    LeafKind.ENUM: (StringType(), pa.string(), Storage.BYTES, 0),
    LeafKind.DATE: (DateType(), pa.date32(), Storage.WORDS, 4),
    LeafKind.TIMESTAMP_MILLIS: (TimestamptzType(), _MICROS_UTC, Storage.WORDS, 8),
    LeafKind.TIMESTAMP_MICROS: (TimestamptzType(), _MICROS_UTC, Storage.WORDS, 8),
    LeafKind.LOCAL_TIMESTAMP_MILLIS: (TimestampType(), _MICROS, Storage.WORDS, 8),
    LeafKind.LOCAL_TIMESTAMP_MICROS: (TimestampType(), _MICROS, Storage.WORDS, 8),
}


def layout_of(node: Node) -> Layout:
    """The columns of a schema's tree. What isn't a record becomes one column `value`."""
    maker = _Maker()
    if isinstance(node, Record):
        fields, root = maker.record(node)
    else:
        number = maker.take_column()
        fields, children = maker.members([(WHOLE_VALUE, node, ())], level=0)
        root = maker.struct(number, 0, fields, children)
    return Layout(
        schema=Schema(*fields, schema_id=0),
        aliases=maker.aliases,
        root=root,
        columns=tuple(sorted(maker.columns, key=lambda column: column.index)),
        levels=maker.levels,
    )


def _leaf_form(leaf: Leaf) -> tuple[IcebergType, Any, Storage, int]:
    if leaf.kind in (LeafKind.DECIMAL_BYTES, LeafKind.DECIMAL_FIXED):
        arrow = pa.decimal128(leaf.precision, leaf.scale)
        return DecimalType(leaf.precision, leaf.scale), arrow, Storage.WORDS, 16
    if leaf.kind is LeafKind.FIXED:
        return FixedType(leaf.size), pa.binary(leaf.size), Storage.WORDS, leaf.size
    return _LEAVES[leaf.kind]


@dataclass(slots=True)
class _Maker:
    """Counts ids, columns and levels while it goes through the tree in pre-order."""

    aliases: dict[int, tuple[str, ...]] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=list)
    levels: int = 1
    _ids: int = 0
    _taken: int = 0

    def _id(self) -> int:
        self._ids += 1
        return self._ids

    def take_column(self) -> int:
        """The next column's number."""
        self._taken += 1
        return self._taken - 1

    def _column(self, **of: Any) -> Column:
        made = Column(stop=self._taken, **of)
        self.columns.append(made)
        return made

    def struct(
        self, number: int, level: int, fields: list[NestedField], children: tuple[Column, ...]
    ) -> Column:
        """A struct whose members are made already."""
        arrow = pa.struct(
            [pa.field(f.name, child.arrow) for f, child in zip(fields, children, strict=True)]
        )
        return self._column(
            index=number, level=level, storage=Storage.STRUCT, arrow=arrow, children=children
        )

    def members(
        self, named: list[tuple[str, Node, tuple[str, ...]]], level: int
    ) -> tuple[list[NestedField], tuple[Column, ...]]:
        """Fields and columns of those members of a struct that have a column."""
        fields, children = [], []
        for name, node, aliases in named:
            if not holds_column(node):
                continue
            number = self._id()
            if aliases:
                self.aliases[number] = aliases
            kind, column = self._made(node, level)
            fields.append(NestedField(number, name, kind, required=False, doc=_unit(node)))
            children.append(column)
        return fields, tuple(children)

    def record(self, node: Record, level: int = 0) -> tuple[list[NestedField], Column]:
        """A record's fields and its struct."""
        number = self.take_column()
        named = [(each.name, each.node, each.aliases) for each in node.fields]
        fields, children = self.members(named, level)
        return fields, self.struct(number, level, fields, children)

    def _made(self, node: Node, level: int) -> tuple[IcebergType, Column]:
        match node:
            case Leaf():
                kind, arrow, storage, width = _leaf_form(node)
                number = self.take_column()
                return kind, self._column(
                    index=number, level=level, storage=storage, width=width, arrow=arrow
                )
            case Record():
                fields, column = self.record(node, level)
                return StructType(*fields), column
            case Array():
                return self._array(node, level)
            case Map():
                return self._map(node, level)
            case Union():
                return self._union(node, level)

    def _array(self, node: Array, level: int) -> tuple[IcebergType, Column]:
        number, inner, element = self.take_column(), self.levels, self._id()
        self.levels += 1
        kind, child = self._made(node.items, inner)
        arrow = pa.list_(pa.field("element", child.arrow))
        return ListType(element, kind, element_required=False), self._column(
            index=number,
            level=level,
            inner=inner,
            storage=Storage.LISTS,
            arrow=arrow,
            children=(child,),
        )

    def _map(self, node: Map, level: int) -> tuple[IcebergType, Column]:
        number, inner, key, value = self.take_column(), self.levels, self._id(), self._id()
        self.levels += 1
        entries = self.take_column()
        _, keys = self._made(Leaf(kind=LeafKind.STRING), inner)
        kind, values = self._made(node.values, inner)
        arrow = pa.map_(pa.string(), pa.field("value", values.arrow))
        entry = self._column(
            index=entries,
            level=inner,
            storage=Storage.STRUCT,
            arrow=pa.struct([arrow.key_field, arrow.item_field]),
            children=(keys, values),
        )
        return MapType(key, StringType(), value, kind, value_required=False), self._column(
            index=number,
            level=level,
            inner=inner,
            storage=Storage.LISTS,
            arrow=arrow,
            children=(entry,),
        )

    def _union(self, node: Union, level: int) -> tuple[IcebergType, Column]:
        if not node.is_tagged:
            return self._made(node.others[0], level)
        number = self.take_column()
        named: list[tuple[str, Node, tuple[str, ...]]] = [("tag", Leaf(kind=LeafKind.INT), ())]
        named += [(f"field{i}", branch, ()) for i, branch in enumerate(node.others)]
        fields, children = self.members(named, level)
        return StructType(*fields), self.struct(number, level, fields, children)


def _unit(node: Node) -> str | None:
    """What the numbers of a column count, for its `doc`."""
    if isinstance(node, Union) and not node.is_tagged:
        return _unit(node.others[0])
    return node.unit if isinstance(node, Leaf) else None
