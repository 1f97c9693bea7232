"""A stand-in for a codec where only its columns matter, and random schemas and values for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
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
    UUIDType,
)

from tiering.values.codec import Decoded

ARROW: Mapping[IcebergType, Any] = {
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    FloatType(): pa.float32(),
    DoubleType(): pa.float64(),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    DateType(): pa.date32(),
    TimestampType(): pa.timestamp("us"),
    TimestamptzType(): pa.timestamp("us", tz="UTC"),
    UUIDType(): pa.binary(16),
    FixedType(4): pa.binary(4),
    FixedType(12): pa.binary(12),
    FixedType(16): pa.binary(16),
    DecimalType(9, 2): pa.decimal128(9, 2),
    DecimalType(20, 2): pa.decimal128(20, 2),
    DecimalType(38, 0): pa.decimal128(38, 0),
}
"""Every type that a codec's columns may have, as the codec has it in Arrow."""


@dataclass(frozen=True, eq=False)
class ShapedCodec:
    """Columns without bytes."""

    schema: Schema

    @property
    def arrow(self) -> pa.StructType:
        return pa.struct([pa.field(f.name, arrow(f.field_type)) for f in self.schema.fields])

    @property
    def aliases(self) -> Mapping[int, tuple[str, ...]]:
        return {}

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        raise NotImplementedError

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        raise NotImplementedError

    def rows(self, rows: list[dict[str, Any] | None]) -> pa.StructArray:
        return pa.array(rows, self.arrow)


def arrow(kind: IcebergType) -> Any:
    """A type as a codec has it in Arrow."""
    if isinstance(kind, StructType):
        return pa.struct([pa.field(f.name, arrow(f.field_type)) for f in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(pa.field("element", arrow(kind.element_type)))
    if isinstance(kind, MapType):
        return pa.map_(
            pa.field("key", arrow(kind.key_type), nullable=False), arrow(kind.value_type)
        )
    return ARROW[kind]


def numbered(fields: Mapping[str, Any]) -> Schema:
    """A codec's schema, numbered in pre-order: {name: type}, where a type is one of Iceberg's
    primitives, a mapping (struct), a list of one type, or a pair of key and value type (map)."""
    ids = iter(range(1, 10_000))

    def kind(shape: Any) -> IcebergType:
        if isinstance(shape, Mapping):
            return StructType(*(field(name, each) for name, each in shape.items()))
        if isinstance(shape, list):
            element_id = next(ids)
            return ListType(element_id, kind(shape[0]), element_required=False)
        if isinstance(shape, tuple):
            key_id = next(ids)
            key, value_id = kind(shape[0]), next(ids)
            return MapType(key_id, key, value_id, kind(shape[1]), value_required=False)
        assert isinstance(shape, IcebergType)
        return shape

    def field(name: str, shape: Any) -> NestedField:
        field_id = next(ids)
        return NestedField(field_id, name, kind(shape), required=False)

    return Schema(*(field(name, shape) for name, shape in fields.items()))


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - as pyarrow gives it back
_MICROS = st.integers(-(10**15), 10**15).map(lambda us: EPOCH + timedelta(microseconds=us))


def values(kind: IcebergType) -> st.SearchStrategy[Any]:
    """Values of a type as pyarrow takes and gives them; nulls too."""
    return st.none() | present(kind)


def present(kind: IcebergType) -> st.SearchStrategy[Any]:
    if isinstance(kind, StructType):
        return st.fixed_dictionaries({f.name: values(f.field_type) for f in kind.fields})
    if isinstance(kind, ListType):
        return st.lists(values(kind.element_type), max_size=3)
    if isinstance(kind, MapType):
        pair = st.tuples(present(kind.key_type), values(kind.value_type))
        return st.lists(pair, max_size=3, unique_by=lambda each: each[0])
    if isinstance(kind, DecimalType):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{kind.scale}"))
    if isinstance(kind, FixedType):
        return st.binary(min_size=len(kind), max_size=len(kind))
    return _PRESENT[type(kind)]


_PRESENT: Mapping[type[IcebergType], st.SearchStrategy[Any]] = {
    BooleanType: st.booleans(),
    IntegerType: st.integers(-(2**31), 2**31 - 1),
    LongType: st.integers(-(2**63), 2**63 - 1),
    FloatType: st.floats(width=32, allow_nan=False),
    DoubleType: st.floats(allow_nan=False),
    StringType: st.text(max_size=4),
    BinaryType: st.binary(max_size=4),
    DateType: st.dates(date(1, 1, 1)),
    TimestampType: _MICROS.map(lambda each: each.replace(tzinfo=None)),
    TimestamptzType: _MICROS,
    UUIDType: st.binary(min_size=16, max_size=16),
}

NAMES = st.sampled_from(["a", "b", "A", "x.y", "x_y", "größe", "🐟", "kafka_offset", "value"])
SHAPES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(list(ARROW)),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=1)
        | st.tuples(st.just(StringType()), inner)
        | st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
"""As `numbered` takes them."""
