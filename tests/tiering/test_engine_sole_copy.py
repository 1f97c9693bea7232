"""The engine up to the sole copy: prove, retire, withdraw, expel; only Spark is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_tiers import records, segment
from native_segments import Batch, Rec, Segment, aborted_entry, kafka_uuid
from sole_copy import SoleCopyTier, assert_served, pulled, settled

from tiering.config import TopicConfig
from tiering.engine.proving import FAULTS_MAX
from tiering.errors import NotFound
from tiering.ledger import Ledger, SegmentState
from tiering.table.topic_tables import CatalogTables

STEPS = (
    *("planned", "converted", "committed", "settled", "proven", "proof_recorded"),
    *("retiring", "retired", "native_deleted"),
)


# PyIceberg says so of a table property that is meant for Spark.
pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def tier(tmp_path: Path) -> SoleCopyTier:
    return SoleCopyTier(tmp_path)


def odd_segment() -> Segment:
    """Aborted and control batches, gaps, log-append time, an odd timestamp."""
    batches = [
        Batch(records=[Rec(offset=0), Rec(offset=3, value=None)], producer=7),
        Batch(records=[Rec(offset=5, key=b"k"), Rec(offset=6)], producer=8),
        Batch(records=[Rec(offset=9, key=b"\0\0\0\0", value=b"\0" * 6)], producer=7, control=True),
        Batch(records=[Rec(offset=10), Rec(offset=11, timestamp_ms=-1)], codec="gzip"),
        Batch(
            records=[Rec(offset=20, timestamp_ms=1), Rec(offset=21, timestamp_ms=2**62)],
            codec="zstd",
            last_offset=29,
        ),
        Batch(
            records=[Rec(offset=30), Rec(offset=31, timestamp_ms=1_700_000_000_777)],
            log_append=True,
        ),
    ]
    return Segment(batches=batches, verdicts=aborted_entry(7, 0, 9))


def test_what_is_proven_is_retired_and_its_native_objects_go(tier: SoleCopyTier) -> None:
    first = segment(0, 200)
    made = [first, segment(200, 90, first), odd_segment()]
    for each in made:
        each.store(tier.store)
    reports = tier.settle()
    assert [r.retired for r in reports] == [0, 3, 0, 0]
    assert sum(r.retired_bytes for r in reports) == sum(len(s.log) for s in made)
    assert set(tier.states()) == {SegmentState.RETIRED}
    assert tier.native_keys() == []
    assert tier.rows(first) == records(*made[:2])
    for each in made:
        assert_served(tier, each)


def test_indexes_are_the_same_before_and_after(tier: SoleCopyTier) -> None:
    made = segment(0, 300)
    made.store(tier.store)
    with tier.reads() as reads:
        before = reads.index(made.id, "offset")
        tier.settle()
        assert tier.entry(made).native_gone
        assert reads.index(made.id, "offset") == before
    with tier.reads() as reads:
        assert reads.index(made.id, "offset") == before


def test_a_reader_across_the_hand_over_sees_no_gap_and_no_repeat(tier: SoleCopyTier) -> None:
    made = segment(0, 300)
    made.store(tier.store)
    with tier.reads() as reads:
        taken, cursor, retired = bytearray(), 0, False
        while cursor is not None:
            pull = reads.pull(
                made.id, position=None, cursor=cursor, end_position=None, max_bytes=1500
            )
            taken += pull.data
            cursor = pull.next_position
            if not retired and len(taken) > 4000:
                tier.settle()
                retired = True
    assert tier.entry(made).native_gone
    offsets = [b.records[0].offset for b in made.batches]
    found, at = [], 0
    while at < len(taken):
        found.append(int.from_bytes(taken[at : at + 8], "big"))
        at += 12 + int.from_bytes(taken[at + 8 : at + 12], "big")
    assert found == offsets


def test_nothing_is_retired_before_the_grace_is_over(tmp_path: Path) -> None:
    tier = SoleCopyTier(tmp_path, grace_ms=60_000)
    made = segment(0, 100)
    made.store(tier.store)
    engine = tier.engine()
    settled(engine)
    assert tier.states() == [SegmentState.PROVEN]
    tier.clock.at_ms += 59_999
    settled(engine)
    assert tier.states() == [SegmentState.PROVEN]
    assert len(tier.native_keys()) == 2
    tier.clock.at_ms += 1
    settled(engine)
    assert tier.states() == [SegmentState.RETIRED]
    assert tier.native_keys() == []


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(
    tier: SoleCopyTier, step: str
) -> None:
    first = segment(0, 50)
    made = [first, segment(50, 30, first), segment(0, 30, topic="other")]
    for each in made:
        each.store(tier.store)

    def crash(at: str) -> None:
        if at == step:
            raise Crash

    engine = tier.engine(reached=crash)
    with pytest.raises(Crash):
        settled(engine, 3)
    for each in made:
        assert_served(tier, each)
    tier.settle()
    assert tier.rows(first) == records(*made[:2])
    assert tier.rows(made[2]) == made[2].rows()
    assert set(tier.states()) == {SegmentState.RETIRED}
    assert tier.native_keys() == []
    for each in made:
        assert_served(tier, each)


def test_overlapping_copies_are_each_proven_and_served_whole(tier: SoleCopyTier) -> None:
    narrow = segment(10, 81)
    wide = segment(3, 98, narrow)
    wide = replace(wide, batches=[b for b in wide.batches if b.records[0].offset >= 3])
    tail = segment(95, 40, narrow)
    narrow.store(tier.store)
    tier.settle()
    wide.store(tier.store)
    tail.store(tier.store)
    tier.settle()
    found = [row["kafka_offset"] for row in tier.rows(narrow)]
    assert found == list(range(10, 135))
    assert tier.entry(narrow).state is SegmentState.RETIRED
    # These two were made of other records than the first, which no broker's copies are: what
    # contradicts the table is noticed, and stays native.
    assert tier.entry(wide).state is not SegmentState.RETIRED


def test_a_later_copy_of_the_same_log_is_proven_by_the_first_ones_rows(tier: SoleCopyTier) -> None:
    whole = segment(0, 140)
    narrow = replace(whole, batches=whole.batches[:10], segment_id=kafka_uuid())
    wide = replace(whole, batches=whole.batches[3:], segment_id=kafka_uuid())
    again = replace(whole, batches=whole.batches[2:8], segment_id=kafka_uuid())
    for each in (narrow, wide, again):
        each.store(tier.store)
        tier.settle()
    assert tier.rows(whole) == whole.rows()
    assert set(tier.states()) == {SegmentState.RETIRED}
    for each in (narrow, wide, again):
        assert_served(tier, each)


def data_files(tier: SoleCopyTier) -> list[Path]:
    return sorted((tier.directory / "store" / "warehouse").rglob("data/*.parquet"))


def tamper(path: Path) -> None:
    """Change one value in a data file and leave all else as it was."""
    table = pq.read_table(path)
    values = table.column("value").to_pylist()
    row = next(i for i, value in enumerate(values) if value)
    values[row] = bytes([values[row][0] ^ 1]) + values[row][1:]
    at = table.column_names.index("value")
    table = table.set_column(at, table.schema.field("value"), pa.array(values, pa.binary()))
    pq.write_table(table, path, store_schema=False, compression="zstd")


def test_rows_that_were_written_wrongly_are_withdrawn_and_converted_again(
    tier: SoleCopyTier,
) -> None:
    first = segment(0, 100)
    later = segment(100, 60, first)
    elsewhere = segment(0, 40, first, partition=5)
    for each in (first, later, elsewhere):
        each.store(tier.store)
    tampered: list[Path] = []

    def at_step(step: str) -> None:
        if step == "committed" and not tampered:
            tampered.append(data_files(tier)[1])
            tamper(tampered[0])

    engine = tier.engine(reached=at_step)
    reports = settled(engine, 5)
    assert sum(r.proof_faults for r in reports) == 1
    fault = tier.entry(first).fault
    assert fault is not None
    assert fault.count == 1
    assert tier.rows(first) == [*records(first, later), *elsewhere.rows()]
    assert set(tier.states()) == {SegmentState.RETIRED}
    for each in (first, later, elsewhere):
        assert_served(tier, each)


@pytest.mark.parametrize("step", ["entries_withdrawn", "withdrawn"])
def test_a_crash_while_rows_are_withdrawn_heals(tier: SoleCopyTier, step: str) -> None:
    first = segment(0, 100)
    later = segment(100, 60, first)
    for each in (first, later):
        each.store(tier.store)
    tampered: list[Path] = []

    def at_step(at: str) -> None:
        if at == "committed" and not tampered:
            tampered.append(data_files(tier)[0])
            tamper(tampered[0])
        if at == step:
            raise Crash

    with pytest.raises(Crash):
        settled(tier.engine(reached=at_step))
    for each in (first, later):
        assert_served(tier, each)
    tier.settle(6)
    assert tier.rows(first) == records(first, later)
    assert set(tier.states()) == {SegmentState.RETIRED}


def test_a_segment_whose_proof_never_holds_keeps_its_native_log(tier: SoleCopyTier) -> None:
    made = segment(0, 100)
    made.store(tier.store)

    def spoil(step: str) -> None:
        if step == "committed":
            tamper(max(data_files(tier), key=lambda path: path.stat().st_mtime_ns))

    engine = tier.engine(reached=spoil)
    reports = settled(engine, FAULTS_MAX + 4)
    assert sum(r.proof_faults for r in reports) == FAULTS_MAX
    assert "onecopy retry" in reports[-1].problems[f"{made.topic}-{made.partition}"]
    assert reports[-1].idle
    assert tier.entry(made).state is SegmentState.CONVERTED
    assert tier.store.get(made.id.log_key).data == made.log
    assert_served(tier, made)


def test_a_table_whose_files_changed_after_the_proof_is_proven_again(tmp_path: Path) -> None:
    tier = SoleCopyTier(tmp_path, grace_ms=1000)
    made = segment(0, 100)
    made.store(tier.store)
    engine = tier.engine()
    settled(engine, 3)
    assert tier.states() == [SegmentState.PROVEN]
    before = tier.entry(made).proof
    table = CatalogTables(tier.config).table(made.topic, made.topic_id)
    table.overwrite(table.scan().to_arrow())
    tier.clock.at_ms += 1000
    assert engine.run_cycle().retired == 0
    settled(engine, 2)
    tier.clock.at_ms += 1000
    settled(engine, 2)
    proof = tier.entry(made).proof
    assert before is not None
    assert proof is not None
    assert proof.coverage != before.coverage
    assert tier.states() == [SegmentState.RETIRED]
    assert_served(tier, made)


def test_a_data_file_that_is_gone_lets_nothing_retire(tmp_path: Path) -> None:
    tier = SoleCopyTier(tmp_path, grace_ms=1000)
    made = segment(0, 100)
    made.store(tier.store)
    engine = tier.engine()
    settled(engine, 3)
    data_files(tier)[0].unlink()
    tier.clock.at_ms += 1000
    report = engine.run_cycle()
    assert report.retired == 0
    assert "does not exist" in report.problems[f"{made.topic}-{made.partition}"]
    assert len(tier.native_keys()) == 2


def test_rows_deleted_through_sql_before_the_proof_become_a_gap(tier: SoleCopyTier) -> None:
    made = segment(0, 100)
    made.store(tier.store)

    def delete(step: str) -> None:
        if step == "settled":
            table = CatalogTables(tier.config).table(made.topic, made.topic_id)
            table.delete("kafka_offset >= 30 and kafka_offset < 40")

    engine = tier.engine(reached=delete)
    settled(engine)
    entry = tier.entry(made)
    assert entry.state is SegmentState.RETIRED
    assert entry.proof is not None
    assert entry.proof.deleted_rows == 10
    left = [Rec for b in made.batches for Rec in b.records if not 30 <= Rec.offset < 40]
    with tier.reads() as reads:
        pull = reads.pull(made.id, position=0, cursor=None, end_position=None, max_bytes=10**7)
    assert _offsets(bytes(pull.data)) == [r.offset for r in left]


def _offsets(log: bytes) -> list[int]:
    """Offsets of all records of a log, by Kafka's format alone."""
    from segment_reader import BytesSource, SegmentBounds, SegmentReader

    epoch = int.from_bytes(log[12:16], "big")
    bounds = SegmentBounds(start_offset=0, end_offset=99, leader_epochs=((epoch, 0),))
    batches = SegmentReader(BytesSource("log", log), bounds).record_batches()
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def under_epoch(made: Segment, epoch: int) -> Segment:
    epochs = ((epoch, made.start_offset),)
    batches = [replace(b, epoch=epoch) for b in made.batches]
    return replace(made, batches=batches, leader_epochs=epochs)


