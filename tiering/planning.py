"""What to convert next: a pure function of the ledger and the tables' watermarks.

Rules (their reasons: ARCHITECTURE.md, "Planning"):

1. Conversion takes only offsets at or above the partition's watermark.
2. Of several copies that hold the watermark's offset, the one that reaches furthest is taken.
3. A hole in the offsets is stepped over only to a segment that an *earlier* look has already
   seen: the service acknowledges copies in order, so by the second look every lower copy that
   exists has been listed.
4. A quarantined segment stops its partition where no other copy holds the offset; other
   partitions go on.
5. A copy whose leader epochs contradict those below the watermark stops its partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tiering.ledger import LedgerEntry
from tiering.segments import SegmentId
from tiering.watermarks import Watermark

__all__ = [
    "PartitionPlan",
    "SegmentRange",
    "Stall",
    "epochs_until",
    "group_by_partition",
    "plan_partition",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """Offsets [from_offset, to_offset) to take from one segment."""

    entry: LedgerEntry
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why a partition can't go on beyond `offset` without somebody's help."""

    partition: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition's next step: ranges in offset order, and what stopped it if anything did."""

    partition: int
    watermark: Watermark | None
    ranges: tuple[SegmentRange, ...]
    stall: Stall | None = None


def plan_partition(
    partition: int,
    entries: Iterable[LedgerEntry],
    watermark: Watermark | None,
    *,
    seen_before: Collection[SegmentId],
    bytes_max: int,
) -> PartitionPlan:
    """Plan one partition of one topic id.

    Args:
        entries: all ledger entries of the partition.
        watermark: where the table stands, None before the first conversion.
        seen_before: ids that an earlier look at the ledger had already found.
        bytes_max: native bytes after which the plan is cut (one segment is always taken).
    """
    offset = watermark.offset if watermark else -1
    live = [e for e in entries if not e.delete_requested and e.metadata.end_offset >= offset]
    epochs = watermark.leader_epochs if watermark else ()
    ranges: list[SegmentRange] = []
    stall: Stall | None = None
    taken_bytes = 0
    while taken_bytes < bytes_max:
        entry = _furthest_copy(live, offset)
        if entry is None:
            jump = _next_start(live, offset, seen_before)
            if jump is None:
                stall = _stall_at(partition, live, offset)
                break
            offset = jump
            continue
        conflict = _epoch_conflict(entry, epochs, offset)
        if conflict is not None:
            stall = Stall(partition=partition, offset=offset, reason=conflict)
            break
        to_offset = entry.metadata.end_offset + 1
        ranges.append(SegmentRange(entry=entry, from_offset=offset, to_offset=to_offset))
        taken_bytes += entry.metadata.size_bytes
        offset = to_offset
        epochs = epochs_until(epochs, entry, offset)
    return PartitionPlan(
        partition=partition, watermark=watermark, ranges=tuple(ranges), stall=stall
    )


def epochs_until(
    epochs: tuple[tuple[int, int], ...], entry: LedgerEntry, offset: int
) -> tuple[tuple[int, int], ...]:
    """The lineage `epochs` continued by those of `entry` that start below `offset`."""
    newest = epochs[-1][0] if epochs else -1
    added = ((e, s) for e, s in entry.metadata.leader_epochs if e > newest and s < offset)
    return (*epochs, *added)


def group_by_partition(entries: Iterable[LedgerEntry]) -> Mapping[int, Sequence[LedgerEntry]]:
    """Entries by partition number, each in the order given."""
    groups: dict[int, list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.metadata.id.partition, []).append(entry)
    return groups


def _holds(entry: LedgerEntry, offset: int) -> bool:
    return entry.metadata.start_offset <= offset <= entry.metadata.end_offset


def _furthest_copy(live: Sequence[LedgerEntry], offset: int) -> LedgerEntry | None:
    copies = [e for e in live if e.quarantine is None and _holds(e, offset)]
    return max(copies, key=lambda e: (e.metadata.end_offset, e.metadata.id), default=None)


def _next_start(
    live: Sequence[LedgerEntry], offset: int, seen_before: Collection[SegmentId]
) -> int | None:
    """Where the next segment above `offset` starts, if the hole before it may be stepped over."""
    if any(_holds(e, offset) for e in live):
        return None
    above = min(
        (e for e in live if e.metadata.start_offset > offset),
        key=lambda e: e.metadata.start_offset,
        default=None,
    )
    if above is None or above.metadata.id not in seen_before:
        return None
    return above.metadata.start_offset


def _stall_at(partition: int, live: Sequence[LedgerEntry], offset: int) -> Stall | None:
    for entry in live:
        if entry.quarantine is not None and _holds(entry, offset):
            return Stall(
                partition=partition,
                offset=offset,
                reason=f"segment {entry.metadata.id.path} is quarantined: "
                f"byte {entry.quarantine.position}: {entry.quarantine.reason}",
            )
    return None


def _epoch_conflict(
    entry: LedgerEntry, epochs: tuple[tuple[int, int], ...], offset: int
) -> str | None:
    """Say how `entry` contradicts the epochs of what is already in the table below `offset`."""
    theirs = entry.metadata.leader_epochs
    start = entry.metadata.start_offset
    marks = {s for _, s in (*epochs, *theirs) if start <= s < offset} | {start}
    for mark in sorted(m for m in marks if m < offset):
        ours_epoch, their_epoch = _epoch_at(epochs, mark), _epoch_at(theirs, mark)
        if None not in (ours_epoch, their_epoch) and ours_epoch != their_epoch:
            return (
                f"segment {entry.metadata.id.path} has leader epoch {their_epoch} at offset "
                f"{mark}, the table's rows there were written under epoch {ours_epoch}: an "
                "unclean leader election replaced part of the log"
            )
    return None


def _epoch_at(epochs: tuple[tuple[int, int], ...], offset: int) -> int | None:
    found = None
    for epoch, start in epochs:
        if start <= offset:
            found = epoch
    return found
