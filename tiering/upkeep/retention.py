"""Which data files hold nothing but rows that Kafka and the topic's policy have given up. Pure.

Rows go file by file. A row is given up when it lies below its partition's *floor*: where the
lowest segment that Kafka still has begins, or behind the highest deleted one when it has none. A
file leaves when all its rows are given up, in each partition that it may hold; one that
straddles a floor waits. Under a duration its newest timestamp must be older than that, too.

The broker also deletes a copy that failed half-way, to make it again under a new id. If its rows
had come into the table by then, they are wanted again. Only the last segments of a partition
without any live one can be such a copy. So where nothing is live, the watermark goes back with
the rows that leave, and a new copy is converted whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiering.ledger import LedgerEntry
from tiering.offset_reader.file_index import FileIndex, FileRef
from tiering.table.replace_plan import TableReplacement
from tiering.table.state import TableState
from tiering.watermarks import Watermark

__all__ = ["Expulsion", "Floor", "floors", "plan_expulsion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Rows of a partition below `offset` are Kafka's no more; `live`: it still has later ones."""

    offset: int
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Expulsion:
    """The files to take out, and the watermarks to set back in the same commit.

    Attributes:
        files: by location.
        moved: new watermark by partition; none where a live segment bounds the rows that left.
    """

    files: tuple[FileRef, ...]
    moved: Mapping[int, Watermark]

    def replacement(
        self, base: TableState, *, topic: str, cycle_id: str, reason: str
    ) -> TableReplacement | None:
        """The commit that does it; None when there is nothing to do."""
        if not self.files:
            return None
        return TableReplacement(
            identifier=base.identifier,
            topic=topic,
            topic_id=base.topic_id,
            cycle_id=cycle_id,
            base=base,
            expected={partition: base.watermarks.get(partition) for partition in self.moved},
            moved=self.moved,
            removed=frozenset(file.path for file in self.files),
            reason=reason,
        )


def floors(entries: Iterable[LedgerEntry], watermarks: Mapping[int, Watermark]) -> dict[int, Floor]:
    """{partition: floor}; partitions without a segment or a watermark have none.

    Args:
        entries: all ledger entries of one topic id.
        watermarks: of its table; a floor never lies above them.
    """
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for entry in entries:
        meta = entry.metadata
        partition = meta.id.partition
        if entry.delete_requested:
            ends[partition] = max(ends.get(partition, 0), meta.end_offset + 1)
        else:
            starts[partition] = min(starts.get(partition, meta.start_offset), meta.start_offset)
    return {
        partition: Floor(
            offset=min(starts.get(partition, ends.get(partition, 0)), mark.offset),
            live=partition in starts,
        )
        for partition, mark in watermarks.items()
        if partition in starts or partition in ends
    }


def plan_expulsion(
    index: FileIndex,
    entries: Iterable[LedgerEntry],
    watermarks: Mapping[int, Watermark],
    *,
    outlive_ms: int | None,
    now_ms: int,
) -> Expulsion:
    """What one topic id's table can let go of.

    Args:
        index: the data files of the table's current snapshot.
        entries: all ledger entries of the topic id, deleted ones too.
        watermarks: of the same snapshot.
        outlive_ms: how long rows outlive their timestamps (`config.retention_ms`); 0: not at
            all once Kafka has deleted them, None: forever.
    """
    if outlive_ms is None:
        return Expulsion(files=(), moved={})
    known = floors(entries, watermarks)
    oldest_us = (now_ms - outlive_ms) * 1000 if outlive_ms else None
    dead = {
        file.path: file
        for partition, floor in known.items()
        for file in index.files(partition, 0, floor.offset)
        if _is_dead(file, known) and _is_older(file, oldest_us)
    }
    return Expulsion(
        files=tuple(dead[path] for path in sorted(dead)),
        moved=_set_back(index, dead, known, watermarks),
    )


def _is_dead(file: FileRef, known: Mapping[int, Floor]) -> bool:
    """Whether every row that the file may hold lies below its partition's floor."""
    partitions = range(file.first_partition, file.last_partition + 1)
    if len(partitions) > len(known):
        return False
    found = [known.get(partition) for partition in partitions]
    return all(floor is not None and file.last_offset < floor.offset for floor in found)


def _is_older(file: FileRef, oldest_us: int | None) -> bool:
    """Whether all timestamps lie before `oldest_us`. A file without any never gets that old."""
    if oldest_us is None:
        return True
    return file.last_timestamp_us is not None and file.last_timestamp_us < oldest_us


def _set_back(
    index: FileIndex,
    dead: Mapping[str, FileRef],
    known: Mapping[int, Floor],
    watermarks: Mapping[int, Watermark],
) -> dict[int, Watermark]:
    """Watermarks of partitions without a live segment: behind the last row that stays."""
    touched = {
        partition
        for file in dead.values()
        for partition in range(file.first_partition, file.last_partition + 1)
        if not known[partition].live
    }
    moved = {}
    for partition in sorted(touched):
        first = min(f.first_offset for f in index.files(partition) if f.path in dead)
        stay = [f.last_offset + 1 for f in index.files(partition) if f.path not in dead]
        back = max(first, *stay) if stay else first
        mark = watermarks[partition]
        if back < mark.offset:
            moved[partition] = mark.until(back)
    return moved
