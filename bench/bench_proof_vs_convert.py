"""What the proof costs beside the conversion, and what conversion pays for being provable.

One segment from a real broker, filled by librdkafka, BENCH_SEGMENT_MB large (96 by default), taken
through the engine once. Its tasks are then run again and again in this process, bound to one core,
in turn, as Spark's Python workers run them:

- `proof_vs_convert...`: the proof (Parquet and side file read back, all batches regenerated and
  compared with the native log) against the conversion that wrote them;
- `convert_provable_vs_plain...`: the conversion as it is, with a side file and every batch
  regenerated in memory, against the same task without these.

Rates are megabytes of the native log per second: within a pair the bytes are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from broker_starting import StartKafka
from pytest_benchmark.fixture import BenchmarkFixture

from bench.conftest import Timed, timed
from bench.engine_tasks import tasks_of
from bench.json_records import JSON_EVENTS
from bench.one_core import one_core
from bench.production import produce, rolled_segments
from bench.records import LARGE, SMALL, Records
from bench.results import BenchResult
from tiering.conversion.convert import convert_task
from tiering.conversion.worker_memory import keep_freed_memory
from tiering.local.kafka import LocalKafka
from tiering.proof.prove import prove_task
from tiering.tasks import ConversionTask, ProofTask

RUNS = int(os.environ.get("BENCH_RUNS", "5"))
SEGMENT_BYTES = int(os.environ.get("BENCH_SEGMENT_MB", "96")) * 1024 * 1024
COMPRESSION_MAX = 6.0
"""More than any of these records shrink: so much more is produced to fill a segment."""

CASES = [
    pytest.param("", LARGE, "none", id="none-512b"),
    pytest.param("_120b", SMALL, "none", id="none-120b"),
    pytest.param("_zstd", LARGE, "zstd", id="zstd-512b"),
    pytest.param("_zstd_120b", SMALL, "zstd", id="zstd-120b"),
    pytest.param("_lz4", LARGE, "lz4", id="lz4-512b"),
    pytest.param("_lz4_120b", SMALL, "lz4", id="lz4-120b"),
    pytest.param("_json_zstd", JSON_EVENTS, "zstd", id="zstd-json"),
]


@pytest.fixture(scope="module")
def kafka(module_kafka: StartKafka) -> LocalKafka:
    return module_kafka()


@pytest.mark.parametrize(("suffix", "form", "codec"), CASES)
def test_proof_vs_convert(
    suffix: str,
    form: Records,
    codec: str,
    kafka: LocalKafka,
    tmp_path: Path,
    benchmark: BenchmarkFixture,
    report: Callable[[BenchResult], None],
) -> None:
    log, last_offset = _segment(kafka, form, codec)
    tasks = tasks_of(tmp_path / "tier", "bench", log, last_offset)
    plain = replace(tasks.conversion, side_prefix=None)
    keep_freed_memory()  # as Spark's Python workers do
    provable_runs: list[Timed] = []
    plain_runs: list[Timed] = []
    proof_runs: list[Timed] = []

    def conversions() -> None:
        plain_runs.append(_converted(plain))
        provable_runs.append(_converted(tasks.conversion))

    with one_core():
        benchmark.pedantic(
            lambda: proof_runs.append(timed(lambda: _prove(tasks.proof))),
            setup=conversions,
            rounds=RUNS,
            warmup_rounds=1,
        )
    megabytes = log.stat().st_size / 1e6
    for name, rival, *sides in (
        ("proof_vs_convert", "convert_task", proof_runs, provable_runs),
        ("convert_provable_vs_plain", "convert_task, no side file", provable_runs, plain_runs),
    ):
        for what, unit, ending in (("wall", "MB/s", ""), ("cpu", "MB/CPU s", "_cpu")):
            costs = [[getattr(t, f"{what}_s") for t in side[-RUNS:]] for side in sides]
            rates = [[megabytes / cost for cost in side] for side in costs]
            report(BenchResult.of_rates(f"{name}{suffix}{ending}", unit, rival, *rates))


def _segment(kafka: LocalKafka, form: Records, codec: str) -> tuple[Path, int]:
    """A whole segment of the form's records: the first that the broker has closed."""
    topic = f"{form.name}-{codec}".replace(" ", "-").replace(",", "")
    kafka.create_topic(topic, configs={"segment.bytes": str(SEGMENT_BYTES)})
    step = int(SEGMENT_BYTES * 1.2 / form.value_bytes)
    produced = 0
    while not (rolled := rolled_segments(kafka, topic)):
        assert produced < step * COMPRESSION_MAX, "these records shrink more than was thought"
        produce(kafka, topic, form, step, codec=codec)
        produced += step
    return rolled[0]


def _converted(task: ConversionTask) -> Timed:
    """Run it, and remove what it wrote."""
    results = []
    cost = timed(lambda: results.append(convert_task(task)))
    (result,) = results
    assert result.failure is None, result.failure
    assert result.rows == task.to_offset - task.from_offset
    for entry in result.entries:
        Path(entry.path.removeprefix("file://")).unlink()
    assert (result.side_key is None) == (task.side_prefix is None)
    if result.side_key is not None:
        (Path(task.store_url) / result.side_key).unlink()
    return cost


def _prove(task: ProofTask) -> None:
    result = prove_task(task)
    assert result.failure is None, result.failure
    assert result.batches > 0
