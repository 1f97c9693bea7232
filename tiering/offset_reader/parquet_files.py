"""Parquet data files: their footers, their row groups' bounds, and decoding one row group."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.name_mapping import NameMapping

from tiering.errors import FatalError, TransientError
from tiering.offset_reader.file_index import FileRef
from tiering.offset_reader.topic_columns import TopicColumns

__all__ = ["Footer", "FooterCache", "MissingFile", "ParquetFiles", "RowGroup", "store_errors"]

_FIELD_ID: Final = b"PARQUET:field_id"
_NO_PARTITION: Final = -1


class MissingFile(Exception):
    """A file that the snapshot names is gone: somebody rewrote or expired it. Look again."""


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turn what a file system raises over `path` into the errors of this package."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingFile(path) from error
    except pa.ArrowInvalid as error:
        raise FatalError(f"data file {path} can't be decoded: {error}") from error
    except OSError as error:
        raise TransientError(f"{path} can't be read for now: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """One row group and its bounds, all inclusive; the file's where it has no statistics.

    Attributes:
        file: whose row group it is.
        number: its place in the file, from 0.
        first_row: how many rows of the file lie before it.
        rows: how many rows it has.
        size_bytes: of its pages, encoded but not compressed.
        first_offset, last_offset: bounds of kafka_offset over all partitions in it.
        first_partition, last_partition: bounds of kafka_partition; where it may be null, which
            only another writer leaves it, the first one is -1.
        last_timestamp_us: upper bound of kafka_timestamp; None if not known.
    """

    file: FileRef
    number: int
    first_row: int
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int
    first_partition: int
    last_partition: int
    last_timestamp_us: int | None


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's footer, the names of its top-level columns by field id, and its row groups."""

    metadata: pq.FileMetaData
    names: dict[int, str]
    row_groups: tuple[RowGroup, ...]


