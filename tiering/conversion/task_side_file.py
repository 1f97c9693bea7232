"""The side file that one task writes beside its data files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from segment_reader.batch_table import BatchTable
from tiering.conversion.native_indexes import native_indexes
from tiering.conversion.task_input import StoredInput
from tiering.errors import BadInput, TieringError
from tiering.segments import SegmentId
from tiering.side_files import SideFileInfo, SideFileWriter
from tiering.store import ObjectStore
from tiering.tasks import ConversionTask

__all__ = ["TaskSideFile"]


class TaskSideFile:
    """Takes all batches of a task, whether or not their rows are the task's to write.

    The task that has the segment's first batch takes its indexes along. Names carry a random part,
    as those of data files do.
    """

    def __init__(
        self,
        task: ConversionTask,
        native: StoredInput,
        store: ObjectStore,
        *,
        new_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Prepare it; raises what reading the indexes does, and BadInput for a wrong prefix."""
        segment = SegmentId.parse(task.segment_path)
        if task.side_prefix != segment.side_prefix:
            raise BadInput(
                f"segment {task.segment_path}: its side file's prefix is {segment.side_prefix}, "
                f"not {task.side_prefix}"
            )
        first_offset = max(task.batches_from, task.segment_start_offset)
        self._store = store
        self._writer = SideFileWriter(store, segment, first_offset, new_name=new_name)
        self._finished = False
        if task.batches_from <= task.segment_start_offset:
            for part, data in native_indexes(store, native.entry).items():
                self._writer.add_index(part, data)

    def add(self, batches: BatchTable, kept_bytes: Sequence[bytes | None]) -> None:
        """Append batches that follow those before, with what is kept of each."""
        self._writer.add(batches, kept_bytes)

    def finish(self) -> SideFileInfo:
        """Make the file durable and visible."""
        info = self._writer.finish()
        self._finished = True
        return info

    def abort(self) -> None:
        """Drop the file, or delete it when it is finished, as far as the store lets us; never
        raises."""
        self._writer.abort()
        if self._finished:
            with suppress(TieringError, OSError):
                self._store.delete(self._writer.key)
