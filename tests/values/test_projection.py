"""Columns of a codec in a table's files and back, by ids: compared with rows as Python has them."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from shaped_codec import ARROW, SHAPES, ShapedCodec, numbered, values

from tiering.errors import FatalError
from tiering.values.arrow_fields import arrow_field
from tiering.values.projection import ROOT, ColumnBinding

KEY_SHAPES = st.dictionaries(st.sampled_from("ab"), SHAPES, min_size=1)
FAR = 1000
"""What is added to the codec's ids to make the table's."""


def far(kind: IcebergType, draw: Any = None) -> IcebergType:
    """A type under the table's ids; with `draw`: widened, shuffled, with more and fewer fields."""
    if isinstance(kind, StructType):
        fields = [far_field(f, draw) for f in kind.fields]
        if draw is not None:
            fields = draw(st.permutations(fields))
            if len(fields) > 1 and draw(st.booleans()):
                fields = fields[1:]
            if draw(st.booleans()):
                fields = [NestedField(9000 + fields[0].field_id, "theirs", LongType()), *fields]
        return StructType(*fields)
    if isinstance(kind, ListType):
        return ListType(FAR + kind.element_id, far(kind.element_type, draw), element_required=False)
    if isinstance(kind, MapType):
        return MapType(
            FAR + kind.key_id, far(kind.key_type), FAR + kind.value_id,
            far(kind.value_type, draw), value_required=False,
        )  # fmt: skip
    wider = {
        IntegerType(): LongType(),
        FloatType(): DoubleType(),
        DecimalType(9, 2): DecimalType(20, 2),
    }
    return wider.get(kind, kind) if draw is not None and draw(st.booleans()) else kind


def far_field(field: NestedField, draw: Any = None) -> NestedField:
    name = field.name if draw is None else draw(st.sampled_from([field.name, f"{field.name}_2"]))
    return NestedField(FAR + field.field_id, name, far(field.field_type, draw), required=False)


def bound(codec: ShapedCodec) -> ColumnBinding:
    ids = codec.schema.field_ids
    return ColumnBinding(codec=codec, columns={i: FAR + i for i in ids})


def seen(value: Any, written: IcebergType, column: IcebergType) -> Any:
    """What a table must show of a value: found by ids, in plain Python."""
    if value is None:
        return None
    if isinstance(written, StructType) and isinstance(column, StructType):
        by_id = {FAR + f.field_id: f for f in written.fields}
        return {
            c.name: seen(value[by_id[c.field_id].name], by_id[c.field_id].field_type, c.field_type)
            if c.field_id in by_id
            else None
            for c in column.fields
        }
    if isinstance(written, ListType) and isinstance(column, ListType):
        return [seen(each, written.element_type, column.element_type) for each in value]
    if isinstance(written, MapType) and isinstance(column, MapType):
        return [(k, seen(v, written.value_type, column.value_type)) for k, v in value]
    return value


def back(value: Any, written: IcebergType, column: IcebergType) -> Any:
    """What must come back of it: null where the table has no column."""
    if value is None:
        return None
    if isinstance(written, StructType) and isinstance(column, StructType):
        by_id = {c.field_id: c for c in column.fields}
        return {
            f.name: back(value[f.name], f.field_type, by_id[FAR + f.field_id].field_type)
            if FAR + f.field_id in by_id
            else None
            for f in written.fields
        }
    if isinstance(written, ListType) and isinstance(column, ListType):
        return [back(each, written.element_type, column.element_type) for each in value]
    if isinstance(written, MapType) and isinstance(column, MapType):
        return [(k, back(v, written.value_type, column.value_type)) for k, v in value]
    return value


