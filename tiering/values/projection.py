"""Between a codec's columns and a table's: by field id, at every level.

A table's column may be wider than the writer's type, lie elsewhere among its siblings and have
another name; it may have children that the writer doesn't know, and lack some that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tiering.errors import FatalError
from tiering.values.arrow_fields import field_id
from tiering.values.codec import ValueCodec

__all__ = ["ROOT", "ColumnBinding"]

ROOT: Final = 0
"""Stands among a codec's ids for its whole record, where that is one struct column of the table
(keys); the codec's own ids start with 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnBinding:
    """A codec and where a table has its fields (`StoredSchema.columns`).

    Fields that aren't bound have no column: somebody has dropped it. `ROOT` is bound where the
    codec's record is one struct column.
    """

    codec: ValueCodec
    columns: Mapping[int, int]
    _root: _Node = field(init=False, repr=False)
    _table_ids: Mapping[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        root = _Node(ROOT, self.codec.arrow, _nodes(self.codec.schema.fields, self.codec.arrow))
        object.__setattr__(self, "_root", root)
        # A plain copy: it is asked for every field of every batch.
        object.__setattr__(self, "_table_ids", dict(self.columns))

    def to_table(self, columns: pa.StructArray, fields: Sequence[pa.Field]) -> list[pa.Array]:
        """A codec's columns as a data file's.

        Args:
            columns: of the codec's type; a null element gives nulls everywhere.
            fields: the file's top-level fields. They and all inside carry their Iceberg ids as
                Parquet's field ids.

        Returns an array for each of `fields`: of its very type, null where the codec has none.
        Raises FatalError where a column can't hold the codec's type.
        """
        if ROOT in self._table_ids:
            nodes, arrays = [self._root], [columns]
        else:
            nodes, arrays = list(self._root.children), columns.flatten()
        found = self._by_table_id(nodes, arrays)
        return [self._filled(each, found, len(columns)) for each in fields]

    def from_table(self, arrays: Sequence[pa.Array], fields: Sequence[pa.Field]) -> pa.StructArray:
        """The inverse: a data file's columns as the codec's.

        Whatever has no column is null, and so is a value that doesn't fit the writer's type
        (somebody has changed it). Elements are null only where the bound `ROOT` is.

        Args:
            arrays: all of one length; at least one. Their own types need no field ids.
            fields: one for each, with ids as in `to_table`.
        """
        given = {
            field_id(each): (each.type, array) for each, array in zip(fields, arrays, strict=True)
        }
        count = len(arrays[0])
        if ROOT in self._table_ids:
            return self._picked(self._root, given.get(self._table_ids[ROOT]), count)
        return self._struct_of(self._root, given, count, None)

    def _by_table_id(self, nodes: Sequence[_Node], arrays: Sequence[Any]) -> _Found:
        found = {}
        for node, array in zip(nodes, arrays, strict=True):
            table_id = self._table_ids.get(node.field_id)
            if table_id is not None:
                found[table_id] = (node, array)
        return found

    def _filled(self, target: Any, found: _Found, count: int) -> Any:
        """The array of one field of a file, from what there is at its level."""
        match = found.get(field_id(target))
        return pa.nulls(count, target.type) if match is None else self._widened(*match, target.type)

    def _widened(self, node: _Node, array: Any, kind: Any) -> Any:
        if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
            found = self._by_table_id(node.children, array.flatten())
            children = [self._filled(child, found, len(array)) for child in kind]
            return _struct_array(children, kind, array)
        if pa.types.is_map(kind) and pa.types.is_map(array.type):
            keys, items = node.children
            return _map_array(
                array,
                kind,
                lambda of: self._widened(keys, of, kind.key_type),
                lambda of: self._widened(items, of, kind.item_type),
            )
        if pa.types.is_list(kind) and pa.types.is_list(array.type):
            (element,) = node.children
            return _list_array(array, kind, lambda of: self._widened(element, of, kind.value_type))
        try:
            return _cast(array, kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise FatalError(f"a column of {kind} can't hold the schema's {array.type}") from error

    def _picked(self, node: _Node, column: _Column | None, count: int) -> Any:
        """The array of one of the codec's fields, from the column that is bound to it."""
        kind = node.kind
        if column is None:
            return pa.nulls(count, kind)
        held, array = column
        if pa.types.is_struct(kind) and pa.types.is_struct(held):
            given = {
                field_id(each): (each.type, child)
                for each, child in zip(held, array.flatten(), strict=True)
            }
            return self._struct_of(node, given, count, array)
        if pa.types.is_map(kind) and pa.types.is_map(held):
            keys, items = node.children
            return _map_array(
                array,
                kind,
                lambda of: self._picked(keys, (held.key_type, of), len(of)),
                lambda of: self._picked(items, (held.item_type, of), len(of)),
            )
        if pa.types.is_list(kind) and pa.types.is_list(held):
            (element,) = node.children
            return _list_array(
                array, kind, lambda of: self._picked(element, (held.value_type, of), len(of))
            )
        return _narrowed(array, kind)

    def _struct_of(
        self, node: _Node, given: Mapping[int, _Column], count: int, nulls_of: Any
    ) -> Any:
        children = []
        for child in node.children:
            table_id = self._table_ids.get(child.field_id)
            column = None if table_id is None else given.get(table_id)
            children.append(self._picked(child, column, count))
        return _struct_array(children, node.kind, nulls_of, count)


@dataclass(frozen=True, slots=True)
class _Node:
    """A field of a codec: its id, its Arrow type, and what is inside."""

    field_id: int
    kind: Any
    children: tuple[_Node, ...]


_Found = Mapping[int, tuple[_Node, Any]]
"""By the table's id: the codec's field and its array."""

_Column = tuple[Any, Any]
"""A type with the ids of everything inside, and the array: rows of files that were made before the
table's present schema come without ids."""


def _nodes(fields: Sequence[NestedField], arrow: Any) -> tuple[_Node, ...]:
    return tuple(
        _node(each.field_id, each.field_type, child.type)
        for each, child in zip(fields, arrow, strict=True)
    )


def _node(field_id: int, kind: IcebergType, arrow: Any) -> _Node:
    children: tuple[_Node, ...] = ()
    if isinstance(kind, StructType):
        children = _nodes(kind.fields, arrow)
    elif isinstance(kind, ListType):
        children = (_node(kind.element_id, kind.element_type, arrow.value_type),)
    elif isinstance(kind, MapType):
        children = (
            _node(kind.key_id, kind.key_type, arrow.key_type),
            _node(kind.value_id, kind.value_type, arrow.item_type),
        )
    return _Node(field_id, arrow, children)


def _struct_array(children: list[Any], kind: Any, nulls_of: Any, count: int = 0) -> Any:
    """A struct of these children, null where `nulls_of` is."""
    count = count if nulls_of is None else len(nulls_of)
    mask = None if nulls_of is None or not nulls_of.null_count else nulls_of.is_null()
    if not children:  # Arrow can't tell the length from no children.
        valid = np.ones(count, bool) if mask is None else ~mask.to_numpy(zero_copy_only=False)
        return pa.array([{} if each else None for each in valid], kind)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


_Child = Callable[[Any], Any]


def _list_array(array: Any, kind: Any, child: _Child) -> Any:
    if not len(array):
        return pa.nulls(0, kind)
    offsets, start, count = _offsets(array)
    values = child(array.values.slice(start, count))
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=_mask(array))


def _map_array(array: Any, kind: Any, key: _Child, item: _Child) -> Any:
    if not len(array):
        return pa.nulls(0, kind)
    offsets, start, count = _offsets(array)
    keys, items = key(array.keys.slice(start, count)), item(array.items.slice(start, count))
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=_mask(array))


