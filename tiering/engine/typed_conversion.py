"""Running conversion tasks whose values have schemas: tables are given what the tasks find missing.

A worker can't change a table. It says which schemas or tables it lacks, they are made here, and the
task runs again; what was converted already stays.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tiering.engine.ports import Schemas, Tables
from tiering.errors import TieringError
from tiering.table.commit import TableState
from tiering.tasks import (
    ConversionFailure,
    ConversionResult,
    ConversionTask,
    Converter,
    TypedValues,
)
from tiering.values.stored_schema import Part

__all__ = ["TopicValues", "TypedConversion"]

_log: Final = logging.getLogger(__name__)
_ROUNDS_MAX: Final = 40
"""Each brings at least one schema; what is still missing then waits for the next cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicValues:
    """How a topic's values become columns.

    Attributes:
        typed: None where its records are kept as they are.
        dead_letters: state of the table of its bad records, if there is one.
    """

    typed: TypedValues | None = None
    dead_letters: TableState | None = None

    def of_partition(self, partition: int) -> TypedValues | None:
        """What a task of that partition is told."""
        if self.typed is None or self.dead_letters is None:
            return self.typed
        mark = self.dead_letters.watermarks.get(partition)
        return replace(self.typed, dead_letters_from=mark.offset if mark else 0)


class TypedConversion:
    """Plans topics and runs tasks. For one thread."""

    def __init__(self, schemas: Schemas | None, tables: Tables, converter: Converter) -> None:
        self._schemas = schemas
        self._tables = tables
        self._converter = converter

    def values(self, topic: str, state: TableState) -> TopicValues:
        """How a topic's values become columns. Raises as `Schemas.plan`."""
        if self._schemas is None:
            return TopicValues()
        typed = self._schemas.plan(topic, state)
        buried = None if typed is None else self._schemas.buried(topic, state)
        if typed is None or buried is None:
            return TopicValues(typed=typed)
        typed = replace(typed, dead_letters=self._tables.target(buried))
        return TopicValues(typed=typed, dead_letters=buried)

    def dead_letters(self, topic: str, state: TableState) -> TableState:
        """The table of a topic's bad records as it is now."""
        assert self._schemas is not None  # noqa: S101 - bad records come from its plans
        return self._schemas.bury(topic, state)

    def run(
        self, tasks: Sequence[ConversionTask], states: Mapping[str, TableState]
    ) -> Sequence[ConversionResult]:
        """One result per task. `states` are those of the tables, by topic id.

        Raises TransientError when a whole run failed.
        """
        results = {result.task_id: result for result in self._converter.convert(tasks)}
        for _ in range(_ROUNDS_MAX):
            again = self._made_ready(tasks, results, states)
            if not again:
                break
            results.update((result.task_id, result) for result in self._converter.convert(again))
        return list(results.values())

    def _made_ready(
        self,
        tasks: Sequence[ConversionTask],
        results: dict[int, ConversionResult],
        states: Mapping[str, TableState],
    ) -> list[ConversionTask]:
        """Tasks that lack nothing any more; the results of others say why they wait."""
        lacking: dict[str, list[ConversionTask]] = {}
        for task in tasks:
            failure = results[task.task_id].failure
            if failure is not None and failure.kind in ("schema", "dead_letters"):
                lacking.setdefault(task.topic_id, []).append(task)
        again = []
        for topic_id, group in lacking.items():
            try:
                again += self._mended(group, results, states[topic_id])
            except (TieringError, OSError) as error:
                _log.warning("topic %s: %s", group[0].topic, error)
                for task in group:
                    results[task.task_id] = _waiting(results[task.task_id], str(error))
        return again

    def _mended(
        self,
        group: Sequence[ConversionTask],
        results: Mapping[int, ConversionResult],
        state: TableState,
    ) -> list[ConversionTask]:
        """Tasks of one topic, with what their table was given."""
        assert self._schemas is not None  # noqa: S101 - the tasks were planned by it
        topic = group[0].topic
        failures = [f for t in group if (f := results[t.task_id].failure) is not None]
        missing: set[tuple[Part, int]] = {each for f in failures for each in f.schemas}
        if missing:
            self._schemas.learn(topic, state, sorted(missing))
        if any(failure.kind == "dead_letters" for failure in failures):
            self._schemas.bury(topic, state)
        values, target = self.values(topic, state), self._tables.target(state)
        return [
            replace(task, target=target, typed=values.of_partition(task.partition))
            for task in group
        ]


def _waiting(result: ConversionResult, reason: str) -> ConversionResult:
    return replace(result, failure=ConversionFailure(kind="transient", reason=reason))
