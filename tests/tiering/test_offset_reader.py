"""The offset reader against tables of sorted files: seeks, times, ends, columns, errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from offset_tables import (
    EPOCH_MS,
    NAMESPACE,
    TOPIC,
    append,
    gappy,
    make_catalog,
    make_table,
    offsets_of,
    record,
)
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from tiering.errors import BadInput, FatalError, NotFound, TransientError
from tiering.offset_reader import OffsetReader
from tiering.table.schema import raw_schema
from tiering.watermarks import WATERMARKS_PROPERTY, Watermark, encode_watermarks

FILES = 4
FILE_OFFSETS = 60
PARTITION_OFFSETS = {partition: gappy(FILES * FILE_OFFSETS, seed=partition) for partition in (0, 3)}
END = FILES * FILE_OFFSETS + 5


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return make_catalog(tmp_path_factory.mktemp("reader"))


@pytest.fixture(scope="module")
def table(catalog: Catalog) -> Table:
    """Partitions 0 and 3, four sorted files each, several row groups a file, gaps."""
    table = make_table(catalog)
    for k in range(FILES):
        for partition, offsets in PARTITION_OFFSETS.items():
            inside = [o for o in offsets if k * FILE_OFFSETS <= o < (k + 1) * FILE_OFFSETS]
            append(table, [(partition, o) for o in inside], {0: END, 3: END, 7: 12})
    return table


@pytest.fixture
def reader(catalog: Catalog, table: Table) -> OffsetReader:
    return OffsetReader.open(catalog, NAMESPACE, TOPIC)


@pytest.fixture
def fresh(tmp_path: Path) -> tuple[Catalog, Table]:
    catalog = make_catalog(tmp_path)
    return catalog, make_table(catalog)


class TestSeek:
    @pytest.mark.parametrize("partition", PARTITION_OFFSETS)
    def test_every_offset(self, reader: OffsetReader, partition: int) -> None:
        everything = PARTITION_OFFSETS[partition]
        assert offsets_of(reader.batches(partition)) == everything
        for start in range(END + 3):
            expected = [o for o in everything if o >= start]
            assert offsets_of(reader.batches(partition, offset=start)) == expected, start

    def test_every_end(self, reader: OffsetReader) -> None:
        for end in range(END + 3):
            expected = [o for o in PARTITION_OFFSETS[0] if 100 <= o < end]
            assert offsets_of(reader.batches(0, offset=100, end_offset=end)) == expected, end

    def test_beyond_the_end_is_empty(self, reader: OffsetReader) -> None:
        assert list(reader.batches(0, offset=END)) == []
        assert list(reader.batches(0, offset=2**63 - 1)) == []
        assert list(reader.records(7)) == []

    def test_records_are_whole(self, reader: OffsetReader) -> None:
        for partition, offsets in PARTITION_OFFSETS.items():
            assert list(reader.records(partition)) == [record(partition, o) for o in offsets]

    def test_abandoned_iterators_leave_nothing_running(self, reader: OffsetReader) -> None:
        for taken in range(4):
            batches = reader.batches(0)
            for _ in range(taken):
                next(batches)
            batches.close()  # type: ignore[attr-defined]
        assert len(offsets_of(reader.batches(0))) == len(PARTITION_OFFSETS[0])


class TestTimestamps:
    def test_every_time_as_brute_force_finds_it(self, reader: OffsetReader) -> None:
        times = [(o, record(0, o).timestamp_ms) for o in PARTITION_OFFSETS[0]]
        for wanted in range(EPOCH_MS - 60, EPOCH_MS + END * 10 + 60, 7):
            expected = next((o for o, t in times if t >= wanted), None)
            assert reader.offset_for_timestamp(0, wanted) == expected, wanted

    def test_batches_start_there_and_go_on_by_offset(self, reader: OffsetReader) -> None:
        wanted = EPOCH_MS + 500
        start = reader.offset_for_timestamp(3, wanted)
        assert start is not None
        got = offsets_of(reader.batches(3, timestamp_ms=wanted))
        assert got == [o for o in PARTITION_OFFSETS[3] if o >= start]

    def test_later_than_all_is_empty(self, reader: OffsetReader) -> None:
        assert reader.offset_for_timestamp(0, 2**53) is None
        assert list(reader.records(0, timestamp_ms=2**53)) == []

    def test_none_at_all(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        without = [o for o in range(400) if record(0, o).timestamp_ms < 0]
        append(table, [(0, o) for o in without])
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        assert reader.offset_for_timestamp(0, 0) is None
        assert {r.timestamp_ms for r in reader.records(0)} == {-1}


class TestEnds:
    def test_beginning_and_end(self, reader: OffsetReader) -> None:
        assert reader.partitions() == (0, 3, 7)
        assert reader.beginning_offset(0) == PARTITION_OFFSETS[0][0]
        assert reader.end_offset(0) == END
        assert reader.beginning_offset(7) == reader.end_offset(7) == 12

    def test_without_watermarks_the_rows_say(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, 5), (0, 9)])
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        assert (reader.beginning_offset(0), reader.end_offset(0)) == (5, 10)

    def test_watermarks_are_those_of_the_snapshot(self, fresh: tuple[Catalog, Table]) -> None:
        """After a rollback the property is ahead of the rows; the snapshot's summary is not."""
        catalog, table = fresh
        append(table, [(0, 1)], {0: 2})
        first = table.current_snapshot()
        assert first is not None
        append(table, [(0, 2)], {0: 3})
        ahead = encode_watermarks({0: Watermark(offset=3)})
        with table.transaction() as transaction:
            transaction.set_properties({WATERMARKS_PROPERTY: ahead})
        table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        assert offsets_of(reader.batches(0)) == [1]
        assert reader.end_offset(0) == 2

    def test_foreign_snapshots_keep_the_watermark(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, o) for o in range(10)], {0: 20})
        table.delete("kafka_offset < 4")
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        assert (reader.beginning_offset(0), reader.end_offset(0)) == (4, 20)

    def test_empty_table(self, fresh: tuple[Catalog, Table]) -> None:
        reader = OffsetReader.open(fresh[0], NAMESPACE, TOPIC)
        assert reader.partitions() == ()
        assert reader.snapshot_id is None
        with pytest.raises(NotFound, match="no partition 0 in its table; it has: none yet"):
            reader.batches(0)


