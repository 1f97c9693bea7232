"""Proven -> retired -> native objects gone.

Retirement is one conditional write of the ledger object: from that instant table and side file
are the authority. It asks a fresh reading of the table: the files that hold the segment's rows
must be the very ones that the proof has read, and be there. Files never change, so that is as good
as comparing the rows again; where they have changed the segment is proven again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tiering.engine.ports import Custody, Segments
from tiering.engine.proving import by_topic_id
from tiering.errors import NotFound, TieringError
from tiering.ledger import LedgerEntry, SegmentState
from tiering.segments import SegmentId
from tiering.table.reading import TableReading

__all__ = ["RetireStep", "RetiringReport"]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiringReport:
    """What one pass retired: segments, and the native bytes that went."""

    segments: int = 0
    native_bytes: int = 0


class RetireStep:
    """Lets the native log of proven segments go when their grace is over."""

    def __init__(
        self,
        *,
        ledger: Segments,
        custody: Custody,
        grace_ms: int,
        now_ms: Callable[[], int],
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._custody = custody
        self._grace_ms = grace_ms
        self._now_ms = now_ms
        self._reached = reached

    def run(self, entries: Sequence[LedgerEntry], problems: dict[str, str]) -> RetiringReport:
        """One pass. Raises TransientError when the store is out."""
        retired: list[LedgerEntry] = []
        for topic_id, group in by_topic_id(entries).items():
            due = [e for e in group if self._is_due(e) and not _waits_below(e, group)]
            if due:
                retired += self._retire_all(topic_id, due, problems)
        # Also those that were retired by a process which ended before their objects had gone.
        gone = [*retired, *(e for e in entries if _has_leftover_native(e))]
        for entry in gone:
            self._delete_native(entry.metadata.id)
        return RetiringReport(
            segments=len(retired), native_bytes=sum(e.metadata.size_bytes for e in gone)
        )

    def _is_due(self, entry: LedgerEntry) -> bool:
        if entry.state is not SegmentState.PROVEN or entry.proof is None:
            return False
        waiting = entry.delete_requested or entry.quarantine is not None
        return not waiting and self._now_ms() - entry.proof.proven_at_ms >= self._grace_ms

    def _retire_all(
        self, topic_id: str, due: Iterable[LedgerEntry], problems: dict[str, str]
    ) -> list[LedgerEntry]:
        retired: list[LedgerEntry] = []
        reading: TableReading | None = None
        for entry in sorted(due, key=lambda e: e.metadata.id):
            topic = entry.metadata.topic
            try:
                if reading is None:
                    reading = self._custody.read(topic, topic_id)
                    if reading.state.flagged is not None:
                        problems[topic] = reading.state.flagged
                        return retired
                    self._custody.announce(reading, topic_id)
                if self._retire(entry, reading):
                    retired.append(entry)
            except (TieringError, OSError) as error:
                problems[f"{topic}-{entry.metadata.id.partition}"] = str(error)
        return retired

    def _retire(self, entry: LedgerEntry, reading: TableReading) -> bool:
        meta, proof = entry.metadata, entry.proof
        coverage = self._custody.coverage(
            reading, meta.id.partition, meta.start_offset, meta.end_offset + 1
        )
        if proof is None or coverage != proof.coverage:
            _log.info("%s: the table's files have changed, proving it again", meta)
            self._ledger.update(meta.id, _unproven)
            return False
        self._reached("retiring")

        def retire(found: LedgerEntry) -> LedgerEntry:
            same = found.state is SegmentState.PROVEN and found.proof == proof
            if not same or found.side != entry.side or found.quarantine is not None:
                return found
            return replace(found, state=SegmentState.RETIRED)

        found = self._ledger.update(meta.id, retire)
        self._reached("retired")
        return found.state is SegmentState.RETIRED

    def _delete_native(self, segment: SegmentId) -> None:
        self._custody.delete_native(segment)
        self._reached("native_deleted")
        try:
            self._ledger.update(segment, lambda found: replace(found, native_gone=True))
        except NotFound:
            _log.info("segment %s: its ledger object is gone", segment.path)


def _has_leftover_native(entry: LedgerEntry) -> bool:
    return entry.state is SegmentState.RETIRED and not entry.native_gone


def _waits_below(entry: LedgerEntry, group: Iterable[LedgerEntry]) -> bool:
    """Whether a segment that begins lower is not proven yet.

    Should its proof fail, all rows from its start on are withdrawn: their native logs must be
    there then.
    """
    return any(
        other.state is SegmentState.CONVERTED
        and not other.delete_requested
        and other.metadata.id.partition == entry.metadata.id.partition
        and other.metadata.start_offset <= entry.metadata.start_offset
        for other in group
    )


def _unproven(entry: LedgerEntry) -> LedgerEntry:
    if entry.state is not SegmentState.PROVEN:
        return entry
    return replace(entry, state=SegmentState.CONVERTED, proof=None)
