"""Proofs on real Spark: what comes back, whatever happens to their tasks."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from native_segments import Segment, in_batches, some_records
from proof_places import TOPIC_ID, ProofPlace
from spark_places import SPARK_MARKS, running_converter

from spark_ext import conversion_job
from spark_ext.conversion_job import SparkConverter
from tiering.proof.prove import prove_task
from tiering.tasks import ProofResult, ProofTask

pytestmark = SPARK_MARKS


@pytest.fixture(scope="module")
def converter() -> Iterator[SparkConverter]:
    with running_converter() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path) -> ProofPlace:
    return ProofPlace.make(tmp_path)


def converted(place: ProofPlace, count: int) -> list[Segment]:
    """Segments of several partitions, each in several parts."""
    made = [
        Segment(
            batches=in_batches(some_records(1000 * i, 300), 20, ("zstd", "none")),
            topic_id=TOPIC_ID,
            partition=i % 3,
        )
        for i in range(count)
    ]
    for segment in made:
        place.convert(segment, split_bytes=len(segment.log) // 2)
    return made


def tasks_of(place: ProofPlace, segments: Iterable[Segment]) -> list[ProofTask]:
    parts = [
        (segment, part) for segment in segments for part in range(len(place.sides[segment.id]))
    ]
    return [place.proof_task(segment, part, task_id=i) for i, (segment, part) in enumerate(parts)]


def test_many_segments_in_one_job(converter: SparkConverter, place: ProofPlace) -> None:
    made = converted(place, 6)
    tasks = tasks_of(place, made)
    assert len(tasks) > 6
    results = converter.prove(tasks)
    assert [r.failure for r in results] == [None] * len(tasks)
    assert {r.task_id for r in results} == set(range(len(tasks)))
    assert sum(r.batches for r in results) == sum(len(s.batches) for s in made)
    assert sorted(results, key=lambda r: r.task_id) == [prove_task(task) for task in tasks]


def test_a_planted_fault_among_good_ones(converter: SparkConverter, place: ProofPlace) -> None:
    made = converted(place, 3)
    tasks = tasks_of(place, made)
    path = place.data_files()[0]
    offset = place.with_values(path, {})["kafka_offset"][5].as_py()
    place.rewrite_rows(path, place.with_values(path, {offset: {"value": b"never produced"}}))
    place.store.delete(made[2].id.log_key)
    kinds = {r.task_id: r.failure and r.failure.kind for r in converter.prove(tasks)}
    mismatches = [i for i, kind in kinds.items() if kind == "mismatch"]
    missing = {i for i, kind in kinds.items() if kind == "missing"}
    assert len(mismatches) == 1
    assert missing == {t.task_id for t in tasks if t.segment_path == made[2].id.path}
    assert list(kinds.values()).count(None) == len(tasks) - 1 - len(missing) > 0


def test_a_worker_that_dies_takes_no_other_proof_with_it(
    converter: SparkConverter, place: ProofPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tasks_of(place, converted(place, 2))

    def dying_on_task_1(tasks: Iterable[ProofTask]) -> Iterator[ProofResult]:
        for each in tasks:
            if each.task_id == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield prove_task(each)

    monkeypatch.setattr(conversion_job, "_prove", dying_on_task_1)
    failures = {r.task_id: r.failure for r in converter.prove(tasks)}
    died = failures.pop(1)
    assert died is not None
    assert (died.kind, died.offset) == ("transient", -1)
    assert "died" in died.reason
    assert set(failures.values()) == {None}


def test_nothing_to_prove_starts_nothing() -> None:
    with running_converter() as idle:
        assert list(idle.prove([])) == []
        assert idle._context is None