def test_an_unclean_election_takes_the_dead_rows_out_and_goes_on(tier: SoleCopyTier) -> None:
    dead = under_epoch(segment(0, 101), 1)
    dead.store(tier.store)
    tier.settle()
    assert tier.states() == [SegmentState.RETIRED]
    behind = under_epoch(segment(49, 51, dead), 2)
    above = under_epoch(segment(100, 30, dead), 2)
    behind.store(tier.store)
    above.store(tier.store)
    reports = tier.settle(6)
    assert sum(r.withdrawn for r in reports) == 1
    assert reports[-1].problems == {}
    assert tier.rows(dead) == [*dead.rows()[:49], *behind.rows(), *above.rows()]
    for each in (behind, above):
        assert tier.entry(each).state is SegmentState.RETIRED
        assert_served(tier, each)
    # Of the cut log's retired segment the batches below the cut are served, and nothing else.
    assert tier.entry(dead).cut == 49
    with tier.reads() as reads:
        served = pulled(reads, dead.id)
    assert _offsets(served) == list(range(49))


@pytest.mark.parametrize("step", ["entries_withdrawn", "withdrawn"])
def test_a_crash_while_dead_rows_are_withdrawn_heals(tier: SoleCopyTier, step: str) -> None:
    dead = under_epoch(segment(0, 101), 1)
    dead.store(tier.store)
    tier.settle()
    alive = under_epoch(segment(49, 81, dead), 2)
    alive.store(tier.store)

    def crash(at: str) -> None:
        if at == step:
            raise Crash

    with pytest.raises(Crash):
        settled(tier.engine(reached=crash))
    tier.settle(6)
    assert tier.rows(dead) == [*dead.rows()[:49], *alive.rows()]
    assert_served(tier, alive)


