"""What is to be appended to a table, and what became of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tiering.errors import FatalError
from tiering.table.state import TableState
from tiering.tasks import DataFileEntry
from tiering.watermarks import Watermark

__all__ = ["AppendOutcome", "TableAppend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAppend:
    """What one cycle adds to one table.

    Attributes:
        identifier: (namespace..., table name).
        topic, topic_id: whose table it must be.
        cycle_id: unique among all cycles of all tierers, ever.
        base: the reading of the table that the plan was made from.
        expected: the watermark in `base` of each partition that moves (None: it had none).
        moved: the new watermark of each of them.
        files: the data files that bring the rows between the two; may be missing or empty.

    Raises FatalError when the files contradict the watermarks: they were about to be committed.
    """

    identifier: tuple[str, ...]
    topic: str
    topic_id: str
    cycle_id: str
    base: TableState
    expected: Mapping[int, Watermark | None]
    moved: Mapping[int, Watermark]
    files: Mapping[int, tuple[DataFileEntry, ...]]

    def __post_init__(self) -> None:
        if not self.moved or self.expected.keys() != self.moved.keys():
            raise FatalError(f"{self}: expected and moved must name the same partitions, not none")
        if not self.files.keys() <= self.moved.keys():
            raise FatalError(f"{self}: files of a partition whose watermark does not move")
        paths = [entry.path for entries in self.files.values() for entry in entries]
        if len(paths) != len(set(paths)):
            raise FatalError(f"{self}: the same data file is named twice")
        for partition, mark in self.moved.items():
            self._check_partition(partition, mark)

    def __str__(self) -> str:
        return f"append of cycle {self.cycle_id} to {'.'.join(self.identifier)} ({self.topic})"

    def _check_partition(self, partition: int, mark: Watermark) -> None:
        expected = self.expected[partition]
        start = 0 if expected is None else expected.offset
        if mark.offset < start:
            raise FatalError(f"{self}: partition {partition} moves back, {start} to {mark.offset}")
        entries = sorted(self.files.get(partition, ()), key=lambda e: e.first_offset)
        for entry in entries:
            inside = start <= entry.first_offset <= entry.last_offset < mark.offset
            if entry.kafka_partition != partition or not inside:
                raise FatalError(
                    f"{self}: data file {entry.path} holds partition {entry.kafka_partition}, "
                    f"offsets {entry.first_offset}..{entry.last_offset}; planned were partition "
                    f"{partition}, offsets {start}..{mark.offset - 1}"
                )
        for left, right in pairwise(entries):
            # With a partition spec one range of offsets may be spread over several files.
            if not left.partition and left.last_offset >= right.first_offset:
                raise FatalError(f"{self}: data files {left.path} and {right.path} overlap")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOutcome:
    """What became of an append: which partitions landed in which snapshot, which had moved."""

    snapshot_id: int | None
    landed: frozenset[int]
    dropped: frozenset[int]
