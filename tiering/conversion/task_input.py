"""What a worker reads: a native log that is the right one, whole, and cut rightly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from segment_reader import CorruptSegment, RangeSource, SegmentBounds, Verdicts
from segment_reader.layouts import LocalTieredStorageLayout, NativeSegment
from tiering.conversion.stored_log import MissingSegment, StoredLog, found, read_part
from tiering.errors import BadInput
from tiering.ledger import Ledger, LedgerEntry
from tiering.segments import SegmentId
from tiering.store import ObjectStore
from tiering.tasks import ConversionTask, ProofTask

__all__ = ["MissingSegment", "OpenStore", "StoredInput", "TaskInput", "open_input", "open_stored"]

_BASE_OFFSET_BYTES: Final = 8
_VERDICTS_PART: Final = "verdicts"
_OFFSET_MAX: Final = 2**63 - 1

OpenStore = Callable[[str], ObjectStore]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInput(TaskInput):
    """The same of a segment that the service has stored; `entry` is its ledger object."""

    entry: LedgerEntry


def open_input(task: ConversionTask, open_store: OpenStore) -> TaskInput:
    """Find the task's segment and check its identity, its size and the task's byte range.

    Raises MissingSegment, CorruptSegment (the segment contradicts what is known of it), BadInput
    for a task that can't be right, and TransientError when the store is out.
    """
    if task.layout == "onecopy":
        opened: TaskInput = open_stored(task, open_store(task.store_url))
    else:
        opened = _open_local_tiered_storage(task)
    _check_borders(task, opened.log)
    return opened


def open_stored(task: ConversionTask | ProofTask, store: ObjectStore) -> StoredInput:
    """A segment that the service has stored: identity and sizes as its ledger object says.

    Raises as `open_input`.
    """
    segment = SegmentId.parse(task.segment_path)
    entry = found(partial(Ledger(store).load, segment))
    _check_identity(task, entry)
    log = StoredLog(store, entry)
    verdicts = read_part(store, entry, _VERDICTS_PART) or b""
    return StoredInput(
        log=log,
        bounds=_bounds(task),
        verdicts=Verdicts.from_entries(verdicts, name=segment.indexes_key),
        remote=task.store_url.startswith("s3://"),
        entry=entry,
    )


def _check_identity(task: ConversionTask | ProofTask, entry: LedgerEntry) -> None:
    """Refuse an object that belongs to another segment than the task says.

    The ledger object's content is compared with its own key, too: objects get moved by hand.
    """
    meta = entry.metadata
    told = {
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
        if told[what] != value:
            raise CorruptSegment(
                f"its ledger object says {what} {told[what]}, expected was {value}",
                segment=task.segment_path,
                position=0,
            )


def _bounds(task: ConversionTask | ProofTask) -> SegmentBounds:
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
    """Make sure that nothing of the task lies outside of its byte range: no offset whose row it
    writes, and no batch that its side file is to have.

    The range comes from the broker's OFFSET index, which nothing else vouches for. The batch at
    its start must begin at or below the first offset, and the batch at its end behind the last.
    """
    first, behind = task.from_offset, task.to_offset
    if task.side_prefix is not None:
        first, behind = task.batches_from, task.batches_to
    if task.start_position:
        found_first = _base_offset(log, task.start_position)
        if found_first is None or found_first > first:
            raise CorruptSegment(
                f"the offset index puts offset {first} at or behind this byte, "
                f"where the log has {found_first}",
                segment=log.name,
                position=task.start_position,
            )
    if task.end_position is not None:
        found_behind = _base_offset(log, task.end_position)
        if found_behind is not None and found_behind < behind:
            raise CorruptSegment(
                f"the offset index puts offset {behind - 1} before this byte, "
                f"where the log has {found_behind}",
                segment=log.name,
                position=task.end_position,
            )


def _base_offset(log: RangeSource, position: int) -> int | None:
    """Base offset of the batch at `position`, or None at the log's end."""
    if position + _BASE_OFFSET_BYTES > log.size_bytes:
        return None
    return int.from_bytes(log.read(position, _BASE_OFFSET_BYTES), "big", signed=True)