def ask_delete(tier: SoleCopyTier, *segments: Segment) -> None:
    for each in segments:
        Ledger(tier.store).update(each.id, lambda e: replace(e, delete_requested=True))


def test_what_kafka_deletes_leaves_the_table_file_by_file(tier: SoleCopyTier) -> None:
    first = segment(0, 60)
    made = [first, segment(60, 60, first), segment(120, 60, first)]
    for each in made:
        each.store(tier.store)
    tier.settle()
    ask_delete(tier, made[0])
    tier.settle()
    assert tier.rows(first) == records(*made[1:])
    for each in made[1:]:
        assert_served(tier, each)
    with tier.reads() as reads, pytest.raises(NotFound):
        reads.index(first.id, "offset")


def test_a_superseded_copy_that_is_deleted_takes_no_row_with_it(tier: SoleCopyTier) -> None:
    whole = segment(0, 140)
    narrow = replace(whole, batches=whole.batches[:10], segment_id=kafka_uuid())
    wide = replace(whole, segment_id=kafka_uuid())
    for each in (narrow, wide):
        each.store(tier.store)
    tier.settle()
    ask_delete(tier, narrow)
    tier.settle()
    assert tier.rows(whole) == whole.rows()
    assert_served(tier, wide)


def test_rows_that_are_kept_forever_outlive_kafkas_delete(tmp_path: Path) -> None:
    forever = TopicConfig(retention="forever")
    tier = SoleCopyTier(tmp_path, topics={"orders": forever})
    first = segment(0, 60)
    later = segment(60, 60, first)
    for each in (first, later):
        each.store(tier.store)
    tier.settle()
    ask_delete(tier, first)
    tier.settle()
    assert tier.rows(first) == records(first, later)


