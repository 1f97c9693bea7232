"""Tiers whose native copies go: what sees to it, and what shows that they are gone."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from polling import eventually
from real_tier import RealTier, Tier

from tiering.ledger import Ledger, LedgerEntry, SegmentState

__all__ = [
    "check_sole_copy",
    "configure_engine",
    "forget_everything",
    "keep_native",
    "kept_log",
    "kept_path",
    "native_files",
    "regenerations",
    "retire",
    "wait_retired",
]

RETIRED_S_MAX = 300
KEPT = "kept-native"


def keep_native(tier: Tier, topic: str) -> None:
    """Keep the native objects that a topic has now, to compare with; the store doesn't see it."""
    for entry in tier.entries(topic):
        for key in (entry.metadata.id.log_key, entry.metadata.id.indexes_key):
            path = kept_path(tier, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                os.link(tier.path_of(key), path)


def kept_path(tier: Tier, key: str) -> Path:
    """Where a native object is that was kept."""
    return tier.directory / KEPT / key


def kept_log(tier: Tier, entry: LedgerEntry) -> bytes:
    """A segment's log as it was uploaded."""
    return kept_path(tier, entry.metadata.id.log_key).read_bytes()


def configure_engine(tier: Tier, *, retire_grace_ms: int) -> None:
    """Change the setting; the engine takes it up at its next start."""
    engine = replace(tier.config.engine, retire_grace_ms=retire_grace_ms)
    tier.config = replace(tier.config, engine=engine)
    (tier.directory / "tier.json").write_text(tier.config.to_json())


def retire(tier: Tier, topics: Iterable[str]) -> None:
    """Have the engine retire whatever there is, at once, and wait for these topics."""
    tier.engine.stop()
    configure_engine(tier, retire_grace_ms=0)
    tier.engine.start()
    wait_retired(tier, topics)


def wait_retired(tier: Tier, topics: Iterable[str], timeout_s: float = RETIRED_S_MAX) -> None:
    """Until the tables are the only copy of these topics."""
    names = frozenset(topics)

    def states() -> Counter[tuple[str, bool]]:
        return Counter((e.state.value, e.native_gone) for e in _live(tier, names))

    eventually(
        lambda: set(states()) == {(SegmentState.RETIRED.value, True)},
        timeout_s,
        what="every segment is retired",
        details=lambda: f"{states()}\n{tier.heartbeat()}\n{tier.engine.tail()}",
    )
    check_sole_copy(tier, names)


def check_sole_copy(tier: Tier, topics: Iterable[str]) -> None:
    """No native byte of these topics' segments is left. (An upload that was killed before its
    ledger object leaves some that are no segment's: they go after a grace.)"""
    entries = _live(tier, frozenset(topics))
    assert {e.state for e in entries} == {SegmentState.RETIRED}
    for entry in entries:
        for key in (entry.metadata.id.log_key, entry.metadata.id.indexes_key):
            assert not tier.path_of(key).exists(), key


def native_files(tier: Tier, topic_id: str = "") -> list[str]:
    """Names of the native objects of a topic id, or of all."""
    found = tier.path_of(f"native/{topic_id}").rglob("*")
    return sorted(path.name for path in found if path.is_file())


def regenerations(tier: Tier) -> int:
    """How many units of retired segments the service has made since its start."""
    return int(tier.metrics()["onecopy_regeneration_seconds_count", ""])


def forget_everything(tier: RealTier) -> None:
    """Start service and broker again with nothing kept of any segment: no batches that were
    made, no index that the broker has fetched."""
    tier.service.stop()
    tier.kafka.stop()
    shutil.rmtree(tier.kafka.data_directory / "remote-log-index-cache")
    tier.service.start()
    tier.kafka.start()


def _live(tier: Tier, topics: frozenset[str]) -> list[LedgerEntry]:
    found = (e for e in Ledger(tier.store).scan() if e.metadata.topic in topics)
    return [e for e in found if not e.delete_requested]
