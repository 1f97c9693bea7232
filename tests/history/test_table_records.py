"""Rows of a table as records: what is read for them, and what happens when files are gone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from history_tier import PARTITION, TOPIC_ID, HistoryTier, check
from native_segments import Segment, in_batches, some_records

from segment_reader import RECORD_SCHEMA
from tiering.history import Regenerator
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.parquet_files import MissingFile

sys.path.append(str(Path(__file__).parents[1] / "tiering"))

from offset_tables import LoggedFileIO, ReadLog, logged_io

ROWS = 4000
ROW_GROUP_ROWS = 200
ALONE = ReadLimits(read_ahead_row_groups=0)


@pytest.fixture
def made() -> Segment:
    records = some_records(0, ROWS, value_bytes=300)
    return Segment(batches=in_batches(records, 10), topic_id=TOPIC_ID, partition=PARTITION)


@pytest.fixture
def tier(tmp_path: Path, made: Segment) -> HistoryTier:
    tier = HistoryTier.make(tmp_path, **logged_io())
    tier.convert(made)
    tier.rewrite("offset", files=2, row_group_rows=ROW_GROUP_ROWS)
    return tier


@pytest.fixture
def log() -> Iterator[ReadLog]:
    LoggedFileIO.log.clear()
    yield LoggedFileIO.log
    LoggedFileIO.log.clear()


def file_bytes(tier: HistoryTier) -> int:
    return sum(task.file.file_size_in_bytes for task in tier.table.scan().plan_files())


def test_are_of_the_record_schema(tier: HistoryTier) -> None:
    for batch in tier.records().records(PARTITION):
        batch.validate(full=True)
        assert batch.schema == RECORD_SCHEMA


@pytest.mark.parametrize("limits", [ALONE, ReadLimits()], ids=["alone", "ahead"])
def test_one_pass_reads_every_byte_once(
    tier: HistoryTier, made: Segment, log: ReadLog, limits: ReadLimits
) -> None:
    side = tier.side(made)
    records = tier.records(limits)
    size = file_bytes(tier)
    log.clear()
    with records.cursor(PARTITION) as rows:
        for first in range(0, len(side.batches), 50):
            assert check(
                Regenerator(side, rows, run_bytes=900).runs(first, first + 50), made.log, first
            )
    # The offset column alone is read before the others; footers are read once.
    assert size * 0.9 < sum(log.bytes_of(path) for path in log.data_files()) < size * 1.3


def test_a_few_batches_read_one_row_group(tier: HistoryTier, made: Segment, log: ReadLog) -> None:
    side = tier.side(made)
    records = tier.records(ALONE)
    list(records.records(PARTITION, 0, 1))  # the footers
    list(records.records(PARTITION, ROWS - 1, ROWS))
    size = file_bytes(tier)
    log.clear()
    with records.cursor(PARTITION) as rows:
        assert check(Regenerator(side, rows).runs(101, 105), made.log, 101) == 4
    (path,) = log.data_files()
    assert log.bytes_of(path) < 2 * size * ROW_GROUP_ROWS / ROWS


def test_a_missing_file_is_told_and_a_newer_view_helps(tier: HistoryTier, made: Segment) -> None:
    side = tier.side(made)
    old = tier.records()
    before = [task.file.file_path for task in tier.table.scan().plan_files()]
    tier.rewrite("offset", files=3, row_group_rows=100)
    for path in before:
        Path(path.removeprefix("file://")).unlink()
    with old.cursor(PARTITION) as rows, pytest.raises(MissingFile):
        list(Regenerator(side, rows).runs())
    with tier.records().cursor(PARTITION) as rows:
        assert check(Regenerator(side, rows).runs(), made.log) == len(made.batches)


def test_cursors_of_several_threads(tier: HistoryTier, made: Segment) -> None:
    side = tier.side(made)
    records = tier.records()
    share = len(side.batches) // 4

    def regenerate(first: int) -> int:
        with records.cursor(PARTITION) as rows:
            runs = Regenerator(side, rows, run_bytes=5000).runs(first, first + share)
            return check(runs, made.log, first)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(regenerate, range(0, 4 * share, share))) == [share] * 4


def test_left_early_leaves_no_thread_behind(tier: HistoryTier, made: Segment) -> None:
    import threading

    side = tier.side(made)
    with tier.records(ReadLimits(batch_bytes=2000)).cursor(PARTITION) as rows:
        next(iter(Regenerator(side, rows, run_bytes=50_000).runs()))
        assert any(t.name.startswith("offset-reader") for t in threading.enumerate())
    assert not any(t.name.startswith("offset-reader") for t in threading.enumerate())
