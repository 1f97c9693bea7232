"""The conversion job on real Spark: what comes back, whatever happens to its tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from spark_places import SPARK_MARKS, Tier, by_task, running_converter, tier_in, topic, written

from spark_ext import conversion_job
from spark_ext.conversion_job import SparkConverter
from spark_ext.session import SessionOptions, open_context
from tiering.conversion.convert import convert_task
from tiering.errors import TransientError
from tiering.tasks import ConversionResult, ConversionTask

pytestmark = SPARK_MARKS


@pytest.fixture(scope="module")
def converter() -> Iterator[SparkConverter]:
    with running_converter() as running:
        yield running


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return tier_in(tmp_path)


def test_many_topics_in_one_job(converter: SparkConverter, tier: Tier) -> None:
    made = [topic(tier, f"topic{i}", start=1000 * i, count=50 * (i + 1)) for i in range(4)]
    tasks = [replace(task, task_id=i) for i, (_, task) in enumerate(made)]
    results = by_task(converter.convert(tasks))
    assert [written(results[i]) for i in range(4)] == [segment.rows() for segment, _ in made]


def test_corrupt_and_missing_tasks_among_good_ones(converter: SparkConverter, tier: Tier) -> None:
    good, task = topic(tier, "good")
    bad, bad_task = topic(tier, "bad")
    _, gone_task = topic(tier, "gone")
    log = bytearray(bad.log)
    log[200] ^= 4
    tier.store.put(bad.id.log_key, bytes(log))
    tier.store.delete(f"native/{gone_task.segment_path}.log")
    tasks = [task, replace(bad_task, task_id=1), replace(gone_task, task_id=2)]
    results = by_task(converter.convert(tasks))
    assert written(results[0]) == good.rows()
    failures = [results[i].failure for i in (1, 2)]
    assert [f and f.kind for f in failures] == ["corrupt", "missing"]


def test_a_job_is_quick_once_warm(converter: SparkConverter, tier: Tier) -> None:
    tasks = [replace(topic(tier, f"warm{i}")[1], task_id=i) for i in range(2)]
    converter.convert(tasks)
    seconds = [_seconds(lambda: converter.convert(tasks)) for _ in range(6)]
    daemon = [sys.executable, "-c", "import spark_ext.worker_daemon"]
    cold = _seconds(lambda: subprocess.run(daemon, check=True))
    assert min(seconds) < cold, "a worker was started from scratch"


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def test_a_worker_that_dies_takes_no_other_task_with_it(
    converter: SparkConverter, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, task = topic(tier, "alive")
    _, deadly = topic(tier, "deadly")

    def dying_on_task_1(tasks: Iterable[ConversionTask]) -> Iterator[ConversionResult]:
        for each in tasks:
            if each.task_id == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield convert_task(each)

    monkeypatch.setattr(conversion_job, "_convert", dying_on_task_1)
    results = by_task(converter.convert([task, replace(deadly, task_id=1)]))
    assert written(results[0]) == good.rows()
    failure = results[1].failure
    assert failure is not None
    assert failure.kind == "transient"
    assert "died" in failure.reason


def test_one_context_per_process(converter: SparkConverter, tier: Tier) -> None:
    converter.convert([topic(tier, "first")[1]])
    with pytest.raises(TransientError, match="already"):
        open_context(SessionOptions(master="local[1]"))


def test_a_lost_jvm_is_transient_and_started_again(converter: SparkConverter, tier: Tier) -> None:
    made, task = topic(tier, "again")
    assert written(converter.convert([task])[0]) == made.rows()
    gateway = SparkContext._gateway
    assert gateway is not None
    killer = _Killer(gateway.proc.pid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converter, "_started", killer.around(converter._started))
        with pytest.raises(TransientError, match="lost"):
            converter.convert([task])
    assert written(converter.convert([task])[0]) == made.rows()


class _Killer:
    """Kills the JVM once the context is in hand, so that the job meets a dead one."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def around(self, started: Any) -> Any:
        def call() -> Any:
            context = started()
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            return context

        return call
