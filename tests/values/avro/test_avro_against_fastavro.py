"""Columns and payloads of random schemas against what fastavro reads and writes."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from avro_cases import Schema, alike, expected_row, read, schemas, values, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiering.values.avro import AvroCodec
from tiering.values.avro.views import ColumnViews
from tiering.values.avro.writing import WRITE_SLACK

FEW = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, list[bytes]]:
    schema = draw(schemas())
    data = draw(st.lists(values(schema), min_size=1, max_size=6))
    return schema, [written(schema, datum) for datum in data]


def binary(payloads: list[bytes]) -> Any:
    return pa.array(payloads, pa.binary())


def rows_of(schema: Schema, payloads: list[bytes]) -> list[Any]:
    return [expected_row(schema, read(schema, payload)) for payload in payloads]


def assert_rows(columns: Any, rows: list[Any]) -> None:
    columns.validate(full=True)
    assert repr(alike(columns.to_pylist())) == repr(rows)  # tells -0.0 from 0.0; NaN is NaN


@FEW
@given(cases())
def test_columns_are_what_fastavro_reads(case: tuple[Schema, list[bytes]]) -> None:
    schema, payloads = case
    codec = AvroCodec(json.dumps(schema))
    decoded = codec.decode(binary(payloads))
    assert decoded.columns.type == codec.arrow
    assert not decoded.faults.any()
    assert not decoded.inexact.any()
    assert_rows(decoded.columns, rows_of(schema, payloads))


@FEW
@given(cases())
def test_encoding_gives_the_bytes_that_fastavro_wrote(case: tuple[Schema, list[bytes]]) -> None:
    schema, payloads = case
    codec = AvroCodec(json.dumps(schema))
    columns = codec.decode(binary(payloads)).columns
    assert codec.encode(columns).to_pylist() == payloads
    most = ColumnViews(codec._layout, codec._program, columns).bytes_max
    assert most >= sum(map(len, payloads)) + WRITE_SLACK


@FEW
@given(cases(), st.data())
def test_slices_and_selections(case: tuple[Schema, list[bytes]], data: st.DataObject) -> None:
    schema, payloads = case
    payloads = payloads * 4
    first = data.draw(st.integers(0, len(payloads)))
    count = data.draw(st.integers(0, len(payloads) - first))
    codec = AvroCodec(json.dumps(schema))
    part = payloads[first : first + count]
    decoded = codec.decode(binary(payloads).slice(first, count))
    assert_rows(decoded.columns, rows_of(schema, part))
    whole = codec.decode(binary(payloads)).columns
    assert codec.encode(whole.slice(first, count)).to_pylist() == part
    picks = data.draw(st.lists(st.integers(0, len(payloads) - 1), max_size=12))
    if whole.type.num_fields:  # Arrow can't take from a struct without members
        taken = whole.take(pa.array(picks, pa.int64()))
        assert codec.encode(taken).to_pylist() == [payloads[i] for i in picks]
        assert codec.encode(taken[1:]).to_pylist() == [payloads[i] for i in picks[1:]]


@settings(FEW, max_examples=40)
@given(cases())
def test_columns_that_went_through_parquet(case: tuple[Schema, list[bytes]]) -> None:
    schema, payloads = case
    codec = AvroCodec(json.dumps(schema))
    columns = codec.decode(binary(payloads)).columns
    if not columns.type.num_fields:
        return
    file = io.BytesIO()
    pq.write_table(pa.Table.from_struct_array(columns), file)
    table = pq.read_table(file).combine_chunks()
    back = [column.chunk(0) for column in table.columns]
    assert (
        codec.encode(pa.StructArray.from_arrays(back, table.column_names)).to_pylist() == payloads
    )


def test_one_codec_in_several_threads() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
        ],
    }
    codec = AvroCodec(json.dumps(schema))
    batches = [
        [
            written(schema, {"id": i * 7, "tags": {f"k{n}": None if i % 2 else "v" * n}})
            for i in range(2000)
        ]
        for n in range(8)
    ]

    def there_and_back(payloads: list[bytes]) -> bool:
        return bool(codec.encode(codec.decode(binary(payloads)).columns).to_pylist() == payloads)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(there_and_back, batches))
