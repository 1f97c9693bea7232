"""The engine: observe -> plan -> apply, in one loop that may be stopped and started anywhere.

It holds no state that matters: the ledger says which segments there are, the tables say how
far each partition has come. Everything it does is either repeatable or atomic.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tiering.backlog import (
    Backlog,
    backlog_by_topic,
    count_pending_partitions,
    is_pending,
    pending_topics,
)
from tiering.errors import NotFound, TieringError
from tiering.ledger import LedgerEntry, Quarantine, SegmentState, partition_of_key
from tiering.planning import (
    PartitionPlan,
    SegmentRange,
    Stall,
    dead_rows,
    epochs_until,
    group_by_partition,
    plan_partition,
)
from tiering.segments import SegmentId, SegmentMetadata
from tiering.table.commit import AppendOutcome, TableAppend, TableState
from tiering.tasks import (
    ConversionResult,
    ConversionTask,
    Converter,
    DataFileEntry,
    Layout,
    TableTarget,
)
from tiering.watermarks import Watermark

__all__ = ["CycleReport", "Engine", "Segments", "Tables", "TopicPlan"]

_log: Final = logging.getLogger(__name__)


class Segments(Protocol):
    """The native segments that the engine converts: the ledger, or a foreign tier's directory."""

    @property
    def damaged(self) -> Mapping[str, str]:
        """{key: what is wrong} of the segments that the last scan could not read."""

    def scan(self) -> Iterable[LedgerEntry]:
        """Every segment there is."""

    def update(
        self, segment: SegmentId, change: Callable[[LedgerEntry], LedgerEntry]
    ) -> LedgerEntry:
        """Change one segment's entry atomically; NotFound if it is gone."""

    def advance(self, segment: SegmentId, state: SegmentState) -> LedgerEntry:
        """Move one segment's entry forward to `state`; NotFound if it is gone."""


class Tables(Protocol):
    """The catalog as the engine uses it."""

    def ensure(self, topic: str, topic_id: str) -> TableState:
        """State of the topic id's table, made if there is none."""

    def target(self, state: TableState) -> TableTarget:
        """Where workers write files for it."""

    def append(self, plan: TableAppend) -> AppendOutcome:
        """Commit files and watermarks in one snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """What one cycle does for one topic id."""

    topic: str
    topic_id: str
    state: TableState
    partitions: tuple[PartitionPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """What one cycle did.

    `settled` counts segments that were found to lie wholly below their watermark; `problems` maps
    a topic or `topic-partition` to what stops it.
    """

    segments: int = 0
    settled: int = 0
    rows: int = 0
    native_bytes: int = 0
    commits: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)
    backlog: Mapping[str, Backlog] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to convert."""
        return self.segments == 0


