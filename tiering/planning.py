"""What to convert next: a pure function of the ledger and the tables' watermarks.

Rules (their reasons: ARCHITECTURE.md, "Planning"):

1. Conversion takes only offsets at or above the partition's watermark.
2. Of several copies that hold the watermark's offset, the one of the newest leader epoch is taken,
   of these the one that reaches furthest; and only up to where a copy of a newer epoch begins.
3. A hole in the offsets is stepped over only to a segment that an *earlier* look has already
   seen: the service acknowledges copies in order, so by the second look every lower copy that
   exists has been listed.
4. A quarantined segment stops its partition where no other copy holds the offset; other
   partitions go on.
5. After an unclean election two lineages of leader epochs contradict each other, and the one with
   the newest epoch is the log. A copy that shows rows below the watermark to be dead asks for
   their withdrawal, also when it brings nothing new; a copy that is dead itself is passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tiering.ledger import LedgerEntry, SegmentState
from tiering.segments import SegmentId
from tiering.watermarks import Watermark

__all__ = [
    "PartitionPlan",
    "SegmentRange",
    "Stall",
    "Withdrawal",
    "contradicts",
    "epochs_until",
    "group_by_partition",
    "newest_epoch",
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
class Withdrawal:
    """Rows from `offset` on are of a log that is no more: they leave before anything is added.

    `newest_epoch` is that of the log which replaced it: what was written under it is alive.
    """

    partition: int
    offset: int
    newest_epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition's next step: ranges in offset order, and what stopped it if anything did.

    With a withdrawal there are no ranges: they are planned when it has been done.
    """

    partition: int
    watermark: Watermark | None
    ranges: tuple[SegmentRange, ...]
    stall: Stall | None = None
    withdrawal: Withdrawal | None = None


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
    epochs = watermark.leader_epochs if watermark else ()
    held = [e for e in entries if not e.delete_requested]
    live = [e for e in held if e.metadata.end_offset >= offset]
    ranges: list[SegmentRange] = []
    withdrawal = _first_dead_rows(held, epochs, offset)
    if withdrawal is not None:
        return PartitionPlan(
            partition=partition, watermark=watermark, ranges=(), withdrawal=withdrawal
        )
    stall: Stall | None = None
    taken_bytes = 0
    while taken_bytes < bytes_max:
        live = [e for e in live if not _is_dead(e, epochs, offset)]
        entry = _newest_copy(live, offset)
        if entry is None:
            jump = _next_start(live, offset, seen_before)
            if jump is None:
                stall = _stall_at(partition, live, offset)
                break
            offset = jump
            continue
        to_offset = _end_of_turn(entry, live, offset)
        ranges.append(SegmentRange(entry=entry, from_offset=offset, to_offset=to_offset))
        taken_bytes += entry.metadata.size_bytes
        offset = to_offset
        epochs = epochs_until(epochs, entry, offset)
    return PartitionPlan(
        partition=partition, watermark=watermark, ranges=tuple(ranges), stall=stall
    )


def contradicts(entry: LedgerEntry, epochs: tuple[tuple[int, int], ...], offset: int) -> bool:
    """Whether `entry` and the lineage `epochs` know an offset below `offset` differently."""
    return _first_difference(entry, epochs, offset) is not None


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


def newest_epoch(entry: LedgerEntry) -> int:
    """The newest leader epoch that a segment has offsets of; -1 without any."""
    return max((epoch for epoch, _ in entry.metadata.leader_epochs), default=-1)


def _is_convertible(entry: LedgerEntry) -> bool:
    """Whether there is a native log to convert."""
    return entry.quarantine is None and entry.state is not SegmentState.RETIRED


def _newest_copy(live: Sequence[LedgerEntry], offset: int) -> LedgerEntry | None:
    copies = [e for e in live if _is_convertible(e) and _holds(e, offset)]
    return max(
        copies,
        key=lambda e: (newest_epoch(e), e.metadata.end_offset, e.metadata.id),
        default=None,
    )


