"""What other engines do to a topic's table: columns dropped, rows updated; Kafka reads through."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from engine_tiers import segment
from native_segments import Batch, Rec, Segment
from pyiceberg.table import Table
from pyiceberg.types import BinaryType
from sole_copy import SoleCopyTier, _records, assert_served, pulled, settled

from segment_reader.batch_table import Kept
from tiering.cli.accept import run as accept
from tiering.engine.proving import FAULTS_MAX
from tiering.errors import FatalError
from tiering.ledger import SegmentState
from tiering.side_files import SideFile
from tiering.table.topic_tables import CatalogTables

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def tier(tmp_path: Path) -> SoleCopyTier:
    return SoleCopyTier(tmp_path)


def table_of(tier: SoleCopyTier, made: Segment) -> Table:
    return CatalogTables(tier.config).table(made.topic, made.topic_id)


def drop(tier: SoleCopyTier, made: Segment, column: str) -> None:
    with table_of(tier, made).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column)


def rewrite(tier: SoleCopyTier, made: Segment) -> None:
    """Every row once more, with the columns that there are."""
    table = table_of(tier, made)
    table.overwrite(table.scan().to_arrow())


def expire(tier: SoleCopyTier, made: Segment) -> None:
    """All snapshots but the newest go, and the files that only they named."""
    table = table_of(tier, made)
    before = {task for s in table.snapshots() for task in files(table, s.snapshot_id)}
    current = table.current_snapshot()
    assert current is not None
    for snapshot in table.snapshots():
        if snapshot.snapshot_id != current.snapshot_id:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    table = table_of(tier, made)
    for path in before - files(table, current.snapshot_id):
        Path(path.removeprefix("file://")).unlink()


def files(table: Table, snapshot_id: int) -> set[str]:
    return {t.file.file_path for t in table.scan(snapshot_id=snapshot_id).plan_files()}


def kept(tier: SoleCopyTier, made: Segment) -> list[int]:
    side = SideFile.open(tier.store, made.id, tier.entry(made).side)
    return [int(kind) for kind in side.batches.kept]


def full(start: int, count: int, like: Segment | None = None) -> Segment:
    """Every column has something in every batch."""
    batches = [
        Batch(
            records=[
                Rec(offset=o, key=b"key", value=b"value-%d" % o, headers=(("h", b"x"),))
                for o in range(at, at + 10)
            ],
            codec="zstd",
        )
        for at in range(start, start + count, 10)
    ]
    made = Segment(batches=batches)
    if like is not None:
        made = replace(made, topic=like.topic, topic_id=like.topic_id, partition=like.partition)
    return made


def retired(tier: SoleCopyTier, *segments: Segment) -> None:
    for each in segments:
        each.store(tier.store)
    tier.settle()
    assert set(tier.states()) == {SegmentState.RETIRED}


@pytest.mark.parametrize("column", ["value", "kafka_headers", "kafka_headers.key"])
def test_what_a_dropped_column_held_outlives_its_files(tier: SoleCopyTier, column: str) -> None:
    made = full(0, 60)
    retired(tier, made)
    drop(tier, made, column)
    assert_served(tier, made)  # from the old files
    reports = tier.settle()
    assert [r.rescued for r in reports] == [1, 0, 0, 0]
    assert f"column {column} was dropped" in reports[-1].problems[made.topic]
    assert set(kept(tier, made)) == {Kept.RAW}
    later = full(60, 30, made)
    later.store(tier.store)
    tier.settle(5)
    assert tier.entry(later).state is SegmentState.RETIRED
    assert set(kept(tier, later)) == {Kept.RAW}
    rewrite(tier, made)
    expire(tier, made)
    tier.settle()
    for each in (made, later):
        assert_served(tier, each)


def test_only_what_needs_the_column_is_saved(tier: SoleCopyTier) -> None:
    made = full(0, 60)
    without = replace(
        made.batches[2], records=[replace(r, key=None) for r in made.batches[2].records]
    )
    made = replace(made, batches=[*made.batches[:2], without, *made.batches[3:]])
    retired(tier, made)
    drop(tier, made, "kafka_key")
    tier.settle()
    assert [i for i, kind in enumerate(kept(tier, made)) if kind == Kept.ROWS] == [2]
    rewrite(tier, made)
    expire(tier, made)
    assert_served(tier, made)


def test_files_rewritten_before_it_was_noticed_are_read_from_an_older_snapshot(
    tier: SoleCopyTier,
) -> None:
    made = full(0, 60)
    retired(tier, made)
    drop(tier, made, "value")
    rewrite(tier, made)
    assert sum(r.rescued for r in tier.settle()) == 1
    expire(tier, made)
    assert_served(tier, made)


def test_a_reader_that_was_there_before_goes_on(tier: SoleCopyTier) -> None:
    made = full(0, 60)
    retired(tier, made)
    with tier.reads() as reads:
        assert _records(pulled(reads, made.id), made) == _records(made.log, made)
        drop(tier, made, "value")
        tier.settle()
        rewrite(tier, made)
        expire(tier, made)
        later = full(60, 30, made)
        later.store(tier.store)
        tier.settle(5)
        for each in (later, made):
            assert _records(pulled(reads, each.id), each) == _records(each.log, each)


def test_a_row_that_sql_has_deleted_is_not_saved_with_the_others(tier: SoleCopyTier) -> None:
    made = full(0, 60)
    retired(tier, made)
    table_of(tier, made).delete("kafka_offset = 33")
    drop(tier, made, "value")
    tier.settle()
    rewrite(tier, made)
    expire(tier, made)
    tier.settle()
    with tier.reads() as reads:
        served = _records(pulled(reads, made.id), made)
    assert served == [r for r in _records(made.log, made) if r["offset"] != 33]


def test_what_is_lost_is_told_and_never_served(tier: SoleCopyTier) -> None:
    made = full(0, 60)
    retired(tier, made)
    drop(tier, made, "value")
    rewrite(tier, made)
    expire(tier, made)
    report = tier.settle()[-1]
    assert report.rescued == 0
    assert "6 batches from offset 0 on" in report.problems[f"{made.topic}-{made.partition}"]
    with pytest.raises(FatalError):
        assert_served(tier, made)


def test_a_column_of_the_same_name_is_another_one(tier: SoleCopyTier) -> None:
    made = full(0, 60)
    retired(tier, made)
    drop(tier, made, "value")
    with table_of(tier, made).update_schema() as update:
        update.add_column("value", BinaryType())
    assert_served(tier, made)
    assert "column value was dropped" in tier.settle()[-1].problems[made.topic]
    rewrite(tier, made)
    expire(tier, made)
    later = full(60, 30, made)
    later.store(tier.store)
    tier.settle(5)
    for each in (made, later):
        assert_served(tier, each)


def test_a_proven_segment_is_saved_and_proven_again(tmp_path: Path) -> None:
    tier = SoleCopyTier(tmp_path, grace_ms=1000)
    made = full(0, 60)
    made.store(tier.store)
    engine = tier.engine()
    settled(engine, 3)
    assert tier.states() == [SegmentState.PROVEN]
    drop(tier, made, "value")
    rewrite(tier, made)
    tier.clock.at_ms += 60_000
    reports = settled(engine, 2)
    assert [(r.rescued, r.proven, r.proof_faults) for r in reports] == [(1, 1, 0), (0, 0, 0)]
    expire(tier, made)
    tier.clock.at_ms += 1000
    settled(engine, 2)
    assert tier.states() == [SegmentState.RETIRED]
    assert_served(tier, made)


@pytest.mark.parametrize("step", ["rescued", "rescue_recorded"])
def test_a_crash_while_saving_loses_nothing(tier: SoleCopyTier, step: str) -> None:
    made = [full(0, 60), segment(0, 70, topic="other")]
    retired(tier, *made)
    for each in made:
        drop(tier, each, "value")

    def crash(at: str) -> None:
        if at == step:
            raise Crash

    with pytest.raises(Crash):
        settled(tier.engine(reached=crash, bytes_max=1))
    tier.settle()
    for each in made:
        rewrite(tier, each)
        expire(tier, each)
        assert_served(tier, each)


def update(tier: SoleCopyTier, made: Segment, offset: int, value: bytes) -> None:
    """SQL's UPDATE of one row."""
    table = table_of(tier, made)
    rows = table.scan().to_arrow()
    place = rows.schema.get_field_index("value")
    changed = [
        value if o == offset else v
        for o, v in zip(
            rows.column("kafka_offset").to_pylist(), rows.column("value").to_pylist(), strict=True
        )
    ]
    field = rows.schema.field(place)
    table.overwrite(rows.set_column(place, field, pa.array(changed, field.type)))


