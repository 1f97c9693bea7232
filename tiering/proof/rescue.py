"""One rescue task: what a table is about to lose with a dropped column goes into the side file.

A batch needs saving when the columns that the table still has don't give it. Its records are then
made of the files that still have the dropped column: those of the newest snapshot, or, where they
were rewritten since, of the newest older one that gives them. What is saved has been compared with
the digest that was taken when it was converted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from segment_reader.batch_table import BatchTable, Kept
from tiering.conversion.task_input import OpenStore
from tiering.conversion.worker_secrets import without_secrets
from tiering.errors import TieringError, TransientError
from tiering.history import RecordCursor, RegeneratedRun, Regenerator, TableRecords
from tiering.offset_reader.limits import DEFAULT_LIMITS
from tiering.offset_reader.parquet_files import MissingFile
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.segments import SegmentId
from tiering.side_files import SideFile, SideFileWriter
from tiering.store import ObjectStore, open_store
from tiering.table.pointers import open_at_metadata
from tiering.table.state import main_ancestors
from tiering.tasks import ProofFailure, RescueResult, RescueTask

__all__ = ["rescue_task"]

_OLDER_SNAPSHOTS_MAX: Final = 20
_Int64s = npt.NDArray[np.int64]


def rescue_task(task: RescueTask, *, open_store: OpenStore = open_store) -> RescueResult:
    """Write a new side file of the whole segment that keeps what has to be saved, if anything has.

    Never raises: whatever goes wrong is in the result. Batches that can't be had any more are
    counted as lost and stay as they are. Memory is bounded by the readers' limits and the largest
    batch. Credentials are taken from the process environment.
    """
    try:
        with ExitStack() as stack:
            return _Rescue(task, open_store(task.store_url), stack).run()
    except (TransientError, MissingFile, OSError) as error:
        kind, reason = "transient", str(error)
    except TieringError as error:
        kind, reason = "mismatch", str(error)
    except Exception as error:  # noqa: BLE001 - one task's surprise must not fail the whole job
        kind, reason = "transient", f"{type(error).__name__}: {error}"
    failure = ProofFailure(kind=kind, reason=without_secrets(reason))  # type: ignore[arg-type]
    return RescueResult(task_id=task.task_id, failure=failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One snapshot's rows: with the columns that were dropped, and without them."""

    records: TableRecords
    full: Regenerator
    narrow: Regenerator


