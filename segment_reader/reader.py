"""One segment's log as Arrow record batches or as batch headers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batches import BATCH_OVERHEAD, BatchHeaders, HeaderScanner
from segment_reader.bounds import SegmentBounds
from segment_reader.errors import CorruptSegment
from segment_reader.limits import DEFAULT_LIMITS, Limits
from segment_reader.payloads import BatchPayloads, PayloadReader
from segment_reader.record_decoder import OffsetRange, RecordDecoder
from segment_reader.sources import RangeSource
from segment_reader.transactions import NO_VERDICTS, Verdicts
from segment_reader.witness import AsHeld, Witness, Witnessed

__all__ = ["ReadStats", "RecordFilter", "SegmentReader"]

_Bytes = npt.NDArray[np.uint8]
_Bools = npt.NDArray[np.bool_]
_OFFSET_MAX: Final = 2**63 - 1


class RecordFilter(Enum):
    """Which data records are given; control records never are."""

    COMMITTED = "committed"
    ALL_DATA = "all data"


@dataclass(slots=True, kw_only=True)
class ReadStats:
    """What the last `record_batches` of a reader has gone through so far.

    Attributes:
        rows: records given.
        aborted_rows: records of aborted batches in the range, given or not.
        control_batches: markers in the range.
        batches: batches in the range, of any kind.
        bytes_read: bytes of the log that were read and checked.
        next_offset: every record below it (from the range's start on) has been given.
    """

    rows: int = 0
    aborted_rows: int = 0
    control_batches: int = 0
    batches: int = 0
    bytes_read: int = 0
    next_offset: int = 0


def _as_they_are(records: pa.RecordBatch) -> pa.RecordBatch:
    return records


class SegmentReader:
    """Reads the log of one segment (magic 2) in chunks, checking all of it.

    Memory is bounded by `limits`, whatever the segment's size. Raises CorruptSegment or
    UnsupportedFormat, with the byte position, as soon as reading comes to the fault: what was
    given before is good.
    """

    def __init__(
        self,
        source: RangeSource,
        bounds: SegmentBounds,
        verdicts: Verdicts = NO_VERDICTS,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._source = source
        self._bounds = bounds
        self._verdicts = verdicts
        self._limits = limits
        self.stats = ReadStats()

    def headers(
        self, start_position: int = 0, end_position: int | None = None
    ) -> Iterator[BatchHeaders]:
        """The headers of all batches in a byte range (both ends on batch borders), by chunk."""
        for _, _, headers in self._chunks(start_position, end_position):
            yield headers.copy()

    def payloads(
        self, start_position: int = 0, end_position: int | None = None
    ) -> Iterator[BatchPayloads]:
        """All batches in a byte range (both ends on batch borders) with their record bytes."""
        decompressing = PayloadReader(self._source.name, self._limits)
        for chunk, position, headers in self._chunks(start_position, end_position):
            yield from decompressing.payloads(chunk, position, headers)

    def record_batches(
        self,
        *,
        from_offset: int = 0,
        to_offset: int | None = None,
        start_position: int = 0,
        end_position: int | None = None,
        include: RecordFilter = RecordFilter.COMMITTED,
    ) -> Iterator[pa.RecordBatch]:
        """Data records with offsets [from_offset, to_offset) as batches of RECORD_SCHEMA.

        The byte range lies on batch borders. Offsets rise strictly over all batches given. Reading
        ends early once `to_offset` is reached.
        """
        stop = _OFFSET_MAX if to_offset is None else to_offset
        rows = OffsetRange(start=from_offset, stop=stop)
        self._begin(rows)
        decoder = RecordDecoder(self._source.name, rows, self._limits)
        for chunk, position, headers in self._chunks(start_position, end_position):
            control, aborted = self._hidden(headers, rows)
            chosen = _overlapping(headers, rows) & ~control
            if include is RecordFilter.COMMITTED:
                chosen &= ~aborted
            taken = headers if chosen.all() else headers.take(chosen)
            for batch in decoder.decode(chunk, position, taken):
                self.stats.rows += batch.num_rows
                yield batch
            self._advance(int(headers.last_offset[-1]) + 1, stop)
            if self.stats.next_offset >= stop:
                return
        self._end(end_position, stop)

    def witnessed(
        self,
        *,
        from_offset: int,
        to_offset: int,
        batches_from: int = 0,
        batches_to: int = _OFFSET_MAX,
        start_position: int = 0,
        end_position: int | None = None,
        as_held: AsHeld = _as_they_are,
    ) -> Iterator[Witnessed]:
        """Committed records of [from_offset, to_offset), and all batches with what they need.

        Every batch of the byte range (which lies on batch borders) with its base offset in
        [batches_from, batches_to) is decoded whole, whichever of its rows are asked for. `as_held`
        says what a table will hold of decoded rows; where the batch's bytes can't be made from
        that, they are given as well. Offsets of records and of batches rise strictly. Reading ends
        early once both `to_offset` and `batches_to` are reached.
        """
        rows = OffsetRange(start=from_offset, stop=to_offset)
        batches = OffsetRange(start=batches_from, stop=batches_to)
        self._begin(rows)
        witness = Witness(self._source.name, rows, batches, as_held, self._limits)
        for chunk, position, headers in self._chunks(start_position, end_position):
            control, aborted = self._hidden(headers, rows)
            hidden = control | aborted
            base = headers.base_offset
            chosen = _overlapping(headers, rows) & ~hidden
            chosen |= (base >= batches.start) & (base < batches.stop)
            own = headers.copy() if chosen.all() else headers.take(chosen)
            for step in witness.read(chunk, position, own, hidden[chosen]):
                self.stats.rows += sum(records.num_rows for records in step.records)
                yield step
            next_offset = int(headers.last_offset[-1]) + 1
            self._advance(next_offset, to_offset)
            if next_offset >= max(to_offset, batches_to):
                return
        self._end(end_position, to_offset)

    def _begin(self, rows: OffsetRange) -> None:
        self.stats = ReadStats(next_offset=max(rows.start, self._bounds.start_offset))

    def _advance(self, next_offset: int, stop: int) -> None:
        self.stats.next_offset = max(self.stats.next_offset, min(next_offset, stop))

    def _end(self, end_position: int | None, stop: int) -> None:
        if end_position is None or end_position == self._source.size_bytes:
            # Offsets behind the last batch are gaps: nothing will come for them.
            self._advance(self._bounds.end_offset + 1, stop)

    def _hidden(self, headers: BatchHeaders, rows: OffsetRange) -> tuple[_Bools, _Bools]:
        """Which batches are control batches and which aborted ones; counts those in the range."""
        inside = _overlapping(headers, rows)
        control = headers.control
        aborted = self._verdicts.aborted(headers) & ~control
        self.stats.batches += int(inside.sum())
        self.stats.control_batches += int((inside & control).sum())
        self.stats.aborted_rows += int(headers.count[inside & aborted].sum())
        return control, aborted

    def _chunks(
        self, start_position: int, end_position: int | None
    ) -> Iterator[tuple[_Bytes, int, BatchHeaders]]:
        """Pieces of whole, checked batches: bytes, their position, headers (at least one)."""
        scanner = HeaderScanner(self._source.name, self._bounds, self._limits)
        end = self._source.size_bytes if end_position is None else end_position
        position, wanted = start_position, self._limits.chunk_bytes
        while position < end:
            data = self._source.read(position, min(wanted, end - position))
            consumed = 0
            for piece, headers, size in self._pieces(scanner, data, position):
                self.stats.bytes_read += size
                yield piece, position + consumed, headers
                consumed += size
            position += consumed
            wanted = self._limits.chunk_bytes
            if not consumed:
                wanted = self._first_batch_size(data, position, end)

    def _pieces(
        self, scanner: HeaderScanner, data: bytes, position: int
    ) -> Iterator[tuple[_Bytes, BatchHeaders, int]]:
        """The batches of a chunk, in pieces that stay in the processor's cache meanwhile."""
        view, at, wanted = np.frombuffer(data, np.uint8), 0, self._limits.piece_bytes
        while at < len(view):
            # What little would be left over joins the last piece.
            stop = at + wanted if at + wanted * 3 // 2 < len(view) else len(view)
            piece = view[at:stop]
            headers, consumed = scanner.scan(piece, position + at)
            if consumed:
                yield piece, headers, consumed
                at += consumed
                wanted = self._limits.piece_bytes
            elif stop == len(view):
                return
            else:
                wanted *= 2

    def _first_batch_size(self, data: bytes, position: int, end: int) -> int:
        """Size of the batch at `position`, which is larger than `data`; raises at the log's end."""
        size = BATCH_OVERHEAD
        if len(data) >= BATCH_OVERHEAD:
            size = 12 + int.from_bytes(data[8:12], "big")
        if position + size > end:
            raise CorruptSegment(
                f"the log ends inside a batch: {end - position} bytes left, the batch has {size}"
                if len(data) >= BATCH_OVERHEAD
                else f"the log ends inside a batch header, {end - position} bytes after its start",
                segment=self._source.name,
                position=position,
            )
        return size


def _overlapping(headers: BatchHeaders, rows: OffsetRange) -> _Bools:
    return (headers.last_offset >= rows.start) & (headers.base_offset < rows.stop)
