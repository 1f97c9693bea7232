"""One conversion task, from native bytes to data files and a side file: what a worker does. No
Spark here."""

from __future__ import annotations

from segment_reader import RangeSource, SegmentReader, SegmentReaderError
from tiering.conversion.read_ahead import ReadAhead
from tiering.conversion.record_rows import NoDeadLetters, RecordRows, Suspended
from tiering.conversion.task_input import (
    MissingSegment,
    OpenStore,
    StoredInput,
    TaskInput,
    open_input,
)
from tiering.conversion.task_side_file import TaskSideFile
from tiering.conversion.typed_rows import UnknownSchemas
from tiering.conversion.worker_secrets import without_secrets
from tiering.errors import TransientError
from tiering.side_files import SideFileInfo
from tiering.store import open_store
from tiering.tasks import ConversionFailure, ConversionResult, ConversionTask
from tiering.values.stored_schema import Part

__all__ = ["convert_task"]


def convert_task(task: ConversionTask, *, open_store: OpenStore = open_store) -> ConversionResult:
    """Write the task's committed records as Parquet files, and beside them what these don't hold of
    its batches; say what was written, or why not.

    Never raises: whatever goes wrong is in the result, so that one task doesn't take the others
    of its job with it. A failed task leaves no file behind, as far as the store lets it. Rows
    are in offset order; memory is bounded by the reader's limits and the row group's size.

    Credentials are taken from the process environment by the stores themselves.
    """
    try:
        return _convert_surely(task, open_store)
    except SegmentReaderError as error:
        return _failed(task, "corrupt", error.reason, error.position)
    except MissingSegment as error:
        return _failed(task, "missing", str(error))
    except UnknownSchemas as error:
        return _failed(task, "schema", str(error), schemas=error.schemas)
    except NoDeadLetters as error:
        return _failed(task, "dead_letters", str(error))
    except Suspended as error:
        return _failed(task, "suspended", str(error))
    except (TransientError, OSError) as error:
        return _failed(task, "transient", str(error))
    except Exception as error:  # noqa: BLE001 - one task's surprise must not fail the whole job
        return _failed(task, "transient", f"{type(error).__name__}: {error}")


def _convert_surely(task: ConversionTask, open_store: OpenStore) -> ConversionResult:
    """Bytes that look corrupt are read once more: they may have been changed on their way here,
    while a quarantine stops the partition until somebody looks."""
    try:
        return _convert(task, open_store)
    except SegmentReaderError:
        return _convert(task, open_store)


def _convert(task: ConversionTask, open_store: OpenStore) -> ConversionResult:
    native = open_input(task, open_store)
    if not native.remote:
        return _write(task, native, native.log, open_store)
    with ReadAhead(native.log, task.end_position) as log:
        return _write(task, native, log, open_store)


def _write(
    task: ConversionTask, native: TaskInput, log: RangeSource, open_store: OpenStore
) -> ConversionResult:
    to_offset = max(task.from_offset, min(task.to_offset, native.decided_to))
    reader = SegmentReader(log, native.bounds, native.verdicts)
    rows = RecordRows(task, open_store)
    side: TaskSideFile | None = None
    info: SideFileInfo | None = None
    try:
        if isinstance(native, StoredInput) and task.side_prefix is not None:
            side = TaskSideFile(task, native, open_store(task.store_url))
            _write_with_side(task, reader, to_offset, rows, side)
        else:
            _write_rows(task, reader, to_offset, rows)
        entries, dead_letters = rows.finish()
        info = side.finish() if side is not None else None
    except BaseException:
        rows.abort()
        if side is not None:
            side.abort()
        raise
    stats = reader.stats
    return ConversionResult(
        task_id=task.task_id,
        entries=entries,
        rows=stats.rows,
        aborted_rows=stats.aborted_rows,
        control_batches=stats.control_batches,
        batches=stats.batches,
        native_bytes=stats.bytes_read,
        converted_to=to_offset,
        side_key=info.key if info is not None else None,
        side_bytes=info.size_bytes if info is not None else 0,
        kept_bytes=info.kept_bytes if info is not None else 0,
        typed_rows=rows.typed_rows,
        raw_rows=rows.raw_rows,
        dead_letters=dead_letters,
        bad_records=dict(rows.bad_records),
    )


def _write_rows(
    task: ConversionTask, reader: SegmentReader, to_offset: int, rows: RecordRows
) -> None:
    for records in reader.record_batches(
        from_offset=task.from_offset,
        to_offset=to_offset,
        start_position=task.start_position,
        end_position=task.end_position,
    ):
        rows.write(records)


def _write_with_side(
    task: ConversionTask,
    reader: SegmentReader,
    to_offset: int,
    rows: RecordRows,
    side: TaskSideFile,
) -> None:
    """Rows of the task's offsets, and of every batch that is the task's what they don't give.

    Each batch is regenerated from its rows as the table will hold them.
    """
    for step in reader.witnessed(
        from_offset=task.from_offset,
        to_offset=to_offset,
        batches_from=task.batches_from,
        batches_to=task.batches_to,
        start_position=task.start_position,
        end_position=task.end_position,
        as_held=rows.as_held,
    ):
        side.add(step.batches, step.kept_bytes)
        for records in step.records:
            rows.write(records)


def _failed(
    task: ConversionTask,
    kind: str,
    reason: str,
    position: int = 0,
    schemas: tuple[tuple[Part, int], ...] = (),
) -> ConversionResult:
    failure = ConversionFailure(
        kind=kind,  # type: ignore[arg-type]
        reason=without_secrets(reason),
        position=position,
        schemas=schemas,
    )
    return ConversionResult(task_id=task.task_id, converted_to=task.from_offset, failure=failure)
