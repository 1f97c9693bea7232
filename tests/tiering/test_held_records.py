"""What a table holds of records: all of it, but for what it has no value or no column for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from native_segments import EPOCH_MS, Batch, Rec, Segment, in_batches, some_records
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StructType

from segment_reader import RECORD_SCHEMA, BytesSource, SegmentBounds, SegmentReader
from tiering.conversion.held_records import as_held, records_from_rows
from tiering.conversion.record_columns import TableColumns, field_ids
from tiering.table.schema import raw_schema


def decoded(segment: Segment) -> pa.RecordBatch:
    bounds = SegmentBounds(
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        leader_epochs=segment.leader_epochs,
    )
    (records,) = SegmentReader(BytesSource("log", segment.log), bounds).record_batches()
    return records


def columns(*dropped: int, **changed: NestedField) -> TableColumns:
    fields = [
        changed.get(f"f{f.field_id}", f) for f in raw_schema().fields if f.field_id not in dropped
    ]
    return TableColumns.of(Schema(*fields).model_dump_json())


@pytest.fixture
def records() -> pa.RecordBatch:
    return decoded(Segment(batches=in_batches(some_records(100, 300), 7)))


@pytest.mark.parametrize(("start", "length"), [(0, 300), (13, 40), (299, 1), (50, 0)])
def test_everything_is_held(records: pa.RecordBatch, start: int, length: int) -> None:
    some = records.slice(start, length)
    held = as_held(columns(), 3)(some)
    held.validate(full=True)
    assert held.schema == RECORD_SCHEMA
    assert held.to_pylist() == some.to_pylist()


def test_slices_of_rows(records: pa.RecordBatch) -> None:
    rows = columns().rows(records, 3).slice(21, 90)
    assert records_from_rows(rows, columns()).to_pylist() == records.slice(21, 90).to_pylist()


def test_timestamps_that_the_table_has_no_value_for() -> None:
    times = [EPOCH_MS, -1, 0, -86_400_001, 2**62, 9_223_372_036_854_775, 9_223_372_036_854_776]
    made = Segment(
        batches=[Batch(records=[Rec(offset=i, timestamp_ms=t)]) for i, t in enumerate(times)]
    )
    held = as_held(columns(), 0)(decoded(made))
    expected = [EPOCH_MS, -1, 0, -86_400_001, -1, 9_223_372_036_854_775, -1]
    assert held["timestamp_ms"].to_pylist() == expected


def test_append_time_is_held_as_such() -> None:
    made = [Rec(offset=i, timestamp_ms=EPOCH_MS + i) for i in range(4)]
    held = as_held(columns(), 0)(
        decoded(Segment(batches=[Batch(records=made, log_append=True, epoch=0)]))
    )
    assert held["timestamp_ms"].to_pylist() == [EPOCH_MS + 3] * 4
    assert held["timestamp_type"].to_pylist() == [1] * 4


def test_dropped_columns_hold_nothing(records: pa.RecordBatch) -> None:
    ids = field_ids()
    bare = columns(
        ids.timestamp, ids.timestamp_type, ids.leader_epoch, ids.key, ids.headers, ids.value
    )
    nothing = {
        "timestamp_ms": -1,
        "timestamp_type": 0,
        "leader_epoch": -1,
        "key": None,
        "value": None,
        "headers": [],
    }
    held = as_held(bare, 3)(records)
    held.validate(full=True)
    assert held.to_pylist() == [{"offset": o, **nothing} for o in records["offset"].to_pylist()]


@pytest.mark.parametrize("kept", ["key", "value"])
def test_headers_with_one_child_dropped(records: pa.RecordBatch, kept: str) -> None:
    ids = field_ids()
    headers = raw_schema().find_field(ids.headers)
    assert isinstance(headers.field_type, ListType)
    children = headers.field_type.element_type
    assert isinstance(children, StructType)
    changed = NestedField(
        ids.headers,
        "kafka_headers",
        ListType(
            element_id=headers.field_type.element_id,
            element_type=StructType(*(f for f in children.fields if f.name == kept)),
            element_required=True,
        ),
    )
    held = as_held(columns(**{f"f{ids.headers}": changed}), 3)(records)
    expected = [
        [{"key": "", "value": None, kept: header[kept]} for header in headers]
        for headers in records["headers"].to_pylist()
    ]
    assert held["headers"].to_pylist() == expected


def test_widened_columns(records: pa.RecordBatch) -> None:
    ids = field_ids()
    wide = {
        f"f{i}": NestedField(i, raw_schema().find_field(i).name, LongType())
        for i in (ids.timestamp_type, ids.leader_epoch)
    }
    assert as_held(columns(**wide), 3)(records).to_pylist() == records.to_pylist()


def test_nulls_of_another_writer_are_kafkas_nothing(records: pa.RecordBatch) -> None:
    rows = columns().rows(records, 3)
    names = ("kafka_timestamp", "kafka_timestamp_type", "kafka_leader_epoch", "kafka_headers")
    arrays = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        gone = pa.nulls(len(column) - 1, field.type)
        arrays.append(
            pa.concat_arrays([column.slice(0, 1), gone]) if field.name in names else column
        )
    written = pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)
    held = records_from_rows(written, columns())
    held.validate(full=True)
    assert held.slice(0, 1).to_pylist() == records.slice(0, 1).to_pylist()
    assert set(held["timestamp_ms"].to_pylist()[1:]) == {-1}
    assert all(headers == [] for headers in held["headers"].to_pylist()[1:])
    assert held["value"].to_pylist() == records["value"].to_pylist()
