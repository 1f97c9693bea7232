"""Batches regenerated from real tables, against the bytes of the logs they were converted from."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from history_tier import FOREIGN, PARTITION, TOPIC_ID, HistoryTier, batches_of, check, encoded
from native_segments import Batch, Rec, Segment, aborted_entry, in_batches, some_records
from pyiceberg.types import LongType, StringType

from segment_reader.batch_table import Kept
from tiering.history import HistoryMismatch, RecordCursor, RegeneratedRun, Regenerator
from tiering.offset_reader.limits import ReadLimits
from tiering.side_files import SideFile

ALL_CODECS = ("none", "gzip", "zstd")
TINY = ReadLimits(batch_bytes=700, gather_bytes=20_000)
Limits = pytest.mark.parametrize("limits", [ReadLimits(), TINY], ids=["default", "tiny"])


@pytest.fixture
def tier(tmp_path: Path) -> HistoryTier:
    return HistoryTier.make(tmp_path)


def segment(batches: Sequence[Batch], verdicts: bytes = b"") -> Segment:
    return Segment(batches=batches, topic_id=TOPIC_ID, partition=PARTITION, verdicts=verdicts)


def plain(start: int = 100, count: int = 300, per_batch: int = 7) -> Segment:
    return segment(in_batches(some_records(start, count), per_batch, ALL_CODECS))


def regenerated(
    tier: HistoryTier,
    side: SideFile,
    limits: ReadLimits | None = None,
    *,
    run_bytes: int = 2000,
    rows_may_miss: bool = False,
) -> list[RegeneratedRun]:
    with tier.records(limits).cursor(PARTITION) as rows:
        regenerator = Regenerator(side, rows, rows_may_miss=rows_may_miss, run_bytes=run_bytes)
        return list(regenerator.runs())


def total(runs: Sequence[RegeneratedRun], field: str) -> int:
    return sum(getattr(run, field) for run in runs)


def until_mismatch(tier: HistoryTier, side: SideFile) -> tuple[list[RegeneratedRun], str]:
    """What is given before the mismatch, and what that says."""
    runs: list[RegeneratedRun] = []
    with tier.records().cursor(PARTITION) as rows:
        with pytest.raises(HistoryMismatch) as caught:
            runs.extend(Regenerator(side, rows, run_bytes=2000).runs())
        assert caught.value.batch == sum(map(len, runs))
        assert caught.value.offset == side.batches.headers.base_offset[caught.value.batch]
        return runs, str(caught.value)


# Whole tables, in whatever files


@Limits
@pytest.mark.parametrize("run_bytes", [1, 500, 2000, 1 << 20])
def test_every_batch_comes_back(tier: HistoryTier, limits: ReadLimits, run_bytes: int) -> None:
    made = plain()
    side = tier.convert(made)
    runs = regenerated(tier, side, limits, run_bytes=run_bytes)
    assert check(runs, made.log) == len(made.batches)
    sizes = [int(run.records.borders[-1]) for run in runs]
    assert all(size <= run_bytes or len(run) == 1 for size, run in zip(sizes, runs, strict=True))
    assert total(runs, "ignored_rows") == 0


@Limits
@pytest.mark.parametrize("order", ["offset", "key", "shuffled"])
def test_in_files_of_another_order(tier: HistoryTier, limits: ReadLimits, order: str) -> None:
    """Batches span row groups and files, which overlap wherever the order isn't Kafka's."""
    made = plain(count=200)
    side = tier.convert(made)
    tier.rewrite(order, files=3, row_group_rows=16)
    assert check(regenerated(tier, side, limits), made.log) == len(made.batches)


def test_any_range_of_batches(tier: HistoryTier) -> None:
    made = plain(count=100, per_batch=5)
    side = tier.convert(made)
    tier.rewrite("offset", files=2, row_group_rows=8)
    records = tier.records()
    for first in range(0, len(side.batches), 3):
        for stop in range(first, len(side.batches) + 1, 4):
            with records.cursor(PARTITION) as rows:
                runs = Regenerator(side, rows, run_bytes=700).runs(first, stop)
                assert check(runs, made.log, first) == stop - first


def test_runs_own_their_memory(tier: HistoryTier) -> None:
    made = plain()
    side = tier.convert(made)
    runs = regenerated(tier, side)
    assert len(runs) > 3
    assert check(runs, made.log) == len(made.batches)  # compared when all have been made


def test_sparse_offsets_and_aborted_batches_between(tier: HistoryTier) -> None:
    chance = random.Random(3)
    records = [r for r in some_records(0, 400) if chance.random() < 0.4]
    batches, at = [], 0
    while at < len(records):
        size = chance.randint(1, 9)
        producer = chance.choice([-1, 5, 6])
        batches.append(Batch(records=records[at : at + size], producer=producer))
        at += size
    marker = [Rec(offset=1000, key=b"\0\0\0\0", value=b"\0\0\0\0\0\0")]
    batches.append(Batch(records=marker, producer=5, control=True))
    made = segment(batches, aborted_entry(5, 0, 1000))
    side = tier.convert(made)
    assert 5 < np.count_nonzero(side.batches.kept) < len(batches) - 5
    for run_bytes in (1, 300, 1 << 20):
        assert check(regenerated(tier, side, run_bytes=run_bytes), made.log) == len(batches)


def test_large_records(tier: HistoryTier) -> None:
    chance = random.Random(8)
    records = [
        Rec(offset=i, value=chance.randbytes(1_000_000 if i % 3 == 1 else 10)) for i in range(12)
    ]
    made = segment(in_batches(records, 2, ALL_CODECS))
    side = tier.convert(made)
    runs = regenerated(tier, side, run_bytes=500_000)
    assert check(runs, made.log) == 6
    assert max(int(run.records.borders[-1]) for run in runs) > 1_000_000


def test_timestamps_that_the_table_cannot_hold(tier: HistoryTier) -> None:
    times = [5, -1, 2**62, 0, -86_400_000, 2**63 // 1000 + 1]
    batches = [Batch(records=[Rec(offset=i, timestamp_ms=t)]) for i, t in enumerate(times)]
    made = segment(batches)
    side = tier.convert(made)
    assert side.batches.kept.tolist() == [0, 0, Kept.RAW, 0, 0, Kept.RAW]
    assert check(regenerated(tier, side), made.log) == len(times)


# One pass over the rows


def test_one_cursor_goes_through_segment_after_segment(tier: HistoryTier) -> None:
    """Rows of several segments in one file: every row group is decoded once."""
    segments = [plain(start, 60) for start in (0, 60, 120, 180)]
    sides = []
    for made in segments:
        sides.append(tier.convert(made))
    tier.rewrite("offset", files=1, row_group_rows=50)
    passes = 0
    records = tier.records()

    def open_at(start: int) -> Iterator[pa.RecordBatch]:
        nonlocal passes
        passes += 1
        return records.records(PARTITION, start)

    with RecordCursor(open_at) as rows:
        for made, side in zip(segments, sides, strict=True):
            assert check(Regenerator(side, rows, run_bytes=900).runs(), made.log)
        assert passes == 1
        assert check(Regenerator(sides[1], rows).runs(), segments[1].log)
        assert passes == 2


def test_batches_kept_whole_read_no_row(tier: HistoryTier) -> None:
    made = segment(
        [Batch(records=some_records(10 * i, 10), producer=5) for i in range(6)],
        aborted_entry(5, 0, 99),
    )
    side = tier.convert(made)
    tier.convert(plain(60, 20))

    def nothing(start: int) -> Iterator[pa.RecordBatch]:
        pytest.fail(f"rows from {start} on were asked for")

    with RecordCursor(nothing) as rows:
        assert check(Regenerator(side, rows, run_bytes=700).runs(), made.log) == 6


# What others do to the table


def test_renamed_and_added_columns(tier: HistoryTier) -> None:
    first, second = plain(0, 80), plain(80, 80)
    sides = [tier.convert(first)]
    with tier.table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("value", "payload")
        update.rename_column("kafka_key", "k")
        update.rename_column("kafka_headers.key", "name")
        update.add_column("note", StringType())
        update.add_column(("kafka_headers", "extra"), StringType())
        update.update_column("kafka_leader_epoch", LongType())
        update.move_first("value")
    sides.append(tier.convert(second))
    for made, side in zip((first, second), sides, strict=True):
        assert check(regenerated(tier, side), made.log) == len(made.batches)


@pytest.mark.parametrize(
    ("column", "part", "nothing"),
    [
        ("value", "value", None),
        ("kafka_key", "key", None),
        ("kafka_headers", "headers", ()),
        ("kafka_headers.value", "headers", (("h", None),)),
        ("kafka_timestamp", "timestamp_ms", -1),
    ],
)
def test_a_dropped_column_is_read_from_old_files_and_named_once_these_are_rewritten(
    tier: HistoryTier, column: str, part: str, nothing: object
) -> None:
    with_it = Rec(offset=1, key=b"k", value=b"v", headers=(("h", b"x"),))
    without = replace(with_it, **{"offset": 0, part: nothing})
    made = segment([Batch(records=[without]), Batch(records=[with_it])])
    side = tier.convert(made)
    with tier.table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column)
    assert check(regenerated(tier, side), made.log) == 2
    tier.table.overwrite(tier.table.scan().to_arrow())
    runs, reason = until_mismatch(tier, side)
    assert check(runs, made.log) == 1  # which had none anyway
    assert f"no column for: {column} (dropped)" in reason
    after = segment([Batch(records=[replace(with_it, offset=2)])])
    side = tier.convert(after)
    assert side.batches.kept.tolist() == [Kept.RAW]
    assert check(regenerated(tier, side), after.log) == 1


def test_deleted_rows(tier: HistoryTier) -> None:
    made = plain(0, 200)
    side = tier.convert(made)
    tier.table.delete("kafka_offset >= 30 and kafka_offset < 33 or kafka_offset >= 70")
    gone = {30, 31, 32, *range(70, 200)}
    runs = regenerated(tier, side, rows_may_miss=True)
    assert total(runs, "deleted_rows") == len(gone)
    assert [b for run in runs for b in batches_of(run)] == [
        encoded([r for r in batch.records if r.offset not in gone], batch.records[0])
        for batch in made.batches
    ]
    assert [c for run in runs for c in run.counts.tolist()] == [
        sum(r.offset not in gone for r in batch.records) for batch in made.batches
    ]
    before, reason = until_mismatch(tier, side)
    assert check(before, made.log) == 4
    assert "it has 7 records, the table has 4 rows" in reason


def test_all_rows_deleted(tier: HistoryTier) -> None:
    made = plain(0, 30)
    side = tier.convert(made)
    tier.table.delete()
    runs = regenerated(tier, side, rows_may_miss=True)
    assert total(runs, "deleted_rows") == 30
    assert not any(run.records.borders[-1] or run.counts.any() for run in runs)


@pytest.mark.parametrize("rows_may_miss", [False, True])
def test_a_changed_value_is_found(tier: HistoryTier, rows_may_miss: bool) -> None:
    made = plain(0, 200)
    side = tier.convert(made)
    tier.change(150)
    with tier.records().cursor(PARTITION) as rows:
        runs = Regenerator(side, rows, rows_may_miss=rows_may_miss, run_bytes=2000).runs()
        given: list[RegeneratedRun] = []
        with pytest.raises(HistoryMismatch, match="don't give the records") as caught:
            given.extend(runs)
    assert caught.value.batch == check(given, made.log) == 150 // 7


def test_rows_at_offsets_of_no_batch(tier: HistoryTier) -> None:
    batches = [b for i, b in enumerate(plain(0, 140).batches) if i % 4 != 2]
    made = segment(batches)
    side = tier.convert(made)
    mine = {r.offset for batch in batches for r in batch.records}
    others = [o for o in range(140) if o not in mine]
    assert len(others) == 35
    tier.insert(others)
    runs = regenerated(tier, side, run_bytes=1 << 20)
    assert check(runs, made.log) == len(batches)
    assert total(runs, "ignored_rows") == len(others)


def test_the_same_rows_twice(tier: HistoryTier) -> None:
    made = plain(0, 140)
    side = tier.convert(made)
    tier.repeat([5, 60, 61, 139])
    runs = regenerated(tier, side)
    assert check(runs, made.log) == len(made.batches)
    assert total(runs, "ignored_rows") == 4


@pytest.mark.parametrize("order", ["foreign first", "foreign last"])
def test_other_rows_at_the_same_offsets(tier: HistoryTier, order: str) -> None:
    """Whichever comes first: the digest tells which one is Kafka's."""
    made = plain(0, 140)
    side = tier.convert(made)
    tier.insert([5, 60, 61, 139])
    tier.rewrite(order, files=1, row_group_rows=1000)
    (first,) = next(tier.records().records(PARTITION, 60, 61)).column("value")[:1].to_pylist()
    assert (first == FOREIGN) == (order == "foreign first")
    runs = regenerated(tier, side)
    assert check(runs, made.log) == len(made.batches)
    assert total(runs, "ignored_rows") == 4
    tier.change(60)
    given, _ = until_mismatch(tier, side)
    assert check(given, made.log) == 60 // 7


