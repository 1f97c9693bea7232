"""Compaction on real Spark: fewer files, the same answers, and nobody who waits."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign_spark as foreign
import pyarrow.parquet as pq
import pytest
from odd_tier import OddTier
from rest_catalog import run_rest_catalog
from s3_server import S3Server
from spark_places import SPARK_MARKS, collect_sockets

from spark_ext.table_rewriter import SparkRewriter
from tiering.config import EngineConfig, TierConfig, default_config
from tiering.errors import BadInput
from tiering.ledger import LedgerEntry, SegmentState
from tiering.local.tier_stack import CONFIG_FILE
from tiering.offset_reader.limits import DEFAULT_LIMITS
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.segments import INDEX_PARTS
from tiering.side_files import SideFile
from tiering.store import ObjectStore
from tiering.table.topic_tables import CatalogTables
from tiering.upkeep.compaction import CompactionReport, compact
from tiering.upkeep.compaction_plan import CompactionLimits, plan_rewrites
from tiering.upkeep.side_bundles import BundleLimits, merge_side_files
from tiering.watermarks import COMPACTION_SUMMARY

pytestmark = SPARK_MARKS

HOUR_MS = 3_600_000
MIB = 1024 * 1024
LIMITS = CompactionLimits(target_bytes=MIB, files_min=4)
BUNDLES = BundleLimits(objects_min=4)


def config_in(directory: Path, grace_ms: int = 0) -> TierConfig:
    return default_config(directory, engine=EngineConfig(retire_grace_ms=grace_ms))


def view(tier: OddTier) -> SnapshotView:
    table = CatalogTables(tier.config).table(tier.topic.name, tier.topic.topic_id)
    return SnapshotView.of(table, MAIN, DEFAULT_LIMITS)


def onecopy_compact(directory: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """The command as a person runs it: exit code, report, standard error."""
    command = [sys.executable, "-m", "tiering.cli", "compact", "--dir", str(directory), "--json"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@contextmanager
def rewriter(config: TierConfig) -> Iterator[SparkRewriter]:
    running = SparkRewriter(config)
    try:
        yield running
    finally:
        running.close()
        collect_sockets()


def compact_with(running: SparkRewriter, tier: OddTier) -> CompactionReport:
    return compact(
        CatalogTables(tier.config).catalog,
        tier.config.namespace,
        tier.store,
        [tier.topic.name],
        rewriter=running,
        limits=LIMITS,
        bundle_limits=BUNDLES,
    )


def side_content(store: ObjectStore, entry: LedgerEntry) -> tuple[Any, ...]:
    """All that a segment's side file says."""
    segment = entry.metadata.id
    side = SideFile.open(store, segment, entry.side)
    kept = side.kept_bytes(0, len(side.batches))
    indexes = {part: side.index(part) for part in INDEX_PARTS}
    return side.batches.to_arrow(kept).to_pydict(), indexes


def test_the_command(tmp_path: Path) -> None:
    """One file and one bundle a partition come out of eight; the next run has nothing to do."""
    config = config_in(tmp_path)
    tier, other = OddTier(config, "Page.Views"), OddTier(config, "few")
    other.tier(3)
    tier.tier(8)
    tier.check_sole_copy()
    (tmp_path / CONFIG_FILE).write_text(config.to_json())
    sides = {e.metadata.id: side_content(tier.store, e) for e in tier.entries()}

    code, report, errors = onecopy_compact(tmp_path, "--min-files", "4", "--target-mib", "1")
    assert (code, report["problems"]) == (0, {}), errors
    done = report["tables"]["__kpage__p__kviews"]
    assert (done["files_before"], done["files_after"], done["rewrites"]) == (16, 2, 2)
    assert (done["bundles"], done["bundled_segments"]) == (2, 16)
    untouched = report["tables"]["few"]
    assert (untouched["files_before"], untouched["files_after"]) == (6, 6)
    tier.check()
    other.check()
    check_files(tier)
    assert {len(e.side) for e in tier.entries()} == {1}
    assert len({e.side for e in tier.entries()}) == 2
    assert {e.metadata.id: side_content(tier.store, e) for e in tier.entries()} == sides

    code, report, _ = onecopy_compact(tmp_path, "--min-files", "4", "--target-mib", "1")
    done = report["tables"]["__kpage__p__kviews"]
    assert (code, done["rewrites"], done["bundles"]) == (0, 0, 0)
    assert tier.tier(2) == {}
    tier.check()
    tier.check_sole_copy()


