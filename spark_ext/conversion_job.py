"""Conversion and proof on Spark: one job per call, one task per range of a segment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from spark_ext.session import SessionOptions, first_line, open_context, stop_spark
from tiering.conversion.convert import convert_task
from tiering.errors import TransientError
from tiering.proof.prove import prove_task
from tiering.proof.rescue import rescue_task
from tiering.tasks import (
    ConversionFailure,
    ConversionResult,
    ConversionTask,
    ProofFailure,
    ProofResult,
    ProofTask,
    RescueResult,
    RescueTask,
)

__all__ = ["SparkConverter", "open_converter"]

_log: Final = logging.getLogger(__name__)
_MASTER: Final = "spark.master"
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def open_converter(options: Mapping[str, str]) -> SparkConverter:
    """The converter for Spark settings (`spark.master` among them); nothing is started yet.

    Raises BadInput for names that are no Spark settings, and for secrets among them.
    """
    conf = dict(options)
    master = conf.pop(_MASTER, SessionOptions().master)
    return SparkConverter(SessionOptions(master=master, conf=conf))


class SparkConverter:
    """Runs conversion and proof tasks as Spark jobs; the session starts with the first call.

    What goes to the workers is the tasks, which hold no credentials, and a reference to a
    function of this package. Workers take credentials from *their* environment: on `local[N]`
    they inherit this process's. A cluster has to provide three things on every executor: this
    package with its dependencies in the Python that `spark.pyspark.python` names; the store
    reachable by the URL that the tasks name (so no local directory, unless it is shared); and
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or an instance role in the executors' environment,
    put there by the cluster (worker environment, Kubernetes secrets), not by `spark.executorEnv`,
    which lands in the event log.

    Tasks may be run twice (speculation, retries): every attempt writes files of its own, and
    only those whose entries come back are ever committed.
    """

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._context: SparkContext | None = None

    def convert(self, tasks: Sequence[ConversionTask]) -> Sequence[ConversionResult]:
        """One result per task. Raises TransientError when Spark itself is lost; the next call
        starts it anew.

        A job fails as a whole when a task kills its worker process again and again. The tasks
        are then run one by one, so that it takes none of the others with it.
        """
        ordered = sorted(tasks, key=_log_bytes, reverse=True)
        return self._run_all(ordered, _convert, _lost_conversion)

    def prove(self, tasks: Sequence[ProofTask]) -> Sequence[ProofResult]:
        """One result per task, in any order; otherwise as `convert`."""
        return self._run_all(tasks, _prove, _lost_proof)

    def rescue(self, tasks: Sequence[RescueTask]) -> Sequence[RescueResult]:
        """One result per task, in any order; otherwise as `convert`."""
        return self._run_all(tasks, _rescue, _lost_rescue)

    def warm_up(self) -> None:
        """Start Spark and its workers before the first segment needs them.

        Raises TransientError when Spark can't be started.
        """
        context = self._started()
        slots = context.defaultParallelism
        try:
            context.parallelize(range(slots), slots).mapPartitions(_nothing).collect()
        except (Py4JError, OSError, EOFError) as error:
            raise self._dropped(error) from error

    def close(self) -> None:
        """Stop Spark and its JVM."""
        if self._context is not None:
            self._context = None
            stop_spark()

    def _run_all(
        self,
        tasks: Sequence[_Task],
        work: Callable[[Iterable[_Task]], Iterator[_Result]],
        lost: Callable[[_Task, Py4JJavaError], _Result],
    ) -> Sequence[_Result]:
        if not tasks:
            return ()
        try:
            return self._run(tasks, work)
        except Py4JJavaError as error:
            if len(tasks) == 1:
                return [lost(tasks[0], error)]
            _log.warning("Spark job failed, running its tasks one by one: %s", first_line(error))
        return [self._run_alone(task, work, lost) for task in tasks]

    def _run_alone(
        self,
        task: _Task,
        work: Callable[[Iterable[_Task]], Iterator[_Result]],
        lost: Callable[[_Task, Py4JJavaError], _Result],
    ) -> _Result:
        try:
            return self._run([task], work)[0]
        except Py4JJavaError as error:
            return lost(task, error)

    def _run(
        self, tasks: Sequence[_Task], work: Callable[[Iterable[_Task]], Iterator[_Result]]
    ) -> list[_Result]:
        """One job. Raises Py4JJavaError when it failed and Spark still lives."""
        context = self._started()
        try:
            results: list[_Result] = (
                context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()
            )
        except Py4JJavaError as error:
            if self._is_stopped(context):
                raise self._dropped(error) from error
            raise
        except (Py4JError, OSError, EOFError) as error:
            raise self._dropped(error) from error
        return results

    def _started(self) -> SparkContext:
        if self._context is not None and self._is_stopped(self._context):
            self.close()
        if self._context is None:
            self._context = open_context(self._options)
        return self._context

    def _is_stopped(self, context: SparkContext) -> bool:
        try:
            return bool(context._jsc.sc().isStopped())
        except (Py4JError, OSError, EOFError, AttributeError):
            return True

    def _dropped(self, error: BaseException) -> TransientError:
        reason = first_line(error)
        self.close()
        return TransientError(f"Spark was lost during a job: {reason}")


def _nothing(_: Iterable[int]) -> Iterator[int]:
    return iter(())


def _convert(tasks: Iterable[ConversionTask]) -> Iterator[ConversionResult]:
    return map(convert_task, tasks)


def _prove(tasks: Iterable[ProofTask]) -> Iterator[ProofResult]:
    return map(prove_task, tasks)


def _rescue(tasks: Iterable[RescueTask]) -> Iterator[RescueResult]:
    return map(rescue_task, tasks)


def _log_bytes(task: ConversionTask) -> int:
    """How much there is to do, as far as the task says: larger ones start first."""
    if task.end_position is not None:
        return task.end_position - task.start_position
    return task.to_offset - task.from_offset


def _lost_conversion(task: ConversionTask, error: Py4JJavaError) -> ConversionResult:
    failure = ConversionFailure(kind="transient", reason=_death(error))
    return ConversionResult(task_id=task.task_id, converted_to=task.from_offset, failure=failure)


def _lost_proof(task: ProofTask, error: Py4JJavaError) -> ProofResult:
    failure = ProofFailure(kind="transient", reason=_death(error))
    return ProofResult(task_id=task.task_id, failure=failure)


def _lost_rescue(task: RescueTask, error: Py4JJavaError) -> RescueResult:
    failure = ProofFailure(kind="transient", reason=_death(error))
    return RescueResult(task_id=task.task_id, failure=failure)


def _death(error: Py4JJavaError) -> str:
    return f"its worker died: {first_line(error)}"
