"""The offset reader: a topic's committed records from its Iceberg table, by partition and offset.

It answers from one snapshot until told to `refresh`. Seeks go by statistics alone: manifests
name the file, the file's footer names the row group, and only that is read. The catalog is asked
when the reader opens, on `refresh`, and when a data file is gone; otherwise reads go on without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from tiering.errors import BadInput, FatalError, NotFound, TransientError
from tiering.offset_reader.file_index import OFFSET_MAX
from tiering.offset_reader.limits import DEFAULT_LIMITS, ReadLimits
from tiering.offset_reader.lookups import first_offset, partitions
from tiering.offset_reader.offset_order import OrderedBatch, in_offset_order
from tiering.offset_reader.parquet_files import MissingFile
from tiering.offset_reader.records import Record, RecordColumns
from tiering.offset_reader.row_group_reads import RowGroupReads
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.offset_reader.topic_columns import Projection
from tiering.redaction import redact
from tiering.table.schema import table_name

__all__ = ["OffsetReader"]

CATALOG_OUTAGE: Final = (OSError, SQLAlchemyError, RESTError)
TABLES_NAMED_MAX: Final = 20
_T = TypeVar("_T")


class OffsetReader:
    """Reads one topic. Iterators and calls may be used from several threads at once.

    What the table holds is what is read: committed records only, offsets rising, gaps where
    records were aborted, deleted or never written. A read at or beyond the end gives nothing and
    does not wait; `refresh` shows what was committed since.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        topic: str,
        view: SnapshotView,
        *,
        branch: str,
        limits: ReadLimits,
    ) -> None:
        """Use `open`."""
        self._catalog = catalog
        self._identifier = identifier
        self._topic = topic
        self._view = view
        self._branch = branch
        self._limits = limits
        self._refreshing = threading.Lock()

    @classmethod
    def open(
        cls,
        catalog: Catalog,
        namespace: str,
        topic: str,
        *,
        branch: str = MAIN,
        limits: ReadLimits = DEFAULT_LIMITS,
    ) -> OffsetReader:
        """Open the table of `topic` in `namespace`, at the newest snapshot of `branch`.

        Raises BadInput for an illegal topic name, NotFound without such a table (the message
        names those there are), TransientError when catalog or store can't be reached.
        """
        identifier = (*namespace.split("."), table_name(topic))
        table = _load(catalog, identifier, topic)
        try:
            view = SnapshotView.of(table, branch, limits)
        except MissingFile as error:
            raise TransientError(f"{error} is gone; open the topic again") from error
        return cls(catalog, identifier, topic, view, branch=branch, limits=limits)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that answers come from; None for a table without any."""
        snapshot = self._view.metadata.snapshot_by_name(self._branch)
        return None if snapshot is None else snapshot.snapshot_id

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches that have all columns."""
        return Projection.of(self._view.metadata, None).arrow

    def refresh(self) -> bool:
        """Go to the newest snapshot; returns whether it is another one.

        Reads only the manifests that are new. On any error the reader stays where it was and
        goes on answering. Raises NotFound when the table is gone or another one (the topic was
        made again), TransientError on an outage.
        """
        with self._refreshing:
            before = self.snapshot_id
            table = _load(self._catalog, self._identifier, self._topic)
            if table.metadata.table_uuid != self._view.metadata.table_uuid:
                raise NotFound(
                    f"topic {self._topic} was deleted and made again: its table is another one "
                    "now, with offsets of its own; open it anew"
                )
            try:
                self._view = SnapshotView.of(table, self._branch, self._limits, self._view)
            except MissingFile as error:
                raise TransientError(f"{error} is gone; refresh again") from error
            return self.snapshot_id != before

    def partitions(self) -> tuple[int, ...]:
        """The partitions that the table knows, ascending."""
        return self._attempt(lambda view: partitions(view, self._limits))

    def beginning_offset(self, partition: int) -> int:
        """The lowest offset in the table; of a partition without rows, its end offset.

        Raises NotFound for a partition that the table does not know, TransientError.
        """
        self._check_partition(partition)
        first = self._attempt(lambda view: first_offset(view, partition, self._limits))
        return self.end_offset(partition) if first is None else first

    def end_offset(self, partition: int) -> int:
        """The offset after the last one that is in the table: the partition's watermark.

        Offsets just below it may be gaps. Raises NotFound as `beginning_offset`.
        """
        self._check_partition(partition)
        mark = self._view.watermarks.get(partition)
        if mark is not None:
            return mark.offset
        last = self._view.index.last_offset(partition)
        return 0 if last is None else last + 1

    def offset_for_timestamp(self, partition: int, timestamp_ms: int) -> int | None:
        """The lowest offset whose record has `timestamp_ms` or later; None if there is none.

        As Kafka's ListOffsets for a timestamp: later records may have earlier timestamps.
        Records without a timestamp never match. Raises BadInput for a negative timestamp (use
        `beginning_offset` and `end_offset` for the ends), NotFound as `beginning_offset`.
        """
        if timestamp_ms < 0:
            raise BadInput(f"timestamp {timestamp_ms} ms is negative")
        self._check_partition(partition)
        return self._attempt(
            lambda view: first_offset(view, partition, self._limits, timestamp_ms * 1000)
        )

    def batches(
        self,
        partition: int,
        *,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        end_offset: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches of `partition` in offset order, from `offset` up to before `end_offset`.

        Starts at the beginning, unless told an `offset` (the next one that exists) or a
        `timestamp_ms` (see `offset_for_timestamp`; nothing when no record is that late). Ends
        with the snapshot. `columns` are the table's current names; all, if left out. Rows of
        equal offset, which only another writer's INSERT can make, all come.

        Raises BadInput (bad offsets, unknown columns) and NotFound (unknown partition) at once;
        TransientError and FatalError also from the iterator, which can then be made anew from
        the offset after the last one seen.
        """
        projection = Projection.of(self._view.metadata, columns)
        start, end = self._range(partition, offset, timestamp_ms, end_offset)
        return (ordered.batch for ordered in self._ordered(projection, partition, start, end))

    def records(
        self,
        partition: int,
        *,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        end_offset: int | None = None,
    ) -> Iterator[Record]:
        """The same range as `batches` as one object per record: for people and small reads.

        Keys and values are the bytes that were produced, also where the table has typed columns
        of them. Raises as `batches`; BadInput also when a column was dropped that records need.
        """
        view = self._view
        schema, properties = view.metadata.schema(), view.metadata.properties
        columns = RecordColumns(schema, properties, view.columns, topic=self._topic)
        projection = Projection.of(view.metadata, columns.names)
        start, end = self._range(partition, offset, timestamp_ms, end_offset)
        return (
            record
            for ordered in self._ordered(projection, partition, start, end)
            for record in columns.records(partition, ordered.batch, ordered.offsets)
        )

    def _range(
        self, partition: int, offset: int | None, timestamp_ms: int | None, end_offset: int | None
    ) -> tuple[int, int]:
        if offset is not None and timestamp_ms is not None:
            raise BadInput("give an offset or a timestamp, not both")
        for name, value in (("offset", offset), ("end offset", end_offset)):
            if value is not None and value < 0:
                raise BadInput(f"{name} {value} is negative; Kafka's offsets start at 0")
        self._check_partition(partition)
        end = OFFSET_MAX if end_offset is None else end_offset
        if timestamp_ms is None:
            return offset or 0, end
        found = self.offset_for_timestamp(partition, timestamp_ms)
        return (end, end) if found is None else (found, end)

    def _check_partition(self, partition: int) -> None:
        view = self._view
        if partition in view.watermarks or partition in view.index.sure_partitions:
            return
        known = self.partitions()
        if partition not in known:
            listed = ", ".join(map(str, known)) or "none yet"
            raise NotFound(
                f"topic {self._topic} has no partition {partition} in its table; it has: {listed}"
            )

    def _ordered(
        self, projection: Projection, partition: int, start: int, end: int
    ) -> Iterator[OrderedBatch]:
        """Read [start, end); when a file is gone, look at the table again and go on."""
        gone: str | None = None
        while start < end:
            view = self._view
            try:
                for ordered in self._scan(view, projection, partition, start, end):
                    yield ordered
                    start, gone = int(ordered.offsets[-1]) + 1, None
                return
            except MissingFile as error:
                gone = self._look_again(view, error, gone)

    def _scan(
        self, view: SnapshotView, projection: Projection, partition: int, start: int, end: int
    ) -> Iterator[OrderedBatch]:
        source = view.source(projection, partition, self._limits)
        with RowGroupReads(source, self._limits) as reads:
            yield from in_offset_order(view.plan(partition, start, end), reads, self._limits)

    def _attempt(self, ask: Callable[[SnapshotView], _T]) -> _T:
        """Ask the view; when a file is gone, look at the table again and ask once more."""
        gone: str | None = None
        while True:
            view = self._view
            try:
                return ask(view)
            except MissingFile as error:
                gone = self._look_again(view, error, gone)

    def _look_again(self, view: SnapshotView, error: MissingFile, gone: str | None) -> str:
        """Refresh because a file of `view` is gone; returns which.

        Raises FatalError when that happened before without progress and the newest snapshot
        still names the file: somebody removed a live file.
        """
        path = str(error)
        if gone == path:
            raise FatalError(
                f"table {view.table}: {path} is part of the newest snapshot, but does not exist: "
                "restore it, or remove it from the table"
            ) from error
        if self._view is view:
            self.refresh()
        return path


def _load(catalog: Catalog, identifier: tuple[str, ...], topic: str) -> Table:
    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise NotFound(
            f"no table {'.'.join(identifier)} for topic {topic}: {_tables(catalog, identifier)}"
        ) from error
    except CATALOG_OUTAGE as error:
        reason = redact(str(error), catalog.properties)
        raise TransientError(
            f"the catalog can't give table {'.'.join(identifier)} for now: {reason}"
        ) from None


def _tables(catalog: Catalog, identifier: tuple[str, ...]) -> str:
    namespace = identifier[:-1]
    try:
        names = sorted(name[-1] for name in catalog.list_tables(namespace))
    except NoSuchNamespaceError:
        return f"there is no namespace {'.'.join(namespace)}"
    except CATALOG_OUTAGE as error:
        reason = redact(str(error), catalog.properties)
        return f"and the tables there can't be listed for now: {reason}"
    if not names:
        return f"namespace {'.'.join(namespace)} has no tables yet"
    more = f" and {len(names) - TABLES_NAMED_MAX} more" if len(names) > TABLES_NAMED_MAX else ""
    return f"namespace {'.'.join(namespace)} has {', '.join(names[:TABLES_NAMED_MAX])}{more}"
