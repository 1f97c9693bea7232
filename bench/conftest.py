"""What every benchmark gets: a way to measure two things in turn, and to report the pair."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.results import BenchResult, write_results

pytest_plugins = ["tests.conftest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Wall and CPU seconds of one run; CPU counts this process and its ended children."""

    wall_s: float
    cpu_s: float


def timed(run: Callable[[], object]) -> Timed:
    """Run once and say what it cost."""
    gc.collect()
    before, start = _cpu_s(), time.perf_counter()
    run()
    return Timed(wall_s=time.perf_counter() - start, cpu_s=_cpu_s() - before)


def _cpu_s() -> float:
    usages = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


@pytest.fixture
def in_turn(
    benchmark: BenchmarkFixture,
) -> Callable[..., tuple[list[Timed], list[Timed]]]:
    """`in_turn(ours, rival, runs=5)`: one warm-up of each, then rival and ours alternately."""

    def measure(
        ours: Callable[[], object], rival: Callable[[], object], *, runs: int = 5
    ) -> tuple[list[Timed], list[Timed]]:
        mine: list[Timed] = []
        theirs: list[Timed] = []

        def setup() -> None:
            theirs.append(timed(rival))

        benchmark.pedantic(
            lambda: mine.append(timed(ours)), setup=setup, rounds=runs, warmup_rounds=1
        )
        return mine[-runs:], theirs[-runs:]

    return measure


@pytest.fixture
def report() -> Iterator[Callable[[BenchResult], None]]:
    """Collects results of one benchmark and writes them into bench/results/latest.json."""
    results: list[BenchResult] = []
    yield results.append
    write_results(results)