def _mask(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _offsets(array: Any) -> tuple[Any, int, int]:
    """(offsets from 0, where the elements start, how many they are) of a list or map array,
    which may be a slice."""
    offsets = array.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    # Arrow takes a mask only beside offsets that aren't a slice themselves.
    is_plain = not start and not array.offset
    return pa.array(offsets if is_plain else offsets - np.int32(start)), start, end - start


def _cast(array: Any, kind: Any) -> Any:
    """An array as another type that holds all its values."""
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return _cast(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type))
    return array.cast(kind)


def _narrowed(array: Any, kind: Any) -> Any:
    """An array as a type that may be narrower; null what doesn't fit."""
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return _narrowed(array.storage, kind)
    if pa.types.is_float64(array.type) and pa.types.is_float32(kind):
        return _narrowed_float(array)
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        fits = _fitting(array, kind)
        if fits is None:
            return pa.nulls(len(array), kind)
        return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(array), kind)


def _narrowed_float(array: Any) -> Any:
    """Doubles as floats. Arrow rounds, so what comes back from there is compared."""
    narrow = array.cast(pa.float32(), safe=False)
    back = narrow.cast(pa.float64())
    same = pc.or_(pc.equal(back, array), pc.is_nan(array))
    return pc.if_else(same, narrow, pa.scalar(None, pa.float32()))


def _fitting(array: Any, kind: Any) -> Any:
    """Which values a narrower type holds; None where that can't be told."""
    if pa.types.is_integer(array.type) and pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        low, high = pa.scalar(int(limits.min), array.type), pa.scalar(int(limits.max), array.type)
    elif pa.types.is_decimal128(array.type) and pa.types.is_decimal128(kind):
        if array.type.scale != kind.scale:
            return None
        high = pa.scalar(_largest(kind), array.type)
        low = pc.negate(high)
    else:
        return None
    return pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))


def _largest(kind: Any) -> Any:
    return Decimal((0, (9,) * kind.precision, -kind.scale))
