"""Bytes at rest of typed Avro: Parquet and side files against the native segments they replace.

A whole tier with a registry: topics of BENCH_MB megabytes of values each (32 by default), Avro of
16 fields and 512 bytes in the wire format, no two alike, are produced with one codec each, tiered
in segments of BENCH_SEGMENT_MB (4), converted into typed columns, proven and retired; all sizes
are those of stored objects. Each topic is counted as fresh small files and again after `onecopy
compact`. The rival are the topic's own native segments and indexes (what the broker's tier would
hold).

Ratios are the rival's bytes over ours: 1.54 is 0.65 times the size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.avro_records import register
from bench.production import produce
from bench.results import BenchResult
from bench.sealed_topics import create_open, seal
from bench.tier_sizes import TopicSizes, compact
from tiering.config import EngineConfig, RegistryConfig, default_config
from tiering.demo.tiered import await_tiered, kafka_of
from tiering.demo.workload import DemoTopic
from tiering.local.schema_registry import LocalSchemaRegistry
from tiering.local.tier_stack import TierStack
from tiering.table.topic_tables import CatalogTables

NAME = "bytes_at_rest_avro_vs_native"
VALUE_BYTES = int(os.environ.get("BENCH_MB", "32")) * 1_000_000
SEGMENT_BYTES = int(os.environ.get("BENCH_SEGMENT_MB", "4")) * 1024 * 1024
CODECS = ("zstd", "lz4", "none")


@pytest.fixture
def registry() -> Iterator[LocalSchemaRegistry]:
    with LocalSchemaRegistry() as running:
        yield running


@pytest.fixture
def tier(tmp_path: Path, registry: LocalSchemaRegistry) -> Iterator[TierStack]:
    # A grace of nothing: what is proven is retired at once.
    config = default_config(
        tmp_path / "tier",
        engine=EngineConfig(retire_grace_ms=0),
        registry=RegistryConfig(url=registry.url),
    )
    with TierStack(config, tmp_path / "tier", with_kafka=True) as running:
        yield running


def test_bytes_at_rest_avro(
    tier: TierStack, registry: LocalSchemaRegistry, report: Callable[[BenchResult], None]
) -> None:
    for codec in CODECS:
        _fill(tier, registry, codec)
    fresh = {codec: _retired(tier, codec) for codec in CODECS}
    assert tier.engine is not None
    tier.engine.stop()
    compact(tier.directory)
    compacted = {codec: TopicSizes.of(tier.config, _topic(codec)) for codec in CODECS}
    for codec in CODECS:
        for ending, sizes in (("", fresh[codec]), ("_compacted", compacted[codec])):
            report(
                BenchResult.of_costs(
                    f"{NAME}_{codec}{ending}",
                    "MB",
                    "native segments and indexes",
                    [sizes.at_rest / 1e6],
                    [sizes.native / 1e6],
                )
            )


def _topic(codec: str) -> str:
    return f"avro_{codec}"


def _fill(tier: TierStack, registry: LocalSchemaRegistry, codec: str) -> None:
    kafka, topic = kafka_of(tier), _topic(codec)
    events = register(registry.url, topic)
    create_open(kafka, topic, segment_bytes=SEGMENT_BYTES)
    produce(kafka, topic, events, VALUE_BYTES // events.value_bytes, codec=codec)
    seal(kafka, topic)


def _retired(tier: TierStack, codec: str) -> TopicSizes:
    topic = _topic(codec)
    tiered = await_tiered(tier, DemoTopic(name=topic, partitions=1, share=1.0, codec=codec))
    assert tiered.native_bytes_left == tiered.native_objects == 0
    tables = CatalogTables(tier.config)
    table = tables.catalog.load_table(tables.identifier(topic))
    kept = table.scan(selected_fields=("kafka_value", "id")).to_arrow()
    # What seals the topic has no value.
    assert kept["kafka_value"].null_count == len(kept)
    assert kept["id"].null_count <= 1
    return TopicSizes.of(tier.config, topic)
