"""Bytes at rest: Parquet and side files against the native segments and indexes they replace.

A whole tier: topics of BENCH_MB megabytes of values each (32 by default) are produced, tiered in
segments of BENCH_SEGMENT_MB (4), converted, proven and retired; all sizes are those of stored
objects. Each topic is counted as fresh small files and again after `onecopy compact`. Rivals:

- the topic's own native segments and indexes (what the broker's tier would hold);
- `..._vs_uncompressed`: those of the same records from a producer that compresses nothing;
- `..._vs_zstd`: those of the same records from a producer with zstd.

Ratios are the rival's bytes over ours: 2 means half the size. `..._side` gives the side files
beside the Parquet files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.json_records import JSON_EVENTS, RANDOM_VALUES
from bench.production import produce
from bench.records import LARGE, Records
from bench.results import BenchResult
from bench.sealed_topics import create_open, seal
from bench.tier_sizes import TopicSizes, compact
from tiering.config import EngineConfig, default_config
from tiering.demo.tiered import await_tiered, kafka_of
from tiering.demo.workload import DemoTopic
from tiering.local.tier_stack import TierStack

NAME = "bytes_at_rest_vs_native"
VALUE_BYTES = int(os.environ.get("BENCH_MB", "32")) * 1_000_000
SEGMENT_BYTES = int(os.environ.get("BENCH_SEGMENT_MB", "4")) * 1024 * 1024
FEW_FILES = 5
"""So many small files are rewritten for certain."""
SMALL_BATCHES: Mapping[str, Any] = {"batch.num.messages": 4, "linger.ms": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What a topic is filled with, and the other topics that hold the same records."""

    name: str
    records: Records
    codec: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    uncompressed: str = ""
    zstd: str = ""


FILLINGS = [
    Filling(name="random", records=RANDOM_VALUES, codec="none"),
    Filling(name="json", records=JSON_EVENTS, codec="none", zstd="json_zstd"),
    Filling(name="json_zstd", records=JSON_EVENTS, codec="zstd", uncompressed="json"),
    Filling(
        name="json_lz4", records=JSON_EVENTS, codec="lz4", uncompressed="json", zstd="json_zstd"
    ),
    Filling(
        name="json_small_batches",
        records=JSON_EVENTS,
        codec="none",
        settings=SMALL_BATCHES,
        uncompressed="json",
        zstd="json_zstd",
    ),
    Filling(
        name="json_small_batches_zstd",
        records=JSON_EVENTS,
        codec="zstd",
        settings=SMALL_BATCHES,
        uncompressed="json",
        zstd="json_zstd",
    ),
    Filling(name="avro_zstd", records=LARGE, codec="zstd"),
]


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[TierStack]:
    # A grace of nothing: what is proven is retired at once.
    config = default_config(tmp_path / "tier", engine=EngineConfig(retire_grace_ms=0))
    with TierStack(config, tmp_path / "tier", with_kafka=True) as running:
        yield running


def test_bytes_at_rest(tier: TierStack, report: Callable[[BenchResult], None]) -> None:
    for filling in FILLINGS:
        _fill(tier, filling)
    fresh = {f.name: _retired(tier, f) for f in FILLINGS}
    assert tier.engine is not None
    tier.engine.stop()
    compact(tier.directory)
    compacted = {f.name: TopicSizes.of(tier.config, f.name) for f in FILLINGS}
    for filling in FILLINGS:
        files = fresh[filling.name].files
        assert compacted[filling.name].files < files or files < FEW_FILES
        for ending, sizes in (("", fresh), ("_compacted", compacted)):
            for result in _results(filling, ending, sizes):
                report(result)


def _fill(tier: TierStack, filling: Filling) -> None:
    kafka = kafka_of(tier)
    create_open(kafka, filling.name, segment_bytes=SEGMENT_BYTES)
    count = VALUE_BYTES // filling.records.value_bytes
    produce(
        kafka,
        filling.name,
        filling.records,
        count,
        codec=filling.codec,
        settings=filling.settings,
    )
    seal(kafka, filling.name)


def _retired(tier: TierStack, filling: Filling) -> TopicSizes:
    topic = DemoTopic(name=filling.name, partitions=1, share=1.0, codec=filling.codec)
    tiered = await_tiered(tier, topic)
    assert tiered.native_bytes_left == tiered.native_objects == 0
    sizes = TopicSizes.of(tier.config, filling.name)
    assert sizes.side == tiered.side_bytes
    assert sizes.parquet == tiered.table_bytes
    return sizes


def _results(
    filling: Filling, ending: str, sizes: Mapping[str, TopicSizes]
) -> Iterator[BenchResult]:
    mine = sizes[filling.name]
    name = f"{NAME}_{filling.name}{ending}"
    rivals = [("", filling.name, "native segments and indexes")]
    if filling.uncompressed:
        rivals.append(("_vs_uncompressed", filling.uncompressed, "uncompressed native"))
    if filling.zstd:
        rivals.append(("_vs_zstd", filling.zstd, "zstd native"))
    for suffix, topic, rival in rivals:
        ours, theirs = [mine.at_rest / 1e6], [sizes[topic].native / 1e6]
        yield BenchResult.of_costs(f"{name}{suffix}", "MB", rival, ours, theirs)
    side, parquet = [mine.side / 1e6], [mine.parquet / 1e6]
    yield BenchResult.of_costs(f"{name}_side", "MB", "Parquet files", side, parquet)
