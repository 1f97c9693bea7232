"""Which data files of a table to write anew as fewer, larger ones. Pure.

Two things are mended. Small files that lie side by side in one Kafka partition become files of
about the target size; partitions are kept apart, so that every file still is a run of offsets of
one of them: that is what seeks, retention and pruning live from. And where many files overlap
(somebody rewrote the table in another order), all of them are sorted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from tiering.offset_reader.file_index import FileRef

__all__ = ["CompactionLimits", "Rewrite", "plan_rewrites"]

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """What is worth a rewrite.

    Attributes:
        target_bytes: size of the files that come out.
        files_min: so many small files must lie side by side; or two that fill a target.
        rewrite_bytes_max: native to one rewrite, which is one Spark job and one commit.
        overlap_max: so many files may hold the same offset by their bounds. Two neighbours that
            meet inside a partition are usual.
    """

    target_bytes: int = 256 * MIB
    files_min: int = 5
    rewrite_bytes_max: int = 4096 * MIB
    overlap_max: int = 4

    @property
    def small_bytes(self) -> int:
        """Files below are small."""
        return max(1, self.target_bytes // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Files to write anew together, as the bounds (inclusive) that find them.

    `sort_all`: also the large ones among them, because they overlap.
    """

    first_partition: int
    last_partition: int
    first_offset: int
    last_offset: int
    files: int
    size_bytes: int
    sort_all: bool = False


def plan_rewrites(files: Iterable[FileRef], limits: CompactionLimits) -> list[Rewrite]:
    """What to do, by partition and offset; empty when the table is well."""
    known = list(files)
    tangled = _tangled(known, limits.overlap_max)
    rewrites = [_rewrite(group, sort_all=True) for group in tangled]
    taken = {file.path for group in tangled for file in group}
    by_partition: dict[int, list[FileRef]] = {}
    for file in known:
        if file.first_partition == file.last_partition and file.path not in taken:
            by_partition.setdefault(file.first_partition, []).append(file)
    for _, run in sorted(by_partition.items()):
        rewrites += (_rewrite(group) for group in _small_runs(run, limits))
    return rewrites


def _small_runs(files: Iterable[FileRef], limits: CompactionLimits) -> Iterator[list[FileRef]]:
    """Small files of one partition that lie side by side, cut where one rewrite is full."""
    run: list[FileRef] = []
    size = 0
    for file in sorted(files, key=lambda f: f.first_offset):
        is_small = file.size_bytes < limits.small_bytes
        if run and (not is_small or size + file.size_bytes > limits.rewrite_bytes_max):
            yield from _worthwhile(run, size, limits)
            run, size = [], 0
        if is_small:
            run.append(file)
            size += file.size_bytes
    yield from _worthwhile(run, size, limits)


def _worthwhile(run: list[FileRef], size: int, limits: CompactionLimits) -> Iterator[list[FileRef]]:
    """The run, unless it is too short; without files at its head that outweigh all after them.

    What an earlier pass merged comes again only once as much has come after it: so a byte is
    written anew a number of times that grows with the logarithm of what there is.
    """
    head = 0
    while head < len(run) - 1 and run[head].size_bytes * 2 > size:
        size -= run[head].size_bytes
        head += 1
    left = len(run) - head
    if left >= limits.files_min or (left > 1 and size >= limits.target_bytes):
        yield run[head:]


def _tangled(files: Sequence[FileRef], overlap_max: int) -> list[list[FileRef]]:
    """Groups of files that hang together by overlaps deeper than allowed."""
    groups: list[list[FileRef]] = []
    for group in _by_shared_partitions(files):
        partitions = {p for f in group for p in (f.first_partition, f.last_partition)}
        found: dict[str, FileRef] = {}
        for partition in partitions:
            here = [f for f in group if f.first_partition <= partition <= f.last_partition]
            found |= {f.path: f for f in _overlapping(here, overlap_max)}
        if found:
            groups.append(sorted(found.values(), key=lambda f: (f.first_partition, f.first_offset)))
    return groups


def _by_shared_partitions(files: Iterable[FileRef]) -> Iterator[list[FileRef]]:
    """Files whose ranges of partitions meet, together."""
    group: list[FileRef] = []
    last = -1
    for file in sorted(files, key=lambda f: f.first_partition):
        if group and file.first_partition > last:
            yield group
            group, last = [], -1
        group.append(file)
        last = max(last, file.last_partition)
    if group:
        yield group


def _overlapping(files: Iterable[FileRef], overlap_max: int) -> Iterator[FileRef]:
    """Stretches of overlapping files in which more than `overlap_max` meet somewhere."""
    stretch: list[FileRef] = []
    open_ends: list[int] = []
    deepest = 0
    for file in sorted(files, key=lambda f: f.first_offset):
        while open_ends and open_ends[0] < file.first_offset:
            heappop(open_ends)
        if not open_ends:
            if deepest > overlap_max:
                yield from stretch
            stretch, deepest = [], 0
        heappush(open_ends, file.last_offset)
        stretch.append(file)
        deepest = max(deepest, len(open_ends))
    if deepest > overlap_max:
        yield from stretch


def _rewrite(group: Sequence[FileRef], *, sort_all: bool = False) -> Rewrite:
    return Rewrite(
        first_partition=min(f.first_partition for f in group),
        last_partition=max(f.last_partition for f in group),
        first_offset=min(f.first_offset for f in group),
        last_offset=max(f.last_offset for f in group),
        files=len(group),
        size_bytes=sum(f.size_bytes for f in group),
        sort_all=sort_all,
    )
