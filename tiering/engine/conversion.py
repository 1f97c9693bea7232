"""Observe -> plan -> convert -> commit: how native segments come into the tables.

Everything here is either repeatable or atomic. A segment that lies wholly below its watermark
(a crash after a commit, or a copy whose offsets another copy has brought) brings no rows, but
still needs a side file of its own before it can be proven and retired.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tiering.backlog import count_pending_partitions, is_pending, pending_topics
from tiering.engine.mending import DueWithdrawal
from tiering.engine.ports import Schemas, Segments, Tables
from tiering.engine.typed_conversion import TopicValues, TypedConversion
from tiering.errors import CommitConflict, NotFound, TieringError
from tiering.ledger import LedgerEntry, Quarantine, SegmentState, partition_of_key
from tiering.planning import (
    PartitionPlan,
    SegmentRange,
    Stall,
    contradicts,
    epochs_until,
    group_by_partition,
    plan_partition,
)
from tiering.segments import SegmentId, SegmentMetadata
from tiering.table.commit import TableAppend, TableState
from tiering.tasks import (
    ConversionResult,
    ConversionTask,
    Converter,
    DataFileEntry,
    Layout,
    TableTarget,
    TypedValues,
)
from tiering.watermarks import Watermark

__all__ = ["ConversionReport", "ConversionStep", "TopicPlan", "ValueCounts"]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """What one cycle does for one topic id.

    `settling`: segments wholly below their watermark, which only need a side file. `values`: how
    values and keys become columns.
    """

    topic: str
    topic_id: str
    state: TableState
    partitions: tuple[PartitionPlan, ...]
    settling: tuple[LedgerEntry, ...] = ()
    values: TopicValues = field(default_factory=TopicValues)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCounts:
    """What became of a topic's values: rows with typed columns, those of them whose bytes are
    kept beside, and bad records by cause."""

    typed_rows: int = 0
    raw_rows: int = 0
    bad_records: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: ValueCounts) -> ValueCounts:
        return ValueCounts(
            typed_rows=self.typed_rows + other.typed_rows,
            raw_rows=self.raw_rows + other.raw_rows,
            bad_records=dict(Counter(self.bad_records) + Counter(other.bad_records)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionReport:
    """What one pass did; `settled` counts segments found to lie wholly below their watermark,
    `values` is by topic."""

    segments: int = 0
    settled: int = 0
    rows: int = 0
    native_bytes: int = 0
    side_bytes: int = 0
    commits: int = 0
    withdrawals: tuple[DueWithdrawal, ...] = ()
    values: Mapping[str, ValueCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathered:
    """What a partition's ranges came to; `mark` is None where nothing has moved."""

    mark: Watermark | None
    entries: tuple[DataFileEntry, ...]
    dead_letters: tuple[DataFileEntry, ...]
    finished: tuple[SegmentId, ...]


