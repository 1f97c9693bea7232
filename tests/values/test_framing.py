"""The wire format's prefix, against plain Python and Confluent's serializers' bytes."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from tiering.values.framing import NO_SCHEMA, framed, payloads_of, schema_ids

ID_MAX = 2**31 - 1

framed_values = st.builds(
    lambda number, payload: struct.pack(">bI", 0, number) + payload,
    st.integers(0, 2**32 - 1) | st.sampled_from([1, ID_MAX, ID_MAX + 1]),
    st.binary(max_size=40),
)
columns = st.lists(st.none() | st.binary(max_size=9) | framed_values, max_size=30)
cuts = st.tuples(st.integers(0, 5), st.integers(0, 30))


def plain_id(value: bytes | None) -> int:
    if value is None or len(value) < 5 or value[0] != 0:
        return NO_SCHEMA
    number: int = struct.unpack(">I", value[1:5])[0]
    return number if 0 < number <= ID_MAX else NO_SCHEMA


@given(columns, cuts)
def test_ids_and_payloads_are_those_of_plain_python(
    values: list[bytes | None], cut: tuple[int, int]
) -> None:
    column = pa.array(values, pa.binary()).slice(*cut)
    kept = column.to_pylist()
    ids = schema_ids(column)
    assert ids.tolist() == [plain_id(value) for value in kept]
    with_prefix = ids != NO_SCHEMA
    expected = [v[5:] for v, own in zip(kept, with_prefix, strict=True) if v is not None and own]
    for rows in (with_prefix, np.flatnonzero(with_prefix)):
        payloads = payloads_of(column, rows)
        payloads.validate(full=True)
        assert payloads.to_pylist() == expected
    backwards = payloads_of(column, np.flatnonzero(with_prefix)[::-1])
    assert backwards.to_pylist() == expected[::-1]


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), cuts, st.integers(1, ID_MAX))
def test_a_prefix_comes_before_each_payload_but_not_before_null(
    payloads: list[bytes | None], cut: tuple[int, int], schema_id: int
) -> None:
    column = pa.array(payloads, pa.binary()).slice(*cut)
    values = framed(column, schema_id)
    values.validate(full=True)
    prefix = SchemaId("AVRO", schema_id).id_to_bytes()
    assert values.to_pylist() == [
        None if each is None else prefix + each for each in column.to_pylist()
    ]
    present = values.is_valid().to_numpy(zero_copy_only=False)
    assert schema_ids(values).tolist() == [schema_id if p else NO_SCHEMA for p in present]
    assert payloads_of(values, present).equals(column.drop_null())


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0"])
def test_a_row_without_room_for_a_prefix_has_no_payload(value: bytes | None) -> None:
    column = pa.array([b"\0\0\0\0\1x", value], pa.binary())
    assert payloads_of(column, np.array([True, False])).to_pylist() == [b"x"]
    with pytest.raises(ValueError, match="no prefix"):
        payloads_of(column, np.array([True, True]))


def test_a_null_whose_bytes_look_framed_has_no_prefix() -> None:
    """A null's bytes aren't defined: they may be anything."""
    shown = pa.array([b"\0\0\0\0\1x", b"\0\0\0\0\2y"], pa.binary())
    hidden = pa.BinaryArray.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x01"), *shown.buffers()[1:]]
    )
    assert schema_ids(hidden).tolist() == [1, NO_SCHEMA]
    with pytest.raises(ValueError, match="no prefix"):
        payloads_of(hidden, np.array([1]))
    again = framed(hidden, 7)
    again.validate(full=True)
    assert again.to_pylist() == [b"\0\0\0\0\7" + b"\0\0\0\0\1x", None]


@pytest.mark.parametrize("schema_id", [-1, 0, ID_MAX + 1])
def test_what_is_no_id_is_refused(schema_id: int) -> None:
    with pytest.raises(ValueError, match="no schema id"):
        framed(pa.array([b"x"], pa.binary()), schema_id)


def test_values_beyond_an_array_are_refused_before_anything_is_taken() -> None:
    rows = np.zeros(3, np.int64)
    large = pa.array([b"\0\0\0\0\1" + bytes(800_000_000)], pa.binary())
    with pytest.raises(OverflowError, match="2400000000 bytes"):
        payloads_of(large, rows)
