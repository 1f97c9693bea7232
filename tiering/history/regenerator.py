"""A segment's batches from the table's rows and its side file, checked digest by digest.

Goes run by run: some consecutive batches, whose record bytes fit a bound, are encoded in one call
and compared with what was written down of them when they were converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from segment_reader.batch_table import BatchTable, Kept
from segment_reader.batches import BatchHeaders
from segment_reader.regeneration import EncodedRecords, RecordEncoder
from tiering.errors import TieringError
from tiering.history.batch_rows import BatchRows
from tiering.history.table_records import RecordCursor
from tiering.side_files import SideFile

__all__ = ["RUN_BYTES", "HistoryMismatch", "RegeneratedRun", "Regenerator"]

RUN_BYTES: Final = 6 * 1024 * 1024
"""Record bytes of a run; one batch may be larger."""

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


class HistoryMismatch(TieringError):
    """The table and the side file don't give the batch that was once converted.

    Somebody has changed or deleted its rows, dropped a column, or an object is damaged.

    Attributes:
        batch: its index in the side file.
        offset: its base offset.
        reason: what is wrong, without the two.
    """

    def __init__(self, reason: str, *, batch: int, offset: int) -> None:
        super().__init__(f"batch {batch} at offset {offset}: {reason}")
        self.batch = batch
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RegeneratedRun:
    """Some consecutive batches.

    Attributes:
        first: index of the first one in the side file.
        headers: as in the log, but for the CRC; `headers.count` is the original's too.
        counts: int64, records that each batch has now: fewer where rows were deleted.
        records: their record bytes, decompressed.
        deleted_rows: how many records the table has no rows for any more.
        ignored_rows: rows among them that aren't Kafka's: another writer has put them there, at
            offsets of no batch or once more at an offset.
        faults: of the batches that aren't what they were, in their order; of `marked` runs only.
    """

    first: int
    headers: BatchHeaders
    counts: Int64s
    records: EncodedRecords
    deleted_rows: int = 0
    ignored_rows: int = 0
    faults: tuple[HistoryMismatch, ...] = ()

    def __len__(self) -> int:
        return len(self.headers)


class Regenerator:
    """Regenerates the batches of one segment. For one thread."""

    def __init__(
        self,
        side: SideFile,
        rows: RecordCursor,
        *,
        rows_may_miss: bool = False,
        accepted: Sequence[tuple[int, int]] = (),
        run_bytes: int = RUN_BYTES,
        encoder: RecordEncoder | None = None,
        own_memory: bool = True,
    ) -> None:
        """Take the rows that are needed from `rows`, which other segments may use before and after.

        With `rows_may_miss` a batch some of whose rows are gone (SQL DELETE, retention) is made
        of those that are there, unchecked: its digest says nothing of less than all. Otherwise
        that is a mismatch. So is every batch made, unchecked, that has offsets in one of the
        `accepted` ranges (first, after the last): somebody has seen that its rows were changed.
        An `encoder` may be shared by the regenerators of one thread. Without `own_memory` a run's
        records are good until the next run, which saves copying them.
        """
        self._side = side
        self._rows = rows
        self._rows_may_miss = rows_may_miss
        self._accepted = tuple(accepted)
        self._run_bytes = run_bytes
        self._encoder = RecordEncoder() if encoder is None else encoder
        self._own_memory = own_memory

    def runs(self, first: int = 0, stop: int | None = None) -> Iterator[RegeneratedRun]:
        """The batches [first, stop) by index, in runs of up to `run_bytes` of records.

        Rows are read for offsets that need any, once. Raises HistoryMismatch at the first batch
        that isn't what it was, when all before it have been given; and what the rows and the side
        file raise.
        """
        for run in self.marked(first, stop):
            if not run.faults:
                yield run
                continue
            fault = run.faults[0]
            if fault.batch > run.first:
                yield _beginning(run, fault.batch - run.first)
            raise fault

    def marked(self, first: int = 0, stop: int | None = None) -> Iterator[RegeneratedRun]:
        """As `runs`, but goes on behind batches that aren't what they were: these are among the
        run's batches, with whatever their rows give, and named in its `faults`."""
        sizes = self._side.batches.records_size
        stop = len(sizes) if stop is None else stop
        ends = np.cumsum(sizes[first:stop])
        at = first
        while at < stop:
            given = int(ends[at - first - 1]) if at > first else 0
            fitting = int(np.searchsorted(ends, given + self._run_bytes, side="right"))
            upto = max(at + 1, first + fitting)
            yield self._run(at, upto)
            at = upto

    def _run(self, first: int, stop: int) -> RegeneratedRun:
        batches = self._side.batches.slice(slice(first, stop))
        kept: Sequence[bytes | None] = ()
        if (batches.kept != Kept.ROWS).any():
            kept = self._side.kept_bytes(first, stop)
        rows = BatchRows.take(self._rows, batches)
        records = self._records(batches, rows, kept)
        bad = self._differing(batches, rows, records)
        if bad.any() and rows.repeated.any():
            # Which of the rows with one offset is Kafka's? Where the first isn't, try the last.
            rows = rows.with_last(bad & rows.repeated)
            records = self._records(batches, rows, kept)
            bad = self._differing(batches, rows, records)
        return RegeneratedRun(
            first=first,
            headers=batches.headers,
            counts=rows.counts,
            records=records,
            deleted_rows=_deleted(batches.headers, rows.counts),
            ignored_rows=rows.ignored,
            faults=tuple(
                self._mismatch(first, batches, rows, i) for i in np.flatnonzero(bad).tolist()
            ),
        )

    def _records(
        self, batches: BatchTable, rows: BatchRows, kept: Sequence[bytes | None]
    ) -> EncodedRecords:
        """All batches' record bytes."""
        raw = batches.kept == Kept.RAW
        chosen = batches.headers.take(~raw) if raw.any() else batches.headers
        deltas = None
        if (batches.kept == Kept.DELTAS).any():
            deltas = [d for d, whole in zip(kept, raw.tolist(), strict=True) if not whole]
        encoded = self._encoder.encode(chosen, rows.records, rows.borders, deltas)
        if raw.any():
            return _interleaved(encoded, raw, kept)
        if not self._own_memory:
            return encoded
        return EncodedRecords(buffer=encoded.buffer.copy(), borders=encoded.borders)

    def _differing(self, batches: BatchTable, rows: BatchRows, records: EncodedRecords) -> Bools:
        """Which batches aren't what they were, those left aside that can't be judged."""
        bad: Bools = np.diff(records.borders) != batches.records_size
        bad |= records.checksums() != batches.records_crc
        missing = rows.counts < batches.headers.count
        bad = (bad & ~missing) if self._rows_may_miss else (bad | missing)
        for start, end in self._accepted:
            headers = batches.headers
            touched = (headers.base_offset < end) & (headers.last_offset >= start)
            bad &= ~touched | (batches.kept == Kept.RAW)
        return bad

    def _mismatch(
        self, first: int, batches: BatchTable, rows: BatchRows, i: int
    ) -> HistoryMismatch:
        count, found = int(batches.headers.count[i]), int(rows.counts[i])
        if batches.kept[i] == Kept.RAW:
            reason = "what is kept of its records in the side file is not what was put there"
        elif found != count:
            reason = f"it has {count} records, the table has {found} rows for them"
        else:
            reason = f"its {count} rows in the table don't give the records that were converted"
        if self._rows.dropped and batches.kept[i] != Kept.RAW:
            reason += f"; the table has no column for: {', '.join(self._rows.dropped)} (dropped)"
        offset = int(batches.headers.base_offset[i])
        return HistoryMismatch(reason, batch=first + i, offset=offset)


