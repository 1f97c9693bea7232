"""Native segments to data files: every value, every bound, every failure."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from native_segments import (
    EPOCH_MS,
    Batch,
    Rec,
    Segment,
    aborted_entry,
    in_batches,
    offsets,
    rows_of,
    some_records,
)
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
    YearTransform,
)
from pyiceberg.types import BinaryType, LongType, StringType

from segment_reader import RECORD_SCHEMA, BytesSource, SegmentBounds, SegmentReader
from tiering.conversion import task_files
from tiering.conversion.convert import convert_task
from tiering.conversion.record_columns import TableColumns, field_ids
from tiering.errors import NotFound, TransientError
from tiering.store import ObjectStore, open_store
from tiering.store.local import LocalStore
from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.table.commit import TableAppend, append, load_state
from tiering.table.schema import raw_schema
from tiering.tasks import ConversionResult, ConversionTask, DataFileEntry
from tiering.watermarks import Watermark

ALL_CODECS = ("none", "gzip", "zstd")


@dataclass
class Place:
    """A store, a catalog, and one topic's table."""

    store: ObjectStore
    catalog: Catalog
    identifier: tuple[str, str]

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.identifier)

    def task(self, segment: Segment, **changes: Any) -> ConversionTask:
        return replace(segment.task(self.store, table_target(self.table)), **changes)

    def convert(self, segment: Segment, **changes: Any) -> ConversionResult:
        segment.store(self.store)
        return convert_task(self.task(segment, **changes))

    def commit(self, entries: Sequence[DataFileEntry], topic_id: str) -> None:
        state = load_state(self.catalog, self.identifier)
        files: dict[int, list[DataFileEntry]] = {}
        for entry in entries:
            files.setdefault(entry.kafka_partition, []).append(entry)
        outcome = append(
            self.catalog,
            TableAppend(
                identifier=self.identifier,
                topic="orders",
                topic_id=topic_id,
                cycle_id=os.urandom(8).hex(),
                base=state,
                expected={p: state.watermarks.get(p) for p in files},
                moved={
                    p: Watermark(offset=max(f.last_offset for f in e) + 1) for p, e in files.items()
                },
                files={p: tuple(e) for p, e in files.items()},
            ),
        )
        assert set(outcome.landed) == set(files)

    def rows(self) -> list[dict[str, object]]:
        return rows_of(self.table.scan().to_arrow())

    def data_files(self) -> list[Path]:
        location = Path(self.table.location().removeprefix("file://"))
        return sorted(location.rglob("*.parquet"))


TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    store = open_store(str(tmp_path / "store"))
    warehouse = str(tmp_path / "store" / "warehouse")
    catalog = open_catalog(
        CatalogConfig(
            properties={"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
        )
    )
    ensure_table(catalog, ("kafka", "orders"), "orders", TOPIC_ID, warehouse)
    return Place(store, catalog, ("kafka", "orders"))


def segment(records: Sequence[Rec] | None = None, per_batch: int = 7, **more: Any) -> Segment:
    batches = in_batches(records or some_records(100, 300), per_batch, ALL_CODECS)
    return Segment(**{"batches": batches, "topic_id": TOPIC_ID, **more})


def only(result: ConversionResult) -> DataFileEntry:
    assert result.failure is None, result.failure
    (entry,) = result.entries
    return entry


# What comes out


def test_every_value_comes_back_through_the_table(place: Place) -> None:
    made = segment()
    result = place.convert(made)
    place.commit(result.entries, TOPIC_ID)
    assert place.rows() == made.rows()
    assert (result.rows, result.converted_to) == (300, 400)
    assert result.native_bytes == len(made.log)
    assert result.batches == len(made.batches)


def test_nulls_empties_and_header_oddities_stay_apart(place: Place) -> None:
    records = [
        Rec(offset=0, key=None, value=None),
        Rec(offset=1, key=b"", value=b""),
        Rec(offset=2, headers=(("a", None), ("a", b""), ("a", b"x"), ("", b"y"))),
        Rec(offset=9, value=bytes(range(256)) * 5000),
    ]
    made = segment(records)
    place.commit(place.convert(made).entries, TOPIC_ID)
    assert place.rows() == made.rows()


def test_timestamps_are_microseconds_and_null_where_kafka_has_none(place: Place) -> None:
    times = [EPOCH_MS, -1, 0, -86_400_000, 2**62, 9_223_372_036_854_775, 9_223_372_036_854_776]
    records = [Rec(offset=i, timestamp_ms=t) for i, t in enumerate(times)]
    made = segment(records, per_batch=1)
    entry = only(place.convert(made))
    place.commit([entry], TOPIC_ID)
    ours = [row["kafka_timestamp"] for row in place.rows()]
    assert ours == [
        EPOCH_MS * 1000,
        None,
        0,
        -86_400_000_000,
        None,
        9_223_372_036_854_775_000,
        None,
    ]
    assert entry.null_value_counts[field_ids().timestamp] == 3


def test_append_time_is_the_batch_maximum(place: Place) -> None:
    records = [Rec(offset=i, timestamp_ms=EPOCH_MS + i) for i in range(5)]
    made = segment(batches=[Batch(records=records, log_append=True)])
    place.commit(place.convert(made).entries, TOPIC_ID)
    assert place.rows() == made.rows()
    assert {row["kafka_timestamp"] for row in place.rows()} == {(EPOCH_MS + 4) * 1000}


def test_aborted_and_control_batches_stay_out(place: Place) -> None:
    records = some_records(0, 40)
    marker = [Rec(offset=40, key=b"\0\0\0\0", value=b"\0\0\0\0\0\0")]
    made = segment(
        batches=[
            Batch(records=records[:10], producer=5),
            Batch(records=records[10:20], producer=6),
            Batch(records=records[20:30], producer=5),
            Batch(records=records[30:40]),
            Batch(records=marker, producer=5, control=True),
        ],
        verdicts=aborted_entry(5, 0, 40),
    )
    result = place.convert(made)
    place.commit(result.entries, TOPIC_ID)
    assert offsets(place.rows()) == [*range(10, 20), *range(30, 40)]
    assert (result.rows, result.aborted_rows, result.control_batches) == (20, 20, 1)
    assert result.converted_to == 41


def test_a_segment_without_rows_gives_no_file(place: Place) -> None:
    made = segment(
        batches=[Batch(records=some_records(0, 10), producer=5)], verdicts=aborted_entry(5, 0, 99)
    )
    result = place.convert(made)
    assert (result.failure, result.entries, result.converted_to) == (None, (), 10)
    assert not place.data_files()


def test_only_offsets_asked_for_are_written(place: Place) -> None:
    result = place.convert(segment(), from_offset=150, to_offset=161)
    place.commit(result.entries, TOPIC_ID)
    assert offsets(place.rows()) == list(range(150, 161))
    assert (only(result).first_offset, only(result).last_offset) == (150, 160)


# What the file and its entry say


def test_entry_describes_the_file_completely(place: Place) -> None:
    keys = [b"k" * 40 + b"%03d" % i for i in range(300)]
    made = segment([Rec(offset=i, key=keys[i], value=None if i % 3 else b"v") for i in range(300)])
    entry = only(place.convert(made))
    schema = place.table.schema()
    bounds = {
        schema.find_field(i).name: (
            from_bytes(schema.find_type(i), entry.lower_bounds[i]),
            from_bytes(schema.find_type(i), entry.upper_bounds[i]),
        )
        for i in entry.lower_bounds
    }
    assert bounds["kafka_partition"] == (3, 3)
    assert bounds["kafka_offset"] == (0, 299)
    assert bounds["kafka_key"] == (b"k" * 16, b"k" * 15 + b"l")
    assert "value" not in bounds
    assert entry.null_value_counts[field_ids().value] == 200
    assert entry.value_counts[field_ids().value] == entry.record_count == 300
    assert (entry.sort_order_id, entry.spec_id, entry.partition) == (1, 0, ())
    assert Path(entry.path).stat().st_size == entry.size_bytes
    assert set(entry.column_sizes) == set(entry.value_counts) == set(entry.null_value_counts)


def test_upper_bound_of_a_key_that_cannot_grow_is_left_out(place: Place) -> None:
    entry = only(place.convert(segment([Rec(offset=0, key=b"\xff" * 40)])))
    assert field_ids().key in entry.lower_bounds
    assert field_ids().key not in entry.upper_bounds


def test_file_has_field_ids_page_index_and_plain_encodings(place: Place) -> None:
    entry = only(place.convert(segment()))
    file = pq.ParquetFile(entry.path)
    ids = {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in file.schema_arrow}
    assert ids == {f.name: f.field_id for f in place.table.schema().fields}
    group = file.metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert columns["kafka_offset"].has_column_index
    assert columns["kafka_offset"].statistics.min == 100
    assert columns["value"].statistics is None
    assert not columns["value"].has_dictionary_page
    encodings = {e for column in columns.values() for e in column.encodings}
    assert encodings <= {"PLAIN", "RLE", "RLE_DICTIONARY"}
    assert {c.compression for c in columns.values()} == {"ZSTD"}


def test_row_groups_are_bounded_and_rows_sorted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiering.conversion.parquet_files.ROW_GROUP_BYTES", 1024 * 1024)
    noise = random.Random(1)
    records = [Rec(offset=2 * i, value=noise.randbytes(3_000_000)) for i in range(12)]
    entry = only(place.convert(segment(records, per_batch=1)))
    metadata = pq.read_metadata(entry.path)
    assert 2 <= metadata.num_row_groups <= 12
    assert len(entry.split_offsets) == metadata.num_row_groups
    assert pq.read_table(entry.path)["kafka_offset"].to_pylist() == [r.offset for r in records]


def test_bounds_prune_files(place: Place) -> None:
    first, second = segment(some_records(0, 50)), segment(some_records(50, 50), partition=4)
    place.commit([*place.convert(first).entries, *place.convert(second).entries], TOPIC_ID)
    scan = place.table.scan(EqualTo("kafka_offset", 70))
    assert len(list(place.table.scan().plan_files())) == 2
    assert len(list(scan.plan_files())) == 1
    assert offsets(rows_of(scan.to_arrow())) == [70]
    assert not list(place.table.scan(GreaterThanOrEqual("kafka_offset", 100)).plan_files())


def test_attempts_never_meet(place: Place) -> None:
    made = segment()
    made.store(place.store)
    task = place.task(made)
    first, second = only(convert_task(task)), only(convert_task(task))
    assert first.path != second.path
    assert replace(first, path="") == replace(second, path="")


# Tables that users have changed


def test_renamed_dropped_and_added_columns(place: Place) -> None:
    with place.table.update_schema() as update:
        update.rename_column("value", "payload")
        update.rename_column("kafka_offset", "pos")
        update.delete_column("kafka_key")
        update.add_column("note", StringType())
        update.rename_column("kafka_headers.key", "name")
    made = segment()
    entry = only(place.convert(made))
    place.commit([entry], TOPIC_ID)
    rows = place.table.scan().to_arrow().sort_by("pos").to_pylist()
    assert [row["payload"] for row in rows] == [row["value"] for row in made.rows()]
    assert {row["note"] for row in rows} == {None}
    assert "kafka_key" not in rows[0]
    expected = [[h["key"] for h in row["kafka_headers"]] for row in made.rows()]  # type: ignore[attr-defined]
    assert [[h["name"] for h in row["kafka_headers"]] for row in rows] == expected


def test_dropped_and_added_again_is_another_column(place: Place) -> None:
    with place.table.update_schema() as update:
        update.delete_column("value")
    with place.table.update_schema() as update:
        update.add_column("value", BinaryType())
    place.commit(place.convert(segment()).entries, TOPIC_ID)
    assert {row["value"] for row in place.rows()} == {None}


def test_widened_columns(place: Place) -> None:
    with place.table.update_schema() as update:
        update.update_column("kafka_partition", field_type=LongType())
        update.update_column("kafka_leader_epoch", field_type=LongType())
    made = segment()
    place.commit(place.convert(made).entries, TOPIC_ID)
    assert place.rows() == made.rows()


def test_without_an_offset_column_nothing_is_guessed(place: Place) -> None:
    schema = json.loads(table_target(place.table).schema_json)
    schema["fields"] = [f for f in schema["fields"] if f["name"] != "kafka_offset"]
    target = replace(table_target(place.table), schema_json=json.dumps(schema))
    failure = place.convert(segment(), target=target).failure
    assert failure is not None
    assert "kafka_offset was dropped" in failure.reason
    assert failure.kind == "transient"


# Partition specs


TRANSFORMS = [
    ("kafka_timestamp", HourTransform()),
    ("kafka_timestamp", DayTransform()),
    ("kafka_timestamp", MonthTransform()),
    ("kafka_timestamp", YearTransform()),
    ("kafka_timestamp", BucketTransform(4)),
    ("kafka_partition", IdentityTransform()),
    ("kafka_offset", TruncateTransform(100)),
    ("kafka_offset", BucketTransform(5)),
    ("kafka_key", BucketTransform(3)),
    ("kafka_key", TruncateTransform(4)),
    ("kafka_leader_epoch", IdentityTransform()),
]


@pytest.mark.parametrize(("column", "transform"), TRANSFORMS, ids=str)
def test_one_file_per_partition_value(
    place: Place, column: str, transform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "OPEN_FILES_MAX", 3)
    with place.table.update_spec() as update:
        update.add_field(column, transform, "part")
    times = [EPOCH_MS, EPOCH_MS + 3_600_000, -1, -1_000, 10**12, EPOCH_MS + 90 * 86_400_000]
    records = [replace(r, timestamp_ms=times[r.offset % len(times)]) for r in some_records(0, 300)]
    made = segment(records)
    result = place.convert(made)
    assert result.failure is None
    field = place.table.spec().fields[0]
    kind = place.table.schema().find_type(field.source_id)
    exact = transform.transform(kind)
    for entry in result.entries:
        table = pq.read_table(entry.path)
        (value,) = entry.partition
        assert {exact(v) for v in table[column].to_pylist()} == {value}
        assert table["kafka_offset"].to_pylist() == sorted(table["kafka_offset"].to_pylist())
    place.commit(result.entries, TOPIC_ID)
    assert place.rows() == made.rows()
    sample = made.rows()[7]
    found = place.table.scan(EqualTo("kafka_offset", sample["kafka_offset"])).to_arrow()
    assert rows_of(found) == [sample]


def test_two_fields_and_few_open_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_files, "OPEN_FILES_MAX", 2)
    monkeypatch.setattr(task_files, "BUFFERED_BYTES_MAX", 1000)
    with place.table.update_spec() as update:
        update.add_field("kafka_offset", BucketTransform(3), "b")
        update.add_field("kafka_timestamp", HourTransform(), "h")
    hours = [EPOCH_MS + i % 5 * 3_600_000 for i in range(500)]
    records = some_records(0, 500)
    made = segment([replace(r, timestamp_ms=hours[r.offset]) for r in records], per_batch=50)
    result = place.convert(made)
    assert len(result.entries) == len({entry.partition for entry in result.entries}) == 15
    place.commit(result.entries, TOPIC_ID)
    assert place.rows() == made.rows()
    firsts = [entry.first_offset for entry in result.entries]
    assert firsts == sorted(firsts)


