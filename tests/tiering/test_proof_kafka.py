"""Segments that Kafka's own classes wrote: converted, committed, proven batch for batch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native_segments import Batch, Rec, Segment, aborted_entry
from proof_places import TOPIC_ID, ProofPlace

from segment_reader.batch_table import Kept

sys.path.append(str(Path(__file__).parents[1] / "segment_reader"))

from kafka_oracle import KafkaLog, Oracle

Logs = Callable[[str], KafkaLog]
NAMES = [
    *(f"codec-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    *("mixed-codecs", "append-time", "transactions", "empty-batches", "compacted"),
    *("tiny-batches", "odd-timestamps", "large-records"),
]


@pytest.fixture(scope="module")
def logs(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Logs:
    classes, directory = tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("logs")
    Oracle.compile(kafka_jars, classes).run("Segments", str(directory))
    return lambda name: KafkaLog.load(directory / f"{name}.log")


def stand_in(log: KafkaLog, verdicts: bytes) -> Segment:
    """What the broker would say of the log."""
    bounds = log.bounds
    return Segment(
        batches=[Batch(records=[Rec(offset=bounds.start_offset)], last_offset=bounds.end_offset)],
        topic_id=TOPIC_ID,
        leader_epochs=bounds.leader_epochs,
        verdicts=verdicts,
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_batch_is_proven(logs: Logs, tmp_path: Path, name: str) -> None:
    log = logs(name)
    verdicts = b""
    if name == "transactions":
        batch = next(b for b in log.batches if b["transactional"] and not b["control"])
        places = batch["base_offset"], batch["last_offset"]
        verdicts = aborted_entry(batch["producer_id"], *places)
    place = ProofPlace.make(tmp_path)
    made = stand_in(log, verdicts)
    place.convert(made, log=log.data)
    (result,) = place.require_proven(made, log.data)
    assert result.batches == len(log.batches)
    if name.startswith("codec-") or name in ("mixed-codecs", "large-records"):
        # Nothing that Kafka's clients write needs to be kept twice.
        assert set(place.side(made).batches.kept.tolist()) == {Kept.ROWS}