class Engine:
    """Runs cycles. Time, randomness and every effect come in from outside.

    Args:
        layout, path_of: how the segments lie below `store_url`, and the path of one of them.
        reached: called with the name of each step as it is passed; a crash test kills the
            process there.
        split: turns a task over a large segment into several.
        bytes_max: native bytes that one cycle takes, shared by the partitions that have some to
            convert; but of each at least one segment.
    """

    def __init__(
        self,
        *,
        ledger: Segments,
        tables: Tables,
        converter: Converter,
        store_url: str,
        bytes_max: int,
        split: Callable[[ConversionTask, LedgerEntry], Sequence[ConversionTask]],
        layout: Layout = "onecopy",
        path_of: Callable[[SegmentMetadata], str] = lambda meta: meta.id.path,
        new_cycle_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._ledger = ledger
        self._tables = tables
        self._converter = converter
        self._store_url = store_url
        self._bytes_max = bytes_max
        self._split = split
        self._layout: Layout = layout
        self._path_of = path_of
        self._new_cycle_id = new_cycle_id
        self._reached = reached
        self._seen: frozenset[SegmentId] = frozenset()
        self._settled = 0

    def run_cycle(self) -> CycleReport:
        """One cycle over all topics. Raises TransientError when store or Spark is out."""
        entries = list(self._ledger.scan())
        seen, self._seen = self._seen, frozenset(e.metadata.id for e in entries)
        self._settled = 0
        problems: dict[str, str] = dict(self._ledger.damaged)
        plans = self._plan(entries, seen, problems)
        tasks, owners = self._tasks(plans)
        self._reached("planned")
        results = self._convert(tasks)
        self._reached("converted")
        done = _by_range(results, owners)
        commits = 0
        for plan in plans:
            try:
                commits += self._commit(plan, done, problems)
            except (TieringError, OSError) as error:
                problems[plan.topic] = str(error)
                _log.warning("topic %s: %s", plan.topic, error)
        return CycleReport(
            segments=len(done),
            settled=self._settled,
            rows=sum(r.rows for r in results),
            native_bytes=sum(r.native_bytes for r in results),
            commits=commits,
            problems=problems,
            backlog=backlog_by_topic(entries),
        )

    def _plan(
        self,
        entries: Sequence[LedgerEntry],
        seen: frozenset[SegmentId],
        problems: dict[str, str],
    ) -> list[TopicPlan]:
        plans = []
        bytes_max = self._bytes_max // max(1, count_pending_partitions(entries))
        unknown: set[str] = set()
        for topic, topic_id, group in pending_topics(entries):
            if topic in unknown:
                continue  # a younger topic must not take the name before the older one's table
            try:
                state = self._tables.ensure(topic, topic_id)
            except (TieringError, OSError) as error:
                unknown.add(topic)
                problems[topic] = str(error)
                _log.warning("topic %s: %s", topic, error)
                continue
            if state.flagged is not None:
                problems[topic] = state.flagged
                continue
            plan = self._plan_topic(topic, topic_id, state, group, seen, max(1, bytes_max))
            for partition in plan.partitions:
                if partition.stall is not None:
                    problems[f"{topic}-{partition.partition}"] = partition.stall.reason
            self._settle(plan, group)
            plans.append(plan)
        return plans

    def _plan_topic(
        self,
        topic: str,
        topic_id: str,
        state: TableState,
        entries: Iterable[LedgerEntry],
        seen: frozenset[SegmentId],
        bytes_max: int,
    ) -> TopicPlan:
        partitions = []
        for partition, group in sorted(group_by_partition(entries).items()):
            mark = state.watermarks.get(partition)
            unreadable = self._unreadable(topic_id, partition, mark)
            partitions.append(
                unreadable
                or plan_partition(partition, group, mark, seen_before=seen, bytes_max=bytes_max)
            )
        return TopicPlan(topic=topic, topic_id=topic_id, state=state, partitions=tuple(partitions))

    def _unreadable(
        self, topic_id: str, partition: int, mark: Watermark | None
    ) -> PartitionPlan | None:
        """A standstill while a segment of the partition can't be read: it may hold what is next."""
        for key, reason in self._ledger.damaged.items():
            if partition_of_key(key) == (topic_id, partition):
                stall = Stall(partition=partition, offset=mark.offset if mark else 0, reason=reason)
                return PartitionPlan(partition=partition, watermark=mark, ranges=(), stall=stall)
        return None

    def _settle(self, plan: TopicPlan, entries: Iterable[LedgerEntry]) -> None:
        """Mark segments that lie wholly below the watermark: a crash after a commit, or a copy
        whose offsets another copy has brought. One that contradicts the table stays in sight."""
        marks = plan.state.watermarks
        for entry in entries:
            mark = marks.get(entry.metadata.id.partition)
            if mark is None or not is_pending(entry) or entry.metadata.end_offset >= mark.offset:
                continue
            if dead_rows(entry, mark.leader_epochs, mark.offset) is None:
                self._advance(entry.metadata.id)
                self._settled += 1

    def _tasks(
        self, plans: Sequence[TopicPlan]
    ) -> tuple[list[ConversionTask], dict[int, SegmentRange]]:
        tasks: list[ConversionTask] = []
        owners: dict[int, SegmentRange] = {}
        for plan in plans:
            ranges = [r for p in plan.partitions for r in p.ranges]
            if not ranges:
                continue
            target = self._tables.target(plan.state)
            for each in ranges:
                for task in self._split(self._task(each, target), each.entry):
                    owners[len(tasks)] = each
                    tasks.append(replace(task, task_id=len(tasks)))
        return tasks, owners

    def _task(self, each: SegmentRange, target: TableTarget) -> ConversionTask:
        meta = each.entry.metadata
        return ConversionTask(
            task_id=0,
            layout=self._layout,
            store_url=self._store_url,
            segment_path=self._path_of(meta),
            topic=meta.topic,
            topic_id=meta.id.topic_id,
            partition=meta.id.partition,
            segment_start_offset=meta.start_offset,
            segment_end_offset=meta.end_offset,
            leader_epochs=meta.leader_epochs,
            index_parts=each.entry.parts,
            from_offset=each.from_offset,
            to_offset=each.to_offset,
            start_position=0,
            end_position=None,
            target=target,
        )

    def _convert(self, tasks: Sequence[ConversionTask]) -> Sequence[ConversionResult]:
        return self._converter.convert(tasks) if tasks else ()

    def _commit(
        self,
        plan: TopicPlan,
        done: Mapping[SegmentId, Sequence[ConversionResult]],
        problems: dict[str, str],
    ) -> int:
        moved: dict[int, Watermark] = {}
        files: dict[int, tuple[DataFileEntry, ...]] = {}
        finished: list[SegmentId] = []
        for partition in plan.partitions:
            mark, entries, segments = self._gather(plan, partition, done, problems)
            if mark is not None:
                moved[partition.partition] = mark
                files[partition.partition] = entries
                finished += segments
        if not moved:
            return 0
        outcome = self._tables.append(
            TableAppend(
                identifier=plan.state.identifier,
                topic=plan.topic,
                topic_id=plan.topic_id,
                cycle_id=self._new_cycle_id(),
                base=plan.state,
                expected={p: plan.state.watermarks.get(p) for p in moved},
                moved=moved,
                files=files,
            )
        )
        self._reached("committed")
        for segment in finished:
            if segment.partition in outcome.landed:
                self._advance(segment)
        self._reached("settled")
        return 1

    def _gather(
        self,
        plan: TopicPlan,
        partition: PartitionPlan,
        done: Mapping[SegmentId, Sequence[ConversionResult]],
        problems: dict[str, str],
    ) -> tuple[Watermark | None, tuple[DataFileEntry, ...], list[SegmentId]]:
        """Files of a partition's ranges up to the first that failed, and the new watermark."""
        mark: Watermark | None = None
        epochs = partition.watermark.leader_epochs if partition.watermark else ()
        entries: list[DataFileEntry] = []
        finished: list[SegmentId] = []
        for each in partition.ranges:
            meta = each.entry.metadata
            results = done[meta.id]
            failed = next((r for r in results if r.failure is not None), None)
            if failed is not None:
                problems[f"{plan.topic}-{partition.partition}"] = self._failed(each, failed)
                break
            reached = max(r.converted_to for r in results)
            epochs = epochs_until(epochs, each.entry, reached)
            if reached > each.from_offset:
                mark = Watermark(offset=reached, leader_epochs=epochs)
                entries += [e for r in results for e in r.entries]
            if reached < each.to_offset:
                problems[f"{plan.topic}-{partition.partition}"] = (
                    f"segment {meta.id.path}: a transaction at offset {reached} is not decided "
                    "in what the tier holds; conversion stops before it"
                )
                break
            if each.to_offset > meta.end_offset:
                finished.append(meta.id)
        return mark, tuple(entries), finished

    def _failed(self, each: SegmentRange, result: ConversionResult) -> str:
        """Quarantine a corrupt segment; anything else is tried again in the next cycle."""
        failure = result.failure
        assert failure is not None  # noqa: S101 - the caller has looked
        where = f"segment {each.entry.metadata.id.path}: byte {failure.position}: {failure.reason}"
        _log.warning("%s: %s (%s)", each.entry.metadata, failure.reason, failure.kind)
        if failure.kind == "corrupt":
            mark = Quarantine(reason=failure.reason, position=failure.position)
            self._ledger.update(
                each.entry.metadata.id, lambda entry: replace(entry, quarantine=mark)
            )
            return where + " (quarantined; its native copy is kept and served)"
        return where

    def _advance(self, segment: SegmentId) -> None:
        try:
            self._ledger.advance(segment, SegmentState.CONVERTED)
        except NotFound:
            _log.info("segment %s: its ledger object is gone", segment.path)


def _by_range(
    results: Iterable[ConversionResult], owners: Mapping[int, SegmentRange]
) -> dict[SegmentId, list[ConversionResult]]:
    done: dict[SegmentId, list[ConversionResult]] = {}
    for result in sorted(results, key=lambda r: r.task_id):
        done.setdefault(owners[result.task_id].entry.metadata.id, []).append(result)
    return done
