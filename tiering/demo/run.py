"""The demonstration's stages, from an empty directory to the verdict."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tiering.config import EngineConfig, default_config
from tiering.demo.readings import (
    duckdb_connection,
    metadata_path,
    read_by_offset,
    read_by_sql,
    read_with_consumer,
)
from tiering.demo.report import print_report
from tiering.demo.sql import duckdb_figures, spark_figures
from tiering.demo.tiered import Tiered, await_tiered, bytes_served, kafka_of
from tiering.demo.workload import TOPICS, Acknowledged, DemoTopic, produce_topic
from tiering.local.tier_stack import TierStack
from tiering.offset_reader import OffsetReader
from tiering.table.topic_tables import CatalogTables

__all__ = ["DemoOptions", "run_demo"]

_TOPIC_CONFIG: Final = {
    "segment.bytes": str(4 * 1024 * 1024),
    # The broker rolls and tiers what is older than this, the active segment too.
    "local.retention.ms": "1000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What to run: how many records in all, and where the report goes."""

    records: int = 1_050_000
    report: Path | None = None
    store: str | None = None


@dataclass(slots=True)
class _Stages:
    """Seconds per stage, and a bar while one runs if a person looks."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        columns = (
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        start = time.monotonic()
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as bar:
            task = bar.add_task(name, total=total)
            yield lambda count: bar.advance(task, count)
        self.seconds[name] = round(time.monotonic() - start, 2)
        if not self.console.is_terminal:
            self.console.print(f"{name}: {self.seconds[name]} s")


def run_demo(options: DemoOptions, console: Console) -> bool:
    """Run everything in a temporary directory; returns whether all readings agree."""
    stages = _Stages(console)
    with tempfile.TemporaryDirectory(prefix="onecopy-demo-") as name:
        with stages.stage("start Kafka, service, engine"):
            # A grace of nothing: what is proven is retired at once.
            engine = EngineConfig(retire_grace_ms=0)
            config = default_config(Path(name), store=options.store, engine=engine)
            tier = TierStack(config, Path(name), with_kafka=True).start()
        try:
            report = _story(tier, options, stages)
        finally:
            tier.stop()
    print_report(report, console)
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(json.dumps(report, indent=2) + "\n")
    return bool(report["equal"])


def _story(tier: TierStack, options: DemoOptions, stages: _Stages) -> dict[str, Any]:
    counts = {t.name: round(t.share * options.records) for t in TOPICS}
    acknowledged = _produce(tier, counts, stages)
    with stages.stage("roll, tier, convert, prove, retire"):
        tiered = {t.name: await_tiered(tier, t) for t in TOPICS}
    readings = _read(tier, tiered, acknowledged, stages)
    tables = {name: each.metadata_location for name, each in tiered.items()}
    with stages.stage("SQL in DuckDB"):
        duckdb = duckdb_figures(duckdb_connection(), tables)
    with stages.stage("SQL in Spark"):
        spark = spark_figures(tier.config, tables)
    topics = {
        name: {
            "produced": counts[name],
            **each.to_dict(),
            "readings": readings[name],
            "sql": {"duckdb": duckdb[name], "spark": spark[name]},
            "equal": len(set(map(tuple, readings[name].values()))) == 1
            and duckdb[name] == spark[name],
        }
        for name, each in tiered.items()
    }
    served = bytes_served(tier)
    native_left = sum(each.native_bytes_left for each in tiered.values())
    return {
        # A consumer served by the broker's own disk, or from native segments, would prove nothing.
        "equal": served > 0 and native_left == 0 and all(t["equal"] for t in topics.values()),
        "native_bytes_left": native_left,
        "records_produced": sum(counts.values()),
        "bytes_served_from_tier": served,
        "topics": topics,
        "seconds": stages.seconds,
    }


def _produce(
    tier: TierStack, counts: Mapping[str, int], stages: _Stages
) -> dict[str, Acknowledged]:
    acknowledged = {}
    for topic in TOPICS:
        kafka_of(tier).create_tiered_topic(topic.name, topic.partitions, _TOPIC_CONFIG)
        with stages.stage(f"produce {topic.name}", counts[topic.name]) as advance:
            acknowledged[topic.name] = produce_topic(
                kafka_of(tier).bootstrap_servers, topic, counts[topic.name], advance=advance
            )
    return acknowledged


def _read(
    tier: TierStack,
    tiered: Mapping[str, Tiered],
    acknowledged: Mapping[str, Acknowledged],
    stages: _Stages,
) -> dict[str, dict[str, tuple[int, str]]]:
    """(records, digest) of each topic, as each way of reading sees it."""
    catalog = CatalogTables(tier.config).catalog
    connection = duckdb_connection()
    ends = {t.name: tiered[t.name].ends for t in TOPICS}
    readings: dict[str, dict[str, tuple[int, str]]] = {}
    digests: dict[str, Callable[[DemoTopic, Callable[[int], None]], Any]] = {
        "acknowledged": lambda t, _: acknowledged[t.name].digest(ends[t.name]),
        "stock consumer": lambda t, advance: read_with_consumer(
            kafka_of(tier).bootstrap_servers, t.name, ends[t.name], advance=advance
        ),
        "offset reader": lambda t, advance: read_by_offset(
            OffsetReader.open(catalog, tier.config.namespace, t.name),
            ends[t.name],
            advance=advance,
        ),
        "SQL table": lambda t, advance: read_by_sql(
            connection,
            metadata_path(tiered[t.name].metadata_location),
            ends[t.name],
            advance=advance,
        ),
    }
    total = sum(len(p) for a in acknowledged.values() for p in a.records)
    for way, digest in digests.items():
        with stages.stage(f"read: {way}", total) as advance:
            for topic in TOPICS:
                found = digest(topic, advance)
                readings.setdefault(topic.name, {})[way] = (found.records, found.hexdigest())
    return readings
