"""Two pipelines from a broker's topics to Iceberg tables: ours, and Spark's Kafka source."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pytest_benchmark.fixture import BenchmarkFixture

from bench.avro_records import EVENT_COLUMNS, EVENT_SCHEMA, register
from bench.conftest import Timed
from bench.process_cpu import timed_processes
from bench.records import LARGE, Records
from bench.results import BenchResult
from bench.rival_spark import SparkRival
from bench.tiered_topic import TieredTopic
from bench.touched_memory import touch_memory
from spark_ext.conversion_job import SparkConverter
from spark_ext.session import SessionOptions
from tiering.config import RegistryConfig, TierConfig, default_config
from tiering.conversion.splitting import split_by_index
from tiering.engine import Engine
from tiering.ledger import Ledger
from tiering.local.schema_registry import LocalSchemaRegistry
from tiering.local.tier_stack import TierStack
from tiering.schemas.registry import SchemaRegistry
from tiering.schemas.topic_schemas import TopicSchemas
from tiering.store import open_store
from tiering.table.topic_tables import CatalogTables

__all__ = ["Contest", "contest_in", "run_contest"]

RECORDS = int(os.environ.get("BENCH_RECORDS", "2000000"))
RUNS = int(os.environ.get("BENCH_RUNS", "3"))
SEGMENT_BYTES = 64 * 1024 * 1024
PARTITIONS = 2
CYCLE_BYTES_MAX = 4 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one topic cost on each side."""

    hop: Timed
    conversion: Timed
    rival: Timed

    @property
    def ours(self) -> Timed:
        """Both parts, one after the other."""
        return Timed(
            wall_s=self.hop.wall_s + self.conversion.wall_s,
            cpu_s=self.hop.cpu_s + self.conversion.cpu_s,
        )


class Contest:
    """The parts that live through all runs."""

    def __init__(
        self,
        tier: TierStack,
        rival: SparkRival,
        converter: SparkConverter,
        registry_url: str | None = None,
    ) -> None:
        """With a registry, values are Avro in the wire format, and both tables typed."""
        assert tier.kafka is not None
        assert tier.kafka.pid is not None
        assert tier.service is not None
        assert tier.service.pid is not None
        self._tier = tier
        self._rival = rival
        self._converter = converter
        self._broker, self._service = tier.kafka.pid, tier.service.pid
        self._registry_url = registry_url

    def topic(self, name: str, records: int) -> TieredTopic:
        """A filled topic."""
        topic = TieredTopic(self._tier, name, partitions=PARTITIONS, segment_bytes=SEGMENT_BYTES)
        form: Records = LARGE
        if self._registry_url is not None:
            form = register(self._registry_url, name)
        topic.fill(form, records, codec="zstd")
        return topic

    def run(self, topic: TieredTopic) -> Run:
        """The rival first, then ours; nothing stays behind but the topic."""
        return Run(
            rival=self._read_by_rival(topic),
            hop=self._hand_over(topic),
            conversion=self._convert(topic),
        )

    def _read_by_rival(self, topic: TieredTopic) -> Timed:
        rival, table = self._rival, self._rival.table(topic.name)
        typed: dict[str, Any] = {}
        if self._registry_url is not None:
            typed = {"avro": EVENT_SCHEMA, "columns": EVENT_COLUMNS}
        rival.ask("create", table=table, **typed)
        touch_memory(self._tier.directory)
        timed = timed_processes(
            lambda: rival.ask("append", table=table, topic=topic.name, ends=topic.ends, **typed),
            trees=[rival.pid, self._broker],
        )
        assert rival.ask("count", table=table)["rows"] == sum(topic.ends.values())
        rival.ask("drop", table=table)
        return timed

    def _hand_over(self, topic: TieredTopic) -> Timed:
        touch_memory(self._tier.directory)
        return timed_processes(topic.hand_over, trees=[self._broker, self._service])

    def _convert(self, topic: TieredTopic) -> Timed:
        """One cycle over the topic's segments, into a catalog of its own."""
        directory = self._tier.directory / f"table-{topic.name}"
        config = replace(
            default_config(directory, store=self._tier.config.store),
            warehouse=str(directory / "warehouse"),
            registry=RegistryConfig(url=self._registry_url or ""),
        )
        engine = self._engine(config)
        # A first look converts nothing: a partition's first segment is taken at the second one.
        assert engine.run_cycle().idle
        rows: list[int] = []
        touch_memory(self._tier.directory)
        timed = timed_processes(
            lambda: rows.append(engine.run_cycle().rows), trees=_spark_jvm(), with_self=True
        )
        assert rows == [sum(topic.ends.values())]
        if self._registry_url is not None:
            self._check_typed(config, topic)
        shutil.rmtree(directory)
        return timed

    def _engine(self, config: TierConfig) -> Engine:
        store, tables = open_store(config.store), CatalogTables(config)
        registry = SchemaRegistry.from_config(config.registry) if config.registry.url else None
        return Engine(
            ledger=Ledger(store),
            tables=tables,
            converter=self._converter,
            schemas=TopicSchemas(config, tables, registry, clock=time.monotonic),
            store_url=config.store,
            bytes_max=CYCLE_BYTES_MAX,
            split=split_by_index(store, config.engine.split_bytes),
        )

    def _check_typed(self, config: TierConfig, topic: TieredTopic) -> None:
        """All values are columns, and none is kept beside them."""
        tables = CatalogTables(config)
        table = tables.catalog.load_table(tables.identifier(topic.name))
        batches = table.scan(selected_fields=("id", "kafka_value")).to_arrow()
        assert batches["id"].null_count == 0
        assert batches["kafka_value"].null_count == len(batches)


