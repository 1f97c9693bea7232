"""Telling a data file that is damaged from one that can't be read for now."""

from __future__ import annotations

from typing import Final

from pyiceberg.io import load_file_io

from tiering.offset_reader.snapshot_view import SnapshotView
from tiering.tasks import ProofTask

__all__ = ["read_through"]

_STEP_BYTES: Final = 4 * 1024 * 1024


def read_through(view: SnapshotView, task: ProofTask) -> None:
    """Read all bytes of the data files that may hold rows of the task's segment.

    Arrow raises the same error for bytes that it can't decode and for a store that it can't reach.
    Only the latter raises here, too (OSError).
    """
    start, end = task.segment_start_offset, task.segment_end_offset + 1
    for file in view.index.files(task.partition, start, end):
        io = load_file_io(properties=dict(task.io_properties), location=file.path)
        with io.new_input(file.path).open() as stream:
            while stream.read(_STEP_BYTES):
                pass