@pytest.mark.s3
def test_a_store_on_s3(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not s3_server.heeds_conditions:
        pytest.skip("this S3 server ignores conditional writes")
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    url = s3_server.url(f"compaction-{tmp_path.name}")
    config = default_config(tmp_path, store=url, engine=EngineConfig(retire_grace_ms=0))
    check_the_command(config, tmp_path)


def test_a_rest_catalog(tmp_path: Path) -> None:
    """Its token reaches Spark without a command line."""
    with run_rest_catalog(tmp_path) as server:
        config = default_config(
            tmp_path,
            catalog_uri=server.properties["uri"],
            engine=EngineConfig(retire_grace_ms=0),
        )
        secret = {"token": server.properties["token"]}
        check_the_command(replace(config, catalog={**config.catalog, **secret}), tmp_path)


def check_the_command(config: TierConfig, directory: Path) -> None:
    tier = OddTier(config, "elsewhere")
    tier.tier(4)
    (directory / CONFIG_FILE).write_text(config.to_json())
    code, report, errors = onecopy_compact(directory, "--min-files", "4", "--target-mib", "1")
    assert (code, report["problems"]) == (0, {}), errors
    done = report["tables"]["elsewhere"]
    assert (done["files_before"], done["files_after"], done["bundles"]) == (8, 2, 2)
    tier.check()
    assert tier.tier(1) == {}
    tier.check()
    tier.check_sole_copy()


def check_files(tier: OddTier) -> None:
    """Each file holds one partition, in offset order, and says by which order it is sorted."""
    table = CatalogTables(tier.config).table(tier.topic.name, tier.topic.topic_id)
    assert table.properties["write.parquet.row-group-size-bytes"] == str(8 * MIB)
    last = table.current_snapshot()
    assert last is not None
    assert last.summary is not None
    assert last.summary[COMPACTION_SUMMARY] == "true", "our upkeep may expire it"
    files = table.inspect.data_files().to_pylist()
    assert {file["sort_order_id"] for file in files} == {1}
    for file in files:
        rows = pq.read_table(file["file_path"].removeprefix("file:"))
        offsets = rows["kafka_offset"].to_pylist()
        assert offsets == sorted(offsets)
        assert len(set(rows["kafka_partition"].to_pylist())) == 1


def test_topics_without_a_table_are_refused(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    (tmp_path / CONFIG_FILE).write_text(config.to_json())
    OddTier(config, "known").tier(1)
    code, report, errors = onecopy_compact(tmp_path, "known", "unknown")
    assert (code, report) == (2, {})
    assert "no table for topic unknown; topics with one: known" in errors


def test_beside_a_writer_that_commits_all_the_time(tmp_path: Path) -> None:
    """Neither wedges the other; what was proven before is proven again, then retired."""
    config = config_in(tmp_path, grace_ms=HOUR_MS)
    tier = OddTier(config, "busy")
    tier.tier(6)
    assert {e.state for e in tier.entries()} == {SegmentState.PROVEN}
    stop, commits, problems = threading.Event(), itertools.count(), []

    def write() -> None:
        pause_s = 0.2
        while not stop.wait(pause_s):
            begin = time.monotonic()
            problems.append(tier.tier(1))
            next(commits)
            pause_s = 2 * (time.monotonic() - begin)  # on a slow machine the other is slow, too

    with rewriter(config) as running:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            report = compact_with(running, tier)
        finally:
            stop.set()
            writer.join()
    assert report.problems == {}
    assert report.tables["busy"].rewrites == 2
    assert next(commits) > 1
    assert [p for p in problems if p] == []
    tier.check()
    eager = config_in(tmp_path)
    again = OddTier.over(eager, tier)
    again.tier(1)
    again.check()
    again.check_sole_copy()


def test_files_in_another_order_are_untangled(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    tier = OddTier(config, "tangled")
    tier.tier(6)
    name = foreign.spark_name(config, "tangled")
    with foreign.foreign_spark(config) as session:
        foreign.rewrite_data_files(session, name, sort_order="value", target_bytes=12_000)
        tier.check()
        tangled = view(tier).index.file_count
        assert tangled > LIMITS.overlap_max
        with rewriter(config) as running:
            # One Spark a process: the rewriter uses the other team's.
            running._session = session
            report = compact_with(running, tier)
            running._session = None
    assert report.problems == {}
    assert report.tables["tangled"].files_after < tangled
    tier.check()
    assert plan_rewrites(view(tier).index.all_files, LIMITS) == []


class Crash(Exception):
    """What a crash test ends a pass with."""


@pytest.mark.parametrize(("step", "number"), [("bundled", 1), ("side_moved", 1), ("side_moved", 5)])
def test_merging_side_files_may_stop_anywhere(tmp_path: Path, step: str, number: int) -> None:
    tier = OddTier(config_in(tmp_path), "crashing")
    tier.tier(5)
    sides = {e.metadata.id: side_content(tier.store, e) for e in tier.entries()}
    passed = itertools.count(1)

    def crash(at: str) -> None:
        if at == step and next(passed) == number:
            raise Crash

    with pytest.raises(Crash):
        merge_side_files(tier.store, tier.entries(), BUNDLES, reached=crash)
    assert {e.metadata.id: side_content(tier.store, e) for e in tier.entries()} == sides
    merge_side_files(tier.store, tier.entries(), BUNDLES)
    assert {e.metadata.id: side_content(tier.store, e) for e in tier.entries()} == sides
    assert len({e.side for e in tier.entries()}) <= 4


def test_only_retired_segments_that_the_broker_keeps_are_bundled(tmp_path: Path) -> None:
    waiting = OddTier(config_in(tmp_path, grace_ms=HOUR_MS), "waiting")
    waiting.tier(5)
    assert {e.state for e in waiting.entries()} == {SegmentState.PROVEN}
    assert merge_side_files(waiting.store, waiting.entries(), BUNDLES).bundles == 0
    deleted = [
        replace(e, state=SegmentState.RETIRED, delete_requested=True) for e in waiting.entries()
    ]
    assert merge_side_files(waiting.store, deleted, BUNDLES).bundles == 0


def test_an_entry_that_changed_meanwhile_keeps_what_it_has(tmp_path: Path) -> None:
    tier = OddTier(config_in(tmp_path), "moving")
    tier.tier(5)
    before = tier.entries()
    stale = [replace(e, side=(f"{e.side[0]}",)) for e in before]
    gone = before[0].metadata.id
    tier.store.delete(gone.ledger_key)
    merged = merge_side_files(tier.store, stale, BUNDLES)
    assert merged.segments == len(before) - 1


def test_small_bundles_become_larger_ones(tmp_path: Path) -> None:
    tier = OddTier(config_in(tmp_path), "growing")
    sizes = []
    for _ in range(4):
        tier.tier(4)
        merge_side_files(tier.store, tier.entries(), BUNDLES)
        sizes.append(sorted(Counter(e.side for e in tier.entries()).values()))
    assert sizes == [[4, 4], [8, 8], [4, 4, 8, 8], [16, 16]]
    for entry in tier.entries():
        side_content(tier.store, entry)


def test_nothing_is_bundled_twice_without_need(tmp_path: Path) -> None:
    tier = OddTier(config_in(tmp_path), "still")
    tier.tier(5)
    assert merge_side_files(tier.store, tier.entries(), BUNDLES).bundles == 2
    assert merge_side_files(tier.store, tier.entries(), BUNDLES).bundles == 0


def test_a_topic_without_a_table(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    with rewriter(config) as running, pytest.raises(BadInput, match="topics with one: none yet"):
        compact_with(running, OddTier(config, "nothing"))
