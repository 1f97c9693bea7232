"""Foreign segments that can't be taken stop their partition, not the backfill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine_tiers import InProcess, Tier, segment
from native_segments import Segment

from tiering.backfill import BackfillReport, ForeignSegments, backfill
from tiering.config import default_config
from tiering.planning import plan_partition
from tiering.table.topic_tables import CatalogTables
from tiering.watermarks import Watermark

NO_PRODUCERS = bytes.fromhex("0001 48674bc7 00000000")


def put(
    root: Path, made: Segment, log: bytes | None = None, checkpoint: str = "0\n1\n0 0\n"
) -> None:
    directory = root / f"{made.topic}-{made.partition}-{made.topic_id}"
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        ".log": made.log if log is None else log,
        ".index": b"",
        ".timeindex": b"",
        ".leader_epoch_checkpoint": checkpoint.encode(),
        ".snapshot": NO_PRODUCERS,
    }
    for suffix, data in files.items():
        (directory / (made.id.name + suffix)).write_bytes(data)


def run(root: Path, tier: Tier) -> BackfillReport:
    tables = CatalogTables(tier.config)
    return backfill(root, (), tables=tables, converter=InProcess(), bytes_max=10**9)


def test_an_old_format_stops_its_partition_and_the_others_come_in(tmp_path: Path) -> None:
    tier, root = Tier(default_config(tmp_path)), tmp_path / "kafka-tiered-storage"
    good = segment(0, 50)
    old = replace(segment(0, 20), topic=good.topic, topic_id=good.topic_id, partition=5)
    log = bytearray(old.log)
    log[16] = 1
    put(root, good)
    put(root, old, bytes(log))
    report = run(root, tier)
    assert tier.rows(good) == good.rows()
    assert "message format v1" in report.problems[f"{good.topic}-5"]


def test_a_checkpoint_that_falls_is_told(tmp_path: Path) -> None:
    tier, root = Tier(default_config(tmp_path)), tmp_path / "kafka-tiered-storage"
    made = segment(0, 50)
    put(root, made, checkpoint="0\n2\n0 5\n1 5\n")
    assert run(root, tier).problems.keys() == {f"{made.topic}-{made.partition}"}


def test_what_an_unreadable_segment_may_hold_is_not_stepped_over(tmp_path: Path) -> None:
    first = segment(0, 50)
    put(tmp_path, first, b"\0" * 100)
    put(tmp_path, segment(50, 50, first))
    foreign = ForeignSegments(tmp_path)
    ids = {entry.metadata.id for entry in foreign.scan()}
    # An earlier run has come to offset 20 of the first one, which was whole then.
    plan = plan_partition(
        first.partition, foreign.scan(), Watermark(offset=20), seen_before=ids, bytes_max=10**9
    )
    assert plan.ranges == ()
    assert plan.stall is not None
    assert plan.stall.offset == 20


def test_segments_below_the_watermark_are_counted_not_passed_over_silently(tmp_path: Path) -> None:
    tier, root = Tier(default_config(tmp_path)), tmp_path / "kafka-tiered-storage"
    first = segment(0, 50)
    later = segment(50, 50, first)
    later.store(tier.store)
    tier.settle()  # the tier has begun at offset 50
    put(root, first)
    put(root, later)
    report = run(root, tier)
    assert (report.segments, report.already, report.rows) == (0, 2, 0)
    assert tier.rows(first) == later.rows()
