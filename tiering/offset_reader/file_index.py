"""Which data files of one snapshot may hold which offsets of which partition.

Built from the bounds in the manifests alone (Iceberg spec, "Manifests"); manifests never change,
so those of the snapshot before are not read again. A bound says where rows *may* be: every file
that may hold an offset is found, and some may hold none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory

from tiering.errors import FatalError
from tiering.offset_reader.topic_columns import TopicColumns
from tiering.table.manifests import live_entries

__all__ = ["OFFSET_MAX", "DeleteEntry", "FileIndex", "FileRef"]

OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRef:
    """A live data file and its bounds (all inclusive).

    Attributes:
        path: its location.
        first_partition, last_partition: bounds of kafka_partition.
        first_offset, last_offset: bounds of kafka_offset, over all its partitions.
        last_timestamp_us: upper bound of kafka_timestamp; None if not known.
        sequence_number: the file's data sequence number; deletes of the same or a later one
            apply to it.
        spec_id, partition_tuple: its place in a partitioned table.
        size_bytes: as the manifest has it.
    """

    path: str
    first_partition: int
    last_partition: int
    first_offset: int
    last_offset: int
    last_timestamp_us: int | None
    sequence_number: int
    spec_id: int
    partition_tuple: Record
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEntry:
    """A live delete file, as its manifest has it."""

    entry: ManifestEntry
    equality: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    files: tuple[FileRef, ...] = ()
    deletes: tuple[DeleteEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class _PartitionFiles:
    """A partition's files by first offset, with the highest last offset up to each."""

    files: list[FileRef]
    reach: list[int]


class FileIndex:
    """The data files of one snapshot, found by partition and offset."""

    def __init__(self, manifests: Mapping[str, _Manifest]) -> None:
        """Index what `load` read; use that instead."""
        self._manifests = manifests
        self._narrow: dict[int, list[FileRef]] = {}
        self._wide: list[FileRef] = []
        self._sorted: dict[int, _PartitionFiles] = {}
        self._add(manifests.values())

    @classmethod
    def load(
        cls,
        io: FileIO,
        snapshot: Snapshot | None,
        columns: TopicColumns,
        previous: FileIndex | None = None,
    ) -> FileIndex:
        """Read the manifests of `snapshot` that `previous` has not read yet.

        Raises FileNotFoundError when a manifest is gone, OSError when the store fails, and
        FatalError for data files that are not Parquet.
        """
        known = {} if previous is None else dict(previous._manifests)
        listed = {} if snapshot is None else {m.manifest_path: m for m in snapshot.manifests(io)}
        fresh = [manifest for path, manifest in listed.items() if path not in known]
        executor = ExecutorFactory.get_or_create()
        read = dict(
            zip(
                (manifest.manifest_path for manifest in fresh),
                executor.map(lambda manifest: _read_manifest(io, manifest, columns), fresh),
                strict=True,
            )
        )
        if previous is not None and known.keys() <= listed.keys():
            return previous._grown(read)
        return cls({path: known[path] if path in known else read[path] for path in listed})

    def _grown(self, added: Mapping[str, _Manifest]) -> FileIndex:
        """The same index plus `added`, sharing the lists of partitions that got no file."""
        if not added:
            return self
        grown = FileIndex({})
        grown._manifests = {**self._manifests, **added}
        touched = {f.first_partition for manifest in added.values() for f in manifest.files}
        grown._narrow = {p: list(f) if p in touched else f for p, f in self._narrow.items()}
        grown._wide = list(self._wide)
        grown._add(added.values())
        if grown._wide == self._wide:
            grown._sorted = {p: s for p, s in self._sorted.items() if p not in touched}
        return grown

    def _add(self, manifests: Iterable[_Manifest]) -> None:
        for manifest in manifests:
            for file in manifest.files:
                if file.first_partition == file.last_partition:
                    self._narrow.setdefault(file.first_partition, []).append(file)
                else:
                    self._wide.append(file)

    @property
    def deletes(self) -> tuple[DeleteEntry, ...]:
        """The live delete files of the snapshot."""
        return tuple(d for manifest in self._manifests.values() for d in manifest.deletes)

    @property
    def all_files(self) -> tuple[FileRef, ...]:
        """Every live data file of the snapshot."""
        return tuple(f for manifest in self._manifests.values() for f in manifest.files)

    @property
    def file_count(self) -> int:
        """How many live data files there are."""
        return sum(len(manifest.files) for manifest in self._manifests.values())

    @property
    def sure_partitions(self) -> frozenset[int]:
        """Partitions that have a file of their own."""
        return frozenset(self._narrow)

    @property
    def wide_files(self) -> tuple[FileRef, ...]:
        """Files whose bounds span several partitions: which of these they hold, rows only say."""
        return tuple(self._wide)

    def files(
        self,
        partition: int,
        start: int = 0,
        end: int = OFFSET_MAX,
        keep: Callable[[FileRef], bool] = lambda _: True,
    ) -> Iterator[FileRef]:
        """Files that may hold offsets in [start, end) of `partition`, by first offset."""
        run = self._partition_files(partition)
        for i in range(bisect_left(run.reach, start), len(run.files)):
            file = run.files[i]
            if file.first_offset >= end:
                return
            if file.last_offset >= start and keep(file):
                yield file

    def last_offset(self, partition: int) -> int | None:
        """The highest offset that `partition` may have; None without files."""
        reach = self._partition_files(partition).reach
        return reach[-1] if reach else None

    def _partition_files(self, partition: int) -> _PartitionFiles:
        run = self._sorted.get(partition)
        if run is None:
            files = list(self._narrow.get(partition, ()))
            files += (f for f in self._wide if f.first_partition <= partition <= f.last_partition)
            files.sort(key=lambda f: f.first_offset)
            run = _PartitionFiles(files, list(accumulate((f.last_offset for f in files), max)))
            self._sorted[partition] = run
        return run


def _read_manifest(io: FileIO, manifest: ManifestFile, columns: TopicColumns) -> _Manifest:
    entries = live_entries(io, manifest)
    if manifest.content == ManifestContent.DELETES:
        return _Manifest(
            deletes=tuple(
                DeleteEntry(
                    entry=entry,
                    equality=entry.data_file.content == DataFileContent.EQUALITY_DELETES,
                )
                for entry in entries
            )
        )
    return _Manifest(files=tuple(_file_ref(entry, columns) for entry in entries))


def _file_ref(entry: ManifestEntry, columns: TopicColumns) -> FileRef:
    file = entry.data_file
    if file.file_format != FileFormat.PARQUET:
        raise FatalError(
            f"data file {file.file_path} is {file.file_format}: only Parquet is read by offset"
        )
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    last_timestamp = upper.get(columns.timestamp)
    return FileRef(
        path=file.file_path,
        first_partition=_integer(lower.get(columns.partition), 0),
        last_partition=_integer(upper.get(columns.partition), _PARTITION_MAX),
        first_offset=_integer(lower.get(columns.offset), 0),
        last_offset=_integer(upper.get(columns.offset), OFFSET_MAX),
        last_timestamp_us=None if last_timestamp is None else _integer(last_timestamp, 0),
        sequence_number=entry.sequence_number or 0,
        spec_id=file.spec_id,
        partition_tuple=file.partition,
        size_bytes=file.file_size_in_bytes,
    )


def _integer(bound: bytes | None, default: int) -> int:
    """Decode an int, long or timestamp bound (Iceberg spec, Appendix D: little endian)."""
    return int.from_bytes(bound, "little", signed=True) if bound else default
