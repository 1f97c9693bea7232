"""Writing one Parquet data file straight into the store, and describing it for the commit."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tiering.conversion.record_columns import TableColumns, field_ids
from tiering.errors import NotFound, TransientError
from tiering.store import Upload
from tiering.table.data_files import entry_from_parquet
from tiering.tasks import DataFileEntry, TableTarget

__all__ = ["ROW_GROUP_BYTES", "ParquetFile", "writer_options"]

ROW_GROUP_BYTES: Final = 24 * 1024 * 1024
"""Arrow bytes after which a row group is written. Batches come in 16 MiB, so a group has up to
40 MiB decoded and mostly half of that or less in the file: one small read for a seek."""
_PAGE_BYTES: Final = 1024 * 1024


class ParquetFile:
    """A data file in the making: rows are gathered and written a row group at a time.

    Nothing is visible in the store before `finish`. Encodings are plain and dictionary only:
    the delta encodings would make offsets and timestamps 5 to 15 % of a file smaller, but Iceberg's
    vectorised Spark reader has learnt them only lately.

    Args:
        upload: the store's streamed write.
        path: the file's full path or URL, as the table will name it.
        partition: the partition tuple in the order of the spec's fields.
    """

    def __init__(
        self,
        upload: Upload,
        path: str,
        columns: TableColumns,
        target: TableTarget,
        *,
        spec_id: int,
        partition: tuple[object, ...],
    ) -> None:
        self.path = path
        self.buffered_bytes = 0
        self._upload = upload
        self._columns = columns
        self._target = target
        self._spec_id = spec_id
        self._partition = partition
        self._batches: list[Any] = []
        self._value_nulls = 0
        self._value_index = columns.index(field_ids().value)
        self._footers: list[Any] = []
        self._sink = _Sink(upload)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            columns.arrow,
            metadata_collector=self._footers,
            sorting_columns=_sorting(columns),
            **writer_options(columns),
        )

    def add(self, rows: Any) -> None:
        """Append rows (a RecordBatch of the table's columns); may write a row group."""
        if self._value_index is not None:
            self._value_nulls += rows.column(self._value_index).null_count
        self._batches.append(rows)
        self.buffered_bytes += rows.nbytes
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered as one row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._batches.clear()
            self.buffered_bytes = 0
            self._writer.write_table(table, row_group_size=table.num_rows)

    def finish(self) -> DataFileEntry:
        """Write the rest and the footer, make the file durable and visible, and describe it."""
        self.flush()
        self._writer.close()
        entry = entry_from_parquet(
            self._footers[0],
            path=self.path,
            size_bytes=self._sink.size_bytes,
            target=self._target,
            spec_id=self._spec_id,
            partition=self._partition,
        )
        try:
            self._upload.commit()
        except NotFound as error:
            raise TransientError(f"{self.path}: {error}") from error
        if self._value_index is None:
            return entry
        # The one column without statistics in the footer; its nulls were counted here.
        nulls = {**entry.null_value_counts, field_ids().value: self._value_nulls}
        return replace(entry, null_value_counts=nulls)

    def abort(self) -> None:
        """Drop the file; never raises, does nothing after `finish`."""
        self._batches.clear()
        self._sink.give_up()
        self._upload.abort()

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.abort()


def writer_options(columns: TableColumns) -> dict[str, Any]:
    """What is the same for every file of a table.

    No statistics for values: they are large, and nobody prunes by their first bytes. Dictionaries
    only where few values are to be expected.
    """
    ids = field_ids()
    value = columns.paths(ids.value)
    return {
        "version": "2.6",
        "compression": "zstd",
        "use_dictionary": columns.paths(
            ids.partition, ids.timestamp_type, ids.leader_epoch, ids.header_key
        ),
        "write_statistics": [path for _, path in columns.leaves() if path not in value],
        "write_page_index": True,
        "data_page_size": _PAGE_BYTES,
        "store_schema": False,
    }


def _sorting(columns: TableColumns) -> list[Any]:
    ids = field_ids()
    leaves = [field_id for field_id, _ in columns.leaves()]
    return [pq.SortingColumn(leaves.index(i)) for i in (ids.partition, ids.offset)]


class _Sink:
    """The upload as a file object for Arrow, counting what goes through.

    After `give_up` it swallows everything, so that a writer which is dropped half-way and closes
    itself late doesn't write into an upload that is gone.
    """

    def __init__(self, upload: Upload) -> None:
        self.size_bytes = 0
        self.closed = False
        self._upload = upload
        self._live = True

    def write(self, data: Any) -> int:
        # Arrow may use its buffer again, and uploads keep what they were given.
        chunk = data if isinstance(data, bytes) else bytes(data)
        if self._live:
            try:
                self._upload.write(chunk)
            except NotFound as error:
                raise TransientError(str(error)) from error
        self.size_bytes += len(chunk)
        return len(chunk)

    def give_up(self) -> None:
        self._live = False

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        self.closed = True