def test_value_that_comes_back_after_its_file_was_closed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "OPEN_FILES_MAX", 2)
    with place.table.update_spec() as update:
        update.add_field("kafka_offset", BucketTransform(3), "b")
    made = segment(some_records(0, 60))
    made.store(place.store)
    task = place.task(made)
    (records,) = SegmentReader(
        BytesSource("log", made.log), SegmentBounds(start_offset=0, end_offset=59)
    ).record_batches()
    columns = TableColumns.of(task.target.schema_json)
    files = task_files.TaskFiles(task, columns, open_store(task.target.location))
    rows = columns.rows(records, task.partition)
    for i in range(0, 60, 3):
        files.add(rows.slice(i, 3))
    entries = files.finish()
    assert len(entries) > 3 == len({entry.partition for entry in entries})
    place.commit(entries, TOPIC_ID)
    assert place.rows() == made.rows()


def test_partition_by_a_column_that_kafka_lacks_is_null(place: Place) -> None:
    with place.table.update_schema() as update:
        update.add_column("region", StringType())
    with place.table.update_spec() as update:
        update.add_field("region", IdentityTransform(), "r")
    made = segment()
    entry = only(place.convert(made))
    assert entry.partition == (None,)
    place.commit([entry], TOPIC_ID)
    assert len(place.rows()) == 300