class ConversionStep:
    """Brings what is new in the ledger into the tables."""

    def __init__(
        self,
        *,
        ledger: Segments,
        tables: Tables,
        converter: Converter,
        schemas: Schemas | None,
        store_url: str,
        bytes_max: int,
        split: Callable[[ConversionTask, LedgerEntry], Sequence[ConversionTask]],
        layout: Layout,
        path_of: Callable[[SegmentMetadata], str],
        new_cycle_id: Callable[[], str],
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._tables = tables
        self._typed = TypedConversion(schemas, tables, converter)
        self._store_url = store_url
        self._bytes_max = bytes_max
        self._split = split
        self._layout: Layout = layout
        self._path_of = path_of
        self._new_cycle_id = new_cycle_id
        self._reached = reached
        self._seen: frozenset[SegmentId] = frozenset()

    def run(self, entries: Sequence[LedgerEntry], problems: dict[str, str]) -> ConversionReport:
        """One pass over all topics. Raises TransientError when store or Spark is out."""
        seen, self._seen = self._seen, frozenset(e.metadata.id for e in entries)
        plans = self._plan(entries, seen, problems)
        tasks, owners = self._tasks(plans)
        self._reached("planned")
        states = {plan.topic_id: plan.state for plan in plans}
        results = self._typed.run(tasks, states) if tasks else ()
        self._reached("converted")
        done = _by_segment(results, owners)
        commits = settled = 0
        for plan in plans:
            try:
                commits += self._commit(plan, done, problems)
                settled += self._settle(plan, done, problems)
            except (TieringError, OSError) as error:
                problems[plan.topic] = str(error)
                _log.warning("topic %s: %s", plan.topic, error)
        return ConversionReport(
            segments=len(done) - sum(len(plan.settling) for plan in plans if self._with_side),
            settled=settled,
            rows=sum(r.rows for r in results),
            native_bytes=sum(r.native_bytes for r in results),
            side_bytes=sum(r.side_bytes for r in results),
            commits=commits,
            withdrawals=tuple(_withdrawals(plans)),
            values=_value_counts(tasks, results),
        )

    @property
    def _with_side(self) -> bool:
        """Whether segments are ours to retire: a foreign tier's stay where they are."""
        return self._layout == "onecopy"

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
            try:
                values = self._typed.values(topic, state)
            except (TieringError, OSError) as error:
                problems[topic] = str(error)
                _log.warning("topic %s: %s", topic, error)
                continue
            plan = self._plan_topic(topic, topic_id, state, group, seen, max(1, bytes_max))
            plan = replace(plan, values=values)
            for partition in plan.partitions:
                if partition.stall is not None:
                    problems[f"{topic}-{partition.partition}"] = partition.stall.reason
            plans.append(plan)
        return plans

    def _plan_topic(
        self,
        topic: str,
        topic_id: str,
        state: TableState,
        entries: Sequence[LedgerEntry],
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
        return TopicPlan(
            topic=topic,
            topic_id=topic_id,
            state=state,
            partitions=tuple(partitions),
            settling=tuple(_settling(entries, state.watermarks)),
        )

    def _unreadable(
        self, topic_id: str, partition: int, mark: Watermark | None
    ) -> PartitionPlan | None:
        """A standstill while a segment of the partition can't be read: it may hold what is next."""
        for key, reason in self._ledger.damaged.items():
            if partition_of_key(key) == (topic_id, partition):
                stall = Stall(partition=partition, offset=mark.offset if mark else 0, reason=reason)
                return PartitionPlan(partition=partition, watermark=mark, ranges=(), stall=stall)
        return None

    def _tasks(
        self, plans: Sequence[TopicPlan]
    ) -> tuple[list[ConversionTask], dict[int, SegmentId]]:
        tasks: list[ConversionTask] = []
        owners: dict[int, SegmentId] = {}
        for plan in plans:
            ranges = [r for p in plan.partitions for r in p.ranges]
            if self._with_side:
                ranges += [_nothing_of(entry) for entry in plan.settling]
            if not ranges:
                continue
            target = self._tables.target(plan.state)
            for each in ranges:
                typed = plan.values.of_partition(each.entry.metadata.id.partition)
                for task in self._split(self._task(each, target, typed), each.entry):
                    owners[len(tasks)] = each.entry.metadata.id
                    tasks.append(replace(task, task_id=len(tasks)))
        return tasks, owners

    def _task(
        self, each: SegmentRange, target: TableTarget, typed: TypedValues | None
    ) -> ConversionTask:
        meta = each.entry.metadata
        # A range that ends early is gone on with later: the side file comes with the last of it.
        whole = self._with_side and each.to_offset > meta.end_offset
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
            side_prefix=meta.id.side_prefix if whole else None,
            typed=typed,
        )

    def _commit(
        self,
        plan: TopicPlan,
        done: Mapping[SegmentId, Sequence[ConversionResult]],
        problems: dict[str, str],
    ) -> int:
        moved: dict[int, Watermark] = {}
        files: dict[int, tuple[DataFileEntry, ...]] = {}
        dead: dict[int, tuple[DataFileEntry, ...]] = {}
        finished: list[SegmentId] = []
        for partition in plan.partitions:
            found = self._gather(plan, partition, done, problems)
            if found.mark is not None:
                moved[partition.partition] = found.mark
                files[partition.partition] = found.entries
                finished += found.finished
                if found.dead_letters:
                    dead[partition.partition] = found.dead_letters
        if not moved:
            return 0
        if dead:
            # First, so that no record is in neither table. Its watermarks keep out what is there.
            self._bury(plan, {p: moved[p] for p in dead}, dead)
            self._reached("buried")
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
                self._mark_converted(segment, done[segment])
        self._reached("settled")
        return 1

    def _settle(
        self,
        plan: TopicPlan,
        done: Mapping[SegmentId, Sequence[ConversionResult]],
        problems: dict[str, str],
    ) -> int:
        """Mark what lies wholly below the watermark, once it has its side file."""
        settled = 0
        for entry in plan.settling:
            results = done.get(entry.metadata.id, ())
            failed = next((r for r in results if r.failure is not None), None)
            if failed is not None:
                problems[_where(entry.metadata)] = self._failed(entry, failed)
                continue
            self._mark_converted(entry.metadata.id, results)
            settled += 1
        return settled

    def _gather(
        self,
        plan: TopicPlan,
        partition: PartitionPlan,
        done: Mapping[SegmentId, Sequence[ConversionResult]],
        problems: dict[str, str],
    ) -> _Gathered:
        """Files of a partition's ranges up to the first that failed, and the new watermark."""
        mark: Watermark | None = None
        epochs = partition.watermark.leader_epochs if partition.watermark else ()
        entries: list[DataFileEntry] = []
        dead: list[DataFileEntry] = []
        finished: list[SegmentId] = []
        for each in partition.ranges:
            meta = each.entry.metadata
            results = done[meta.id]
            failed = next((r for r in results if r.failure is not None), None)
            if failed is not None:
                problems[_where(meta)] = self._failed(each.entry, failed)
                break
            reached = max(r.converted_to for r in results)
            epochs = epochs_until(epochs, each.entry, reached)
            if reached > each.from_offset:
                mark = Watermark(offset=reached, leader_epochs=epochs)
                entries += [e for r in results for e in r.entries]
                dead += [e for r in results for e in r.dead_letters]
            if reached < each.to_offset:
                problems[_where(meta)] = (
                    f"segment {meta.id.path}: a transaction at offset {reached} is not decided "
                    "in what the tier holds; conversion stops before it"
                )
                break
            if each.to_offset > meta.end_offset:
                finished.append(meta.id)
        return _Gathered(
            mark=mark, entries=tuple(entries), dead_letters=tuple(dead), finished=tuple(finished)
        )

    def _bury(
        self,
        plan: TopicPlan,
        moved: Mapping[int, Watermark],
        files: Mapping[int, tuple[DataFileEntry, ...]],
    ) -> None:
        """Commit bad records to their own table."""
        state = self._typed.dead_letters(plan.topic, plan.state)
        outcome = self._tables.append(
            TableAppend(
                identifier=state.identifier,
                topic=plan.topic,
                topic_id=plan.topic_id,
                cycle_id=self._new_cycle_id(),
                base=state,
                expected={p: state.watermarks.get(p) for p in moved},
                moved=moved,
                files=files,
            )
        )
        if outcome.dropped:
            raise CommitConflict(f"table {'.'.join(state.identifier)}: another tierer was faster")

    def _failed(self, entry: LedgerEntry, result: ConversionResult) -> str:
        """Quarantine a corrupt segment; anything else is tried again in the next cycle."""
        failure = result.failure
        assert failure is not None  # noqa: S101 - the caller has looked
        segment = entry.metadata.id
        where = f"segment {segment.path}: byte {failure.position}: {failure.reason}"
        _log.warning("%s: %s (%s)", entry.metadata, failure.reason, failure.kind)
        if failure.kind == "corrupt":
            mark = Quarantine(reason=failure.reason, position=failure.position)
            self._ledger.update(segment, lambda found: replace(found, quarantine=mark))
            return where + " (quarantined; its native copy is kept and served)"
        return where

    def _mark_converted(self, segment: SegmentId, results: Iterable[ConversionResult]) -> None:
        side = tuple(r.side_key for r in results if r.side_key is not None)

        def convert(entry: LedgerEntry) -> LedgerEntry:
            if entry.state is not SegmentState.UPLOADED:
                return entry  # another engine's; its side file stays the one that counts
            return replace(entry, state=SegmentState.CONVERTED, side=side)

        try:
            self._ledger.update(segment, convert)
        except NotFound:
            _log.info("segment %s: its ledger object is gone", segment.path)


def _value_counts(
    tasks: Iterable[ConversionTask], results: Iterable[ConversionResult]
) -> dict[str, ValueCounts]:
    topics = {task.task_id: task.topic for task in tasks if task.typed is not None}
    counts: dict[str, ValueCounts] = {}
    for result in results:
        topic = topics.get(result.task_id)
        if topic is None or result.failure is not None:
            continue
        counts[topic] = counts.get(topic, ValueCounts()) + ValueCounts(
            typed_rows=result.typed_rows,
            raw_rows=result.raw_rows,
            bad_records=result.bad_records,
        )
    return counts


def _withdrawals(plans: Iterable[TopicPlan]) -> Iterable[DueWithdrawal]:
    for plan in plans:
        for partition in plan.partitions:
            if partition.withdrawal is not None:
                yield DueWithdrawal(
                    topic=plan.topic, topic_id=plan.topic_id, withdrawal=partition.withdrawal
                )


def _settling(
    entries: Iterable[LedgerEntry], marks: Mapping[int, Watermark]
) -> Iterable[LedgerEntry]:
    """Pending segments wholly below the watermark; one that contradicts the table stays out."""
    for entry in entries:
        mark = marks.get(entry.metadata.id.partition)
        if mark is None or not is_pending(entry) or entry.metadata.end_offset >= mark.offset:
            continue
        if entry.quarantine is None and not contradicts(entry, mark.leader_epochs, mark.offset):
            yield entry


def _nothing_of(entry: LedgerEntry) -> SegmentRange:
    """No rows of a segment, but its side file."""
    end = entry.metadata.end_offset + 1
    return SegmentRange(entry=entry, from_offset=end, to_offset=end)


def _by_segment(
    results: Iterable[ConversionResult], owners: Mapping[int, SegmentId]
) -> dict[SegmentId, list[ConversionResult]]:
    done: dict[SegmentId, list[ConversionResult]] = {}
    for result in sorted(results, key=lambda r: r.task_id):
        done.setdefault(owners[result.task_id], []).append(result)
    return done


def _where(meta: SegmentMetadata) -> str:
    return f"{meta.topic}-{meta.id.partition}"
