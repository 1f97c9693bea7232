"""Cutting the task of a large segment into ranges, by the broker's OFFSET index.

An index entry (offset, position) says that a batch begins at `position` and that `offset` is the
last one of it, or of the run of batches that was appended with it (brokers before 4.0 write one
entry for a run). So, for an entry (O, P) and the position Q of the entry behind it:

- whatever lies before P has offsets at or below O, and
- whatever has offsets at or below O lies before Q.

A cut at (O, P) therefore gives offsets up to O with bytes up to Q to the one side, and offsets
from O + 1 on with bytes from P on to the other. The offsets are disjoint and complete; only the
bytes from P to Q, one interval of the index, are looked at twice. The same holds for whole batches
by their base offsets, for O is the last offset of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from segment_reader import CorruptSegment, OffsetIndex, parse_offset_index
from tiering.errors import NotFound
from tiering.ledger import LedgerEntry
from tiering.segments import SegmentId
from tiering.store import ObjectStore
from tiering.tasks import ConversionTask

__all__ = ["split_by_index", "split_task"]

_INDEX_PART: Final = "offset_index"


def split_task(
    task: ConversionTask, offset_index: OffsetIndex, split_bytes: int
) -> list[ConversionTask]:
    """Cut `task` into parts of about `split_bytes` of the log.

    Every offset of the task is in exactly one part. Parts keep the task's id, and its order. An
    empty index gives back the task as it is.

    A task that writes a side file keeps all bytes, and each batch is of exactly one part; a part
    may then have no offset of the task's. Any other leaves out bytes it doesn't need.
    """
    if task.side_prefix is None:
        return _split_rows(task, offset_index, split_bytes)
    return _split_batches(task, offset_index, split_bytes)


def _split_rows(
    task: ConversionTask, offset_index: OffsetIndex, split_bytes: int
) -> list[ConversionTask]:
    offsets, positions = offset_index.offset, offset_index.position
    low = int(np.searchsorted(offsets, task.from_offset - 1, side="right")) - 1
    high = int(np.searchsorted(offsets, task.to_offset - 1, side="left"))
    start = max(task.start_position, int(positions[low]) if low >= 0 else 0)
    end = _smaller(task.end_position, _position(offset_index, high + 1))
    parts: list[ConversionTask] = []
    rest = replace(task, start_position=start, end_position=end)
    for cut in _cuts(offset_index, start, end, split_bytes):
        border = int(offsets[cut]) + 1
        if not rest.from_offset < border < rest.to_offset:
            continue
        stop = _smaller(end, _position(offset_index, cut + 1))
        parts.append(replace(rest, to_offset=border, end_position=stop))
        rest = replace(rest, from_offset=border, start_position=int(positions[cut]))
    return [*parts, rest]


def _split_batches(
    task: ConversionTask, offset_index: OffsetIndex, split_bytes: int
) -> list[ConversionTask]:
    parts: list[ConversionTask] = []
    rest, end = task, task.end_position
    for cut in _cuts(offset_index, task.start_position, end, split_bytes):
        border = int(offset_index.offset[cut]) + 1
        low = max(rest.batches_from, task.segment_start_offset)
        if not low < border <= min(rest.batches_to - 1, task.segment_end_offset):
            continue
        stop = _smaller(end, _position(offset_index, cut + 1))
        parts.append(_with_rows(replace(rest, batches_to=border, end_position=stop), task))
        place = int(offset_index.position[cut])
        rest = replace(rest, batches_from=border, start_position=place)
    return [*parts, _with_rows(rest, task)]


def _with_rows(part: ConversionTask, task: ConversionTask) -> ConversionTask:
    """`part` with those of the task's offsets that are its own; none is an empty range within."""

    def near(border: int) -> int:
        return min(max(border, task.from_offset), task.to_offset)

    return replace(part, from_offset=near(part.batches_from), to_offset=near(part.batches_to))


def _cuts(
    offset_index: OffsetIndex, start: int, end: int | None, split_bytes: int
) -> Iterator[int]:
    """Entries of the index at about every `split_bytes` of the bytes from `start` to `end`."""
    positions = offset_index.position
    last = end if end is not None else int(positions[-1]) if len(positions) else start
    count = max(1, -(-(last - start) // split_bytes))
    wanted = start + (last - start) * np.arange(1, count) // count
    cuts = np.unique(np.searchsorted(positions, wanted, side="left"))
    yield from cuts[cuts < len(positions)].tolist()


def split_by_index(
    store: ObjectStore, split_bytes: int
) -> Callable[[ConversionTask, LedgerEntry], list[ConversionTask]]:
    """A function that cuts a ledger entry's task, if the segment is larger than `split_bytes`.

    Where the index is missing or damaged the task stays whole: its worker will say what is wrong.
    The function raises TransientError when the store does.
    """

    def split(task: ConversionTask, entry: LedgerEntry) -> list[ConversionTask]:
        place = entry.part_range(_INDEX_PART)
        if entry.metadata.size_bytes <= split_bytes or place is None:
            return [task]
        segment = SegmentId.parse(task.segment_path)
        try:
            data = store.get_range(segment.indexes_key, *place)
            index = parse_offset_index(data, segment.base_offset, name=segment.indexes_key)
        except (NotFound, CorruptSegment):
            return [task]
        return split_task(task, index, split_bytes)

    return split


def _position(index: OffsetIndex, entry: int) -> int | None:
    return int(index.position[entry]) if entry < len(index.position) else None


def _smaller(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
