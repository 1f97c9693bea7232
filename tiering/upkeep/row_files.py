"""Rows on their way into new data files of a table, one Kafka partition after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Self

import pyarrow as pa

from tiering.conversion.parquet_files import ParquetFile
from tiering.conversion.partition_split import PartitionSplit
from tiering.conversion.record_columns import TableColumns
from tiering.errors import TieringError
from tiering.store import ObjectStore
from tiering.tasks import DataFileEntry, TableTarget
from tiering.values.arrow_fields import arrow_field

__all__ = ["KEPT", "RowFiles", "all_columns"]

KEPT: Final = "kept"
"""What the names of files begin with that hold what is left of others."""
_OPEN_FILES_MAX: Final = 8
_DATA: Final = "data"


class RowFiles:
    """Writes rows of a table, each Kafka partition and partition value to a file of its own.

    Left early, it drops the files that are still open; finished ones are orphans then.

    Args:
        store: opened at the table's location.
        columns: of the rows and the files.
        new_name: gives the random part of the files' names.
    """

    def __init__(
        self,
        store: ObjectStore,
        target: TableTarget,
        columns: TableColumns,
        new_name: Callable[[], str],
    ) -> None:
        self._store = store
        self._target = target
        self._new_name = new_name
        self._columns = columns
        self._split = PartitionSplit.of(target.spec_json, columns)
        self._open: OrderedDict[tuple[object, ...], ParquetFile] = OrderedDict()
        self._finished: list[DataFileEntry] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._open.values():
            with suppress(TieringError, OSError):
                file.abort()

    def add(self, batch: pa.RecordBatch, prefix: str) -> None:
        """Append rows of one Kafka partition, which follow those before in offset order."""
        rows = pa.RecordBatch.from_arrays(batch.columns, schema=self._columns.arrow)
        for values, part in self._split.split(rows):
            self._file(values, prefix).add(part)

    def finish(self) -> tuple[DataFileEntry, ...]:
        """Make the files durable that were begun since the last time."""
        while self._open:
            self._finish_oldest()
        done, self._finished = tuple(self._finished), []
        return done

    def discard(self, entries: Iterable[DataFileEntry]) -> None:
        """Delete finished files that are not needed, as far as the store lets us."""
        for entry in entries:
            with suppress(TieringError, OSError):
                self._store.delete(entry.path[len(self._target.location.rstrip("/")) + 1 :])

    def _file(self, values: tuple[object, ...], prefix: str) -> ParquetFile:
        if values in self._open:
            self._open.move_to_end(values)
            return self._open[values]
        if len(self._open) >= _OPEN_FILES_MAX:
            self._finish_oldest()
        key = f"{_DATA}/{prefix}-{self._new_name()}.parquet"
        self._open[values] = ParquetFile(
            self._store.open_upload(key),
            f"{self._target.location.rstrip('/')}/{key}",
            self._columns,
            self._target,
            spec_id=self._split.spec_id,
            partition=values,
        )
        return self._open[values]

    def _finish_oldest(self) -> None:
        values, file = next(iter(self._open.items()))
        self._finished.append(file.finish())
        del self._open[values]


def all_columns(target: TableTarget) -> TableColumns:
    """Every column that the table has now, also those that others have added."""
    schema = TableColumns.of(target.schema_json).table
    return TableColumns(arrow=pa.schema([arrow_field(f) for f in schema.fields]), table=schema)