def test_rows_with_a_duration_go_when_kafka_and_the_clock_say_so(tmp_path: Path) -> None:
    tier = SoleCopyTier(tmp_path, topics={"orders": TopicConfig(retention="1d")})
    first = segment(0, 60)
    later = segment(60, 60, first)
    for each in (first, later):
        each.store(tier.store)
    tier.clock.at_ms = 1_700_000_000_000 + 3_600_000
    engine = tier.engine()
    settled(engine)
    ask_delete(tier, first)
    settled(engine)
    assert tier.rows(first) == records(first, later)
    tier.clock.at_ms += 86_400_000
    settled(engine)
    assert tier.rows(first) == later.rows()


def test_a_delete_that_races_with_conversion_loses_no_live_row(tier: SoleCopyTier) -> None:
    first = segment(0, 60)
    later = segment(60, 60, first)
    for each in (first, later):
        each.store(tier.store)

    def race(step: str) -> None:
        if step == "converted":
            ask_delete(tier, first)
            tier.store.delete(first.id.log_key)
            tier.store.delete(first.id.indexes_key)

    settled(tier.engine(reached=race))
    tier.settle()
    assert tier.rows(first) == later.rows()
    assert tier.entry(later).state is SegmentState.RETIRED
    assert_served(tier, later)


def test_a_former_topics_table_goes_with_its_last_segment(tier: SoleCopyTier) -> None:
    former = segment(0, 60)
    former.store(tier.store)
    tier.settle()
    new = replace(segment(0, 40), topic=former.topic)
    new.store(tier.store)
    tier.settle()
    tables = CatalogTables(tier.config)
    assert tables.table(former.topic, former.topic_id).scan().to_arrow().num_rows == 60
    ask_delete(tier, former)
    tier.settle()
    with pytest.raises(NotFound):
        tables.table(former.topic, former.topic_id)
    # A local store's lock files stay: another process may hold them.
    warehouse = [i.key for i in tier.store.list("warehouse/") if "/.onecopy/" not in i.key]
    assert warehouse
    assert not [key for key in warehouse if former.topic_id in key]
    assert tier.rows(new) == new.rows()
    assert_served(tier, new)


def test_a_topic_without_any_segment_left_keeps_its_empty_table(tier: SoleCopyTier) -> None:
    first = segment(0, 60)
    first.store(tier.store)
    tier.settle()
    ask_delete(tier, first)
    tier.settle()
    assert tier.rows(first) == []
    later = segment(60, 30, first)
    later.store(tier.store)
    tier.settle()
    assert tier.rows(first) == later.rows()
    assert_served(tier, later)
