"""A topic's Avro values into typed Iceberg columns: handed over by the broker, or read by Spark.

As `pipeline_raw_vs_spark_kafka`, with values in the Confluent wire format (512 bytes, 16 fields),
whose schema is in a registry. Ours finds it there, and proves while it converts that every value
comes back from its columns byte for byte; none is kept beside them. The rival is Spark's Kafka
source with `from_avro` over the value behind its prefix and the same schema, appended to a table
of the same columns; it checks nothing, and can't give the values back.
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
def test_pipeline_avro_vs_spark_from_avro(
    tmp_path: Path, benchmark: BenchmarkFixture, report: Callable[[BenchResult], None]
) -> None:
    rival = f"Spark {RIVAL_VERSION} Kafka source -> from_avro -> Iceberg"
    with contest_in(tmp_path / "contest", typed=True) as contest:
        run_contest(contest, "pipeline_avro_vs_spark_from_avro", rival, benchmark, report)