def accepted(tier: SoleCopyTier, made: Segment, start: int, end: int) -> None:
    from argparse import Namespace

    options = Namespace(
        topic=made.topic, partition=made.partition, start=start, end=end, json=True,
        directory=tier.directory, config=None,
    )  # fmt: skip
    assert accept(options) == 0


def test_an_update_that_is_accepted_is_proven_retired_and_served(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiering.cli.accept.find_config", lambda options: tier.config)
    made = full(0, 60)
    made.store(tier.store)
    done: list[str] = []

    def between(step: str) -> None:
        if step == "settled" and not done and tier.states() == [SegmentState.CONVERTED]:
            done.append(step)
            update(tier, made, 33, b"changed through SQL")

    engine = tier.engine(reached=between)
    report = settled(engine)[-1]
    assert tier.states() == [SegmentState.CONVERTED]
    fault = tier.entry(made).fault
    assert fault is not None
    assert (fault.offset, fault.count) == (30, FAULTS_MAX)
    assert report.problems
    accepted(tier, made, 10, 20)  # not the one
    settled(engine)
    assert tier.states() == [SegmentState.CONVERTED]
    accepted(tier, made, 33, 34)
    settled(engine)
    assert tier.states() == [SegmentState.RETIRED]
    expected = _records(made.log, made)
    expected[33]["value"] = b"changed through SQL"
    with tier.reads() as reads:
        assert _records(pulled(reads, made.id), made) == expected
