"""Which files of a snapshot some offsets depend on, as one short text to compare."""

from __future__ import annotations

import hashlib

from tiering.offset_reader.snapshot_view import SnapshotView

__all__ = ["coverage"]


def coverage(view: SnapshotView, partition: int, start: int, end: int) -> str:
    """SHA-256 (hexadecimal) over all that the rows of offsets [start, end) are read from.

    That is each data file that may hold one, by the bounds in the manifests, the delete files
    that apply to it, and which of Kafka's columns the table still has. While it stays the same,
    the same rows come out: data files and delete files never change. Reads no data file. Raises
    TransientError and MissingFile as the view does.
    """
    columns = view.columns
    digest = hashlib.sha256()
    for field_id in (
        *(columns.partition, columns.offset, columns.timestamp, columns.key, columns.value),
        *(columns.headers, columns.header_key, columns.header_value),
    ):
        digest.update(f"{field_id}\n".encode())
    files = {file.path: file for file in view.index.files(partition, start, end)}
    for path in sorted(files):
        digest.update(f"data {path}\n".encode())
        for delete in sorted({file.file_path for file in view.deletes.applying(files[path])}):
            digest.update(f"delete {delete}\n".encode())
    return digest.hexdigest()
