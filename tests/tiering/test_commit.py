"""Every fate that an append can meet, each named by its test. Real catalog, real files."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from appends import IDENTIFIER, NO_WAIT, Faults, Tier, head, rolled_back
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServiceUnavailableError,
)

from tiering.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    FatalError,
    NotFound,
    TransientError,
)
from tiering.pacing import Pacing
from tiering.table.commit import TableAppend, append, load_state
from tiering.watermarks import (
    CYCLE_ID_SUMMARY,
    WATERMARKS_PROPERTY,
    Watermark,
    decode_watermarks,
    encode_watermarks,
)

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
"""PyIceberg, standing in for another writer, knows fewer table properties than Spark."""


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    tier = Tier.open(tmp_path)
    tier.ensure()
    return tier


def test_rows_and_watermarks_land_in_one_snapshot(tier: Tier) -> None:
    plan = tier.plan({0: 100, 3: 20})
    outcome = append(tier.catalog, plan)

    assert outcome.landed == {0, 3}
    assert outcome.dropped == frozenset()
    assert tier.offsets(0) == list(range(100))
    assert tier.offsets(3) == list(range(20))
    snapshot = tier.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.snapshot_id == outcome.snapshot_id
    assert snapshot.summary[CYCLE_ID_SUMMARY] == plan.cycle_id
    assert snapshot.summary[WATERMARKS_PROPERTY] == tier.table().properties[WATERMARKS_PROPERTY]
    assert len(tier.table().snapshots()) == 1


def test_partitions_that_do_not_move_keep_their_watermarks(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 100, 3: 20}))
    append(tier.catalog, tier.plan({3: 30}))
    append(tier.catalog, tier.plan({1: 5}))
    assert tier.marks() == {0: 100, 1: 5, 3: 30}
    assert tier.state().watermarks[0].leader_epochs == ((0, 0),)


def test_history_tags_and_branches_are_kept(tier: Tier) -> None:
    first = append(tier.catalog, tier.plan({0: 10})).snapshot_id
    assert first is not None
    tier.table().manage_snapshots().create_tag(first, "audit").create_branch(first, "b").commit()
    for end in (20, 30):
        append(tier.catalog, tier.plan({0: end}))
    metadata = tier.table().metadata
    assert len(metadata.snapshots) == len(metadata.snapshot_log) == 3
    assert set(metadata.refs) == {"main", "audit", "b"}
    assert metadata.refs["audit"].snapshot_id == metadata.refs["b"].snapshot_id == first
    assert [s.sequence_number for s in metadata.snapshots] == [1, 2, 3]
    head = metadata.snapshots[-1]
    assert head.parent_snapshot_id == metadata.snapshots[-2].snapshot_id
    assert head.summary is not None
    assert head.summary["total-records"] == "30"


def test_a_move_without_files_is_a_snapshot_too(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 10}))
    before = head(tier)
    append(tier.catalog, tier.plan({0: 15}, empty=True))
    assert head(tier) != before
    assert tier.marks() == {0: 15}
    assert tier.offsets() == list(range(10))


def test_the_first_snapshot_may_be_one_without_files(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 15}, empty=True))
    append(tier.catalog, tier.plan({0: 20}))
    assert tier.offsets() == list(range(15, 20))


def test_the_same_plan_twice_lands_once(tier: Tier) -> None:
    plan = tier.plan({0: 100})
    first = append(tier.catalog, plan)
    again = append(tier.catalog, replace(plan, cycle_id="another"))
    assert first.landed == {0}
    assert again.snapshot_id is None
    assert again.dropped == {0}
    assert tier.offsets() == list(range(100))


def test_two_tierers_with_the_same_offsets_land_them_once(tier: Tier, tmp_path: Path) -> None:
    other = Tier.open(tmp_path)
    ours, theirs = tier.plan({0: 100}), other.plan({0: 100})
    assert append(other.catalog, theirs).landed == {0}
    assert append(tier.catalog, ours).dropped == {0}
    assert tier.offsets() == list(range(100))


def test_two_tierers_between_load_and_commit(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    ours, theirs = tier.plan({0: 100}), other.plan({0: 100})
    Faults(tier, monkeypatch, lambda: append(other.catalog, theirs))
    assert append(tier.catalog, ours, pacing=NO_WAIT).dropped == {0}
    assert tier.offsets() == list(range(100))


def test_partitions_that_somebody_moved_are_dropped_and_the_rest_lands(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    ours, theirs = tier.plan({0: 100, 1: 50}), other.plan({0: 60})
    Faults(tier, monkeypatch, lambda: append(other.catalog, theirs))
    outcome = append(tier.catalog, ours, pacing=NO_WAIT)
    assert outcome.landed == {1}
    assert outcome.dropped == {0}
    assert tier.offsets(0) == list(range(60))
    assert tier.offsets(1) == list(range(50))
    assert tier.marks() == {0: 60, 1: 50}


def test_a_partition_that_another_moved_to_the_same_place_is_not_called_ours(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both bring partition 0 up to the same watermark, but only one of them brings its rows."""
    other = Tier.open(tmp_path)
    ours, theirs = tier.plan({0: 100, 1: 50}), other.plan({0: 100})
    Faults(tier, monkeypatch, lambda: append(other.catalog, theirs), "landed-then-5xx")
    outcome = append(tier.catalog, ours, pacing=NO_WAIT)
    assert outcome.landed == {1}
    assert outcome.dropped == {0}
    assert ours.files[0][0].path not in tier.referenced_files()