# What goes wrong


def test_flipped_bit_is_corrupt_at_its_batch(place: Place) -> None:
    made = segment()
    log = bytearray(made.log)
    log[-3] ^= 1
    made.store(place.store, bytes(log))
    result = convert_task(place.task(made))
    assert result.failure is not None
    assert result.failure.kind == "corrupt"
    assert result.failure.position >= len(log) - len(made.batches[-1].encode())
    assert (result.entries, result.converted_to) == ((), 100)
    assert not place.data_files()


def test_bit_flipped_on_the_way_is_read_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = segment()
    made.store(place.store)
    read, flips = LocalStore.get_range, iter([True])

    def flipping(store: LocalStore, key: str, start: int, length: int) -> bytes:
        data = read(store, key, start, length)
        if key.endswith(".log") and next(flips, False):
            data = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        return data

    monkeypatch.setattr(LocalStore, "get_range", flipping)
    result = convert_task(place.task(made))
    assert next(flips, None) is None
    assert result.failure is None
    assert result.rows == len(made.rows())
    assert len(place.data_files()) == len(result.entries)


def test_old_format_is_corrupt_not_retried_for_ever(place: Place) -> None:
    made = segment()
    log = bytearray(made.log)
    log[16] = 1
    made.store(place.store, bytes(log))
    failure = convert_task(place.task(made)).failure
    assert failure is not None
    assert (failure.kind, failure.position) == ("corrupt", 0)


