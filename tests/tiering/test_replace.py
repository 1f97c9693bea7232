"""Every fate that a replacement can meet, each named by its test. Real catalog, real files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from appends import (
    IDENTIFIER,
    NO_WAIT,
    TOPIC,
    TOPIC_ID,
    Faults,
    Tier,
    head,
    rolled_back,
    write_rows,
)
from position_deletes import delete_rows
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import ManifestContent

from tiering.errors import CommitConflict, CommitOutcomeUnknown, FatalError
from tiering.table.commit import append
from tiering.table.replace import TableReplacement, replace
from tiering.tasks import DataFileEntry
from tiering.watermarks import (
    CYCLE_ID_SUMMARY,
    MOVED_SUMMARY,
    REASON_SUMMARY,
    WATERMARKS_PROPERTY,
)

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
"""PyIceberg, standing in for another writer, knows fewer table properties than Spark."""


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    """Partition 0: [0,100) [100,200) [200,300), partition 1: [0,50) in the second commit."""
    tier = Tier.open(tmp_path)
    tier.ensure()
    for moves in ({0: 100}, {0: 200, 1: 50}, {0: 300}):
        append(tier.catalog, tier.plan(moves))
    return tier


def path_of(tier: Tier, partition: int, first: int) -> str:
    """The live data file that starts at that offset."""
    for task in tier.table().scan().plan_files():
        rows = pq.read_table(task.file.file_path, columns=["kafka_partition", "kafka_offset"])
        if rows.slice(0, 1).to_pylist() == [{"kafka_partition": partition, "kafka_offset": first}]:
            return task.file.file_path
    raise AssertionError(f"no file starts at {partition}:{first}")


def plan_of(
    tier: Tier,
    *removed: str,
    back: Mapping[int, int] | None = None,
    added: tuple[DataFileEntry, ...] = (),
) -> TableReplacement:
    state = tier.state()
    back = back or {}
    return TableReplacement(
        identifier=IDENTIFIER,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        cycle_id=uuid.uuid4().hex,
        base=state,
        expected={p: state.watermarks[p] for p in back},
        moved={p: state.watermarks[p].until(offset) for p, offset in back.items()},
        removed=frozenset(removed),
        added=added,
        reason="test",
    )


def withdrawal(tier: Tier) -> TableReplacement:
    """Partition 0 from offset 150 on: one file goes, one is rewritten."""
    kept = write_rows(tier.target(), 0, range(100, 150))
    gone = path_of(tier, 0, 100), path_of(tier, 0, 200)
    return plan_of(tier, *gone, back={0: 150}, added=(kept,))


def manifests(tier: Tier) -> dict[str, int]:
    """{path: live files} of the head's data manifests."""
    snapshot = tier.table().current_snapshot()
    assert snapshot is not None
    return {
        m.manifest_path: (m.added_files_count or 0) + (m.existing_files_count or 0)
        for m in snapshot.manifests(tier.table().io)
        if m.content == ManifestContent.DATA
    }


def test_files_leave_and_the_rest_stays(tier: Tier) -> None:
    before = manifests(tier)
    plan = plan_of(tier, path_of(tier, 0, 0))
    outcome = replace(tier.catalog, plan)
    assert outcome.snapshot_id == head(tier)
    assert (outcome.removed_files, outcome.removed_rows) == (1, 100)
    assert (outcome.added_files, outcome.added_rows) == (0, 0)
    assert tier.offsets(0) == list(range(100, 300))
    assert tier.offsets(1) == list(range(50))
    assert tier.marks() == {0: 300, 1: 50}
    assert len(before.keys() & manifests(tier).keys()) == 2, "the other manifests are the same"


def test_other_partitions_files_in_the_same_manifest_stay(tier: Tier) -> None:
    before = manifests(tier)
    replace(tier.catalog, plan_of(tier, path_of(tier, 0, 100)))
    assert tier.offsets(0) == [*range(100), *range(200, 300)]
    assert tier.offsets(1) == list(range(50))
    after = manifests(tier)
    assert len(before.keys() & after.keys()) == 2
    assert sum(after.values()) == 3


