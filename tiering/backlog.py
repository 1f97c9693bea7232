"""What of the ledger is still to convert: by topic, and how much. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tiering.ledger import LedgerEntry, SegmentState
from tiering.planning import group_by_partition

__all__ = [
    "Backlog",
    "backlog_by_topic",
    "count_pending_partitions",
    "is_pending",
    "pending_topics",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What of a topic was still to convert when the cycle began."""

    watermark_lag_offsets: int
    pending_segments: int
    quarantined: int


def is_pending(entry: LedgerEntry) -> bool:
    return entry.state is SegmentState.UPLOADED and not entry.delete_requested


def count_pending_partitions(entries: Iterable[LedgerEntry]) -> int:
    return len(
        {(e.metadata.id.topic_id, e.metadata.id.partition) for e in entries if is_pending(e)}
    )


def pending_topics(
    entries: Iterable[LedgerEntry],
) -> list[tuple[str, str, list[LedgerEntry]]]:
    """(topic, topic id, all entries) of every topic id that has something to convert.

    Older topic ids come first, so that of a topic that was deleted and made again the former
    table is there to be renamed before the new one takes the name.
    """
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.metadata.id.topic_id, []).append(entry)
    return [
        (group[0].metadata.topic, topic_id, group)
        for topic_id, group in sorted(
            groups.items(), key=lambda item: (min(e.uploaded_at_ms for e in item[1]), item[0])
        )
        if any(is_pending(e) for e in group)
    ]


def backlog_by_topic(entries: Iterable[LedgerEntry]) -> dict[str, Backlog]:
    """Per topic, from the ledger alone: copies that overlap count once for their offsets."""
    topics: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        if not entry.delete_requested:
            topics.setdefault(entry.metadata.topic, []).append(entry)
    return {
        topic: Backlog(
            watermark_lag_offsets=sum(
                _offsets_pending(group) for group in group_by_partition(held).values()
            ),
            pending_segments=sum(is_pending(e) for e in held),
            quarantined=sum(e.quarantine is not None for e in held),
        )
        for topic, held in topics.items()
    }


def _offsets_pending(entries: Sequence[LedgerEntry]) -> int:
    """Offsets of pending segments that no converted segment of the partition reaches."""
    pending = [e.metadata for e in entries if is_pending(e)]
    if not pending:
        return 0
    reached = max((e.metadata.end_offset + 1 for e in entries if not is_pending(e)), default=0)
    first = max(min(m.start_offset for m in pending), reached)
    return max(0, max(m.end_offset for m in pending) + 1 - first)
