"""Rows that must go: of a log that was cut, and those that Kafka has deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tiering.engine.ports import Custody, Segments
from tiering.engine.proving import by_topic_id
from tiering.errors import FatalError, NotFound, TieringError
from tiering.ledger import LedgerEntry, SegmentState
from tiering.planning import Withdrawal, newest_epoch

__all__ = ["DueWithdrawal", "UpkeepStep"]

_log: Final = logging.getLogger(__name__)
_SWEEP_EVERY_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWithdrawal:
    """A withdrawal that planning asks for, and of which topic."""

    topic: str
    topic_id: str
    withdrawal: Withdrawal


class UpkeepStep:
    """Withdraws dead rows, expels what retention has taken, sweeps up leftovers."""

    def __init__(
        self,
        *,
        ledger: Segments,
        custody: Custody,
        now_ms: Callable[[], int],
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._custody = custody
        self._now_ms = now_ms
        self._reached = reached
        self._deleted: frozenset[object] = frozenset()
        self._swept_at_ms = 0

    def withdraw(
        self,
        due: Iterable[DueWithdrawal],
        entries: Sequence[LedgerEntry],
        problems: dict[str, str],
    ) -> int:
        """Take rows of a log that was cut out of the tables; returns of how many partitions."""
        done = 0
        for each in due:
            plan = each.withdrawal
            where = f"{each.topic}-{plan.partition}"
            try:
                self._withdraw(each, entries)
            except (TieringError, OSError) as error:
                problems[where] = str(error)
                _log.warning("%s: %s", where, error)
                continue
            _log.warning("%s: rows from offset %d withdrawn: %s", where, plan.offset, plan.reason)
            done += 1
        return done

    def _withdraw(self, each: DueWithdrawal, entries: Sequence[LedgerEntry]) -> None:
        plan = each.withdrawal
        mine = [e for e in entries if _is_hit(e, each)]
        for entry in mine:
            # It would have to be converted again, from a native log that is not there any more.
            if entry.state is SegmentState.RETIRED and newest_epoch(entry) >= plan.newest_epoch:
                raise FatalError(
                    f"{plan.reason}; but {entry.metadata}, of the surviving log, has no native "
                    "copy any more: nothing is withdrawn until somebody has looked"
                )
        reading = self._custody.read(each.topic, each.topic_id)
        # First the entries: a crash in between converts them again below a watermark that stands
        # where it stood, which brings no rows; the other way round they would pass as converted.
        for entry in mine:
            self._ledger.update(entry.metadata.id, partial(_uploaded_again, cut=plan.offset))
        self._reached("entries_withdrawn")
        self._custody.withdraw(reading, each.topic, plan.partition, plan.offset, plan.reason)
        self._reached("withdrawn")

    def expel(self, entries: Sequence[LedgerEntry], problems: dict[str, str]) -> int:
        """Let go of what the broker has deleted, as each topic's policy says; returns files."""
        deleted = frozenset(e.metadata.id for e in entries if e.delete_requested)
        now = self._now_ms()
        due = now - self._swept_at_ms >= _SWEEP_EVERY_MS
        if deleted == self._deleted and not due:
            return 0
        expelled, whole = 0, True
        for topic_id, group in by_topic_id(entries).items():
            if not any(e.delete_requested for e in group):
                continue
            topic = group[0].metadata.topic
            try:
                expelled += self._custody.expel(self._custody.read(topic, topic_id), topic, group)
            except NotFound:
                continue  # deleted before anything was converted
            except (TieringError, OSError) as error:
                problems[topic] = str(error)
                whole = False
        self._reached("expelled")
        if due:
            self._custody.sweep(entries)
            self._swept_at_ms = now
        if whole:
            self._deleted = deleted
        return expelled


def _is_hit(entry: LedgerEntry, each: DueWithdrawal) -> bool:
    meta, plan = entry.metadata, each.withdrawal
    mine = (meta.id.topic_id, meta.id.partition) == (each.topic_id, plan.partition)
    return mine and not entry.delete_requested and meta.end_offset >= plan.offset


def _uploaded_again(entry: LedgerEntry, cut: int) -> LedgerEntry:
    if entry.state is SegmentState.RETIRED:
        return entry.cut_at(cut)
    return entry if entry.state is SegmentState.UPLOADED else entry.withdrawn()
