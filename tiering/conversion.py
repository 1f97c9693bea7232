"""One conversion task, from native bytes to data files: what a worker does. No Spark here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from segment_reader import (
    CorruptSegment,
    RangeSource,
    SegmentBounds,
    SegmentReader,
    SegmentReaderError,
    Verdicts,
)
from tiering.errors import BadInput, NotFound, TransientError
from tiering.ledger import Ledger, LedgerEntry
from tiering.redaction import redact
from tiering.segments import SegmentId
from tiering.store import ObjectStore, open_store
from tiering.task_files import TaskFiles, warehouse_url
from tiering.tasks import ConversionFailure, ConversionResult, ConversionTask

__all__ = ["convert_task"]

_BASE_OFFSET_BYTES: Final = 8
_VERDICTS_PART: Final = "verdicts"

OpenStore = Callable[[str], ObjectStore]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSegment:
    """What a task reads from: the log, and the verdicts of its transactions.

    `decided_to`: offsets from there on belong to transactions that are not decided yet.
    """

    log: RangeSource
    verdicts: Verdicts
    decided_to: int


def convert_task(task: ConversionTask, *, open_store: OpenStore = open_store) -> ConversionResult:
    """Write the task's committed records as Parquet files; say what was written, or why not.

    Never raises: whatever goes wrong is in the result, so that one task doesn't take the others
    of its job with it. A failed task leaves no file behind, as far as the store lets it. Rows
    are in offset order; memory is bounded by the reader's limits and the row group's size.

    Credentials are taken from the process environment by the stores themselves.
    """
    try:
        return _convert(task, open_store)
    except SegmentReaderError as error:
        return _failed(task, "corrupt", error.reason, error.position)
    except _Missing as error:
        return _failed(task, "missing", str(error))
    except (TransientError, OSError) as error:
        return _failed(task, "transient", str(error))
    except Exception as error:  # noqa: BLE001 - one task's surprise must not fail the whole job
        return _failed(task, "transient", f"{type(error).__name__}: {error}")


def _convert(task: ConversionTask, open_store: OpenStore) -> ConversionResult:
    segment = _open_segment(task, open_store)
    to_offset = min(task.to_offset, segment.decided_to)
    _check_borders(task, segment.log)
    reader = SegmentReader(segment.log, _bounds(task), segment.verdicts)
    files = TaskFiles(task, open_store(warehouse_url(task.target, task.store_url)))
    try:
        for records in reader.record_batches(
            from_offset=task.from_offset,
            to_offset=to_offset,
            start_position=task.start_position,
            end_position=task.end_position,
        ):
            files.add(records)
        entries = files.finish()
    except BaseException:
        files.abort()
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
    )


def _failed(task: ConversionTask, kind: str, reason: str, position: int = 0) -> ConversionResult:
    failure = ConversionFailure(
        kind=kind,  # type: ignore[arg-type]
        reason=redact(reason, {}),
        position=position,
    )
    return ConversionResult(task_id=task.task_id, converted_to=task.from_offset, failure=failure)


class _Missing(Exception):
    """A native object is gone."""


class _StoredLog:
    """A log object of the store as a source of ranges."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self.name = key
        self._read = partial(store.get_range, key)
        self.size_bytes = _found(partial(store.size, key))

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes; a log that has become shorter is a corrupt one."""
        data = _found(partial(self._read, start, length))
        if len(data) != length:
            raise CorruptSegment(
                f"the log has {len(data)} of the {length} bytes asked for here",
                segment=self.name,
                position=start,
            )
        return data


def _open_segment(task: ConversionTask, open_store: OpenStore) -> NativeSegment:
    if task.layout == "onecopy":
        return _open_own(task, open_store(task.store_url))
    raise BadInput(f"layout {task.layout}: not read yet")


def _open_own(task: ConversionTask, store: ObjectStore) -> NativeSegment:
    """A segment that the service has stored: identity and sizes as its ledger object says."""
    segment = SegmentId.parse(task.segment_path)
    entry = _found(partial(Ledger(store).load, segment))
    _check_identity(task, entry)
    log = _StoredLog(store, segment.log_key)
    if log.size_bytes != entry.metadata.size_bytes:
        raise CorruptSegment(
            f"the log has {log.size_bytes} bytes, {entry.metadata.size_bytes} were uploaded",
            segment=log.name,
            position=min(log.size_bytes, entry.metadata.size_bytes),
        )
    return NativeSegment(
        log=log, verdicts=_verdicts(store, segment, entry), decided_to=task.to_offset
    )


def _verdicts(store: ObjectStore, segment: SegmentId, entry: LedgerEntry) -> Verdicts:
    place = entry.part_range(_VERDICTS_PART)
    if place is None or not place[1]:
        return Verdicts.from_entries(b"")
    start, size = place
    data = _found(partial(store.get_range, segment.indexes_key, start, size))
    if len(data) != size:
        raise CorruptSegment(
            f"the verdicts have {len(data)} of {size} bytes",
            segment=segment.indexes_key,
            position=start + len(data),
        )
    return Verdicts.from_entries(data, name=segment.indexes_key)


def _check_identity(task: ConversionTask, entry: LedgerEntry) -> None:
    """Refuse an object that belongs to another segment than the task says.

    The ledger object's content is compared with its own key, too: objects get moved by hand.
    """
    meta = entry.metadata
    found = {
        "path": meta.id.path,
        "topic": meta.topic,
        "topic id": meta.id.topic_id,
        "partition": meta.id.partition,
        "start offset": meta.start_offset,
        "end offset": meta.end_offset,
        "leader epochs": meta.leader_epochs,
    }
    wanted = {
        "path": task.segment_path,
        "topic": task.topic,
        "topic id": task.topic_id,
        "partition": task.partition,
        "start offset": task.segment_start_offset,
        "end offset": task.segment_end_offset,
        "leader epochs": tuple(task.leader_epochs),
    }
    for what, value in wanted.items():
        if found[what] != value:
            raise CorruptSegment(
                f"its ledger object says {what} {found[what]}, expected was {value}",
                segment=task.segment_path,
                position=0,
            )


def _bounds(task: ConversionTask) -> SegmentBounds:
    return SegmentBounds(
        start_offset=task.segment_start_offset,
        end_offset=task.segment_end_offset,
        leader_epochs=task.leader_epochs,
    )


def _check_borders(task: ConversionTask, log: RangeSource) -> None:
    """Make sure that no offset of the task lies outside of its byte range.

    The range comes from the broker's OFFSET index, which nothing else vouches for. The batch at
    its start must begin at or below the first offset, and the batch at its end behind the last.
    """
    if task.start_position:
        first = _base_offset(log, task.start_position)
        if first is None or first > task.from_offset:
            raise CorruptSegment(
                f"the offset index puts offset {task.from_offset} at or behind this byte, "
                f"where the log has {first}",
                segment=log.name,
                position=task.start_position,
            )
    if task.end_position is not None:
        behind = _base_offset(log, task.end_position)
        if behind is not None and behind < task.to_offset:
            raise CorruptSegment(
                f"the offset index puts offset {task.to_offset - 1} before this byte, "
                f"where the log has {behind}",
                segment=log.name,
                position=task.end_position,
            )


def _base_offset(log: RangeSource, position: int) -> int | None:
    """Base offset of the batch at `position`, or None at the log's end."""
    if position + _BASE_OFFSET_BYTES > log.size_bytes:
        return None
    return int.from_bytes(log.read(position, _BASE_OFFSET_BYTES), "big", signed=True)


def _found(read: Callable[[], _T]) -> _T:
    """What `read` gives; NotFound, said of a native object, is told apart from the table's."""
    try:
        return read()
    except NotFound as error:
        raise _Missing(str(error)) from error