def test_cut_log_is_corrupt_even_on_a_batch_border(place: Place) -> None:
    made = segment()
    entry = made.store(place.store)
    place.store.put(made.id.log_key, made.log[: -len(made.batches[-1].encode())])
    failure = convert_task(place.task(made)).failure
    assert failure is not None
    assert failure.kind == "corrupt"
    assert f"{entry.metadata.size_bytes} were uploaded" in failure.reason


def test_object_of_another_segment_is_refused(place: Place) -> None:
    made, other = segment(), segment(some_records(5000, 300))
    made.store(place.store)
    other.store(place.store)
    place.store.put(made.id.log_key, other.log)
    place.store.put(made.id.ledger_key, place.store.get(other.id.ledger_key).data)
    failure = convert_task(place.task(made)).failure
    assert failure is not None
    assert failure.kind == "corrupt"
    assert other.id.path in failure.reason


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "payments"},
        {"partition": 1},
        {"segment_end_offset": 98_765},
        {"leader_epochs": ((4, 0),)},
    ],
    ids=lambda c: next(iter(c)),
)
def test_task_that_contradicts_the_ledger_is_refused(place: Place, change: dict[str, Any]) -> None:
    failure = place.convert(segment(), **change).failure
    assert failure is not None
    assert failure.kind == "corrupt"


def test_missing_objects_are_told_from_outages(place: Place) -> None:
    made = segment()
    missing = convert_task(place.task(made)).failure
    made.store(place.store)
    place.store.delete(made.id.log_key)
    gone = convert_task(place.task(made)).failure
    assert missing is not None
    assert gone is not None
    assert (missing.kind, gone.kind) == ("missing", "missing")


