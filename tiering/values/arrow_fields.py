"""Iceberg fields as the Arrow fields that data files are written with.

As PyIceberg's own, but with small offsets (32 bits), which is how batches come, and with the field
id of everything inside (Iceberg spec, "Parquet").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
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
    TimeType,
    UUIDType,
)

from tiering.errors import FatalError

__all__ = ["FIELD_ID", "arrow_field", "field_id", "leaf_paths"]

FIELD_ID: Final = b"PARQUET:field_id"
"""Key of the metadata that holds a field's Iceberg id."""

_PLAIN: Final[dict[type[IcebergType], Any]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
}


def arrow_field(field: NestedField) -> pa.Field:
    """The field with everything in it. Raises FatalError for a type that isn't known here."""
    kind = _arrow_type(field.name, field.field_type)
    return _named(field.name, kind, field.field_id, required=field.required)


def field_id(field: Any) -> int:
    """The Iceberg id of an Arrow field made here."""
    return int(field.metadata[FIELD_ID])


def leaf_paths(field: Any) -> list[tuple[int, str]]:
    """(field id, Parquet path) of every leaf column of an Arrow field, in the file's order."""
    return _leaves(field, field.name)


def _leaves(field: Any, path: str) -> list[tuple[int, str]]:
    kind = field.type
    if pa.types.is_struct(kind):
        return [leaf for child in kind for leaf in _leaves(child, f"{path}.{child.name}")]
    if pa.types.is_map(kind):
        return [
            *_leaves(kind.key_field, f"{path}.key_value.key"),
            *_leaves(kind.item_field, f"{path}.key_value.value"),
        ]
    if pa.types.is_list(kind):
        return _leaves(kind.value_field, f"{path}.list.element")
    return [(field_id(field), path)]


def _named(name: str, kind: Any, number: int, *, required: bool) -> Any:
    return pa.field(name, kind, nullable=not required, metadata={FIELD_ID: str(number).encode()})


def _arrow_type(name: str, kind: IcebergType) -> Any:
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return plain
    for known, made in _MADE:
        if isinstance(kind, known):
            return made(name, kind)
    raise FatalError(f"column {name}: type {kind} can't be written")


def _struct(name: str, kind: StructType) -> Any:
    return pa.struct([arrow_field(child) for child in kind.fields])


def _list(name: str, kind: ListType) -> Any:
    element = _arrow_type(f"{name}.element", kind.element_type)
    return pa.list_(_named("element", element, kind.element_id, required=kind.element_required))


def _map(name: str, kind: MapType) -> Any:
    key = _arrow_type(f"{name}.key", kind.key_type)
    value = _arrow_type(f"{name}.value", kind.value_type)
    return pa.map_(
        _named("key", key, kind.key_id, required=True),
        _named("value", value, kind.value_id, required=kind.value_required),
    )


_MADE: Final[tuple[tuple[type[IcebergType], Callable[[str, Any], Any]], ...]] = (
    (StructType, _struct),
    (ListType, _list),
    (MapType, _map),
    (DecimalType, lambda _, kind: pa.decimal128(kind.precision, kind.scale)),
    (FixedType, lambda _, kind: pa.binary(len(kind))),
)
