"""Where native segments lie: Onecopy's own objects and LocalTieredStorage, behind one face."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from segment_reader.bounds import SegmentBounds
from segment_reader.errors import CorruptSegment, UnsupportedFormat
from segment_reader.indexes import (
    parse_leader_epochs,
    parse_offset_index,
    parse_producer_snapshot,
)
from segment_reader.limits import DEFAULT_LIMITS, Limits
from segment_reader.reader import SegmentReader
from segment_reader.sources import FileSource, RangeSource
from segment_reader.transactions import first_open_offset, overlapping_entries

__all__ = [
    "IndexKind",
    "LocalTieredStorageLayout",
    "NativeLayout",
    "NativeSegment",
    "ObjectRead",
    "OnecopyLayout",
    "StoredSegment",
]

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_UUID: Final = r"[A-Za-z0-9_-]{22}"
_OFFSET_MAX: Final = 2**63 - 2


class IndexKind(StrEnum):
    """The index files of a segment, by the part names of Onecopy's indexes object."""

    OFFSET = "offset_index"
    TIME = "time_index"
    TRANSACTION = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    LEADER_EPOCHS = "leader_epochs"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NativeSegment:
    """One copy of one segment, by KIP-405's identity. Ids are Kafka Uuids of 22 characters."""

    topic: str
    topic_id: str
    partition: int
    base_offset: int
    segment_id: str


class NativeLayout(Protocol):
    """Lists segments and gives each one's bytes. Nothing is ever written.

    Raises CorruptSegment for what contradicts Kafka's formats, besides what its store raises.
    """

    def segments(self) -> Iterator[NativeSegment]:
        """All whole segments, ordered by topic, topic id, partition, base offset."""

    def log(self, segment: NativeSegment) -> RangeSource:
        """The segment's log."""

    def index(self, segment: NativeSegment, kind: IndexKind) -> bytes | None:
        """An index file's bytes; None where the segment has no transaction index."""

    def verdicts(self, segment: NativeSegment) -> bytes:
        """The `.txnindex` entries of every aborted transaction that overlaps the segment."""

    def bounds(self, segment: NativeSegment) -> SegmentBounds:
        """What the log's bytes are checked against."""

    def first_undecided_offset(self, segment: NativeSegment) -> int | None:
        """From where on this layout can't say which transactions of the segment's partition were
        aborted; None if it can for all it holds."""


class ObjectRead(Protocol):
    """Reads a range of an object: exactly `length` bytes from `start` on."""

    def __call__(self, key: str, start: int, length: int) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """What Onecopy's ledger knows of a segment: where its bytes are and what they must keep to.

    `parts` holds (part name, size) in the order they lie in the indexes object.
    """

    segment: NativeSegment
    bounds: SegmentBounds
    log_key: str
    log_bytes: int
    indexes_key: str
    parts: tuple[tuple[str, int], ...]


class OnecopyLayout:
    """Onecopy's own objects: a log, and all index parts back to back in a second object."""

    def __init__(self, stored: Mapping[NativeSegment, StoredSegment], read: ObjectRead) -> None:
        self._stored = stored
        self._read = read

    def segments(self) -> Iterator[NativeSegment]:
        """All segments that were given, in order."""
        return iter(sorted(self._stored))

    def log(self, segment: NativeSegment) -> RangeSource:
        """The segment's log object."""
        stored = self._stored[segment]
        return _ObjectSource(stored.log_key, stored.log_bytes, self._read)

    def index(self, segment: NativeSegment, kind: IndexKind) -> bytes | None:
        """A part of the indexes object, or None if there is no such part."""
        return self._part(segment, kind.value)

    def verdicts(self, segment: NativeSegment) -> bytes:
        """The verdicts that came with the segment."""
        return self._part(segment, "verdicts") or b""

    def bounds(self, segment: NativeSegment) -> SegmentBounds:
        """What the broker said of the segment."""
        return self._stored[segment].bounds

    def first_undecided_offset(self, segment: NativeSegment) -> int | None:
        """None: a segment arrives with the verdicts of all its transactions."""
        return None

    def _part(self, segment: NativeSegment, name: str) -> bytes | None:
        stored, start = self._stored[segment], 0
        for part, size in stored.parts:
            if part == name:
                return self._read(stored.indexes_key, start, size) if size else b""
            start += size
        return None


class _ObjectSource:
    def __init__(self, key: str, size_bytes: int, read: ObjectRead) -> None:
        self.name = key
        self.size_bytes = size_bytes
        self._read = read

    def read(self, start: int, length: int) -> bytes:
        return self._read(self.name, start, length)