class Faulty:
    """A store whose reads or writes fail from the n-th on."""

    def __init__(self, store: ObjectStore, *, method: str, error: Exception, after: int) -> None:
        self._store, self._method, self._error, self._left = store, method, error, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name == "open_upload":
            return lambda key: Faulty(
                found(key), method=self._method, error=self._error, after=self._left
            )
        if name != self._method:
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise self._error
            return found(*arguments, **named)

        return call


@pytest.mark.parametrize(
    ("method", "error", "kind", "reason"),
    [
        ("get_range", TransientError("store is out"), "transient", "store is out"),
        ("get_range", NotFound("no such object"), "missing", "no such object"),
        ("get_range", MemoryError("much too big"), "transient", "MemoryError: much too big"),
        ("write", TransientError("disk is full"), "transient", "disk is full"),
        ("write", OSError("broken pipe"), "transient", "broken pipe"),
        ("write", NotFound("no bucket"), "transient", "no bucket"),
        ("commit", TransientError("bad gateway"), "transient", "bad gateway"),
        ("commit", NotFound("no upload"), "transient", "no upload"),
    ],
)
def test_failures_are_results_and_leave_no_file(
    place: Place, method: str, error: Exception, kind: str, reason: str
) -> None:
    made = segment()
    made.store(place.store)
    result = convert_task(
        place.task(made),
        open_store=lambda url: Faulty(open_store(url), method=method, error=error, after=0),  # type: ignore[arg-type,return-value]
    )
    assert result.failure is not None
    assert (result.failure.kind, result.entries) == (kind, ())
    assert reason in result.failure.reason
    assert not place.data_files()


def test_finished_files_of_a_failed_task_are_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "OPEN_FILES_MAX", 1)
    with place.table.update_spec() as update:
        update.add_field("kafka_offset", TruncateTransform(10), "t")
    made = segment()
    log = bytearray(made.log)
    log[-3] ^= 1
    made.store(place.store, bytes(log))
    result = convert_task(place.task(made))
    assert result.failure is not None
    assert not place.data_files()


def test_table_elsewhere_is_refused(place: Place) -> None:
    target = replace(table_target(place.table), location="gs://bucket/table")
    failure = place.convert(segment(), target=target).failure
    assert failure is not None
    assert "gs://" in failure.reason


def test_spec_of_unknown_transform_is_refused(place: Place) -> None:
    spec = PartitionSpec(
        PartitionField(source_id=2, field_id=1000, transform=UnknownTransform("zorder"), name="z")
    )
    target = replace(table_target(place.table), spec_json=spec.model_dump_json())
    failure = place.convert(segment(), target=target).failure
    assert failure is not None
    assert "partition field z" in failure.reason


def test_rows_of_other_engines_are_equal(place: Place) -> None:
    import duckdb
    import duckdb_extensions

    made = segment()
    place.commit(place.convert(made).entries, TOPIC_ID)
    con = duckdb.connect()
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=con)
    con.execute("set TimeZone='UTC'")
    metadata = place.table.metadata_location
    found = con.execute(f"from iceberg_scan('{metadata}')").to_arrow_table()
    assert rows_of(found) == made.rows()
    con.close()


def test_sliced_records_keep_their_headers() -> None:
    rows = [
        {
            "offset": i,
            "timestamp_ms": i,
            "timestamp_type": 0,
            "leader_epoch": 0,
            "key": None,
            "value": None,
            "headers": [{"key": f"h{j}", "value": None} for j in range(i)],
        }
        for i in range(6)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA).slice(2, 3)
    columns = TableColumns.of(raw_schema().model_dump_json())
    table = columns.rows(batch, 1)
    assert [len(h) for h in table.column("kafka_headers").to_pylist()] == [2, 3, 4]
    table.validate(full=True)


def test_reasons_hold_no_secret(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-5512")
    made = segment()
    made.store(place.store)

    def refuse(url: str) -> ObjectStore:
        raise TransientError("http://user:pw@host refused canary-5512")

    failure = convert_task(place.task(made), open_store=refuse).failure
    assert failure is not None
    assert "canary-5512" not in failure.reason
    assert "pw" not in failure.reason
