"""What the reader reads, counted; and what it does when files or the store are gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from offset_tables import (
    EPOCH_MS,
    NAMESPACE,
    TOPIC,
    LoggedFileIO,
    ReadLog,
    append,
    logged_io,
    make_catalog,
    make_table,
    offsets_of,
    outage,
    table_offsets,
)
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tiering.errors import BadInput, FatalError, TransientError
from tiering.offset_reader import OffsetReader, ReadLimits
from tiering.offset_reader.file_index import DeleteEntry, FileIndex
from tiering.offset_reader.parquet_files import FooterCache

FILES = 6
FILE_ROWS = 2000
ROW_GROUP_ROWS = 200


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return make_catalog(tmp_path_factory.mktemp("files"), **logged_io())


@pytest.fixture(scope="module")
def table(catalog: Catalog) -> Table:
    table = make_table(catalog, row_group_rows=ROW_GROUP_ROWS)
    for k in range(FILES):
        append(table, [(0, o) for o in range(k * FILE_ROWS, (k + 1) * FILE_ROWS)])
    return table


@pytest.fixture
def small(tmp_path: Path) -> tuple[Catalog, Table]:
    catalog = make_catalog(tmp_path, **logged_io())
    table = make_table(catalog)
    for k in range(3):
        append(table, [(0, o) for o in range(k * 40, (k + 1) * 40)])
    return catalog, table


@pytest.fixture
def log() -> Iterator[ReadLog]:
    LoggedFileIO.log.clear()
    yield LoggedFileIO.log
    LoggedFileIO.log.clear()


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def data_files(table: Table) -> list[DataFile]:
    files = [task.file for task in table.scan().plan_files()]
    return sorted(files, key=lambda f: f.lower_bounds[2])


class TestSeeksRead:
    def test_one_footer_and_one_row_group(
        self, catalog: Catalog, table: Table, log: ReadLog
    ) -> None:
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        for offset in (0, 5_555, FILES * FILE_ROWS - 1):
            log.clear()
            batches = reader.batches(0, offset=offset)
            assert next(batches).column("kafka_offset")[0].as_py() == offset
            batches.close()  # type: ignore[attr-defined]
            (path,) = log.data_files()
            row_group = (offset % FILE_ROWS) // ROW_GROUP_ROWS
            assert _row_groups_read(path, log) == {row_group}

    def test_opening_reads_no_data_file(self, catalog: Catalog, table: Table, log: ReadLog) -> None:
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        assert reader.end_offset(0) == FILES * FILE_ROWS
        assert log.data_files() == set()

    def test_footer_is_read_once(self, catalog: Catalog, table: Table, log: ReadLog) -> None:
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        list(reader.batches(0, offset=10, end_offset=12))
        log.clear()
        list(reader.batches(0, offset=11, end_offset=12, columns=["kafka_offset"]))
        (path,) = log.data_files()
        size = local(path).stat().st_size
        assert all(start + length < size - 8 for _, start, length in log.reads)
        assert log.bytes_of(path) < 4 * ROW_GROUP_ROWS * 8

    def test_time_reads_one_row_group(self, catalog: Catalog, table: Table, log: ReadLog) -> None:
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        log.clear()
        found = reader.offset_for_timestamp(0, EPOCH_MS + 77_770)
        assert found is not None
        (path,) = log.data_files()
        assert _row_groups_read(path, log) == {found % FILE_ROWS // ROW_GROUP_ROWS}

    def test_projection_reads_less(self, catalog: Catalog, table: Table, log: ReadLog) -> None:
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        sizes = []
        for columns in (None, ["kafka_timestamp_type"]):
            log.clear()
            list(reader.batches(0, columns=columns))
            sizes.append(sum(length for path, _, length in log.reads))
        assert sizes[1] * 3 < sizes[0]

    def test_refresh_reads_only_new_manifests(
        self, small: tuple[Catalog, Table], log: ReadLog
    ) -> None:
        catalog, table = small
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        append(table, [(0, o) for o in range(120, 130)])
        log.clear()
        reader.refresh()
        manifests = [p for p in log.opened if p.endswith(".avro") and "snap-" not in p]
        assert len(manifests) == 1
        assert offsets_of(reader.batches(0)) == list(range(130))


def _row_groups_read(path: str, log: ReadLog) -> set[int]:
    """Which row groups of `path` lie under the reads, the footer's own left aside."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(local(path))
    size = local(path).stat().st_size
    footer = size - metadata.serialized_size - 8
    # Parquet reads the file's last 64 KiB in the hope that the footer is in there.
    body = [(s, s + n) for name, s, n in log.reads if name == path and s + n <= footer]
    found = set()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        begin = min(c.dictionary_page_offset or c.data_page_offset for c in chunks)
        end = begin + sum(c.total_compressed_size for c in chunks)
        if any(s < end and begin < e for s, e in body):
            found.add(number)
    return found


