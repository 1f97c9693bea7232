"""Reading row groups: which rows lie at which offsets, then the rows; ahead of time in a scan."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiering.offset_reader.deletes import DeletedRows
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.parquet_files import ParquetFiles, RowGroup
from tiering.offset_reader.topic_columns import Projection, TopicColumns

__all__ = ["OffsetRows", "RowGroupRead", "RowGroupReads", "RowGroupSource"]

Int64s = npt.NDArray[np.int64]
_OFFSETS_BATCH_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class OffsetRows:
    """Row numbers in a row group, ascending, and the Kafka offset at each of them."""

    rows: Int64s
    offsets: Int64s

    @property
    def rising(self) -> bool:
        """Whether the offsets rise strictly with the rows."""
        return bool(np.all(self.offsets[1:] > self.offsets[:-1]))

    def between(self, start: int, end: int) -> OffsetRows:
        """Only the rows with offsets in [start, end)."""
        inside = (self.offsets >= start) & (self.offsets < end)
        return self if inside.all() else OffsetRows(self.rows[inside], self.offsets[inside])


class RowGroupRead(Protocol):
    """A row group being read: ask for its offsets first, then once for its batches."""

    def offsets(self) -> OffsetRows:
        """The partition's rows that are not deleted."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows of the row group, in row order, projected."""

    def close(self) -> None:
        """Stop reading; what was read ahead is dropped."""


class RowGroupSource:
    """Decodes a partition's row groups in the calling thread."""

    def __init__(
        self,
        files: ParquetFiles,
        deletes: DeletedRows,
        columns: TopicColumns,
        projection: Projection,
        partition: int,
        limits: ReadLimits,
    ) -> None:
        """Read `partition` from `files`, without the rows in `deletes`."""
        self._files = files
        self._deletes = deletes
        self._columns = columns
        self._projection = projection
        self._partition = partition
        self._limits = limits

    def offsets(self, row_group: RowGroup) -> OffsetRows:
        """Read the offset column (and the partition column, where bounds leave it open)."""
        wanted = [self._columns.offset]
        mixed = not row_group.first_partition == row_group.last_partition == self._partition
        if mixed:
            wanted.append(self._columns.partition)
        columns: dict[int, list[Int64s]] = {field_id: [] for field_id in wanted}
        for batch, ids in self._files.decode(row_group, wanted, _OFFSETS_BATCH_ROWS):
            for field_id, column in zip(ids, batch.columns, strict=True):
                columns[field_id].append(_integers(column))
        joined = {field_id: _joined(parts) for field_id, parts in columns.items()}
        offsets = joined[self._columns.offset]
        chosen = offsets >= 0
        if mixed:
            chosen &= joined[self._columns.partition] == self._partition
        deleted = self._deletes.rows(row_group.file)
        if deleted is not None:
            here = deleted[deleted >= row_group.first_row] - row_group.first_row
            chosen[here[here < row_group.rows]] = False
        return OffsetRows(np.flatnonzero(chosen).astype(np.int64), offsets[chosen])

    def batches(self, row_group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Decode all rows, projected, in batches of about `batch_bytes`."""
        row_bytes = max(1, row_group.size_bytes // max(1, row_group.rows))
        batch_rows = max(1, min(self._limits.batch_bytes // row_bytes, _OFFSETS_BATCH_ROWS))
        # The offset column comes along so that a batch knows its length even where the file has
        # none of the columns asked for.
        wanted = {*self._projection.field_ids, self._columns.offset}
        for batch, ids in self._files.decode(row_group, tuple(wanted), batch_rows):
            yield self._projection.apply(batch, ids)


@dataclass(slots=True)
class _Direct:
    """Read when asked, in the asking thread."""

    source: RowGroupSource
    row_group: RowGroup

    def offsets(self) -> OffsetRows:
        return self.source.offsets(self.row_group)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.source.batches(self.row_group)

    def close(self) -> None:
        pass


class _Ahead:
    """Read by a background thread, at most `bytes_max` decoded bytes ahead of the taker."""

    def __init__(self, source: RowGroupSource, row_group: RowGroup, bytes_max: int) -> None:
        self._source = source
        self._row_group = row_group
        self._bytes_max = bytes_max
        self._offsets: Future[OffsetRows] = Future()
        self._ready: deque[pa.RecordBatch] = deque()
        self._ready_bytes = 0
        self._done = self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def run(self) -> None:
        """The background thread's part."""
        try:
            self._offsets.set_result(self._source.offsets(self._row_group))
            for batch in self._source.batches(self._row_group):
                if not self._put(batch):
                    break
        except BaseException as error:  # noqa: BLE001  # carried to the taker's thread
            self._error = error
            if not self._offsets.done():
                self._offsets.set_exception(error)
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def _put(self, batch: pa.RecordBatch) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ready_bytes < self._bytes_max)
            if self._closed:
                return False
            self._ready.append(batch)
            self._ready_bytes += batch.nbytes
            self._changed.notify_all()
        return True

    def offsets(self) -> OffsetRows:
        return self._offsets.result()

    def batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._done)
                if not self._ready:
                    break
                batch = self._ready.popleft()
                self._ready_bytes -= batch.nbytes
                self._changed.notify_all()
            yield batch
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()


class RowGroupReads:
    """Hands out reads of row groups; decodes announced ones in the background."""

    def __init__(
        self,
        source: RowGroupSource,
        limits: ReadLimits,
        is_scan: Callable[[], bool] = lambda: True,
    ) -> None:
        """Read from `source`; threads start with the first announcement.

        What is announced while it `is_scan` doesn't hold is not decoded ahead.
        """
        self._source = source
        self._limits = limits
        self._is_scan = is_scan
        self._ahead: dict[tuple[str, int], tuple[_Ahead, Future[None]]] = {}
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for read, _ in self._ahead.values():
            read.close()
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def announce(self, coming: Callable[[int], list[RowGroup]]) -> None:
        """Start to decode the row groups that are read next, by `coming(how many)`."""
        if not self._is_scan():
            return
        for row_group in coming(self._limits.read_ahead_row_groups):
            key = (row_group.file.path, row_group.number)
            if key in self._ahead:
                continue
            if len(self._ahead) >= self._limits.read_ahead_row_groups:
                return
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    self._limits.read_ahead_row_groups, thread_name_prefix="offset-reader"
                )
            read = _Ahead(self._source, row_group, self._limits.read_ahead_bytes)
            self._ahead[key] = (read, self._executor.submit(read.run))

    def open(self, row_group: RowGroup) -> RowGroupRead:
        """Begin to read `row_group`, from what was decoded ahead if it was announced."""
        announced = self._ahead.pop((row_group.file.path, row_group.number), None)
        # One that still waits for a thread is read directly: the threads may be waiting for this
        # very taker to make room.
        if announced is None or announced[1].cancel():
            return _Direct(self._source, row_group)
        return announced[0]


def _integers(column: Any) -> Int64s:
    """As int64; what another writer has left null is -1, which is nobody's."""
    known = column.fill_null(-1) if column.null_count else column
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=np.int64)


def _joined(parts: list[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