def test_the_snapshot_says_whose_it_is_and_why(tier: Tier) -> None:
    plan = withdrawal(tier)
    replace(tier.catalog, plan)
    snapshot = tier.table().current_snapshot()
    assert snapshot is not None
    summary = snapshot.summary
    assert summary is not None
    assert summary.operation.value == "overwrite"
    assert summary[REASON_SUMMARY] == "test"
    assert summary[CYCLE_ID_SUMMARY] == plan.cycle_id
    assert summary[MOVED_SUMMARY] == "0"
    assert summary[WATERMARKS_PROPERTY] == tier.table().properties[WATERMARKS_PROPERTY]
    assert summary["total-records"] == "200"
    assert summary["total-data-files"] == "3"


def test_files_that_only_leave_are_a_delete_by_the_specification(tier: Tier) -> None:
    replace(tier.catalog, plan_of(tier, path_of(tier, 1, 0)))
    snapshot = tier.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "delete"


def test_a_watermark_moves_back_with_its_rows_and_is_no_rollback(tier: Tier) -> None:
    replace(tier.catalog, withdrawal(tier))
    state = tier.state()
    assert state.flagged is None
    assert (state.watermarks[0].offset, state.watermarks[0].rewinds) == (150, 1)
    assert tier.marks() == {0: 150, 1: 50}
    assert tier.offsets(0) == list(range(150))
    append(tier.catalog, tier.plan({0: 320}))
    assert tier.offsets(0) == list(range(320))
    assert tier.state().watermarks[0].rewinds == 1, "later commits keep the count"
    assert tier.state().flagged is None


def test_a_watermark_moved_back_without_files(tier: Tier) -> None:
    replace(tier.catalog, plan_of(tier, back={1: 20}))
    assert tier.marks() == {0: 300, 1: 20}
    assert tier.state().flagged is None


def test_moved_back_and_then_rolled_back_by_somebody_is_flagged(tier: Tier) -> None:
    before = head(tier)
    replace(tier.catalog, withdrawal(tier))
    rolled_back(tier, before)
    assert "rolled the table back" in (tier.state().flagged or "")


def test_moved_back_and_all_our_snapshots_expired(tier: Tier) -> None:
    replace(tier.catalog, withdrawal(tier))
    ours = [s.snapshot_id for s in tier.table().snapshots()]
    tier.table().delete("kafka_offset < 10")
    tier.table().maintenance.expire_snapshots().by_ids(ours).commit()
    assert tier.state().flagged is None
    assert tier.marks() == {0: 150, 1: 50}


def test_a_zombie_append_from_before_the_rewind_is_refused(tier: Tier, tmp_path: Path) -> None:
    """The watermark is back at the very place that it was planned from."""
    zombie = Tier.open(tmp_path)
    stale = zombie.plan({0: 400})
    append(tier.catalog, tier.plan({0: 500}))
    replace(tier.catalog, plan_of(tier, path_of(tier, 0, 300), back={0: 300}))
    assert tier.marks()[0] == 300
    assert append(zombie.catalog, stale).dropped == {0}
    append(tier.catalog, tier.plan({0: 350}))
    assert append(zombie.catalog, changed(stale, cycle_id="later")).dropped == {0}
    assert tier.offsets(0) == list(range(350))


def test_a_zombie_replacement_is_refused(tier: Tier, tmp_path: Path) -> None:
    zombie = Tier.open(tmp_path)
    stale = withdrawal(zombie)
    replace(tier.catalog, withdrawal(tier))
    append(tier.catalog, tier.plan({0: 300}))
    with pytest.raises(CommitConflict, match="was planned from"):
        replace(zombie.catalog, stale)
    assert tier.offsets(0) == list(range(300))


def test_two_tierers_remove_the_same_files(tier: Tier, tmp_path: Path) -> None:
    other = Tier.open(tmp_path)
    ours, theirs = plan_of(tier, path_of(tier, 0, 0)), plan_of(other, path_of(other, 0, 0))
    replace(other.catalog, theirs)
    with pytest.raises(CommitConflict, match="not in the table any more"):
        replace(tier.catalog, ours)
    assert tier.offsets(0) == list(range(100, 300))


