"""Rows that delete files hide: positional deletes and deletion vectors (Iceberg spec, "Row-level
deletes").

A snapshot without delete files costs nothing here. Equality deletes are refused: reading on
would show rows that SQL does not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.delete_file_index import DeleteFileIndex

from tiering.errors import BadInput
from tiering.offset_reader.file_index import FileIndex, FileRef
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.parquet_files import store_errors

__all__ = ["DeletedRows"]

Rows = npt.NDArray[np.int64]


class DeletedRows:
    """The deleted row numbers of each data file of one snapshot. Safe for several threads."""

    def __init__(self, io: FileIO, index: FileIndex, limits: ReadLimits) -> None:
        """Index the snapshot's delete files; raises BadInput for equality deletes."""
        self._io = io
        self._limits = limits
        self._deletes = DeleteFileIndex()
        self._read: OrderedDict[str, dict[str, Rows]] = OrderedDict()
        self._lock = threading.Lock()
        for delete in index.deletes:
            file = delete.entry.data_file
            if delete.equality:
                raise BadInput(
                    f"the table has equality deletes ({file.file_path}), which are not read by "
                    "offset; rewrite its data files (Spark: rewrite_data_files) to apply them"
                )
            self._deletes.add_delete_file(delete.entry, partition_key=file.partition)

    def rows(self, file: FileRef) -> Rows | None:
        """Deleted row numbers of `file`, ascending and without repeats; None if there are none.

        Raises MissingFile or TransientError when a delete file can't be read.
        """
        found = [self._positions(delete).get(file.path) for delete in self.applying(file)]
        hits = [rows for rows in found if rows is not None]
        return np.unique(np.concatenate(hits)) if hits else None

    def applying(self, file: FileRef) -> Collection[DataFile]:
        """The delete files that may hide rows of `file`; none of them is opened."""
        if self._deletes.is_empty():
            return ()
        entry = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=file.partition_tuple,
        )
        entry.spec_id = file.spec_id
        return self._deletes.for_data_file(
            file.sequence_number, entry, partition_key=file.partition_tuple
        )

    def _positions(self, delete: DataFile) -> dict[str, Rows]:
        with self._lock:
            known = self._read.get(delete.file_path)
            if known is not None:
                self._read.move_to_end(delete.file_path)
                return known
        with store_errors(delete.file_path):
            read = _read_deletes(self._io, delete)
        rows = {path: np.asarray(column, dtype=np.int64) for path, column in read.items()}
        with self._lock:
            self._read[delete.file_path] = rows
            while len(self._read) > self._limits.delete_files:
                self._read.popitem(last=False)
        return rows