class LocalTieredStorageLayout:
    """Kafka's LocalTieredStorage, its reference RemoteStorageManager.

    `<root>/<topic>-<partition>-<topic id>/<base offset, 20 digits>-<segment id>.<suffix>`. `root`
    is its `kafka-tiered-storage` directory. Names are read from the right, as ids contain '-';
    what is no such name, or no whole segment, is passed over; symbolic links are not followed.
    """

    _DIRECTORY: Final = re.compile(rf"(?P<topic>.+)-(?P<partition>\d{{1,10}})-(?P<id>{_UUID})")
    _LOG: Final = re.compile(rf"(?P<base>\d{{20}})-(?P<segment>{_UUID})\.log")
    _SUFFIXES: Final = {
        IndexKind.OFFSET: ".index",
        IndexKind.TIME: ".timeindex",
        IndexKind.TRANSACTION: ".txnindex",
        IndexKind.PRODUCER_SNAPSHOT: ".snapshot",
        IndexKind.LEADER_EPOCHS: ".leader_epoch_checkpoint",
    }

    def __init__(self, root: Path | str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._root = Path(root)
        self._limits = limits
        self._known_bounds: dict[NativeSegment, SegmentBounds] = {}

    def segments(self) -> Iterator[NativeSegment]:
        """All segments whose files are all there, ordered."""
        found: list[NativeSegment] = []
        for directory in self._root.iterdir():
            match = self._DIRECTORY.fullmatch(directory.name)
            if match and _is_topic(match["topic"]) and _is_real(directory):
                partition = int(match["partition"])
                found += self._in_directory(directory, match["topic"], match["id"], partition)
        return iter(sorted(found))

    def log(self, segment: NativeSegment) -> RangeSource:
        """The segment's log file."""
        return FileSource(self._path(segment, ".log"))

    def index(self, segment: NativeSegment, kind: IndexKind) -> bytes | None:
        """An index file; None where there is no transaction index."""
        path = self._path(segment, self._SUFFIXES[kind])
        if kind is IndexKind.TRANSACTION and not path.exists():
            return None
        return path.read_bytes()

    def verdicts(self, segment: NativeSegment) -> bytes:
        """Entries from all transaction indexes of the partition, because an entry lies where its
        marker is, in this or any later segment."""
        bounds = self.bounds(segment)
        every = (self.index(other, IndexKind.TRANSACTION) for other in self._siblings(segment))
        entries = b"".join(data for data in every if data)
        return overlapping_entries(entries, bounds.start_offset, bounds.end_offset)

    def bounds(self, segment: NativeSegment) -> SegmentBounds:
        """Base offset, the last batch's last offset, and the leader epoch checkpoint.

        LocalTieredStorage keeps no end offset, so it is read from the log's last batches (once).
        """
        if segment not in self._known_bounds:
            self._known_bounds[segment] = self._read_bounds(segment)
        return self._known_bounds[segment]

    def first_undecided_offset(self, segment: NativeSegment) -> int | None:
        """Where the earliest transaction begins that is open at the end of what the tier holds.

        Its marker, and with it its verdict, lies in a segment that is not here (yet). The newest
        segment's producer snapshot tells; should that be unreadable, the logs' batches do.
        """
        siblings = self._siblings(segment)
        newest = max(siblings, key=lambda other: self.bounds(other).end_offset)
        try:
            snapshot = parse_producer_snapshot(
                self.index(newest, IndexKind.PRODUCER_SNAPSHOT) or b"", name=self._name(newest)
            )
        except (CorruptSegment, UnsupportedFormat):
            return first_open_offset(
                headers
                for other in siblings
                for headers in SegmentReader(
                    self.log(other), self.bounds(other), limits=self._limits
                ).headers()
            )
        firsts = snapshot.current_transaction_first_offset
        firsts = firsts[firsts >= 0]
        return int(firsts.min()) if len(firsts) else None

    def _read_bounds(self, segment: NativeSegment) -> SegmentBounds:
        name, base = self._name(segment), segment.base_offset
        checkpoint = self.index(segment, IndexKind.LEADER_EPOCHS) or b""
        epochs = parse_leader_epochs(checkpoint, name=name)
        index = self.index(segment, IndexKind.OFFSET) or b""
        positions = parse_offset_index(index, base, name=name).position
        loose = SegmentBounds(start_offset=base, end_offset=_OFFSET_MAX, leader_epochs=epochs)
        reader, end = SegmentReader(self.log(segment), loose, limits=self._limits), base
        for headers in reader.headers(int(positions[-1]) if len(positions) else 0):
            end = int(headers.last_offset[-1])
        return SegmentBounds(start_offset=base, end_offset=end, leader_epochs=epochs)

    def _in_directory(
        self, directory: Path, topic: str, topic_id: str, partition: int
    ) -> Iterator[NativeSegment]:
        names = {entry.name for entry in directory.iterdir() if not entry.is_symlink()}
        required = set(self._SUFFIXES.values()) - {self._SUFFIXES[IndexKind.TRANSACTION]}
        for name in names:
            match = self._LOG.fullmatch(name)
            stem = name.removesuffix(".log")
            if match and all(stem + suffix in names for suffix in required):
                yield NativeSegment(
                    topic=topic,
                    topic_id=topic_id,
                    partition=partition,
                    base_offset=int(match["base"]),
                    segment_id=match["segment"],
                )

    def _siblings(self, segment: NativeSegment) -> list[NativeSegment]:
        topic, topic_id, partition = segment.topic, segment.topic_id, segment.partition
        directory = self._path(segment, "").parent
        return sorted(self._in_directory(directory, topic, topic_id, partition))

    def _path(self, segment: NativeSegment, suffix: str) -> Path:
        directory = f"{segment.topic}-{segment.partition}-{segment.topic_id}"
        if not _is_topic(segment.topic) or self._DIRECTORY.fullmatch(directory) is None:
            raise ValueError(f"{segment} names no directory of LocalTieredStorage")
        return self._root / directory / f"{segment.base_offset:020d}-{segment.segment_id}{suffix}"

    def _name(self, segment: NativeSegment) -> str:
        return str(self._path(segment, ""))


def _is_topic(name: str) -> bool:
    """Kafka's own rule; names from a listing are not trusted to keep to it."""
    return name not in {".", ".."} and _TOPIC.fullmatch(name) is not None


def _is_real(directory: Path) -> bool:
    return directory.is_dir() and not directory.is_symlink()