def test_appends_meanwhile_are_kept(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    theirs = other.plan({0: 400})
    Faults(tier, monkeypatch, lambda: append(other.catalog, theirs))
    replace(tier.catalog, plan_of(tier, path_of(tier, 0, 0)), pacing=NO_WAIT)
    assert tier.offsets(0) == list(range(100, 400))
    assert tier.marks()[0] == 400


def test_a_partition_that_was_converted_on_meanwhile_is_a_conflict(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    theirs = other.plan({0: 400})
    plan = withdrawal(tier)
    Faults(tier, monkeypatch, lambda: append(other.catalog, theirs))
    with pytest.raises(CommitConflict, match="partition 0 was planned from"):
        replace(tier.catalog, plan, pacing=NO_WAIT)
    assert tier.offsets(0) == list(range(400))


def test_a_file_rewritten_meanwhile_by_another_writer_is_a_conflict(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    plan = withdrawal(tier)
    Faults(tier, monkeypatch, lambda: other.table().delete("kafka_offset = 120"))
    with pytest.raises(CommitConflict, match="1 of 2 data files are not in the table any more"):
        replace(tier.catalog, plan, pacing=NO_WAIT)
    assert tier.offsets(0) == [o for o in range(300) if o != 120]


def test_another_file_rewritten_meanwhile_is_none(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    Faults(tier, monkeypatch, lambda: other.table().delete("kafka_offset < 10"))
    replace(tier.catalog, withdrawal(tier), pacing=NO_WAIT)
    assert tier.offsets(0) == list(range(10, 150))


def test_rows_deleted_meanwhile_do_not_come_back(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is still there, only a delete file hides a row that the plan has copied."""
    other = Tier.open(tmp_path)
    plan, path = withdrawal(tier), path_of(tier, 0, 100)
    Faults(tier, monkeypatch, lambda: delete_rows(other.table(), path, 7))
    with pytest.raises(CommitConflict, match="deleted rows since"):
        replace(tier.catalog, plan, pacing=NO_WAIT)
    assert tier.offsets(0) == [o for o in range(300) if o != 107]


def test_delete_files_survive_and_go_on_hiding_their_rows(tier: Tier) -> None:
    hidden = path_of(tier, 0, 100)
    delete_rows(tier.table(), hidden, 7, 8)
    delete_rows(tier.table(), path_of(tier, 1, 0), 0)
    assert 107 not in tier.offsets(0), "the delete file is a good one"
    replace(tier.catalog, plan_of(tier, path_of(tier, 0, 0)))
    assert tier.offsets(0) == [o for o in range(100, 300) if o not in (107, 108)]
    kept = write_rows(tier.target(), 0, range(200, 250))
    replace(tier.catalog, plan_of(tier, path_of(tier, 0, 200), back={0: 250}, added=(kept,)))
    assert tier.offsets(0) == [o for o in range(100, 250) if o not in (107, 108)]
    # Partition 1's file shares its manifest with the one that is removed now.
    replace(tier.catalog, plan_of(tier, hidden))
    assert tier.offsets(0) == list(range(200, 250))
    assert tier.offsets(1) == list(range(1, 50))
    rest = [t.file.file_path for t in tier.table().scan().plan_files() if t.delete_files]
    assert len(rest) == 1


@pytest.mark.parametrize("fate", ["landed-then-409", "landed-then-5xx", "landed-then-reset"])
def test_landed_but_reported_as_failed(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    plan = withdrawal(tier)
    faults = Faults(tier, monkeypatch, fate)
    outcome = replace(tier.catalog, plan, pacing=NO_WAIT)
    assert faults.calls == 1
    assert outcome.snapshot_id == head(tier)
    assert (outcome.removed_files, outcome.removed_rows, outcome.added_rows) == (2, 200, 50)
    assert tier.offsets(0) == list(range(150))


@pytest.mark.parametrize("fate", ["409", "5xx", "reset"])
def test_failed_and_not_landed_is_staged_again_with_the_same_data_files(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    plan = withdrawal(tier)
    written = tier.data_files()
    faults = Faults(tier, monkeypatch, fate, fate)
    replace(tier.catalog, plan, pacing=NO_WAIT)
    assert faults.calls == 3
    assert tier.data_files() == written, "also what left the table stays in the store"
    assert tier.offsets(0) == list(range(150))


def test_landed_unseen_and_overtaken_is_still_found(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    plan, real = withdrawal(tier), tier.catalog.commit_table

    def landed_then_overtaken(*request: Any) -> Any:
        real(*request)
        append(other.catalog, other.plan({0: 180}))
        raise CommitFailedException("409")

    monkeypatch.setattr(tier.catalog, "commit_table", landed_then_overtaken)
    outcome = replace(tier.catalog, plan, pacing=NO_WAIT)
    assert outcome.snapshot_id != head(tier)
    assert tier.offsets(0) == list(range(180))


def test_a_request_that_arrives_late_can_not_land_beside_its_repetition(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tier.catalog.commit_table
    on_the_way: list[tuple[Any, ...]] = []

    def lost_at_first(*request: Any) -> Any:
        if not on_the_way:
            on_the_way.append(request)
            raise CommitStateUnknownException("time-out")
        return real(*request)

    monkeypatch.setattr(tier.catalog, "commit_table", lost_at_first)
    replace(tier.catalog, withdrawal(tier), pacing=NO_WAIT)
    with pytest.raises(CommitFailedException):
        real(*on_the_way[0])
    assert tier.offsets(0) == list(range(150))


def test_conflicts_without_end_are_given_up(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(tier, monkeypatch, *["409"] * 100)
    with pytest.raises(CommitConflict, match="not landed after"):
        replace(tier.catalog, withdrawal(tier), pacing=NO_WAIT)
    assert faults.calls == NO_WAIT.attempts_max
    assert tier.offsets(0) == list(range(300))


def test_errors_without_end_are_an_unknown_outcome(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(tier, monkeypatch, *["5xx"] * 100)
    with pytest.raises(CommitOutcomeUnknown, match="may still land"):
        replace(tier.catalog, withdrawal(tier), pacing=NO_WAIT)


def test_a_table_rolled_back_is_left_alone(tier: Tier) -> None:
    first = tier.table().snapshots()[0].snapshot_id
    plan = plan_of(tier, path_of(tier, 0, 0))
    rolled_back(tier, first)
    with pytest.raises(FatalError, match="rolled the table back"):
        replace(tier.catalog, plan)


def test_a_table_made_again_under_the_plan_is_refused(tier: Tier) -> None:
    plan = withdrawal(tier)
    tier.catalog.drop_table(IDENTIFIER)
    with pytest.raises(CommitConflict, match="gone"):
        replace(tier.catalog, plan)
    tier.ensure()
    with pytest.raises(CommitConflict, match="planned for table"):
        replace(tier.catalog, plan)


def test_everything_may_leave(tier: Tier) -> None:
    replace(tier.catalog, plan_of(tier, *tier.referenced_files(), back={0: 0, 1: 0}))
    assert tier.referenced_files() == []
    assert tier.marks() == {0: 0, 1: 0}
    append(tier.catalog, tier.plan({0: 10}))
    assert tier.offsets(0) == list(range(10))


def test_in_a_partitioned_table_other_partitions_stay(tmp_path: Path) -> None:
    tier = Tier.open(tmp_path)
    tier.ensure()
    append(tier.catalog, tier.plan({0: 20, 1: 20}))
    with tier.table().update_spec() as update:
        update.add_identity("kafka_partition")
    # Files of the old spec are taken out by a commit under the new one.
    replace(tier.catalog, plan_of(tier, path_of(tier, 1, 0)))
    assert tier.offsets(0) == list(range(20))
    assert tier.offsets(1) == []


class TestPlansThatContradictThemselves:
    """They are refused before anything is sent."""

    def test_nothing_at_all(self, tier: Tier) -> None:
        with pytest.raises(FatalError, match="nothing is removed"):
            plan_of(tier)

    def test_rows_that_nothing_made_room_for(self, tier: Tier) -> None:
        kept = write_rows(tier.target(), 0, range(10))
        with pytest.raises(FatalError, match="nothing is removed"):
            plan_of(tier, added=(kept,), back={0: 100})

    def test_a_watermark_that_moves_forward(self, tier: Tier) -> None:
        with pytest.raises(FatalError, match="step over rows"):
            plan_of(tier, back={0: 301})

    def test_rows_at_the_watermark(self, tier: Tier) -> None:
        kept = write_rows(tier.target(), 0, range(100, 151))
        with pytest.raises(FatalError, match="holds offset 150"):
            plan_of(tier, path_of(tier, 0, 100), added=(kept,), back={0: 150})

    def test_a_file_that_comes_and_goes(self, tier: Tier) -> None:
        kept = write_rows(tier.target(), 0, range(10))
        with pytest.raises(FatalError, match="named twice"):
            plan_of(tier, kept.path, added=(kept,))
