"""A topic's history into an Iceberg table: handed over by the broker, or read by Spark.

Same broker, same topics, same records: BENCH_RECORDS of 512 bytes in 16 fields (2,000,000 by
default, about a gigabyte), produced by librdkafka with zstd into two partitions, once for every
run. Both sides have two cores, a warm session, local disk.

Ours is counted in two parts, one after the other:

- the hop: tiering is turned on for the topic, the broker's plug-in sends all closed segments to the
  service, which makes them durable. Wall time until the last ledger object is there; CPU seconds of
  broker and service.
- the conversion: one cycle of the engine, from the ledger to the committed snapshot, durable files
  included. CPU seconds of this process, Spark's JVM and its Python workers.

The rival is Spark's Kafka source with its defaults, appended to an Iceberg table of the same
columns (hadoop catalog), from its local log: wall time of the append; CPU seconds of its processes
and of the broker. It does not wait for the disk, and leaves no tiered copy behind.

Before each part free memory is touched once (`touched_memory`). A first run over a topic of the
same size warms all JVMs up.

Rows named `without_hop` compare the conversion alone: a cluster that tiers anyway pays for the hop
whether there is a table or not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from pyspark import SparkContext
from pytest_benchmark.fixture import BenchmarkFixture

from bench.conftest import Timed
from bench.process_cpu import timed_processes
from bench.records import LARGE
from bench.results import BenchResult
from bench.rival_spark import RIVAL_VERSION, SparkRival
from bench.tiered_topic import TieredTopic
from bench.touched_memory import touch_memory
from spark_ext.conversion_job import SparkConverter
from spark_ext.session import SessionOptions
from tiering.config import TierConfig, default_config
from tiering.conversion.splitting import split_by_index
from tiering.engine import Engine
from tiering.ledger import Ledger
from tiering.local.tier_stack import TierStack
from tiering.store import open_store
from tiering.table.topic_tables import CatalogTables

NAME = "pipeline_raw_vs_spark_kafka"
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

    def __init__(self, tier: TierStack, rival: SparkRival, converter: SparkConverter) -> None:
        assert tier.kafka is not None
        assert tier.kafka.pid is not None
        assert tier.service is not None
        assert tier.service.pid is not None
        self._tier = tier
        self._rival = rival
        self._converter = converter
        self._broker, self._service = tier.kafka.pid, tier.service.pid

    def topic(self, name: str, records: int) -> TieredTopic:
        """A filled topic."""
        topic = TieredTopic(self._tier, name, partitions=PARTITIONS, segment_bytes=SEGMENT_BYTES)
        topic.fill(LARGE, records, codec="zstd")
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
        rival.ask("create", table=table)
        touch_memory(self._tier.directory)
        timed = timed_processes(
            lambda: rival.ask("append", table=table, topic=topic.name, ends=topic.ends),
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
        shutil.rmtree(directory)
        return timed

    def _engine(self, config: TierConfig) -> Engine:
        store = open_store(config.store)
        return Engine(
            ledger=Ledger(store),
            tables=CatalogTables(config),
            converter=self._converter,
            store_url=config.store,
            bytes_max=CYCLE_BYTES_MAX,
            split=split_by_index(store, config.engine.split_bytes),
        )


@pytest.fixture
def contest(tmp_path: Path) -> Iterator[Contest]:
    tier = TierStack(
        default_config(tmp_path / "tier"), tmp_path / "tier", with_kafka=True, with_engine=False
    )
    converter = SparkConverter(SessionOptions(master="local[2]"))
    with tier:
        assert tier.kafka is not None
        with SparkRival(tmp_path / "rival", tier.kafka.bootstrap_servers) as rival:
            try:
                yield Contest(tier, rival, converter)
            finally:
                converter.close()
    shutil.rmtree(tmp_path)


# Spark's bridge leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_pipeline_raw_vs_spark_kafka(
    contest: Contest, benchmark: BenchmarkFixture, report: Callable[[BenchResult], None]
) -> None:
    contest.run(contest.topic("warm_up", RECORDS))
    runs: list[Run] = []

    def next_topic() -> tuple[tuple[TieredTopic], dict[str, object]]:
        return (contest.topic(f"history_{len(runs)}", RECORDS),), {}

    megabytes: list[float] = []

    def run(topic: TieredTopic) -> None:
        megabytes.append(topic.record_bytes / 1e6)
        runs.append(contest.run(topic))

    benchmark.pedantic(run, setup=next_topic, rounds=RUNS)
    for suffix, mine in (
        ("", [r.ours for r in runs]),
        ("_without_hop", [r.conversion for r in runs]),
    ):
        _report(report, suffix, megabytes[0], mine, [r.rival for r in runs])
    benchmark.extra_info["parts"] = [asdict(r) for r in runs]


def _report(
    report: Callable[[BenchResult], None],
    suffix: str,
    megabytes: float,
    ours: list[Timed],
    theirs: list[Timed],
) -> None:
    rival = f"Spark {RIVAL_VERSION} Kafka source -> Iceberg"
    for what, unit in (("wall", "MB/s"), ("cpu", "MB/CPU s")):
        rates = [[megabytes / getattr(t, f"{what}_s") for t in side] for side in (ours, theirs)]
        report(BenchResult.of_rates(f"{NAME}{suffix}_{what}", unit, rival, *rates))


def _spark_jvm() -> list[int]:
    """The JVM of this process's Spark; the Python workers are below it."""
    gateway = SparkContext._gateway
    return [gateway.proc.pid] if gateway is not None else []
