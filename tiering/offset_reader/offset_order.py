"""Rows of one partition in offset order, from row groups whose offsets may overlap.

Row groups are taken by their first offset. One whose offsets rise and end before the next one
starts is streamed as it is decoded: the usual case, as files are sorted by offset. Otherwise the
row groups that overlap are gathered and sorted. When the rows of an overlap are more than fit
the bound, only those below a cut are kept, and the row groups are read again from there: memory
stays bounded whatever order the files are in, and time pays.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiering.offset_reader.file_index import FileRef
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.parquet_files import RowGroup
from tiering.offset_reader.row_group_reads import OffsetRows, RowGroupRead, RowGroupReads

__all__ = ["OrderedBatch", "RowGroupPlan", "in_offset_order"]

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """Some rows in offset order, and the offset of each."""

    batch: pa.RecordBatch
    offsets: Int64s


@dataclass(frozen=True, slots=True, order=True)
class _Pending:
    """A row group still to be read, from `start` on; `tie` keeps the order total."""

    start: int
    tie: int
    row_group: RowGroup


class RowGroupPlan:
    """The row groups to read for [start, end), by first offset; files are opened when due."""

    def __init__(
        self,
        files: Iterator[FileRef],
        row_groups: Callable[[FileRef], tuple[RowGroup, ...]],
        *,
        partition: int,
        start: int,
        end: int,
        keep: Callable[[RowGroup], bool] = lambda _: True,
    ) -> None:
        """Take `files`, which come by first offset, and of their `row_groups` those to `keep`."""
        self._files = files
        self._row_groups = row_groups
        self._partition = partition
        self._start = start
        self.end = end
        self._keep = keep
        self._next_file = next(files, None)
        self._pending: list[_Pending] = []
        self._ties = 0

    def next_offset(self) -> int | None:
        """No row that is still to come has a lower offset; None when none is to come.

        Opens no file.
        """
        heads = [self._pending[0].start] if self._pending else []
        if self._next_file is not None:
            heads.append(max(self._start, self._next_file.first_offset))
        return min(heads, default=None)

    def pop(self) -> _Pending | None:
        """Take the next row group; None at the end."""
        while self._next_file is not None and (
            not self._pending or self._next_file.first_offset <= self._pending[0].start
        ):
            self._open_next_file()
        return heapq.heappop(self._pending) if self._pending else None

    def push(self, row_group: RowGroup, start: int) -> None:
        """Put back a row group whose rows from `start` on are still to be read."""
        self._ties += 1
        heapq.heappush(self._pending, _Pending(start, self._ties, row_group))

    def coming(self, count: int) -> list[RowGroup]:
        """The next `count` row groups, as far as can be told, without taking them."""
        while self._next_file is not None and len(self._pending) < count:
            self._open_next_file()
        return [pending.row_group for pending in heapq.nsmallest(count, self._pending)]

    def _open_next_file(self) -> None:
        if self._next_file is None:
            return
        for row_group in self._row_groups(self._next_file):
            inside = row_group.last_offset >= self._start and row_group.first_offset < self.end
            mine = row_group.first_partition <= self._partition <= row_group.last_partition
            if inside and mine and row_group.rows and self._keep(row_group):
                self.push(row_group, max(self._start, row_group.first_offset))
        self._next_file = next(self._files, None)


@dataclass(slots=True)
class _Taken:
    """A row group of the current window."""

    row_group: RowGroup
    read: RowGroupRead
    rows: OffsetRows

    @property
    def row_bytes(self) -> float:
        return self.row_group.size_bytes / max(1, self.row_group.rows)


def in_offset_order(
    plan: RowGroupPlan, reads: RowGroupReads, limits: ReadLimits
) -> Iterator[OrderedBatch]:
    """Read what `plan` holds, in offset order; rows of equal offset come in no set order.

    Reading ahead starts with the second batch: a seek reads one row group and no more.
    """
    scanning = False
    while (pending := plan.pop()) is not None:
        window: list[_Taken] = []
        read = reads.open(pending.row_group)
        try:
            if scanning:
                reads.announce(plan.coming)
            window.append(_taken(read, pending, plan.end))
            for ordered in _window(plan, reads, window, limits):
                yield ordered
                if not scanning:
                    scanning = True
                    reads.announce(plan.coming)
        finally:
            read.close()
            for taken in window:
                taken.read.close()


def _taken(read: RowGroupRead, pending: _Pending, end: int) -> _Taken:
    try:
        return _Taken(pending.row_group, read, read.offsets().between(pending.start, end))
    except BaseException:
        read.close()
        raise


def _window(
    plan: RowGroupPlan, reads: RowGroupReads, window: list[_Taken], limits: ReadLimits
) -> Iterator[OrderedBatch]:
    first = window[0]
    if not len(first.rows.rows):
        return
    following = plan.next_offset()
    if first.rows.rising and (following is None or following > first.rows.offsets[-1]):
        yield from _picked(first)
        return
    cut = _fill(plan, reads, window, limits.gather_bytes)
    yield from _sorted(window, limits.batch_bytes)
    for taken in window:
        if taken.row_group.last_offset >= cut < plan.end:
            plan.push(taken.row_group, cut)


def _fill(plan: RowGroupPlan, reads: RowGroupReads, window: list[_Taken], bytes_max: int) -> int:
    """Add every row group that overlaps the window; return the offset that the window ends at.

    Lowers the cut whenever the rows below it would be more than `bytes_max`.
    """
    cut = _cut(window, plan.end, bytes_max)
    while True:
        highest = max((int(t.rows.offsets.max()) for t in window if len(t.rows.rows)), default=-1)
        following = plan.next_offset()
        if following is None or following >= cut or following > highest:
            return cut
        pending = plan.pop()
        if pending is None:
            return cut
        if pending.start > min(highest, cut - 1):
            # A file's bounds reached down here, none of its row groups does.
            plan.push(pending.row_group, pending.start)
            continue
        window.append(_taken(reads.open(pending.row_group), pending, cut))
        cut = _cut(window, cut, bytes_max)


def _cut(window: list[_Taken], cut: int, bytes_max: int) -> int:
    """Lower `cut` until the rows below it fit `bytes_max` (but never below one offset)."""
    if sum(t.row_bytes * len(t.rows.rows) for t in window) <= bytes_max:
        return cut
    offsets = np.concatenate([t.rows.offsets for t in window])
    weights = np.concatenate([np.full(len(t.rows.rows), t.row_bytes) for t in window])
    order = np.argsort(offsets, kind="stable")
    fitting = int(np.searchsorted(np.cumsum(weights[order]), bytes_max, side="right"))
    ranked = offsets[order]
    if fitting >= len(ranked):
        return cut
    lowered = max(int(ranked[fitting]), int(ranked[0]) + 1)
    for taken in window:
        taken.rows = taken.rows.between(0, lowered)
    return lowered


def _picked(taken: _Taken) -> Iterator[OrderedBatch]:
    """The chosen rows of one row group, in row order; decoding stops after the last of them."""
    rows, offsets = taken.rows.rows, taken.rows.offsets
    at = done = 0
    if not len(rows):
        return
    for batch in taken.read.batches():
        upto = int(np.searchsorted(rows, at + batch.num_rows))
        if upto > done:
            yield OrderedBatch(_rows_of(batch, rows[done:upto] - at), offsets[done:upto])
        done, at = upto, at + batch.num_rows
        if done == len(rows):
            return


def _rows_of(batch: pa.RecordBatch, rows: Int64s) -> pa.RecordBatch:
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return batch.slice(first, len(rows))
    return batch.take(pa.array(rows))


def _sorted(window: list[_Taken], batch_bytes: int) -> Iterator[OrderedBatch]:
    gathered = [ordered for taken in window for ordered in _picked(taken)]
    if not gathered:
        return
    offsets = np.concatenate([ordered.offsets for ordered in gathered])
    order = np.argsort(offsets, kind="stable")
    table = pa.Table.from_batches([ordered.batch for ordered in gathered]).combine_chunks()
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    step = max(1, batch_bytes // row_bytes)
    for begin in range(0, len(order), step):
        chosen = order[begin : begin + step]
        for batch in table.take(pa.array(chosen)).combine_chunks().to_batches():
            yield OrderedBatch(batch, offsets[chosen])
