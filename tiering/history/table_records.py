"""A topic table's rows as Kafka's records again, in offset order, range after rising range."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import prune_columns

from segment_reader import RECORD_SCHEMA
from tiering.conversion.held_records import records_from_rows
from tiering.conversion.record_columns import TableColumns
from tiering.history.kafka_columns import dropped_columns, kafka_schema
from tiering.offset_reader.file_index import OFFSET_MAX
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.offset_order import in_offset_order
from tiering.offset_reader.row_group_reads import RowGroupReads
from tiering.offset_reader.snapshot_view import SnapshotView
from tiering.offset_reader.topic_columns import Projection
from tiering.values.stored_schema import schema_properties_of

__all__ = ["NO_RECORDS", "SCAN_LIMITS", "RecordCursor", "TableRecords"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Chunks = Generator[pa.RecordBatch, None, None]

SCAN_LIMITS: Final = ReadLimits(batch_bytes=16 * 1024 * 1024)
"""For passes over many rows: what is taken at a time then mostly lies in one batch, uncopied."""
NO_RECORDS: Final = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


class TableRecords:
    """The committed records that one snapshot of a topic's table holds.

    Safe for several threads; a cursor is for one.
    """

    def __init__(
        self, view: SnapshotView, limits: ReadLimits = SCAN_LIMITS, *, with_dropped: bool = True
    ) -> None:
        """Read `view`. Raises FatalError where a column has a type that records don't fit.

        Columns that were dropped are read from the files that still have them; not so, as if
        every file had been rewritten since, without `with_dropped`.
        """
        self._view = view
        self._limits = limits
        schema = kafka_schema(view.metadata, dropped=with_dropped)
        stored = schema_properties_of(view.metadata.properties)
        self._columns = TableColumns.of(schema.model_dump_json(), stored)
        leaves = {field_id for field_id, _ in self._columns.leaves()}
        wanted = prune_columns(schema, leaves, select_full_types=False)
        self._projection = Projection.of_schema(view.metadata, wanted)
        self.dropped = dropped_columns(view.metadata)
        """Columns that the table has no more, by the names that they were made with."""

    def records(
        self,
        partition: int,
        start: int = 0,
        end: int = OFFSET_MAX,
        is_scan: Callable[[], bool] = lambda: True,
    ) -> Chunks:
        """The records of offsets [start, end) as RECORD_SCHEMA, a batch of the limits at a time.

        Offsets rise; an offset comes more than once where another writer has put it into the
        table again. Parts without a column come as Kafka's "none". Close the iterator when it is
        left early: it may be reading ahead, if it `is_scan`.

        Raises MissingFile when a file of the snapshot is gone (take a newer view), TransientError
        and FatalError.
        """
        source = self._view.source(self._projection, partition, self._limits)
        with RowGroupReads(source, self._limits, is_scan) as reads:
            plan = self._view.plan(partition, start, end)
            for ordered in in_offset_order(plan, reads, self._limits):
                yield records_from_rows(ordered.batch, self._columns)

    def cursor(self, partition: int, end: int = OFFSET_MAX, *, scan: bool = True) -> RecordCursor:
        """A cursor over `partition`, for ranges below `end`. Nothing is read before it is asked.

        Unless it is known to `scan`, it begins to read ahead with its second range: who seeks
        and leaves shouldn't have more decoded than that.
        """

        def open_at(start: int) -> Chunks:
            return self.records(partition, start, end, lambda: scan or cursor.ranges > 1)

        cursor = RecordCursor(open_at, self.dropped)
        return cursor


class RecordCursor:
    """Gives the records of one range after the other; rising ranges cost one pass over the rows.

    Ranges may lie in several segments: a row group that spans two is decoded once. A range that
    begins below the end of the one before starts a new pass, and so does the first after an error.
    """

    def __init__(self, open_at: Callable[[int], Chunks], dropped: tuple[str, ...] = ()) -> None:
        """Take records from `open_at(first offset)`, whose offsets rise (see `TableRecords`)."""
        self._open_at = open_at
        self._chunks: Chunks | None = None
        self._chunk: pa.RecordBatch | None = None
        self._offsets: Int64s = np.empty(0, np.int64)
        self._next_offset = 0
        self.ranges = 0
        """How many ranges this pass over the rows has given, or is giving."""
        self.dropped = dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading ahead; a later `take` begins anew."""
        chunks, self._chunks, self._chunk = self._chunks, None, None
        if chunks is not None:
            chunks.close()

    def take(
        self, start: int, end: int, keep: Callable[[Int64s], Bools] | None = None
    ) -> pa.RecordBatch:
        """All records of offsets [start, end) as one batch (RECORD_SCHEMA), offsets rising.

        Nothing is copied where they lie in one batch as it was decoded. `keep` says of some
        offsets which of them are wanted: the others take no memory. Errors: as `records`.
        """
        try:
            if self._chunks is None or start < self._next_offset:
                self.close()
                self._chunks, self.ranges = self._open_at(start), 0
            self._next_offset = end
            self.ranges += 1
            parts = [p for p in self._parts(self._chunks, start, end, keep) if p.num_rows]
        except BaseException:
            self.close()
            raise
        if len(parts) == 1:
            return parts[0]
        return pa.concat_batches(parts) if parts else NO_RECORDS

    def _parts(
        self, chunks: Chunks, start: int, end: int, keep: Callable[[Int64s], Bools] | None
    ) -> Iterator[pa.RecordBatch]:
        while True:
            if self._chunk is None:
                self._chunk = next(chunks, None)
                if self._chunk is None:
                    return
                self._offsets = self._chunk.column("offset").to_numpy()
            chunk, offsets = self._chunk, self._offsets
            low, high = np.searchsorted(offsets, (start, end)).tolist()
            if high == len(offsets):
                # Not held on to longer than it is needed: the next one is decoded meanwhile.
                self._chunk = None
            part = chunk.slice(low, high - low)
            if keep is not None and high > low:
                wanted = keep(offsets[low:high])
                part = part if wanted.all() else part.filter(pa.array(wanted))
            yield part
            if high < len(offsets):
                return