def test_rows_without_partition_or_offset(tier: HistoryTier) -> None:
    made = plain(0, 100)
    side = tier.convert(made)
    with tier.table.update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("kafka_partition")
        update.make_column_optional("kafka_offset")
    tier.insert([None, 3, None, 50], partition=None)
    tier.insert([None, 7, 2], partition=[PARTITION, None, PARTITION + 1])
    tier.insert([-5, 7], partition=[PARTITION, PARTITION - 1])
    assert check(regenerated(tier, side), made.log) == len(made.batches)
    tier.rewrite("shuffled", files=2, row_group_rows=16)
    assert check(regenerated(tier, side), made.log) == len(made.batches)


# Goes on behind what is wrong, or takes it as it is


def test_marked_runs_go_on_behind_bad_batches(tier: HistoryTier) -> None:
    made = plain(0, 200)
    side = tier.convert(made)
    tier.change(60)
    tier.change(150)
    bad = [60 // 7, 150 // 7]
    with tier.records().cursor(PARTITION) as rows:
        runs = list(Regenerator(side, rows, run_bytes=2000).marked())
    assert [fault.batch for run in runs for fault in run.faults] == bad
    given = [data for run in runs for data in batches_of(run)]
    expected = [encoded(b.records, b.records[0]) for b in made.batches]
    same = [i for i, (one, other) in enumerate(zip(given, expected, strict=True)) if one == other]
    assert same == [i for i in range(len(expected)) if i not in bad]


@pytest.mark.parametrize("start", [58, 63])
@pytest.mark.parametrize("end", [59, 64, 300])
def test_accepted_batches_are_taken_as_they_are(tier: HistoryTier, start: int, end: int) -> None:
    """Batch 8 has offsets 56 to 62, of which 60 has changed."""
    made = plain(0, 200)
    side = tier.convert(made)
    tier.change(60)
    with tier.records().cursor(PARTITION) as rows:
        regenerator = Regenerator(side, rows, accepted=[(0, 7), (start, end)], run_bytes=2000)
        if start >= 63:
            with pytest.raises(HistoryMismatch):
                list(regenerator.runs())
            return
        given = [data for run in regenerator.runs() for data in batches_of(run)]
    changed = [replace(r, value=FOREIGN) if r.offset == 60 else r for r in made.batches[8].records]
    assert given[8] == encoded(changed, changed[0])
    assert len(given) == len(made.batches)


def test_kept_bytes_are_compared_in_accepted_ranges_too(tier: HistoryTier) -> None:
    marker = [Rec(offset=9, key=b"\0\0\0\0", value=b"\0" * 6)]
    batches = [Batch(records=[Rec(offset=0), Rec(offset=3)], producer=7)]
    batches.append(Batch(records=marker, producer=7, control=True))
    made = segment(batches, aborted_entry(7, 0, 9))
    side = tier.convert(made)
    side.batches.records_crc[0] ^= 1
    with (
        tier.records().cursor(PARTITION) as rows,
        pytest.raises(HistoryMismatch, match="what is kept"),
    ):
        list(Regenerator(side, rows, accepted=[(0, 100)]).runs())


def test_without_own_memory_a_run_is_good_until_the_next(tier: HistoryTier) -> None:
    made = plain()
    side = tier.convert(made)
    with tier.records().cursor(PARTITION) as rows:
        runs = Regenerator(side, rows, run_bytes=2000, own_memory=False).runs()
        first = next(runs)
        assert check([first], made.log) == len(first)
        assert sum(check([run], made.log, run.first) for run in runs) + len(first) == len(
            made.batches
        )