@contextmanager
def contest_in(directory: Path, *, typed: bool) -> Iterator[Contest]:
    """Both sides running, below `directory`, which goes afterwards."""
    tier = TierStack(
        default_config(directory / "tier"), directory / "tier", with_kafka=True, with_engine=False
    )
    converter = SparkConverter(SessionOptions(master="local[2]"))
    with ExitStack() as running:
        registry = running.enter_context(LocalSchemaRegistry()) if typed else None
        running.enter_context(tier)
        assert tier.kafka is not None
        rival = running.enter_context(SparkRival(directory / "rival", tier.kafka.bootstrap_servers))
        running.callback(converter.close)
        yield Contest(tier, rival, converter, None if registry is None else registry.url)
    shutil.rmtree(directory)


def run_contest(
    contest: Contest,
    name: str,
    rival: str,
    benchmark: BenchmarkFixture,
    report: Callable[[BenchResult], None],
) -> None:
    """Warm up, run, and report under `name`."""
    contest.run(contest.topic("warm_up", RECORDS))
    runs: list[Run] = []

    def next_topic() -> tuple[tuple[TieredTopic], dict[str, object]]:
        return (contest.topic(f"history_{len(runs)}", RECORDS),), {}

    megabytes: list[float] = []

    def run(topic: TieredTopic) -> None:
        megabytes.append(topic.record_bytes / 1e6)
        runs.append(contest.run(topic))

    benchmark.pedantic(run, setup=next_topic, rounds=RUNS)
    theirs = [r.rival for r in runs]
    for suffix, mine in (
        ("", [r.ours for r in runs]),
        ("_without_hop", [r.conversion for r in runs]),
    ):
        for what, unit in (("wall", "MB/s"), ("cpu", "MB/CPU s")):
            rates = [
                [megabytes[0] / getattr(t, f"{what}_s") for t in side] for side in (mine, theirs)
            ]
            report(BenchResult.of_rates(f"{name}{suffix}_{what}", unit, rival, *rates))
    benchmark.extra_info["parts"] = [asdict(r) for r in runs]


def _spark_jvm() -> list[int]:
    """The JVM of this process's Spark; the Python workers are below it."""
    gateway = SparkContext._gateway
    return [gateway.proc.pid] if gateway is not None else []