def _beginning(run: RegeneratedRun, count: int) -> RegeneratedRun:
    """The first `count` of a run's batches."""
    headers, counts, borders = run.headers, run.counts[:count], run.records.borders
    headers = headers.slice(slice(0, count))
    return RegeneratedRun(
        first=run.first,
        headers=headers,
        counts=counts,
        records=EncodedRecords(
            buffer=run.records.buffer[: borders[count]], borders=borders[: count + 1]
        ),
        deleted_rows=_deleted(headers, counts),
        ignored_rows=run.ignored_rows,
    )


def _deleted(headers: BatchHeaders, counts: Int64s) -> int:
    return int(np.maximum(headers.count - counts, 0).sum())


def _interleaved(
    encoded: EncodedRecords, raw: Bools, kept: Sequence[bytes | None]
) -> EncodedRecords:
    """`encoded`, which are the batches that aren't `raw`, with the kept bytes of those that are:
    in new memory."""
    places = np.flatnonzero(raw)
    whole = [kept[i] or b"" for i in places.tolist()]
    sizes = np.empty(len(raw), np.int64)
    sizes[~raw] = np.diff(encoded.borders)
    sizes[places] = [len(data) for data in whole]
    borders = np.concatenate(([0], np.cumsum(sizes)))
    buffer = np.empty(int(borders[-1]), np.uint8)
    # Between two raw ones the encoded ones lie together.
    taken = at = 0
    for place, data in zip([*places.tolist(), len(raw)], [*whole, b""], strict=True):
        target, size = int(borders[at]), int(borders[place] - borders[at])
        buffer[target : target + size] = encoded.buffer[taken : taken + size]
        taken += size
        buffer[borders[place] : borders[place] + len(data)] = np.frombuffer(data, np.uint8)
        at = place + 1
    return EncodedRecords(buffer=buffer, borders=borders)
