"""Our old snapshots go; what anybody still names, or others made, stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from appends import IDENTIFIER, NO_WAIT, TOPIC, TOPIC_ID, Faults, Tier, rolled_back
from pyiceberg.exceptions import ServiceUnavailableError

from tiering.errors import FatalError, TransientError
from tiering.table.commit import append
from tiering.table.replace import TableReplacement, replace
from tiering.upkeep.expiry import expirable, expire
from tiering.watermarks import COMPACTION_SUMMARY

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
"""PyIceberg, standing in for another writer, knows fewer table properties than Spark."""


LATER_MS = 10**15
"""A time at which everything is old."""


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    """Twelve snapshots, of which the table's properties keep the last five."""
    tier = Tier.open(tmp_path)
    tier.ensure()
    with tier.table().transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "5"})
    for end in range(10, 130, 10):
        append(tier.catalog, tier.plan({0: end}))
    return tier


def ids(tier: Tier) -> list[int]:
    """All snapshots, oldest first."""
    found = sorted(tier.table().snapshots(), key=lambda s: s.sequence_number or 0)
    return [s.snapshot_id for s in found]


def expired(tier: Tier, now_ms: int = LATER_MS, at_once_min: int = 1) -> int:
    return expire(tier.catalog, IDENTIFIER, now_ms=now_ms, at_once_min=at_once_min, pacing=NO_WAIT)


def test_all_but_the_last_go_and_no_row_with_them(tier: Tier) -> None:
    before = ids(tier)
    files = tier.data_files()
    assert expired(tier) == 7
    assert ids(tier) == before[7:]
    assert len(tier.table().metadata.snapshot_log) == 5
    assert tier.offsets() == list(range(120))
    assert tier.data_files() == files
    assert (tier.marks(), tier.state().flagged) == ({0: 120}, None)
    append(tier.catalog, tier.plan({0: 130}))
    assert tier.offsets() == list(range(130))
    assert expired(tier) == 1


def test_compactions_go_too_but_no_one_elses_rewrites(tier: Tier) -> None:
    rows = tier.table().scan(limit=1).to_arrow()
    tier.table().append(rows, snapshot_properties={COMPACTION_SUMMARY: "true"})
    compaction = tier.table().current_snapshot()
    tier.table().append(rows)
    foreign = tier.table().current_snapshot()
    for end in range(130, 190, 10):
        append(tier.catalog, tier.plan({0: end}))
    assert expired(tier) == 14
    assert compaction is not None
    assert foreign is not None
    assert compaction.snapshot_id not in ids(tier)
    assert foreign.snapshot_id in ids(tier)


def test_young_ones_stay(tier: Tier) -> None:
    metadata = tier.table().metadata
    sixth = sorted(metadata.snapshots, key=lambda s: s.sequence_number or 0)[5]
    assert expired(tier, now_ms=sixth.timestamp_ms) == 0
    age_ms = int(metadata.properties["history.expire.max-snapshot-age-ms"])
    young = [s for s in metadata.snapshots if s.timestamp_ms > sixth.timestamp_ms]
    assert len(expirable(metadata, now_ms=sixth.timestamp_ms + age_ms)) <= 12 - max(5, len(young))
    with tier.table().transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    newest = tier.table().current_snapshot()
    assert newest is not None
    assert expirable(tier.table().metadata, now_ms=newest.timestamp_ms + 1000) == ()


def test_a_few_are_not_worth_a_commit(tier: Tier) -> None:
    before = tier.table().metadata_location
    assert expired(tier, at_once_min=8) == 0
    assert tier.table().metadata_location == before
    assert expired(tier, at_once_min=7) == 7


def test_what_a_tag_or_branch_names_stays(tier: Tier) -> None:
    named = ids(tier)[:2]
    manage = tier.table().manage_snapshots()
    manage.create_tag(named[0], "audit").create_branch(named[1], "work").commit()
    assert expired(tier) == 5
    assert set(named) < set(ids(tier))
    assert set(tier.table().metadata.refs) == {"main", "audit", "work"}
    assert tier.table().scan(snapshot_id=named[0]).to_arrow().num_rows == 10
    assert tier.state().flagged is None


def test_what_others_made_stays(tier: Tier) -> None:
    tier.table().delete("kafka_offset < 3")
    theirs = ids(tier)[-1]
    for end in range(130, 200, 10):
        append(tier.catalog, tier.plan({0: end}))
    expired(tier)
    assert theirs in ids(tier)
    assert tier.state().flagged is None
    assert tier.offsets() == list(range(3, 190))


def test_the_newest_of_ours_stays_under_any_number_of_theirs(tier: Tier) -> None:
    ours = ids(tier)[-1]
    for i in range(7):
        tier.table().delete(f"kafka_offset = {i}")
    assert expired(tier) == 11
    assert ours in ids(tier)
    assert (tier.marks(), tier.state().flagged) == ({0: 120}, None)


def test_a_watermark_that_moved_back_stays_so(tier: Tier) -> None:
    state = tier.state()
    replace(
        tier.catalog,
        TableReplacement(
            identifier=IDENTIFIER, topic=TOPIC, topic_id=TOPIC_ID, cycle_id="back", base=state,
            expected={0: state.watermarks[0]}, moved={0: state.watermarks[0].until(0)},
            removed=frozenset(tier.referenced_files()), reason="test",
        ),
    )  # fmt: skip
    assert expired(tier) == 8
    assert (tier.marks(), tier.state().flagged) == ({0: 0}, None)


def test_a_table_that_was_rolled_back_keeps_all(tier: Tier) -> None:
    before = ids(tier)
    rolled_back(tier, before[9])
    with pytest.raises(FatalError, match="rolled the table back"):
        expired(tier)
    assert ids(tier) == before


@pytest.mark.parametrize("fate", ["landed-then-409", "landed-then-5xx", "landed-then-reset"])
def test_landed_but_reported_as_failed(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    faults = Faults(tier, monkeypatch, fate)
    assert expired(tier) == 7
    assert faults.calls == 1


@pytest.mark.parametrize("fate", ["409", "5xx", "reset"])
def test_not_landed_is_tried_again(tier: Tier, monkeypatch: pytest.MonkeyPatch, fate: str) -> None:
    faults = Faults(tier, monkeypatch, fate, fate)
    assert expired(tier) == 7
    assert faults.calls == 3


def test_an_append_meanwhile_is_kept(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    plan = other.plan({0: 130})
    Faults(tier, monkeypatch, lambda: append(other.catalog, plan))
    assert expired(tier) == 8
    assert tier.offsets() == list(range(130))


def test_a_rollback_meanwhile_is_noticed(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a snapshot that was about to go: main would have been lost with it."""
    before = ids(tier)
    other = Tier.open(tmp_path)
    Faults(tier, monkeypatch, lambda: rolled_back(other, before[2]))
    with pytest.raises(FatalError, match="rolled the table back"):
        expired(tier)
    assert ids(tier) == before


def test_an_outage_is_transient(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    Faults(tier, monkeypatch, *["5xx"] * 50)
    with pytest.raises(TransientError, match="snapshots not expired"):
        expired(tier)

    def out(_: Any) -> Any:
        raise ServiceUnavailableError("503")

    monkeypatch.setattr(tier.catalog, "load_table", out)
    with pytest.raises(TransientError):
        expired(tier)