class FooterCache:
    """Parsed footers by path, bounded by their size in the files. Safe for several threads."""

    def __init__(self, bytes_max: int) -> None:
        """Keep footers of up to `bytes_max` together (and always the newest one)."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> Footer | None:
        """The footer of `path`, if kept; it is then the last one to go."""
        with self._lock:
            footer = self._footers.get(path)
            if footer is not None:
                self._footers.move_to_end(path)
            return footer

    def put(self, path: str, footer: Footer) -> None:
        """Keep `footer`; the longest unused ones make room."""
        with self._lock:
            if path not in self._footers:
                self._footers[path] = footer
                self._bytes += footer.metadata.serialized_size
            while self._bytes > self._bytes_max and len(self._footers) > 1:
                _, oldest = self._footers.popitem(last=False)
                self._bytes -= oldest.metadata.serialized_size


class ParquetFiles:
    """Opens data files and decodes them. Safe for use by several threads."""

    def __init__(
        self,
        open_file: Callable[[str], IO[bytes]],
        columns: TopicColumns,
        name_mapping: NameMapping,
        footers: FooterCache,
        open_files_max: int,
    ) -> None:
        """Read through `open_file`, a seekable stream per path.

        Up to `open_files_max` streams are kept for the next use: opening one costs a round trip
        on S3.
        """
        self._open_file = open_file
        self._open_files_max = open_files_max
        self._idle: OrderedDict[str, IO[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._columns = columns
        self._name_mapping = name_mapping
        self.footers = footers

    def row_groups(self, file: FileRef) -> tuple[RowGroup, ...]:
        """The row groups of `file`, in file order.

        Raises MissingFile, TransientError, or FatalError when it is no Parquet file.
        """
        return self._footer(file).row_groups

    def decode(
        self, row_group: RowGroup, field_ids: Sequence[int], batch_rows: int
    ) -> Iterator[tuple[pa.RecordBatch, tuple[int, ...]]]:
        """Decode the columns `field_ids` of all rows, with the ids of the columns that came.

        Columns the file does not have are left out. Batches have `batch_rows` rows at most and
        the file's own names, types and order of columns. Errors: as `row_groups`.
        """
        footer = self._footer(row_group.file)
        names = [footer.names[field_id] for field_id in field_ids if field_id in footer.names]
        ids = {name: field_id for field_id, name in footer.names.items()}
        path = row_group.file.path
        with store_errors(path), self._stream(path) as stream:
            # One core a row group: two of them side by side decode faster than one by two cores.
            batches = pq.ParquetFile(
                stream, metadata=footer.metadata, pre_buffer=True
            ).iter_batches(
                batch_size=batch_rows,
                row_groups=[row_group.number],
                columns=names,
                use_threads=False,
            )
            for batch in batches:
                yield batch, tuple(ids[name] for name in batch.schema.names)

    @contextmanager
    def _stream(self, path: str) -> Iterator[IO[bytes]]:
        """A stream of `path` that nobody else uses meanwhile; after an error it is not reused."""
        with self._lock:
            stream = self._idle.pop(path, None)
        if stream is None:
            stream = self._open_file(path)
        try:
            yield stream
        except Exception:
            stream.close()
            raise
        finally:
            # Also of a scan that was left early: its stream is as good as before.
            self._keep(path, stream)

    def _keep(self, path: str, stream: IO[bytes]) -> None:
        # Reads begun ahead may still be going on: only Arrow's own streams read by position, so
        # that the next user does not get in their way.
        if stream.closed or not isinstance(stream, pa.NativeFile):
            stream.close()
            return
        with self._lock:
            surplus = [self._idle.pop(path, None)]
            self._idle[path] = stream
            if len(self._idle) > self._open_files_max:
                surplus.append(self._idle.popitem(last=False)[1])
        for unused in surplus:
            if unused is not None:
                unused.close()

    def _footer(self, file: FileRef) -> Footer:
        footer = self.footers.get(file.path)
        if footer is None:
            with store_errors(file.path), self._stream(file.path) as stream:
                footer = self._parse(file, pq.ParquetFile(stream).metadata)
            self.footers.put(file.path, footer)
        return footer

    def _parse(self, file: FileRef, metadata: pq.FileMetaData) -> Footer:
        names = self._names(metadata.schema.to_arrow_schema())
        leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        row_groups, first_row = [], 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)

            def chunk(
                field_id: int, group: pq.RowGroupMetaData = group
            ) -> pq.ColumnChunkMetaData | None:
                leaf = leaves.get(names.get(field_id, ""))
                return None if leaf is None else group.column(leaf)

            row_groups.append(self._row_group(file, number, first_row, group, chunk))
            first_row += group.num_rows
        return Footer(metadata, names, tuple(row_groups))

    def _row_group(
        self,
        file: FileRef,
        number: int,
        first_row: int,
        group: pq.RowGroupMetaData,
        chunk: Callable[[int], pq.ColumnChunkMetaData | None],
    ) -> RowGroup:
        offsets = _bounds(chunk(self._columns.offset))
        partitions = _bounds(chunk(self._columns.partition))
        timestamps = _bounds(chunk(self._columns.timestamp))
        first_partition = file.first_partition if partitions[0] is None else partitions[0]
        if _may_be_null(chunk(self._columns.partition)):
            first_partition = min(_NO_PARTITION, first_partition)
        return RowGroup(
            file=file,
            number=number,
            first_row=first_row,
            rows=group.num_rows,
            size_bytes=group.total_byte_size,
            first_offset=file.first_offset if offsets[0] is None else offsets[0],
            last_offset=file.last_offset if offsets[1] is None else offsets[1],
            first_partition=first_partition,
            last_partition=file.last_partition if partitions[1] is None else partitions[1],
            last_timestamp_us=file.last_timestamp_us if timestamps[1] is None else timestamps[1],
        )

    def _names(self, schema: pa.Schema) -> dict[int, str]:
        """Field id -> name in the file of each top-level column.

        Files without ids (imported ones) go by the table's name mapping.
        """
        by_id = {
            int(field.metadata[_FIELD_ID]): field.name
            for field in schema
            if field.metadata and _FIELD_ID in field.metadata
        }
        if by_id:
            return by_id
        mapped = {
            name: mapping.field_id
            for mapping in self._name_mapping.root
            for name in mapping.names
            if mapping.field_id is not None
        }
        return {mapped[name]: name for name in schema.names if name in mapped}


def _may_be_null(column: pq.ColumnChunkMetaData | None) -> bool:
    statistics = None if column is None else column.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _bounds(column: pq.ColumnChunkMetaData | None) -> tuple[int, int] | tuple[None, None]:
    """Bounds of an integer or timestamp column chunk; timestamps in microseconds."""
    statistics = None if column is None else column.statistics
    if statistics is None or not statistics.has_min_max:
        return None, None
    low, high = statistics.min_raw, statistics.max_raw
    if not isinstance(low, int) or not isinstance(high, int):
        return None, None
    return _scaled(statistics, low, high)


def _scaled(statistics: Any, low: int, high: int) -> tuple[int, int] | tuple[None, None]:
    logical = str(statistics.logical_type)
    if not logical.startswith("Timestamp"):
        return low, high
    if "microseconds" in logical:
        return low, high
    return (low * 1000, high * 1000) if "milliseconds" in logical else (None, None)