def _end_of_turn(entry: LedgerEntry, live: Sequence[LedgerEntry], offset: int) -> int:
    """Up to where `entry` is taken: its end, or where a copy of a newer epoch begins."""
    newer = (
        e.metadata.start_offset
        for e in live
        if _is_convertible(e)
        and e.metadata.start_offset > offset
        and newest_epoch(e) > newest_epoch(entry)
    )
    return min(entry.metadata.end_offset + 1, min(newer, default=entry.metadata.end_offset + 1))


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
        if _is_convertible(entry) or not _holds(entry, offset):
            continue
        where = f"segment {entry.metadata.id.path}"
        if entry.quarantine is not None:
            found = f"byte {entry.quarantine.position}: {entry.quarantine.reason}"
            reason = f"{where} is quarantined: {found}"
        else:
            reason = f"{where} is retired: there is no native log to convert its rows from again"
        return Stall(partition=partition, offset=offset, reason=reason)
    return None


def _first_dead_rows(
    held: Iterable[LedgerEntry], epochs: tuple[tuple[int, int], ...], offset: int
) -> Withdrawal | None:
    """The lowest dead row that a segment shows which has not come into the table."""
    pending = (e for e in held if e.state is SegmentState.UPLOADED)
    found = (_dead_rows(e, epochs, offset) for e in pending if e.metadata.start_offset < offset)
    return min((w for w in found if w is not None), key=lambda w: w.offset, default=None)


def _dead_rows(
    entry: LedgerEntry, epochs: tuple[tuple[int, int], ...], offset: int
) -> Withdrawal | None:
    """What `entry` shows of rows below `offset`, of lineage `epochs`, that are the log's no longer.

    Copies that share their newest epoch were made from one leader's log: they never contradict.
    """
    mark = _first_difference(entry, epochs, offset)
    if mark is None or newest_epoch(entry) <= epochs[-1][0]:
        return None
    reason = (
        f"segment {entry.metadata.id.path} has leader epoch "
        f"{_epoch_at(entry.metadata.leader_epochs, mark)} at offset {mark}, the table's rows there "
        f"were written under epoch {_epoch_at(epochs, mark)}: an unclean leader election replaced "
        "part of the log"
    )
    return Withdrawal(
        partition=entry.metadata.id.partition,
        offset=mark,
        newest_epoch=newest_epoch(entry),
        reason=reason,
    )


def _is_dead(entry: LedgerEntry, epochs: tuple[tuple[int, int], ...], offset: int) -> bool:
    """Whether the lineage `epochs` below `offset` shows `entry` to be of a log that was cut.

    Epochs never fall along a log: what has an older one behind `offset` is of another.
    """
    start = max(entry.metadata.start_offset, offset)
    epoch = _epoch_at(entry.metadata.leader_epochs, start)
    if epochs and epoch is not None and epoch < epochs[-1][0]:
        return True
    mark = _first_difference(entry, epochs, offset)
    return mark is not None and newest_epoch(entry) < epochs[-1][0]


def _first_difference(
    entry: LedgerEntry, epochs: tuple[tuple[int, int], ...], offset: int
) -> int | None:
    """The lowest offset below `offset` that `entry` and `epochs` know under different epochs."""
    theirs, start = entry.metadata.leader_epochs, entry.metadata.start_offset
    marks = {s for _, s in (*epochs, *theirs) if start <= s < offset} | {start}
    for mark in sorted(m for m in marks if m < offset):
        our_epoch, their_epoch = _epoch_at(epochs, mark), _epoch_at(theirs, mark)
        if None not in (our_epoch, their_epoch) and our_epoch != their_epoch:
            return mark
    return None


def _epoch_at(epochs: tuple[tuple[int, int], ...], offset: int) -> int | None:
    found = None
    for epoch, start in epochs:
        if start <= offset:
            found = epoch
    return found