def stripped(kind: Any) -> Any:
    """An Arrow type with the bytes of uuids instead."""
    if isinstance(kind, pa.UuidType):
        return pa.binary(16)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(stripped(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(stripped(kind.key_type), stripped(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(stripped(kind.value_type)))
    return kind


def without_uuids(field: Any) -> Any:
    """A file's field as some writers make it: bytes, without Parquet's uuid type."""
    return field.with_type(stripped(field.type))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_columns_there_and_back(data: Any) -> None:
    shape = data.draw(st.dictionaries(st.sampled_from("abcd"), SHAPES, min_size=1, max_size=4))
    codec = ShapedCodec(numbered(shape))
    record = codec.schema.as_struct()
    rows = data.draw(st.lists(values(record), max_size=6))
    table = far(record, data.draw)
    assert isinstance(table, StructType)
    fields = [without_uuids(arrow_field(f)) for f in table.fields]
    start = data.draw(st.integers(0, len(rows)))
    columns = codec.rows(rows)[start:]

    arrays = bound(codec).to_table(columns, fields)

    for array, field, column in zip(arrays, fields, table.fields, strict=True):
        array.validate(full=True)
        assert array.type == field.type
        expected = [seen(row, record, table) for row in rows[start:]]
        assert array.to_pylist() == [None if e is None else e[column.name] for e in expected]
    back_again = bound(codec).from_table([a.slice(0) for a in arrays], fields)
    back_again.validate(full=True)
    assert back_again.type == codec.arrow
    nothing = {f.name: None for f in record.fields}
    assert back_again.to_pylist() == [
        nothing if row is None else back(row, record, table) for row in rows[start:]
    ]
    bare = [pa.array(a.to_pylist(), without_ids(a.type)) for a in arrays]
    assert bound(codec).from_table(bare, fields).to_pylist() == back_again.to_pylist()
    half = len(arrays[0]) // 2
    sliced = bound(codec).from_table([a.slice(half) for a in arrays], fields)
    assert sliced.to_pylist() == back_again.to_pylist()[half:]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_keys_record_is_one_struct_column(data: Any) -> None:
    codec = ShapedCodec(
        numbered(data.draw(st.dictionaries(st.sampled_from("ab"), SHAPES, min_size=1)))
    )
    record = codec.schema.as_struct()
    rows = data.draw(st.lists(values(record), min_size=1, max_size=5))
    binding = ColumnBinding(
        codec=codec, columns={ROOT: 77, **{i: FAR + i for i in codec.schema.field_ids}}
    )
    other = NestedField(5, "kafka_offset", LongType())
    key = NestedField(77, "key", far(record))
    fields = [without_uuids(arrow_field(f)) for f in (other, key)]
    offsets, keys = binding.to_table(codec.rows(rows), fields)
    assert offsets.null_count == len(rows)
    assert keys.to_pylist() == [seen(row, record, key.field_type) for row in rows]
    assert binding.from_table([offsets, keys], fields).to_pylist() == rows
    assert binding.from_table([offsets], fields[:1]).to_pylist() == [None] * len(rows)


def without_ids(kind: pa.DataType) -> pa.DataType:
    """A type as readers give it who cast what older files hold."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, without_ids(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(without_ids(kind.key_type), without_ids(kind.item_type))
    return pa.list_(without_ids(kind.value_type)) if pa.types.is_list(kind) else kind


def one(kind: IcebergType, stored: IcebergType) -> tuple[ColumnBinding, list[pa.Field]]:
    """A codec of one field, and its column."""
    codec = ShapedCodec(numbered({"a": kind}))
    return bound(codec), [without_uuids(arrow_field(NestedField(FAR + 1, "a", stored)))]


@pytest.mark.parametrize("kind", list(ARROW), ids=str)
def test_equal_types_are_not_copied(kind: IcebergType) -> None:
    binding, fields = one(kind, kind)
    columns = pa.nulls(3, binding.codec.arrow)
    columns = pa.StructArray.from_arrays([pa.nulls(3, ARROW[kind])], fields=list(columns.type))
    (array,) = binding.to_table(columns, fields)
    there = columns.field(0).buffers()[-1]
    assert array.buffers()[-1].address == there.address
    assert binding.from_table([array], fields).field(0).buffers()[-1].address == there.address


def test_elements_of_lists_are_not_copied() -> None:
    codec = ShapedCodec(numbered({"a": [LongType()]}))
    columns = codec.rows([{"a": [1, 2]}, {"a": None}, {"a": [3]}])
    (array,) = bound(codec).to_table(columns, [arrow_field(far_field(codec.schema.fields[0]))])
    assert array.values.buffers()[1].address == columns.field(0).values.buffers()[1].address


@pytest.mark.parametrize(
    ("written", "column", "given_values", "expected"),
    [
        (
            IntegerType(),
            LongType(),
            [2**31, -(2**31) - 1, 2**31 - 1, -(2**31), None],
            [None, None, 2**31 - 1, -(2**31), None],
        ),
        (
            FloatType(),
            DoubleType(),
            [0.1, 0.5, 1e300, float("inf")],
            [None, 0.5, None, float("inf")],
        ),
        (
            DecimalType(9, 2),
            DecimalType(20, 2),
            [Decimal("9999999.99"), Decimal("10000000.00"), Decimal("-10000000.00")],
            [Decimal("9999999.99"), None, None],
        ),
        # Somebody's column of another type: nothing of it is the writer's.
        (StringType(), LongType(), [1], ["1"]),
        (BinaryType(), LongType(), [1], [None]),
        (LongType(), StringType(), ["x"], [None]),
        (DecimalType(9, 2), DecimalType(9, 2), [Decimal("1.10")], [Decimal("1.10")]),
    ],
)
def test_what_does_not_fit_the_writers_type_comes_back_as_null(
    written: IcebergType, column: IcebergType, given_values: list[Any], expected: list[Any]
) -> None:
    binding, fields = one(written, column)
    array = pa.array(given_values, fields[0].type)
    assert binding.from_table([array], fields).field(0).to_pylist() == expected


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800000, 0x80000000, 0x00000001])
def test_floats_keep_their_bits_in_doubles(bits: int) -> None:
    binding, fields = one(FloatType(), DoubleType())
    array = pa.Array.from_buffers(pa.float32(), 1, [None, pa.py_buffer(struct.pack("<I", bits))])
    columns = pa.StructArray.from_arrays([array], names=["a"])
    (wide,) = binding.to_table(columns, fields)
    narrow = binding.from_table([wide], fields).field(0)
    assert narrow.null_count == 0
    assert struct.unpack("<I", narrow.buffers()[1].to_pybytes()[:4]) == (bits,)


def test_uuids_have_parquets_own_type() -> None:
    codec = ShapedCodec(numbered({"a": UUIDType(), "b": [UUIDType()]}))
    fields = [arrow_field(far_field(f)) for f in codec.schema.fields]
    assert fields[0].type == pa.uuid()
    columns = codec.rows([{"a": b"0123456789abcdef", "b": [b"fedcba9876543210", None]}, None])
    arrays = bound(codec).to_table(columns, fields)
    assert [a.type for a in arrays] == [f.type for f in fields]
    assert arrays[0].storage.to_pylist() == [b"0123456789abcdef", None]
    assert bound(codec).from_table(arrays, fields).to_pylist()[0] == columns.to_pylist()[0]


def test_columns_that_cannot_hold_the_codecs_type_are_refused() -> None:
    binding, fields = one(StringType(), LongType())
    columns = pa.array([{"a": "x"}], binding.codec.arrow)
    with pytest.raises(FatalError, match="int64 can't hold the schema's string"):
        binding.to_table(columns, fields)


def test_garbage_under_null_structs_and_lists_is_not_shown() -> None:
    """Validity of the outer counts, whatever the inner arrays hold below it."""
    codec = ShapedCodec(numbered({"s": {"x": LongType()}, "l": [LongType()]}))
    inner = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3])], names=["x"], mask=pa.array([False, True, False])
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), pa.array([1, 2, 3]), type=codec.arrow.field("l").type,
        mask=pa.array([False, True, False]),
    )  # fmt: skip
    columns = pa.StructArray.from_arrays(
        [inner, lists], fields=list(codec.arrow), mask=pa.array([True, False, False])
    )
    fields = [arrow_field(far_field(f)) for f in codec.schema.fields]
    structs, found = bound(codec).to_table(columns, fields)
    assert structs.to_pylist() == [None, None, {"x": 3}]
    assert found.to_pylist() == [None, None, [3]]
