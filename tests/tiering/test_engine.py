"""The engine on a real store, a real catalog and real files; only Spark is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_tiers import Tier, records, segment, tier_status
from native_segments import Segment, aborted_entry, kafka_uuid

from tiering.cli import main
from tiering.config import default_config
from tiering.engine import Engine
from tiering.errors import NotFound, TransientError
from tiering.ledger import Ledger, SegmentState
from tiering.local.tier_stack import CONFIG_FILE
from tiering.table.commit import TableState
from tiering.table.topic_tables import CatalogTables

STEPS = ("planned", "converted", "committed", "settled")


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(default_config(tmp_path))


def test_every_topic_and_partition_of_a_cycle_is_committed_once(tier: Tier) -> None:
    first = segment(0, 50)
    second = segment(50, 30, first)
    elsewhere = segment(10, 20, first, partition=7)
    other = segment(0, 40, topic="page.views")
    for each in (second, first, elsewhere, other):
        each.store(tier.store)
    reports = tier.settle()
    assert [r.commits for r in reports] == [0, 2, 0, 0]
    assert tier.rows(first) == [*records(first, second), *elsewhere.rows()]
    assert tier.rows(other) == other.rows()
    assert set(tier.states()) == {SegmentState.CONVERTED}


def test_a_segment_whose_rows_were_all_aborted_moves_the_watermark(tier: Tier) -> None:
    made = segment(0, 21)
    batches = [replace(batch, producer=9) for batch in made.batches]
    aborted = replace(made, batches=batches, verdicts=aborted_entry(9, 0, 20))
    aborted.store(tier.store)
    tier.settle()
    assert tier.rows(aborted) == []
    state = CatalogTables(tier.config).state(aborted.topic, aborted.topic_id)
    assert state.watermarks[aborted.partition].offset == 21
    follower = segment(21, 9, aborted)
    follower.store(tier.store)
    tier.settle()
    assert tier.rows(aborted) == follower.rows()


def run_cycles(engine: Engine, count: int) -> None:
    for _ in range(count):
        engine.run_cycle()


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(tier: Tier, step: str) -> None:
    first = segment(0, 50)
    segments = [first, segment(50, 30, first), segment(0, 30, topic="other")]
    for each in segments:
        each.store(tier.store)

    def crash(at: str) -> None:
        if at == step:
            raise Crash

    engine = tier.engine(reached=crash)
    with pytest.raises(Crash):
        run_cycles(engine, 3)
    tier.settle()
    assert tier.rows(first) == records(*segments[:2])
    assert tier.rows(segments[2]) == segments[2].rows()
    assert set(tier.states()) == {SegmentState.CONVERTED}


def test_a_slow_engine_beside_a_fast_one_brings_nothing_twice(tier: Tier) -> None:
    first = segment(0, 50)
    first.store(tier.store)
    tier.settle()
    later = segment(50, 30, first)
    later.store(tier.store)

    def overtake(at: str) -> None:
        if at == "converted":
            tier.settle()

    slow = tier.engine(reached=overtake)
    slow.run_cycle()
    slow.run_cycle()
    assert tier.rows(first) == records(first, later)


def test_overlapping_copies_with_other_borders_give_each_offset_once(tier: Tier) -> None:
    narrow = segment(10, 81)
    narrow.store(tier.store)
    tier.settle()
    wide = segment(3, 98, narrow)
    tail = segment(95, 40, narrow)
    wide.store(tier.store)
    tail.store(tier.store)
    tier.settle()
    found = [row["kafka_offset"] for row in tier.rows(narrow)]
    assert found == list(range(10, 135))
    assert set(tier.states()) == {SegmentState.CONVERTED}


def test_an_unclean_election_below_the_watermark_stops_the_partition(tier: Tier) -> None:
    first = segment(0, 101)
    first.store(tier.store)
    tier.settle()

    def under_epoch_2(start: int, count: int) -> Segment:
        made = segment(start, count, first, leader_epochs=((2, start),))
        return replace(made, batches=[replace(b, epoch=2) for b in made.batches])

    behind, above = under_epoch_2(50, 51), under_epoch_2(101, 20)
    behind.store(tier.store)
    above.store(tier.store)
    reports = tier.settle()
    problem = reports[-1].problems[f"{first.topic}-{first.partition}"]
    assert "unclean leader election" in problem
    assert behind.id.path in problem
    assert tier.rows(first) == first.rows()
    assert Ledger(tier.store).load(behind.id).state is SegmentState.UPLOADED


def test_of_two_lineages_only_rows_of_the_newer_one_come_in(tier: Tier) -> None:
    dead = segment(0, 101, leader_epochs=((1, 0),))
    dead = replace(dead, batches=[replace(b, epoch=1) for b in dead.batches])
    alive = segment(49, 80, dead, leader_epochs=((2, 49),))
    alive = replace(alive, batches=[replace(b, epoch=2) for b in alive.batches])
    dead.store(tier.store)
    alive.store(tier.store)
    assert tier.settle()[-1].problems == {}
    assert tier.rows(dead) == [*dead.rows()[:49], *alive.rows()]
    # What is dead of the first copy is in no table: it can't be proven and stays native.
    assert Ledger(tier.store).load(dead.id).state is SegmentState.UPLOADED
    assert Ledger(tier.store).load(alive.id).state is SegmentState.CONVERTED


def test_a_large_segment_becomes_several_files_with_every_offset_once(tier: Tier) -> None:
    large = segment(0, 900)
    large.store(tier.store)
    tier.settle()
    table = CatalogTables(tier.config).table(large.topic, large.topic_id)
    assert len(list(table.scan().plan_files())) > 5
    assert tier.rows(large) == large.rows()


def test_the_byte_limit_spreads_a_backlog_over_cycles(tier: Tier) -> None:
    first = segment(0, 50)
    for each in (first, segment(50, 50, first), segment(100, 50, first)):
        each.store(tier.store)
    engine = tier.engine(bytes_max=1)
    assert [engine.run_cycle().segments for _ in range(5)] == [0, 1, 1, 1, 0]


def test_partitions_share_the_byte_limit_of_a_cycle(tier: Tier) -> None:
    first = segment(0, 50)
    parts = [segment(50 * i, 50, first, partition=p) for p in (0, 1) for i in range(4)]
    for each in parts:
        each.store(tier.store)
    engine = tier.engine(bytes_max=3 * max(len(s.log) for s in parts))
    assert [engine.run_cycle().segments for _ in range(4)] == [0, 4, 4, 0]


def test_a_corrupt_segment_is_quarantined_where_it_lies_and_others_go_on(tier: Tier) -> None:
    good, bad = segment(0, 50), segment(50, 30, partition=5)
    bad = replace(bad, topic=good.topic, topic_id=good.topic_id)
    log = bytearray(bad.log)
    log[len(bad.batches[0].encode()) + 40] ^= 1
    good.store(tier.store)
    bad.store(tier.store, bytes(log))
    reports = tier.settle()
    assert tier.rows(good) == good.rows()
    position = len(bad.batches[0].encode())
    problem = reports[-1].problems[f"{bad.topic}-5"]
    assert bad.id.path in problem
    assert f"byte {position}" in problem
    assert tier.store.get(bad.id.log_key).data == bytes(log)
    status = tier_status(tier)
    assert status[bad.topic, 5].quarantined
    assert status[bad.topic, 5].lag == 30
    healed = replace(bad, segment_id=kafka_uuid())
    healed.store(tier.store)
    tier.settle()
    assert tier.rows(good) == [*good.rows(), *bad.rows()]


def test_a_damaged_ledger_object_stops_its_partition_and_no_other(tier: Tier) -> None:
    good, lost = segment(0, 50), segment(0, 50, partition=5)
    lost = replace(lost, topic=good.topic, topic_id=good.topic_id)
    later = segment(50, 30, lost)
    for each in (good, lost, later):
        each.store(tier.store)
    whole = tier.store.get(lost.id.ledger_key).data
    tier.store.put(lost.id.ledger_key, whole[:40])
    reports = tier.settle()
    assert tier.rows(good) == good.rows()
    assert lost.id.ledger_key in reports[-1].problems[f"{good.topic}-5"]
    tier.store.put(lost.id.ledger_key, whole)
    assert tier.settle()[-1].problems == {}
    assert tier.rows(good) == [*good.rows(), *lost.rows(), *later.rows()]


def test_an_object_of_another_segment_is_refused(tier: Tier) -> None:
    good = segment(0, 50)
    wrong = segment(50, 30, good)
    good.store(tier.store)
    wrong.store(tier.store, good.log)
    tier.settle()
    assert tier.rows(good) == good.rows()
    entry = Ledger(tier.store).load(wrong.id)
    assert entry.quarantine is not None
    assert entry.quarantine.position == 0


def test_a_missing_object_is_no_reason_to_quarantine(tier: Tier) -> None:
    gone = segment(0, 50)
    gone.store(tier.store)
    tier.store.delete(gone.id.log_key)
    reports = tier.settle()
    assert Ledger(tier.store).load(gone.id).quarantine is None
    assert gone.id.path in reports[-1].problems[f"{gone.topic}-{gone.partition}"]
    tier.store.put(gone.id.log_key, gone.log)
    tier.settle()
    assert tier.rows(gone) == gone.rows()


def test_a_deleted_segment_is_not_converted(tier: Tier) -> None:
    deleted = segment(0, 50)
    kept = segment(50, 20, deleted)
    deleted.store(tier.store)
    kept.store(tier.store)
    Ledger(tier.store).update(deleted.id, lambda entry: replace(entry, delete_requested=True))
    tier.settle()
    assert tier.rows(kept) == kept.rows()


def test_a_topic_made_again_gets_a_table_of_its_own(tier: Tier) -> None:
    old = segment(0, 50)
    new = segment(0, 30, topic=old.topic)
    old.store(tier.store)
    tier.settle()
    new.store(tier.store)
    tier.settle()
    assert tier.rows(old) == old.rows()
    assert tier.rows(new) == new.rows()
    tables = CatalogTables(tier.config)
    current = tables.catalog.load_table(tables.identifier(old.topic))
    assert current.properties["onecopy.topic-id"] == new.topic_id


def test_an_outage_does_not_let_a_younger_topic_take_the_name_first(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = segment(0, 50)
    younger = segment(0, 30, topic_id=kafka_uuid())
    for uploaded_at_ms, each in enumerate((former, younger)):
        each.store(tier.store)
        Ledger(tier.store).update(
            each.id, lambda e, at=uploaded_at_ms: replace(e, uploaded_at_ms=at)
        )
    ensure, outages = CatalogTables.ensure, iter([True])

    def failing(tables: CatalogTables, topic: str, topic_id: str) -> TableState:
        if topic_id == former.topic_id and next(outages, False):
            raise TransientError("the catalog is out")
        return ensure(tables, topic, topic_id)

    monkeypatch.setattr(CatalogTables, "ensure", failing)
    tier.settle()
    tables = CatalogTables(tier.config)
    assert tables.table(former.topic, younger.topic_id).name() == tables.identifier(former.topic)
    assert (tier.rows(former), tier.rows(younger)) == (former.rows(), younger.rows())


def test_a_table_rolled_back_by_somebody_stops_and_says_so(tier: Tier) -> None:
    first = segment(0, 50)
    first.store(tier.store)
    tier.settle()
    tables = CatalogTables(tier.config)
    before = tables.state(first.topic, first.topic_id).snapshot_id
    later = segment(50, 30, first)
    later.store(tier.store)
    tier.settle()
    table = tables.table(first.topic, first.topic_id)
    assert before is not None
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    segment(80, 30, first).store(tier.store)
    reports = tier.settle()
    assert reports[-1].commits == 0
    assert reports[-1].problems[first.topic]
    assert tier.rows(first) == first.rows()


def test_status_shows_what_is_pending_and_what_is_done(tier: Tier) -> None:
    first = segment(5, 50)
    first.store(tier.store)
    assert tier_status(tier)[first.topic, first.partition].lag == 50
    tier.settle()
    segment(55, 20, first).store(tier.store)
    found = tier_status(tier)[first.topic, first.partition]
    assert (found.log_start, found.watermark, found.tier_end, found.lag) == (5, 55, 75, 20)
    assert found.pending_segments == 1


def test_a_topic_without_a_table_is_told_as_not_found(tier: Tier) -> None:
    with pytest.raises(NotFound):
        CatalogTables(tier.config).table("orders", kafka_uuid())


def test_retry_lifts_a_quarantine_and_the_segment_comes_in(
    tier: Tier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = segment(0, 50)
    bad.store(tier.store, b"\0" * len(bad.log), checksums=False)
    tier.settle()
    (tmp_path / CONFIG_FILE).write_text(tier.config.to_json())
    assert main(["retry", "no-such-topic", "--dir", str(tmp_path)]) != 0
    assert "holds no segments of topic no-such-topic" in capsys.readouterr().err
    tier.store.put(bad.id.log_key, bad.log)
    tier.settle()
    assert tier.rows(bad) == []
    assert main(["retry", bad.topic, "--dir", str(tmp_path)]) == 0
    assert bad.id.path in capsys.readouterr().out
    tier.settle()
    assert tier.rows(bad) == bad.rows()


def test_an_epoch_without_offsets_is_no_fault(tier: Tier) -> None:
    made = segment(0, 50, leader_epochs=((3, 0), (4, 0)))
    made = replace(made, batches=[replace(batch, epoch=4) for batch in made.batches])
    made.store(tier.store)
    tier.settle()
    assert tier.rows(made) == made.rows()
