"""Rows below the watermarks: on top of the snapshot that was looked at, once, or not at all."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from appends import NO_WAIT, TOPIC, TOPIC_ID, Faults, Tier, head, rolled_back, write_rows

from tiering.errors import CommitConflict, CommitOutcomeUnknown, FatalError
from tiering.table.commit import append
from tiering.table.late_rows import LateRows, add_late_rows
from tiering.watermarks import REPLAY_SUMMARY

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    """Partition 0 stands at 100 and lacks all rows: somebody has looked."""
    tier = Tier.open(tmp_path)
    tier.ensure()
    append(tier.catalog, tier.plan({0: 100}, empty=True))
    return tier


def late(tier: Tier, to: int = 40) -> LateRows:
    """The rows of offsets below `to`, as some plan writes them."""
    base = tier.state()
    return LateRows(
        identifier=base.identifier,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        cycle_id=uuid.uuid4().hex,
        base=base,
        files=(write_rows(tier.target(), 0, range(to)),),
    )


def test_they_land_and_move_nothing(tier: Tier) -> None:
    plan, marks = late(tier), tier.state().watermarks
    snapshot_id = add_late_rows(tier.catalog, plan, pacing=NO_WAIT)
    assert snapshot_id == head(tier)
    assert tier.offsets() == list(range(40))
    assert tier.state().watermarks == marks
    assert tier.state().flagged is None
    summary = tier.table().current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert summary.summary[REPLAY_SUMMARY] == plan.cycle_id
    append(tier.catalog, tier.plan({0: 120}))
    assert tier.offsets() == [*range(40), *range(100, 120)]


@pytest.mark.parametrize("fate", ["409", "5xx", "reset", "landed-then-5xx", "landed-then-reset"])
def test_whatever_the_catalog_answers_they_land_once(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    Faults(tier, monkeypatch, fate)
    add_late_rows(tier.catalog, late(tier), pacing=NO_WAIT)
    assert tier.offsets() == list(range(40))


def test_a_catalog_that_never_says_so_leaves_it_unknown(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(tier, monkeypatch, *["5xx"] * 100)
    with pytest.raises(CommitOutcomeUnknown):
        add_late_rows(tier.catalog, late(tier), pacing=NO_WAIT)
    assert tier.offsets() == []


def test_after_another_commit_somebody_must_look_again(tier: Tier) -> None:
    plan = late(tier)
    append(tier.catalog, tier.plan({0: 120}))
    with pytest.raises(CommitConflict, match="the table is at"):
        add_late_rows(tier.catalog, plan, pacing=NO_WAIT)
    assert tier.offsets() == list(range(100, 120))


def test_also_when_it_comes_in_the_last_moment(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, theirs = late(tier), tier.plan({0: 120})
    other = Tier(catalog=tier.catalog, warehouse=tier.warehouse)
    real = tier.catalog.commit_table

    def first(*arguments: object) -> object:
        monkeypatch.setattr(tier.catalog, "commit_table", real)
        append(other.catalog, theirs)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(tier.catalog, "commit_table", first)
    with pytest.raises(CommitConflict):
        add_late_rows(tier.catalog, plan, pacing=NO_WAIT)
    assert tier.offsets() == list(range(100, 120))


def test_rows_that_conversion_would_bring_again_are_refused(tier: Tier) -> None:
    with pytest.raises(FatalError, match="whose watermark is 100"):
        late(tier, to=101)


def test_nothing_goes_into_a_table_that_was_rolled_back(tier: Tier) -> None:
    first = head(tier)
    append(tier.catalog, tier.plan({0: 120}))
    rolled_back(tier, first)
    with pytest.raises(FatalError, match="rolled"):
        add_late_rows(tier.catalog, late(tier), pacing=NO_WAIT)