class _Rescue:
    """The batches of one segment, one run after the other."""

    def __init__(self, task: RescueTask, store: ObjectStore, stack: ExitStack) -> None:
        self._task = task
        self._store = store
        self._stack = stack
        self._segment = SegmentId.parse(task.segment_path)
        self._side = SideFile.open(store, self._segment, task.side_keys)
        self._table = open_at_metadata(task.metadata_location, task.table, task.io_properties)
        self._head_view = SnapshotView.of(self._table, MAIN, DEFAULT_LIMITS)
        self._head = self._source(self._head_view)
        self._older: list[_Source] | None = None
        self._saved = 0
        self._lost: list[int] = []

    def run(self) -> RescueResult:
        result = RescueResult(task_id=self._task.task_id)
        if not any(run.faults for run in self._head.narrow.marked()):
            return result
        writer = SideFileWriter(
            self._store,
            self._segment,
            int(self._side.batches.headers.base_offset[0]),
            new_name=lambda: uuid.uuid4().hex,
        )
        try:
            for part in self._side.index_parts:
                writer.add_index(part, self._side.index(part) or b"")
            for run in self._head.narrow.marked():
                writer.add(*self._kept(run))
            lost_offset = self._lost[0] if self._lost else -1
            result = replace(result, lost=len(self._lost), lost_offset=lost_offset)
            if not self._saved:
                writer.abort()
                return result
            info = writer.finish()
        except BaseException:
            writer.abort()
            raise
        return replace(result, side_key=info.key, side_bytes=info.size_bytes, saved=self._saved)

    def _kept(self, run: RegeneratedRun) -> tuple[BatchTable, list[bytes | None]]:
        """The run's batches as they go into the new side file."""
        first, stop = run.first, run.first + len(run)
        batches = self._side.batches.slice(slice(first, stop))
        kept = self._side.kept_bytes(first, stop)
        saved: dict[int, tuple[int, bytes]] = {}
        if run.faults:
            saved = self._save(run)
        if not saved:
            return batches, kept
        places = np.array([batch - first for batch in saved], np.int64)
        counts, sizes = batches.headers.count.copy(), batches.records_size.copy()
        crcs, kinds = batches.records_crc.copy(), batches.kept.copy()
        kinds[places] = Kept.RAW
        for place, (count, data) in zip(places.tolist(), saved.values(), strict=True):
            counts[place], sizes[place] = count, len(data)
            crcs[place] = google_crc32c.value(data)
            kept[place] = data
        self._saved += len(saved)
        headers = replace(batches.headers, count=counts)
        return (
            BatchTable(headers=headers, records_size=sizes, records_crc=crcs, kept=kinds),
            kept,
        )

    def _save(self, narrow: RegeneratedRun) -> dict[int, tuple[int, bytes]]:
        """{batch: (records, their bytes)} of those that the run hasn't and that can be had."""
        wanted = [fault.batch for fault in narrow.faults]
        stop = narrow.first + len(narrow)
        saved = {}
        for run in self._head.full.marked(narrow.first, stop):
            bad = {fault.batch for fault in run.faults}
            for batch in wanted:
                if not run.first <= batch < run.first + len(run):
                    continue
                if batch not in bad or self._is_accepted(batch):
                    saved[batch] = _taken(run, batch)
                    continue
                found = self._save_odd(batch, run, narrow)
                if found is not None:
                    saved[batch] = found
        return saved

    def _save_odd(
        self, batch: int, full: RegeneratedRun, narrow: RegeneratedRun
    ) -> tuple[int, bytes] | None:
        """A batch that the newest snapshot doesn't give whole; None leaves it as it is."""
        missing = int(full.counts[batch - full.first]) < int(
            self._side.batches.headers.count[batch]
        )
        for source in self._older_sources():
            if not _only(source.narrow, batch).faults:
                return None  # the columns left have all of it: only rows were deleted
            run = _only(source.full, batch)
            if run.faults:
                continue
            if not missing:
                return _taken(run, batch)
            return self._without_deleted(batch, source) if self._task.retired else None
        mine = _taken(full, batch)
        if missing:
            # Nothing says what the whole batch was; what is left of it is from files with the
            # column if it makes a difference.
            same = mine == _taken(narrow, batch)
            return None if same or not self._task.retired else mine
        self._lost.append(int(self._side.batches.headers.base_offset[batch]))
        return None

    def _without_deleted(self, batch: int, source: _Source) -> tuple[int, bytes]:
        """A batch from older rows, but only what the newest snapshot still has of it."""
        headers = self._side.batches.headers
        start, end = int(headers.base_offset[batch]), int(headers.last_offset[batch]) + 1
        partition = self._task.partition
        with self._head.records.cursor(partition, end) as rows:
            present = rows.take(start, end).column("offset")

        def left(first: int) -> Iterator[pa.RecordBatch]:
            for chunk in source.records.records(partition, first, end):
                yield chunk.filter(pc.is_in(chunk.column("offset"), value_set=present))

        with RecordCursor(left) as rows:  # type: ignore[arg-type]
            regenerator = Regenerator(self._side, rows, rows_may_miss=True)
            return _taken(_only(regenerator, batch), batch)

    def _is_accepted(self, batch: int) -> bool:
        headers = self._side.batches.headers
        base, last = int(headers.base_offset[batch]), int(headers.last_offset[batch])
        return any(base < end and last >= start for start, end in self._task.accepted)

    def _older_sources(self) -> list[_Source]:
        if self._older is None:
            self._older = [
                self._source(SnapshotView.at(self._table, i, DEFAULT_LIMITS, self._head_view))
                for i in _before_changes(self._table)
            ]
        return self._older

    def _source(self, view: SnapshotView) -> _Source:
        partition = self._task.partition
        full, narrow = TableRecords(view), TableRecords(view, with_dropped=False)
        rows, fewer = (
            self._stack.enter_context(records.cursor(partition)) for records in (full, narrow)
        )
        return _Source(
            records=full,
            full=Regenerator(self._side, rows),
            narrow=Regenerator(self._side, fewer),
        )


def _only(regenerator: Regenerator, batch: int) -> RegeneratedRun:
    (run,) = regenerator.marked(batch, batch + 1)
    return run


def _taken(run: RegeneratedRun, batch: int) -> tuple[int, bytes]:
    """(records, their bytes) of one batch."""
    i = batch - run.first
    borders = run.records.borders
    return int(run.counts[i]), run.records.buffer[borders[i] : borders[i + 1]].tobytes()


def _before_changes(table: Table) -> list[int]:
    """Ids of main's snapshots, newest first, after which something was taken out or rewritten.

    All files that are gone from the newest one since were in one of these.
    """
    there = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    found = [
        snapshot.parent_snapshot_id
        for snapshot in main_ancestors(table.metadata)
        if snapshot.parent_snapshot_id in there
        and snapshot.summary is not None
        and snapshot.summary.operation is not Operation.APPEND
    ]
    return [i for i in found if i is not None][:_OLDER_SNAPSHOTS_MAX]
