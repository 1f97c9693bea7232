"""Positional deletes as engines commit them with merge-on-read; PyIceberg has no writer."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

_COLUMNS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


class _Writer(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    delete: DataFile

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        with _Writer(
            self.spec(self.delete.spec_id), self.schema(), self.new_manifest_output(),
            self.snapshot_id, self._compression,
        ) as writer:  # fmt: skip
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self.snapshot_id,
                    data_file=self.delete,
                )
            )
        return [writer.to_manifest_file(), *manifests]


def delete_rows(table: Table, path: str, *positions: int, partition: Record | None = None) -> None:
    """Hide the rows of `path` at these positions (from 0)."""
    target = Path(table.location()) / "data" / f"{uuid.uuid4()}-deletes.parquet"
    count = len(positions)
    rows = pa.table({"file_path": [path] * count, "pos": sorted(positions)}, schema=_COLUMNS)
    pq.write_table(rows, target)
    with table.transaction() as transaction:
        producer = _AddDeletes(Operation.DELETE, transaction, table.io)
        producer.delete = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=str(target),
            file_format=FileFormat.PARQUET,
            partition=partition or Record(),
            record_count=count,
            file_size_in_bytes=target.stat().st_size,
        )
        producer.delete.spec_id = table.spec().spec_id
        producer.commit()
