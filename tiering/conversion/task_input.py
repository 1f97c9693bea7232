"""What a conversion task reads: a native log that is the right one, whole, and cut rightly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from segment_reader import CorruptSegment, RangeSource, SegmentBounds, Verdicts
from segment_reader.layouts import LocalTieredStorageLayout, NativeSegment
from tiering.errors import BadInput, NotFound
from tiering.ledger import Ledger, LedgerEntry
from tiering.segments import SegmentId
from tiering.store import ObjectStore
from tiering.tasks import ConversionTask

__all__ = ["MissingSegment", "OpenStore", "TaskInput", "open_input"]

_BASE_OFFSET_BYTES: Final = 8
_VERDICTS_PART: Final = "verdicts"
_OFFSET_MAX: Final = 2**63 - 1

OpenStore = Callable[[str], ObjectStore]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """The log of a task's segment, what to check it against, and its transactions' verdicts.

    `decided_to`: from that offset on there may be transactions that are not decided yet.
    `remote`: every read of the log goes over a network.
    """

    log: RangeSource
    bounds: SegmentBounds
    verdicts: Verdicts
    decided_to: int = _OFFSET_MAX
    remote: bool = False


class MissingSegment(Exception):
    """A native object is gone: deleted by the broker meanwhile, or never there."""


def open_input(task: ConversionTask, open_store: OpenStore) -> TaskInput:
    """Find the task's segment and check its identity, its size and the task's byte range.

    Raises MissingSegment, CorruptSegment (the segment contradicts what is known of it), BadInput
    for a task that can't be right, and TransientError when the store is out.
    """
    if task.layout == "onecopy":
        found = _open_own(task, open_store(task.store_url))
    else:
        found = _open_local_tiered_storage(task)
    _check_borders(task, found.log)
    return found


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


def _open_own(task: ConversionTask, store: ObjectStore) -> TaskInput:
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
    return TaskInput(
        log=log,
        bounds=_bounds(task),
        verdicts=_verdicts(store, segment, entry),
        remote=task.store_url.startswith("s3://"),
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
    """An epoch that starts where the next one does has no offsets: it is left out."""
    epochs = task.leader_epochs
    followers = (*(start for _, start in epochs[1:]), None)
    return SegmentBounds(
        start_offset=task.segment_start_offset,
        end_offset=task.segment_end_offset,
        leader_epochs=tuple(e for e, end in zip(epochs, followers, strict=True) if e[1] != end),
    )


def _open_local_tiered_storage(task: ConversionTask) -> TaskInput:
    """A segment that Kafka's own LocalTieredStorage keeps below a directory; it is only read."""
    directory, _, name = task.segment_path.rpartition("/")
    base, _, segment_id = name.partition("-")
    if directory != f"{task.topic}-{task.partition}-{task.topic_id}" or not base.isdigit():
        raise BadInput(
            f"segment path {task.segment_path} is not that of a segment of topic {task.topic} "
            f"(id {task.topic_id}), partition {task.partition}"
        )
    segment = NativeSegment(
        topic=task.topic,
        topic_id=task.topic_id,
        partition=task.partition,
        base_offset=int(base),
        segment_id=segment_id,
    )
    layout = LocalTieredStorageLayout(_directory(task.store_url))
    try:
        undecided = layout.first_undecided_offset(segment)
        return TaskInput(
            log=layout.log(segment),
            bounds=_bounds(task),
            verdicts=Verdicts.from_entries(layout.verdicts(segment), name=task.segment_path),
            decided_to=_OFFSET_MAX if undecided is None else undecided,
        )
    except FileNotFoundError as error:
        raise MissingSegment(f"{task.segment_path}: {error}") from error


def _directory(url: str) -> Path:
    return Path(unquote(urlsplit(url).path)) if url.startswith("file://") else Path(url)


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
        raise MissingSegment(str(error)) from error