def test_a_zombie_with_a_segment_of_zero_rows_is_refused(tier: Tier, tmp_path: Path) -> None:
    """All its rows were aborted: no file would collide, only the watermark tells."""
    append(tier.catalog, tier.plan({0: 10}))
    zombie = Tier.open(tmp_path)
    stale = zombie.plan({0: 20}, empty=True)
    append(tier.catalog, tier.plan({0: 40}))
    outcome = append(zombie.catalog, stale)
    assert outcome.landed == frozenset()
    assert tier.marks() == {0: 40}


def test_a_zombie_overtaken_between_load_and_commit_by_zero_rows(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner brings no file either; its empty snapshot is what stops the zombie."""
    winner = Tier.open(tmp_path)
    stale, fresh = tier.plan({0: 20}), winner.plan({0: 40}, empty=True)
    Faults(tier, monkeypatch, lambda: append(winner.catalog, fresh))
    assert append(tier.catalog, stale, pacing=NO_WAIT).dropped == {0}
    assert tier.marks() == {0: 40}
    assert tier.offsets() == []


@pytest.mark.parametrize("fate", ["landed-then-409", "landed-then-5xx", "landed-then-reset"])
def test_landed_but_reported_as_failed(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    append(tier.catalog, tier.plan({0: 10}))
    plan = tier.plan({0: 100, 1: 7})
    faults = Faults(tier, monkeypatch, fate)
    outcome = append(tier.catalog, plan, pacing=NO_WAIT)
    assert faults.calls == 1
    assert outcome.landed == {0, 1}
    assert outcome.snapshot_id == head(tier)
    assert tier.offsets(0) == list(range(100))
    assert tier.offsets(1) == list(range(7))


@pytest.mark.parametrize("fate", ["409", "5xx", "reset"])
def test_failed_and_not_landed_is_staged_again_with_the_same_data_files(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    plan = tier.plan({0: 100})
    written = tier.data_files()
    faults = Faults(tier, monkeypatch, fate, fate)
    outcome = append(tier.catalog, plan, pacing=NO_WAIT)
    assert faults.calls == 3
    assert outcome.landed == {0}
    assert tier.data_files() == written == set(tier.referenced_files())
    assert tier.offsets() == list(range(100))


def test_landed_unseen_and_overtaken_is_still_found(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our commit and our look another tierer goes on from where we came to."""
    other = Tier.open(tmp_path)
    plan = tier.plan({0: 100})

    real = tier.catalog.commit_table

    def landed_then_overtaken(table: Any, requirements: Any, updates: Any) -> Any:
        real(table, requirements, updates)
        append(other.catalog, other.plan({0: 150, 2: 10}))
        raise CommitFailedException("409")

    monkeypatch.setattr(tier.catalog, "commit_table", landed_then_overtaken)
    outcome = append(tier.catalog, plan, pacing=NO_WAIT)
    assert outcome.landed == {0}
    assert outcome.snapshot_id != head(tier)
    assert tier.offsets() == list(range(150))


def test_a_request_that_arrives_late_can_not_land_beside_its_repetition(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tier.catalog.commit_table
    on_the_way: list[tuple[Any, Any, Any]] = []

    def lost_at_first(*request: Any) -> Any:
        if not on_the_way:
            on_the_way.append(request)
            raise CommitStateUnknownException("time-out")
        return real(*request)

    monkeypatch.setattr(tier.catalog, "commit_table", lost_at_first)
    append(tier.catalog, tier.plan({0: 100}), pacing=NO_WAIT)
    with pytest.raises(CommitFailedException):
        real(*on_the_way[0])
    assert tier.offsets() == list(range(100))


def test_a_late_request_that_wins_is_taken_for_ours(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tier.catalog.commit_table
    on_the_way: list[tuple[Any, Any, Any]] = []

    def first_arrives_before_second(*request: Any) -> Any:
        on_the_way.append(request)
        if len(on_the_way) == 1:
            raise CommitStateUnknownException("time-out")
        real(*on_the_way[0])
        return real(*request)

    monkeypatch.setattr(tier.catalog, "commit_table", first_arrives_before_second)
    outcome = append(tier.catalog, tier.plan({0: 100, 1: 3}), pacing=NO_WAIT)
    assert outcome.landed == {0, 1}
    assert tier.offsets(0) == list(range(100))
    assert tier.offsets(1) == list(range(3))


def test_an_answer_without_our_snapshot_is_not_believed(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tier.plan({0: 100})
    real = tier.catalog.commit_table
    stale = real(tier.table(), (), ())
    answers = [stale]

    def commit(*request: Any) -> Any:
        return answers.pop() if answers else real(*request)

    monkeypatch.setattr(tier.catalog, "commit_table", commit)
    assert append(tier.catalog, plan, pacing=NO_WAIT).landed == {0}
    assert tier.offsets() == list(range(100))


def test_catalog_down_after_sending_is_an_unknown_outcome(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tier.plan({0: 100})
    written = tier.data_files()
    real_load = tier.catalog.load_table
    loads = iter([real_load])

    def load(identifier: Any) -> Any:
        for step in loads:
            return step(identifier)
        raise ServiceUnavailableError("503")

    monkeypatch.setattr(tier.catalog, "load_table", load)
    Faults(tier, monkeypatch, "5xx")
    with pytest.raises(CommitOutcomeUnknown, match="outcome unknown"):
        append(tier.catalog, plan, pacing=NO_WAIT)
    monkeypatch.undo()
    assert tier.data_files() == written
    assert append(tier.catalog, plan).landed == {0}, "the next cycle finds out and goes on"


def test_catalog_down_for_a_moment_is_waited_for(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tier.plan({0: 100})
    real, failures = tier.catalog.load_table, [ServiceUnavailableError("503")] * 3

    def load(identifier: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(identifier)

    monkeypatch.setattr(tier.catalog, "load_table", load)
    assert append(tier.catalog, plan, pacing=NO_WAIT).landed == {0}


def test_catalog_down_before_sending_is_transient(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tier.plan({0: 100})

    def load(identifier: Any) -> Any:
        raise ServiceUnavailableError("503")

    monkeypatch.setattr(tier.catalog, "load_table", load)
    with pytest.raises(TransientError) as caught:
        append(tier.catalog, plan, pacing=NO_WAIT)
    assert not isinstance(caught.value, CommitOutcomeUnknown)


def test_conflicts_without_end_are_given_up(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(tier, monkeypatch, *["409"] * 100)
    with pytest.raises(CommitConflict, match="not landed after"):
        append(tier.catalog, tier.plan({0: 100}), pacing=NO_WAIT)
    assert faults.calls == NO_WAIT.attempts_max


def test_errors_without_end_are_given_up_sooner(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(tier, monkeypatch, *["5xx"] * 100)
    with pytest.raises(CommitOutcomeUnknown, match="may still land"):
        append(tier.catalog, tier.plan({0: 100}), pacing=NO_WAIT)
    assert faults.calls == NO_WAIT.faults_max


def test_patience_is_bounded_by_the_clock(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept, chance = [0.0], list[float](), random.Random(1)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += 25

    pacing = Pacing(clock=lambda: now[0], sleep=sleep, chance=chance.random)
    faults = Faults(tier, monkeypatch, *["409"] * 100)
    with pytest.raises(CommitConflict):
        append(tier.catalog, tier.plan({0: 100}), pacing=pacing)
    assert faults.calls == 3
    assert all(0 <= s <= pacing.backoff_ms_max / 1000 for s in slept)


def test_a_store_that_fails_while_staging_sends_nothing(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tier.plan({0: 100})
    faults = Faults(tier, monkeypatch)

    def refuse(self: Any) -> Any:
        raise OSError("no space left on device")

    monkeypatch.setattr("pyiceberg.table.update.snapshot._SnapshotProducer._manifests", refuse)
    with pytest.raises(TransientError, match="no space left"):
        append(tier.catalog, plan, pacing=NO_WAIT)
    assert faults.calls == 0


def test_rollback_by_somebody_else_flags_the_table_and_stops_it(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 100}))
    first = head(tier)
    append(tier.catalog, tier.plan({0: 200}))
    rolled_back(tier, first)

    state = tier.state()
    assert state.flagged is not None
    assert "rolled the table back" in state.flagged
    assert state.snapshot_id == first
    assert state.watermarks[0].offset == 100, "as far as main really goes"
    with pytest.raises(FatalError, match="rolled the table back"):
        append(tier.catalog, tier.plan({0: 300}))
    assert tier.offsets() == list(range(100))


def test_rollback_between_load_and_commit_is_noticed(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tier.catalog, tier.plan({0: 100}))
    first = head(tier)
    append(tier.catalog, tier.plan({0: 200}))
    Faults(tier, monkeypatch, lambda: rolled_back(Tier.open(tmp_path), first))
    with pytest.raises(FatalError, match="rolled the table back"):
        append(tier.catalog, tier.plan({0: 300}), pacing=NO_WAIT)


def test_rollback_of_our_own_commit_before_we_look(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tier.catalog, tier.plan({0: 100}))
    first, real = head(tier), tier.catalog.commit_table

    def landed_then_rolled_back(*request: Any) -> Any:
        real(*request)
        monkeypatch.setattr(tier.catalog, "commit_table", real)
        rolled_back(Tier.open(tmp_path), first)
        raise CommitStateUnknownException("504")

    plan = tier.plan({0: 200})
    monkeypatch.setattr(tier.catalog, "commit_table", landed_then_rolled_back)
    with pytest.raises(FatalError, match="rolled the table back"):
        append(tier.catalog, plan, pacing=NO_WAIT)
    assert tier.offsets() == list(range(100))


def test_rolling_forward_again_lifts_the_flag(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 100}))
    first = head(tier)
    append(tier.catalog, tier.plan({0: 200}))
    second = head(tier)
    rolled_back(tier, first)
    assert tier.state().flagged
    tier.table().manage_snapshots().set_current_snapshot(second).commit()
    assert tier.state().flagged is None
    append(tier.catalog, tier.plan({0: 300}))
    assert tier.offsets() == list(range(300))


def test_the_whole_metadata_put_back_is_gone_on_from_there(tier: Tier, tmp_path: Path) -> None:
    """Rows, watermarks and property went back together, so conversion simply does it again."""
    append(tier.catalog, tier.plan({0: 100}))
    before = tier.table().metadata_location
    append(tier.catalog, tier.plan({0: 200}))
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
        database.execute("update iceberg_tables set metadata_location = ?", (before,))
        database.commit()
    assert tier.marks() == {0: 100}
    append(tier.catalog, tier.plan({0: 200}))
    assert tier.offsets() == list(range(200))


def test_expired_snapshots_are_no_rollback(tier: Tier) -> None:
    ids = []
    for end in (100, 200, 300):
        append(tier.catalog, tier.plan({0: end}))
        ids.append(head(tier))
    tier.table().maintenance.expire_snapshots().by_ids(ids[:2]).commit()
    assert tier.state().flagged is None
    append(tier.catalog, tier.plan({0: 400}))
    assert tier.offsets() == list(range(400))


def test_foreign_snapshots_on_top_are_no_rollback(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 100}))
    tier.table().delete("kafka_offset >= 90")
    assert tier.state().flagged is None
    assert tier.marks() == {0: 100}
    append(tier.catalog, tier.plan({0: 120}))
    assert tier.offsets() == [*range(90), *range(100, 120)]


def test_all_our_snapshots_expired_leaves_the_property_as_the_truth(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 50}))
    append(tier.catalog, tier.plan({0: 100}))
    ours = [s.snapshot_id for s in tier.table().snapshots()]
    tier.table().delete("kafka_offset >= 90")
    tier.table().maintenance.expire_snapshots().by_ids(ours).commit()
    assert tier.state().flagged is None
    assert tier.marks() == {0: 100}
    append(tier.catalog, tier.plan({0: 120}))
    assert tier.offsets() == [*range(90), *range(100, 120)]


def set_watermark_by_hand(tier: Tier, offset: int) -> None:
    text = encode_watermarks({0: Watermark(offset=offset)})
    with tier.table().transaction() as transaction:
        transaction.set_properties({WATERMARKS_PROPERTY: text})


def test_a_bare_property_moved_backwards_makes_no_duplicates(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tier.catalog, tier.plan({0: 100}))
    set_watermark_by_hand(tier, 40)
    assert tier.marks() == {0: 100}, "the snapshot on main says what is in the table"
    Faults(tier, monkeypatch, lambda: set_watermark_by_hand(Tier.open(tmp_path), 10))
    append(tier.catalog, tier.plan({0: 200}), pacing=NO_WAIT)
    assert tier.offsets() == list(range(200))
    text = tier.table().properties[WATERMARKS_PROPERTY]
    assert decode_watermarks(text, table="")[0].offset == 200, "the property is right again"


def test_a_bare_property_moved_forwards_loses_nothing(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 100}))
    set_watermark_by_hand(tier, 500)
    state = tier.state()
    assert state.flagged is not None
    assert "rolled back or the property edited" in state.flagged
    with pytest.raises(FatalError):
        append(tier.catalog, tier.plan({0: 200}))
    set_watermark_by_hand(tier, 100)
    append(tier.catalog, tier.plan({0: 200}))
    assert tier.offsets() == list(range(200))


def test_crash_after_writing_leaves_files_that_nobody_sees(tier: Tier, tmp_path: Path) -> None:
    tier.plan({0: 100})  # wrote its data file, then the process died
    orphans = tier.data_files()
    restarted = Tier.open(tmp_path)
    assert restarted.offsets() == []
    append(restarted.catalog, restarted.plan({0: 100}))
    assert restarted.offsets() == list(range(100))
    assert orphans < restarted.data_files(), "left to the removal of orphan files"
    assert orphans.isdisjoint(restarted.referenced_files())


def test_crash_between_staging_and_commit_leaves_the_table_as_it_was(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    plan = tier.plan({0: 100})
    Faults(tier, monkeypatch, die)
    with pytest.raises(Killed):
        append(tier.catalog, plan, pacing=NO_WAIT)
    restarted = Tier.open(tmp_path)
    assert restarted.state().snapshot_id is None
    append(restarted.catalog, restarted.plan({0: 100}))
    assert restarted.offsets() == list(range(100))


def test_crash_after_commit_is_seen_as_landed_on_restart(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    plan, real = tier.plan({0: 100}), tier.catalog.commit_table

    def commit_and_die(*request: Any) -> Any:
        real(*request)
        raise Killed

    monkeypatch.setattr(tier.catalog, "commit_table", commit_and_die)
    with pytest.raises(Killed):
        append(tier.catalog, plan, pacing=NO_WAIT)
    restarted = Tier.open(tmp_path)
    assert restarted.marks() == {0: 100}
    append(restarted.catalog, restarted.plan({0: 150}))
    assert restarted.offsets() == list(range(150))


def test_a_table_replaced_under_the_plan_is_refused(tier: Tier) -> None:
    plan = tier.plan({0: 100})
    tier.catalog.drop_table(IDENTIFIER)
    with pytest.raises(CommitConflict, match="gone"):
        append(tier.catalog, plan)
    tier.ensure()
    with pytest.raises(CommitConflict, match="planned for table"):
        append(tier.catalog, plan)
    assert tier.offsets() == []


def test_another_partition_spec_under_the_plan_is_refused(tier: Tier) -> None:
    plan = tier.plan({0: 100})
    with tier.table().update_spec() as update:
        update.add_identity("kafka_partition")
    with pytest.raises(CommitConflict, match="partition spec"):
        append(tier.catalog, plan)
    assert tier.table().current_snapshot() is None


def test_a_new_column_under_the_plan_is_no_obstacle(tier: Tier) -> None:
    from pyiceberg.types import StringType

    plan = tier.plan({0: 100})
    with tier.table().update_schema() as update:
        update.add_column("note", StringType())
    append(tier.catalog, plan)
    assert tier.offsets() == list(range(100))


def test_metadata_files_do_not_pile_up(tier: Tier) -> None:
    kept = int(tier.table().properties["write.metadata.previous-versions-max"])
    for i in range(kept + 5):
        append(tier.catalog, tier.plan({0: i + 1}, empty=True))
    files = list((Path(tier.target().location) / "metadata").glob("*.metadata.json"))
    assert len(files) == kept + 1


def test_load_state_of_a_missing_table(tier: Tier) -> None:
    with pytest.raises(NotFound, match=r"kafka\.nothing"):
        load_state(tier.catalog, ("kafka", "nothing"))


class TestPlansThatContradictThemselves:
    """They are refused before anything is sent."""

    @pytest.fixture
    def plan(self, tier: Tier) -> TableAppend:
        return tier.plan({0: 100, 1: 10})

    def test_the_same_file_twice(self, plan: TableAppend) -> None:
        file = plan.files[0][0]
        with pytest.raises(FatalError, match="named twice"):
            replace(plan, files={0: (file, file)})

    def test_files_that_overlap(self, tier: Tier, plan: TableAppend) -> None:
        other = replace(plan.files[0][0], path=plan.files[0][0].path + ".other", first_offset=99)
        with pytest.raises(FatalError, match="overlap"):
            replace(plan, files={0: (plan.files[0][0], other)})

    def test_rows_of_another_partition(self, plan: TableAppend) -> None:
        with pytest.raises(FatalError, match="planned were partition 1"):
            replace(plan, files={1: plan.files[0]})

    def test_rows_beyond_the_watermark(self, plan: TableAppend) -> None:
        with pytest.raises(FatalError, match=r"offsets 0\.\.98"):
            replace(plan, moved={**plan.moved, 0: Watermark(offset=99)})

    def test_rows_below_the_watermark(self, plan: TableAppend) -> None:
        with pytest.raises(FatalError, match=r"offsets 1\.\.99"):
            replace(plan, expected={**plan.expected, 0: Watermark(offset=1)})

    def test_a_watermark_that_moves_back(self, plan: TableAppend) -> None:
        with pytest.raises(FatalError, match="moves back"):
            replace(plan, expected={0: Watermark(offset=200), 1: None}, files={})

    def test_files_without_a_move(self, plan: TableAppend) -> None:
        with pytest.raises(FatalError, match="does not move"):
            replace(plan, expected={1: None}, moved={1: plan.moved[1]})

    def test_nothing_at_all(self, plan: TableAppend) -> None:
        with pytest.raises(FatalError, match="not none"):
            replace(plan, expected={}, moved={}, files={})

    def test_a_file_outside_the_table(self, tier: Tier, plan: TableAppend) -> None:
        stray = replace(plan.files[0][0], path="/elsewhere/x.parquet")
        with pytest.raises(FatalError, match="does not lie below"):
            append(tier.catalog, replace(plan, files={0: (stray,)}))
        assert tier.offsets() == []
