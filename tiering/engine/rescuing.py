"""Dropped columns: noticed, told, and what they held saved before its files expire.

Dropping one of Kafka's columns leaves the old data files as they are, and history is read by field
id, so Kafka's clients notice nothing until somebody rewrites these files and expires the old ones.
Until then what the remaining columns don't give is copied into the side files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tiering.engine.ports import Custody, Segments
from tiering.engine.proving import by_topic_id
from tiering.errors import NotFound, TieringError
from tiering.ledger import LedgerEntry, SegmentState
from tiering.segments import SegmentId
from tiering.table.reading import TableReading
from tiering.tasks import Converter, RescueResult, RescueTask

__all__ = ["RescueStep"]

_log: Final = logging.getLogger(__name__)
_LOOK_EVERY_MS: Final = 30_000
"""How often a table is read only to see whether it has lost a column."""

_Looked = tuple[SegmentId, tuple[str, ...], bool, tuple[str, ...]]
"""A segment, its side file, whether it is retired, and the columns that were dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    entry: LedgerEntry
    reading: TableReading


class RescueStep:
    """Saves what dropped columns held, a bounded number of native bytes at a time.

    What it knows it finds out again after a restart: a segment that was seen to once gives a task
    that finds nothing to do.
    """

    def __init__(
        self,
        *,
        ledger: Segments,
        custody: Custody,
        converter: Converter,
        store_url: str,
        bytes_max: int,
        now_ms: Callable[[], int],
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._custody = custody
        self._converter = converter
        self._store_url = store_url
        self._bytes_max = bytes_max
        self._now_ms = now_ms
        self._reached = reached
        self._read_at_ms: dict[str, int] = {}
        self._dropped: dict[str, tuple[str, ...]] = {}
        self._looked: dict[_Looked, str | None] = {}

    def run(self, entries: Sequence[LedgerEntry], problems: dict[str, str]) -> int:
        """One pass; returns of how many segments something was saved. Raises TransientError when
        Spark is out."""
        groups = by_topic_id(e for e in entries if _has_rows(e))
        waiting: list[_Case] = []
        held: set[str] = set()
        for topic_id, group in groups.items():
            cases = self._waiting(topic_id, group, problems)
            waiting += cases
            held |= {topic_id} if cases else set()
        self._custody.hold(held)
        saved = self._rescue(waiting, problems) if waiting else 0
        for topic_id, group in groups.items():
            if self._dropped.get(topic_id):
                self._tell(topic_id, group, problems)
        return saved

    def _waiting(
        self, topic_id: str, group: Sequence[LedgerEntry], problems: dict[str, str]
    ) -> list[_Case]:
        """The segments that are still to be looked through."""
        now, topic = self._now_ms(), group[0].metadata.topic
        known = self._dropped.get(topic_id, ())
        unseen = known and any(self._key(e, known) not in self._looked for e in group)
        if not unseen and now - self._read_at_ms.get(topic_id, -_LOOK_EVERY_MS) < _LOOK_EVERY_MS:
            return []
        try:
            reading = self._custody.read(topic, topic_id)
        except NotFound:
            return []
        except (TieringError, OSError) as error:
            problems.setdefault(topic, str(error))
            return []
        self._read_at_ms[topic_id] = now
        self._dropped[topic_id] = reading.dropped
        if not reading.dropped:
            return []
        return [
            _Case(entry=entry, reading=reading)
            for entry in sorted(group, key=lambda e: e.metadata.start_offset)
            if self._key(entry, reading.dropped) not in self._looked
        ]

    def _rescue(self, waiting: Sequence[_Case], problems: dict[str, str]) -> int:
        cases, taken = [], 0
        for case in waiting:
            if taken >= self._bytes_max:
                break
            taken += case.entry.metadata.size_bytes
            cases.append(case)
        tasks = [self._task(number, case) for number, case in enumerate(cases)]
        results = self._converter.rescue(tasks)
        self._reached("rescued")
        saved = 0
        for result in results:
            case = cases[result.task_id]
            try:
                saved += self._record(case, result, problems)
            except (TieringError, OSError) as error:
                problems[_where(case.entry)] = str(error)
        self._reached("rescue_recorded")
        return saved

    def _task(self, number: int, case: _Case) -> RescueTask:
        entry, reading = case.entry, case.reading
        return RescueTask(
            task_id=number,
            store_url=self._store_url,
            segment_path=entry.metadata.id.path,
            partition=entry.metadata.id.partition,
            side_keys=entry.side,
            retired=entry.state is SegmentState.RETIRED,
            metadata_location=reading.metadata_location,
            table=reading.state.identifier,
            io_properties=reading.io_properties,
            accepted=reading.accepted_of(entry.metadata.id.partition),
        )

    def _record(self, case: _Case, result: RescueResult, problems: dict[str, str]) -> bool:
        entry, dropped = case.entry, case.reading.dropped
        if result.failure is not None:
            reason = f"segment {entry.metadata.id.path}: {result.failure.reason}"
            problems[_where(entry)] = f"{reason}; what the dropped column held isn't saved yet"
            if result.failure.kind != "transient":
                self._looked[self._key(entry, dropped)] = reason
            return False
        told = None
        if result.lost:
            told = (
                f"segment {entry.metadata.id.path}: {result.lost} batches from offset "
                f"{result.lost_offset} on can't be given to Kafka's clients any more: no snapshot "
                "that is left has what the dropped column held of them"
            )
            if entry.state is not SegmentState.RETIRED:
                told += "; its native copy is kept and served"
            _log.error("%s", told)
        if result.side_key is None:
            self._looked[self._key(entry, dropped)] = told
            return False
        found = self._ledger.update(
            entry.metadata.id, partial(_switched, before=entry, side=(result.side_key,))
        )
        if found.side == (result.side_key,):
            self._looked[self._key(found, dropped)] = told
        _log.info("%s: %d batches saved from a dropped column", entry.metadata, result.saved)
        return True

    def _tell(self, topic_id: str, group: Sequence[LedgerEntry], problems: dict[str, str]) -> None:
        dropped, topic = self._dropped[topic_id], group[0].metadata.topic
        left = 0
        for entry in group:
            found = self._ledger_key(entry)
            told = self._looked.get((*found, dropped))
            if told is not None:
                problems.setdefault(_where(entry), told)
            left += (*found, dropped) not in self._looked
        what = "column " + dropped[0] if len(dropped) == 1 else "columns " + ", ".join(dropped)
        were = "was" if len(dropped) == 1 else "were"
        text = (
            f"{what} {were} dropped from the table: SQL sees it no more and new rows lack it, "
            "Kafka's clients still get everything. A column added under the same name is another "
            "one, which stays null"
        )
        if left:
            text += f"; {left} segments are being looked through: expire no snapshots until then"
        problems.setdefault(topic, text)

    @staticmethod
    def _ledger_key(entry: LedgerEntry) -> tuple[SegmentId, tuple[str, ...], bool]:
        return entry.metadata.id, entry.side, entry.state is SegmentState.RETIRED

    def _key(self, entry: LedgerEntry, dropped: tuple[str, ...]) -> _Looked:
        return (*self._ledger_key(entry), dropped)


def _has_rows(entry: LedgerEntry) -> bool:
    converted = entry.state is not SegmentState.UPLOADED and bool(entry.side)
    return converted and not entry.delete_requested


def _switched(entry: LedgerEntry, before: LedgerEntry, side: tuple[str, ...]) -> LedgerEntry:
    if entry.side != before.side or entry.state is SegmentState.UPLOADED:
        return entry  # converted again, or compacted, meanwhile
    if entry.state is SegmentState.RETIRED:
        return replace(entry, side=side)
    # There is a native log to compare it with.
    return replace(entry, state=SegmentState.CONVERTED, side=side, proof=None)


def _where(entry: LedgerEntry) -> str:
    return f"{entry.metadata.topic}-{entry.metadata.id.partition}"
