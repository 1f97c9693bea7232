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

from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.pipeline_contest import contest_in, run_contest
from bench.results import BenchResult
from bench.rival_spark import RIVAL_VERSION


# Spark's bridge leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_pipeline_raw_vs_spark_kafka(
    tmp_path: Path, benchmark: BenchmarkFixture, report: Callable[[BenchResult], None]
) -> None:
    rival = f"Spark {RIVAL_VERSION} Kafka source -> Iceberg"
    with contest_in(tmp_path / "contest", typed=False) as contest:
        run_contest(contest, "pipeline_raw_vs_spark_kafka", rival, benchmark, report)
