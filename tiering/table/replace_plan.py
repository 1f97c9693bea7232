"""What is to be taken out of a table, or exchanged in it, and what became of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiering.errors import FatalError
from tiering.table.state import TableState
from tiering.tasks import DataFileEntry
from tiering.watermarks import Watermark

__all__ = ["ReplaceOutcome", "TableReplacement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReplacement:
    """Data files that leave a table, those that hold what remains of them, and marks set back.

    Attributes:
        identifier: (namespace..., table name).
        topic, topic_id: whose table it must be.
        cycle_id: unique among all cycles of all tierers, ever.
        base: the reading of the table that the plan was made from.
        expected: the watermark in `base` of each partition that moves (None: it had none).
        moved: the new watermark of each of them, never above the expected one; may be empty.
        removed: locations of the data files that leave.
        added: data files with those of their rows that stay.
        reason: why, in words; kept in the snapshot's summary.

    Raises FatalError when it contradicts itself: it was about to be committed.
    """

    identifier: tuple[str, ...]
    topic: str
    topic_id: str
    cycle_id: str
    base: TableState
    expected: Mapping[int, Watermark | None]
    moved: Mapping[int, Watermark]
    removed: frozenset[str]
    added: tuple[DataFileEntry, ...] = ()
    reason: str

    def __post_init__(self) -> None:
        if self.expected.keys() != self.moved.keys():
            raise FatalError(f"{self}: expected and moved must name the same partitions")
        if not self.removed and (self.added or not self.moved):
            raise FatalError(f"{self}: nothing is removed")
        paths = [entry.path for entry in self.added]
        if len(paths) != len(set(paths)) or not self.removed.isdisjoint(paths):
            raise FatalError(f"{self}: the same data file is named twice")
        for partition, mark in self.moved.items():
            expected = self.expected[partition]
            if expected is None or mark.offset > expected.offset:
                raise FatalError(f"{self}: partition {partition} would step over rows")
        marks = {**self.base.watermarks, **self.moved}
        for entry in self.added:
            held = marks.get(entry.kafka_partition)
            if held is None or entry.last_offset >= held.offset:
                raise FatalError(
                    f"{self}: data file {entry.path} holds offset {entry.last_offset} of partition "
                    f"{entry.kafka_partition}, whose watermark is {held.offset if held else 'none'}"
                )

    def __str__(self) -> str:
        return (
            f"replacement of cycle {self.cycle_id} in {'.'.join(self.identifier)} ({self.topic}; "
            f"{self.reason})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceOutcome:
    """What a replacement did.

    Attributes:
        snapshot_id: the snapshot it made.
        removed_files, removed_rows: what left, rows as the files had them.
        added_files, added_rows: what came in their place.
    """

    snapshot_id: int
    removed_files: int
    removed_rows: int
    added_files: int
    added_rows: int
