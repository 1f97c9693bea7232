"""The data files that one task writes: one per partition value, few open at a time."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

import pyarrow as pa

from tiering.conversion.parquet_files import ParquetFile
from tiering.conversion.partition_split import PartitionSplit
from tiering.conversion.record_columns import TableColumns
from tiering.errors import FatalError, TieringError
from tiering.store import ObjectStore
from tiering.tasks import ConversionTask, DataFileEntry, TableTarget

__all__ = ["OPEN_FILES_MAX", "TaskFiles", "warehouse_url"]

OPEN_FILES_MAX: Final = 8
"""Partition values that a task writes to at a time; the longest unused one is closed first."""
BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Rows that wait in all of a task's open files together, in Arrow bytes."""

_DATA: Final = "data"


class TaskFiles:
    """Takes the rows of one task and writes them below the table's location.

    File names carry a random part, so attempts that run twice or at once never meet; a file that
    nobody commits is an orphan, for removal after its grace.

    Args:
        columns: of the rows and the files.
        store: opened at the table's location.
        new_name: gives the random part.
    """

    def __init__(
        self,
        task: ConversionTask,
        columns: TableColumns,
        store: ObjectStore,
        *,
        new_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        target = task.target
        self._task = task
        self._store = store
        self._new_name = new_name
        self.columns = columns
        self._split = PartitionSplit.of(target.spec_json, columns)
        self._open: OrderedDict[tuple[object, ...], tuple[str, ParquetFile]] = OrderedDict()
        self._finished: list[tuple[str, DataFileEntry]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows, which follow those before in offset order."""
        for partition, part in self._split.split(rows):
            self._file(partition).add(part)
            self._bound_buffers()

    def finish(self) -> tuple[DataFileEntry, ...]:
        """Make all files durable; their entries, by first offset."""
        while self._open:
            self._finish_oldest()
        return tuple(sorted((e for _, e in self._finished), key=lambda e: e.first_offset))

    def abort(self) -> None:
        """Drop open files and delete finished ones, as far as the store lets us; never raises."""
        for _, file in self._open.values():
            file.abort()
        self._open.clear()
        for key, _ in self._finished:
            with suppress(TieringError, OSError):
                self._store.delete(key)
        self._finished.clear()

    def _file(self, partition: tuple[object, ...]) -> ParquetFile:
        if partition in self._open:
            self._open.move_to_end(partition)
            return self._open[partition][1]
        if len(self._open) >= OPEN_FILES_MAX:
            self._finish_oldest()
        key = f"{_DATA}/{self._task.partition}-{self._task.from_offset:020d}-{self._new_name()}"
        key += ".parquet"
        file = ParquetFile(
            self._store.open_upload(key),
            f"{self._task.target.location.rstrip('/')}/{key}",
            self.columns,
            self._task.target,
            spec_id=self._split.spec_id,
            partition=partition,
        )
        self._open[partition] = key, file
        return file

    def _finish_oldest(self) -> None:
        _, (key, file) = next(iter(self._open.items()))
        self._finished.append((key, file.finish()))
        self._open.popitem(last=False)

    def _bound_buffers(self) -> None:
        files = [file for _, file in self._open.values()]
        if sum(file.buffered_bytes for file in files) > BUFFERED_BYTES_MAX:
            max(files, key=lambda file: file.buffered_bytes).flush()


def warehouse_url(target: TableTarget, store_url: str) -> str:
    """The URL to open a table's location with.

    An s3 location says neither endpoint nor region: they come from the table's FileIO properties,
    or else from the tier's own store. Raises FatalError for a kind of place that isn't written to.
    """
    scheme, mark, rest = target.location.partition("://")
    if not mark or scheme == "file":
        return target.location
    if scheme not in ("s3", "s3a", "s3n"):
        raise FatalError(f"table location {target.location}: can't write to {scheme}:// places")
    io: Mapping[str, str] = target.io_properties
    _, _, query = store_url.partition("?") if store_url.startswith("s3://") else ("", "", "")
    named = {"endpoint": io.get("s3.endpoint"), "region": io.get("s3.region")}
    if named["endpoint"] is not None:
        query = urlencode({k: v for k, v in named.items() if v})
    return f"s3://{rest.rstrip('/')}" + (f"?{query}" if query else "")