class TestColumns:
    def test_projection_and_order(self, reader: OffsetReader) -> None:
        batch = next(reader.batches(0, columns=["value", "kafka_offset"]))
        assert batch.schema.names == ["value", "kafka_offset"]
        assert batch.schema.types == [pa.binary(), pa.int64()]
        assert next(reader.batches(0)).schema == reader.schema

    def test_columns_without_the_offset(self, reader: OffsetReader) -> None:
        batches = reader.batches(0, offset=50, columns=["kafka_leader_epoch"])
        epochs = [e for b in batches for e in b.column(0).to_pylist()]
        assert epochs == [o // 100 for o in PARTITION_OFFSETS[0] if o >= 50]

    @pytest.mark.parametrize(
        ("columns", "reason"),
        [
            (["nope"], r"no column 'nope'; the table has kafka_partition, kafka_offset, "),
            (["value", "value"], "named twice"),
            ([], "name at least one column"),
        ],
    )
    def test_bad_columns(self, reader: OffsetReader, columns: list[str], reason: str) -> None:
        with pytest.raises(BadInput, match=reason):
            reader.batches(0, columns=columns)

    def test_renamed_added_widened_and_moved(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, o) for o in range(40)])
        with table.update_schema() as update:
            for name in ("kafka_partition", "kafka_offset", "kafka_timestamp", "value"):
                update.rename_column(name, "my." + name)
            update.rename_column("kafka_headers", "hh")
            update.rename_column(("kafka_headers", "value"), "content")
            update.add_column("note", StringType())
            update.update_column("kafka_leader_epoch", LongType())
            update.move_first("kafka_key")
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        assert list(reader.records(0, offset=17)) == [record(0, o) for o in range(17, 40)]
        batch = next(reader.batches(0, offset=3))
        assert batch.schema.names[:3] == ["kafka_key", "my.kafka_partition", "my.kafka_offset"]
        assert batch.column("note").to_pylist() == [None] * batch.num_rows
        assert batch.schema.field("kafka_leader_epoch").type == pa.int64()
        assert reader.offset_for_timestamp(0, EPOCH_MS + 200) is not None

    def test_only_a_column_that_the_files_lack(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, o) for o in range(5)])
        with table.update_schema() as update:
            update.add_column("note", StringType())
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        batch = next(reader.batches(0, columns=["note"]))
        assert batch.column(0).to_pylist() == [None] * 5

    def test_dropped_columns(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, 0)])
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("kafka_headers").delete_column("kafka_leader_epoch")
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        only = next(reader.records(0))
        assert (only.headers, only.leader_epoch, only.value) == ((), -1, record(0, 0).value)
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("value")
        assert reader.refresh() is False
        with pytest.raises(BadInput, match="no binary column for the record's value"):
            reader.records(0)
        assert offsets_of(reader.batches(0)) == [0]
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("kafka_offset")
        with pytest.raises(FatalError, match="column kafka_offset was dropped"):
            reader.refresh()


