"""Logs that Kafka's own classes wrote, through a table and back, byte for byte."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from history_tier import PARTITION, TOPIC_ID, HistoryTier, check
from native_segments import Batch, Rec, Segment, aborted_entry

from segment_reader.batch_table import Kept
from tiering.history import Regenerator
from tiering.offset_reader.limits import ReadLimits

sys.path.append(str(Path(__file__).parents[1] / "segment_reader"))

from kafka_oracle import KafkaLog, Oracle

Logs = Callable[[str], KafkaLog]
NAMES = [
    *(f"codec-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    "mixed-codecs",
    "append-time",
    "empty-batches",
    "compacted",
    "tiny-batches",
    "odd-timestamps",
    "large-records",
    "transactions",
]


@pytest.fixture(scope="module")
def logs(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Logs:
    classes, directory = tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("logs")
    Oracle.compile(kafka_jars, classes).run("Segments", str(directory))
    return lambda name: KafkaLog.load(directory / f"{name}.log")


@pytest.mark.parametrize("name", NAMES)
def test_comes_back(logs: Logs, tmp_path: Path, name: str) -> None:
    log = logs(name)
    verdicts = b""
    if name == "transactions":
        batch = next(b for b in log.batches if b["transactional"] and not b["control"])
        verdicts = aborted_entry(batch["producer_id"], batch["base_offset"], batch["last_offset"])
    bounds = log.bounds
    made = Segment(
        batches=[Batch(records=[Rec(offset=bounds.start_offset)], last_offset=bounds.end_offset)],
        topic_id=TOPIC_ID,
        partition=PARTITION,
        leader_epochs=bounds.leader_epochs,
        verdicts=verdicts,
    )
    tier = HistoryTier.make(tmp_path)
    side = tier.convert(made, log.data)
    for limits in (ReadLimits(), ReadLimits(batch_bytes=3000)):
        for run_bytes in (5000, 1 << 20):
            with tier.records(limits).cursor(PARTITION) as rows:
                runs = Regenerator(side, rows, run_bytes=run_bytes).runs()
                assert check(runs, log.data) == len(log.batches)
    if name == "append-time":
        assert Kept.DELTAS in side.batches.kept
    if name == "transactions":
        assert Kept.RAW in side.batches.kept
