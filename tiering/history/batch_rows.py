"""Which rows of a table belong to which batches of a segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batch_table import BatchTable, Kept
from tiering.history.table_records import NO_RECORDS, RecordCursor

__all__ = ["BatchRows"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """The rows of some consecutive batches, one for each offset.

    Attributes:
        records: RECORD_SCHEMA.
        borders: int64; of the batches that aren't `Kept.RAW`, the i-th one has the rows
            records[borders[i]:borders[i + 1]].
        counts: int64, how many records each of the batches has now.
        repeated: whether there were several rows for an offset of each of the batches.
        ignored: rows in the range that aren't Kafka's: of no batch, or repeating an offset.
    """

    records: pa.RecordBatch
    borders: Int64s
    counts: Int64s
    repeated: Bools
    ignored: int
    _batches: BatchTable
    _taken: pa.RecordBatch
    _outside: int

    @classmethod
    def take(cls, rows: RecordCursor, batches: BatchTable) -> Self:
        """Take what `batches` need from `rows`, and raise what that raises."""
        ranges = _Ranges(batches)
        if ranges.start == ranges.end:
            return cls._of(batches, NO_RECORDS, 0)
        taken = rows.take(ranges.start, ranges.end, ranges.hold)
        return cls._of(batches, taken, ranges.outside)

    @classmethod
    def _of(
        cls, batches: BatchTable, taken: pa.RecordBatch, outside: int, last: Bools | None = None
    ) -> Self:
        """Choose one of the rows of each offset: the first, or of the batches `last` the last."""
        raw = batches.kept == Kept.RAW
        offsets = taken.column("offset").to_numpy()
        bases = batches.headers.base_offset
        repeated = np.zeros(len(batches), np.bool_)
        records = taken
        same = offsets[1:] == offsets[:-1]
        if same.any():
            owners = np.searchsorted(bases, offsets, side="right") - 1
            repeated[owners[1:][same]] = True
            chosen = np.concatenate(([True], ~same))
            if last is not None:
                chosen = np.where(last[owners], np.concatenate((~same, [True])), chosen)
            records = taken.filter(pa.array(chosen))
            offsets = offsets[chosen]
        borders = np.append(np.searchsorted(offsets, bases[~raw]), len(offsets)).astype(np.int64)
        counts = batches.headers.count.copy()
        counts[~raw] = np.diff(borders)
        return cls(
            records=records,
            borders=borders,
            counts=counts,
            repeated=repeated,
            ignored=outside + taken.num_rows - records.num_rows,
            _batches=batches,
            _taken=taken,
            _outside=outside,
        )

    def with_last(self, batches: Bools) -> BatchRows:
        """The same, but of repeated rows in these batches the last one."""
        return BatchRows._of(self._batches, self._taken, self._outside, batches)


class _Ranges:
    """The offsets [start, end) of batches that need rows, and which of those are theirs."""

    def __init__(self, batches: BatchTable) -> None:
        headers = batches.headers
        needing = (batches.kept != Kept.RAW) & (headers.count > 0)
        self._bases, self._stops = headers.base_offset[needing], headers.last_offset[needing] + 1
        raw = batches.kept == Kept.RAW
        self._raw_bases, self._raw_stops = headers.base_offset[raw], headers.last_offset[raw] + 1
        self.start = int(self._bases[0]) if len(self._bases) else 0
        self.end = int(self._stops[-1]) if len(self._stops) else 0
        self.outside = 0
        """Rows that `hold` was asked about and that are of no batch."""

    def hold(self, offsets: Int64s) -> Bools:
        """Which of `offsets` (rising) are of a batch that needs rows; counts those of none."""
        mine = _inside(offsets, self._bases, self._stops)
        if not mine.all():
            self.outside += int((~mine & ~_inside(offsets, self._raw_bases, self._raw_stops)).sum())
        return mine


def _inside(offsets: Int64s, bases: Int64s, stops: Int64s) -> Bools:
    """Whether each of `offsets` is in one of the ranges [base, stop), which rise as they do."""
    lows, highs = np.searchsorted(offsets, bases), np.searchsorted(offsets, stops)
    if int((highs - lows).sum()) == len(offsets):
        return np.ones(len(offsets), np.bool_)
    steps = np.zeros(len(offsets) + 1, np.int64)
    np.add.at(steps, lows, 1)
    np.add.at(steps, highs, -1)
    inside: Bools = np.cumsum(steps)[:-1] > 0
    return inside