class TestMissingFiles:
    def test_somebody_rewrote(self, small: tuple[Catalog, Table]) -> None:
        """A scan goes on in the newest snapshot when a file of its own is gone."""
        catalog, table = small
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        records = reader.records(0)
        seen = [next(records).offset for _ in range(5)]
        for file in data_files(table)[1:]:
            low = int.from_bytes(file.lower_bounds[2], "little")
            table.delete(f"kafka_offset = {low}")
            local(file.file_path).unlink()
        seen += [r.offset for r in records]
        assert seen == table_offsets(table, 0)
        assert 40 not in seen

    def test_lookups_too(self, small: tuple[Catalog, Table]) -> None:
        catalog, table = small
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        first = data_files(table)[0]
        table.delete("kafka_offset < 3")
        local(first.file_path).unlink()
        assert reader.beginning_offset(0) == 3

    def test_a_live_file_is_gone_for_good(self, small: tuple[Catalog, Table]) -> None:
        catalog, table = small
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        victim = data_files(table)[1].file_path
        local(victim).unlink()
        assert offsets_of(reader.batches(0, end_offset=40)) == list(range(40))
        with pytest.raises(FatalError, match=r"part of the newest snapshot, but does not exist"):
            offsets_of(reader.batches(0))
        with pytest.raises(FatalError, match=r"does not exist"):
            list(reader.batches(0, offset=50))

    def test_with_the_catalog_down(
        self, small: tuple[Catalog, Table], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog, table = small
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)

        def down(*_: object) -> Table:
            raise ConnectionError("refused")

        monkeypatch.setattr(catalog, "load_table", down)
        assert offsets_of(reader.batches(0)) == list(range(120))
        local(data_files(table)[2].file_path).unlink()
        with pytest.raises(TransientError, match="refused"):
            offsets_of(reader.batches(0))
        assert offsets_of(reader.batches(0, end_offset=80)) == list(range(80))


class TestOutages:
    @pytest.mark.parametrize("taken", [0, 1, 2])
    def test_of_data_files(self, small: tuple[Catalog, Table], taken: int) -> None:
        catalog, _ = small
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        batches = reader.batches(0)
        seen = [o for _ in range(taken) for o in offsets_of(iter([next(batches)]))]
        with outage(".parquet"), pytest.raises(TransientError, match="injected outage"):
            offsets_of(batches)
        assert offsets_of(reader.batches(0, offset=len(seen))) == list(range(len(seen), 120))

    def test_of_manifests(self, small: tuple[Catalog, Table]) -> None:
        catalog, table = small
        with outage("-m0.avro"), pytest.raises(TransientError, match="metadata of table"):
            OffsetReader.open(catalog, NAMESPACE, TOPIC)
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        append(table, [(0, 120)])
        with outage("snap-"), pytest.raises(TransientError):
            reader.refresh()
        assert offsets_of(reader.batches(0)) == list(range(120))
        assert reader.refresh() is True

    def test_damaged_file(self, small: tuple[Catalog, Table]) -> None:
        catalog, table = small
        path = local(data_files(table)[1].file_path)
        path.write_bytes(path.read_bytes()[:-20])
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        with pytest.raises(FatalError, match="can't be decoded"):
            offsets_of(reader.batches(0))


class TestDeletes:
    def test_copy_on_write(self, small: tuple[Catalog, Table]) -> None:
        catalog, table = small
        table.delete("kafka_offset >= 30 and kafka_offset < 95")
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        expected = [*range(30), *range(95, 120)]
        for start in range(121):
            got = offsets_of(reader.batches(0, offset=start))
            assert got == [o for o in expected if o >= start]

    def test_all_rows(self, small: tuple[Catalog, Table]) -> None:
        catalog, table = small
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
        table.delete("kafka_offset >= 0")
        reader.refresh()
        with pytest.raises(BadInput, match="negative"):
            reader.batches(0, offset=-3)


class TestThreads:
    def test_many_scans_at_once(self, catalog: Catalog, table: Table) -> None:
        reader = OffsetReader.open(
            catalog, NAMESPACE, TOPIC, limits=ReadLimits(batch_bytes=8192, read_ahead_bytes=8192)
        )
        results: dict[int, list[int]] = {}

        def scan(start: int) -> None:
            results[start] = offsets_of(reader.batches(0, offset=start))

        threads = [threading.Thread(target=scan, args=(k * 1_111,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for start, got in results.items():
            assert got == list(range(start, FILES * FILE_ROWS))
        assert len(results) == 4

    def test_tiny_read_ahead_with_overlaps(self, small: tuple[Catalog, Table]) -> None:
        """Readers ahead that wait for room never wait for each other."""
        catalog, table = small
        for k in range(4):
            append(table, [(0, 200 + o) for o in range(k, 400, 4)])
        limits = ReadLimits(batch_bytes=100, read_ahead_bytes=1)
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC, limits=limits)
        assert offsets_of(reader.batches(0)) == [*range(120), *range(200, 600)]


def test_footers_are_bounded(catalog: Catalog, table: Table) -> None:
    limits = ReadLimits(footer_bytes=30_000)
    reader = OffsetReader.open(catalog, NAMESPACE, TOPIC, limits=limits)
    assert len(offsets_of(reader.batches(0))) == FILES * FILE_ROWS
    footers: FooterCache = reader._view.files.footers
    assert 1 <= len(footers._footers) < FILES
    assert footers._bytes == sum(f.metadata.serialized_size for f in footers._footers.values())


def test_equality_deletes_are_refused(
    small: tuple[Catalog, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather no rows than rows that SQL does not show."""
    catalog, table = small
    entry = next(iter(table.inspect.entries().to_pylist()))
    delete = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=entry["data_file"]["file_path"],
        file_format="PARQUET",
        partition=Record(),
    )
    added = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, sequence_number=9, data_file=delete
    )
    live = DeleteEntry(entry=added, equality=True)
    monkeypatch.setattr(FileIndex, "deletes", property(lambda _: (live,)))
    with pytest.raises(BadInput, match="equality deletes"):
        OffsetReader.open(catalog, NAMESPACE, TOPIC)