class TestRefresh:
    def test_shows_what_was_committed_since(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, o) for o in range(10)], {0: 10})
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        append(table, [(0, o) for o in range(10, 20)], {0: 20, 1: 5})
        assert offsets_of(reader.batches(0)) == list(range(10))
        assert reader.end_offset(0) == 10
        assert reader.refresh() is True
        assert offsets_of(reader.batches(0)) == list(range(20))
        assert (reader.end_offset(0), reader.partitions()) == (20, (0, 1))
        assert reader.refresh() is False

    def test_goes_back_with_a_rollback(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, 0)])
        first = table.current_snapshot()
        assert first is not None
        append(table, [(0, 1)])
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
        reader.refresh()
        assert offsets_of(reader.batches(0)) == [0]

    def test_branch(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, 0)])
        first = table.current_snapshot()
        assert first is not None
        table.manage_snapshots().create_branch(first.snapshot_id, "log").commit()
        append(table, [(0, 1)])
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC, branch="log")
        assert offsets_of(reader.batches(0)) == [0]
        with pytest.raises(NotFound, match=r"no branch or tag 'nope'; it has: .*log"):
            OffsetReader.open(catalog, NAMESPACE, TOPIC, branch="nope")

    def test_a_topic_made_again_is_another_one(self, fresh: tuple[Catalog, Table]) -> None:
        catalog, table = fresh
        append(table, [(0, o) for o in range(5)])
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        catalog.rename_table((NAMESPACE, TOPIC), (NAMESPACE, TOPIC + "__00112233"))
        append(make_table(catalog), [(0, 100)])
        with pytest.raises(NotFound, match="deleted and made again"):
            reader.refresh()
        assert offsets_of(reader.batches(0)) == list(range(5))


class TestErrors:
    def test_unknown_topic_names_those_there_are(self, catalog: Catalog, table: Table) -> None:
        with pytest.raises(NotFound, match=r"no table kafka\.other for topic other: .*orders"):
            OffsetReader.open(catalog, NAMESPACE, "other")

    def test_unknown_namespace(self, catalog: Catalog) -> None:
        with pytest.raises(NotFound, match=r"no table nowhere\.orders"):
            OffsetReader.open(catalog, "nowhere", TOPIC)

    def test_illegal_topic(self, catalog: Catalog) -> None:
        with pytest.raises(BadInput, match="not legal in Kafka"):
            OffsetReader.open(catalog, NAMESPACE, "no/such")

    def test_unknown_partition(self, reader: OffsetReader) -> None:
        for ask in (reader.batches, reader.records, reader.end_offset, reader.beginning_offset):
            with pytest.raises(NotFound, match="no partition 1 in its table; it has: 0, 3, 7"):
                ask(1)

    def test_negative_offsets(self, reader: OffsetReader) -> None:
        with pytest.raises(BadInput, match="offset -1 is negative"):
            reader.batches(0, offset=-1)
        with pytest.raises(BadInput, match="end offset -2 is negative"):
            reader.records(0, end_offset=-2)
        with pytest.raises(BadInput, match="timestamp -5 ms is negative"):
            reader.offset_for_timestamp(0, -5)

    def test_offset_and_timestamp(self, reader: OffsetReader) -> None:
        with pytest.raises(BadInput, match="not both"):
            reader.batches(0, offset=1, timestamp_ms=1)

    def test_not_a_topic(self, tmp_path: Path) -> None:
        catalog = make_catalog(tmp_path)
        catalog.create_namespace(NAMESPACE)
        schema = type(raw_schema())(NestedField(1, "x", LongType()))
        catalog.create_table((NAMESPACE, TOPIC), schema)
        with pytest.raises(FatalError, match="not a topic"):
            OffsetReader.open(catalog, NAMESPACE, TOPIC)

    def test_catalog_outage_is_no_not_found(
        self, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)

        def down(*_: object) -> Table:
            raise ConnectionError("refused")

        monkeypatch.setattr(catalog, "load_table", down)
        with pytest.raises(TransientError, match="refused"):
            OffsetReader.open(catalog, NAMESPACE, TOPIC)
        with pytest.raises(TransientError, match="refused"):
            reader.refresh()
        assert offsets_of(reader.batches(0)) == PARTITION_OFFSETS[0]
