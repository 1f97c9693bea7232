"""Writing the side file of one range of a segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from segment_reader.batch_table import BatchTable, Kept
from tiering.errors import FatalError
from tiering.segments import SegmentId
from tiering.side_files import blobs
from tiering.side_files.batch_parquet import encode_batches, encode_kept, no_batches
from tiering.side_files.objects import PuffinUpload
from tiering.store import ObjectStore

__all__ = ["SideFileInfo", "SideFileWriter"]

_BATCHES_MAX: Final = 64 * 1024
"""Batches in one blob; 8 MiB of memory until they are written."""
_KEPT_BYTES_MAX: Final = 2 * 1024 * 1024
"""Kept bytes after which they are written as one blob, which is what a reader reads at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFileInfo:
    """A side file that was written: `kept_bytes` before compression, `size_bytes` of the object."""

    key: str
    size_bytes: int
    batches: int
    kept_bytes: int


class SideFileWriter:
    """Streams one side file into the store, in bounded memory: nothing is visible until `finish`.

    Args:
        store: where it goes.
        segment: whose batches these are.
        first_offset: where the range begins; part of the key, so that keys sort by offset.
        new_name: something that no other try has used.
    """

    def __init__(
        self,
        store: ObjectStore,
        segment: SegmentId,
        first_offset: int,
        *,
        new_name: Callable[[], str],
    ) -> None:
        self.key = f"{segment.side_prefix}.{first_offset:020d}-{new_name()}.puffin"
        self._segment = segment
        self._upload = PuffinUpload(store, self.key)
        self._batches: list[BatchTable] = []
        self._buffered = 0
        self._written = 0
        self._next_position: int | None = None
        self._kept: list[tuple[int, bytes]] = []
        self._kept_buffered = 0
        self._kept_total = 0
        self._indexes: set[str] = set()

    def add(self, batches: BatchTable, kept_bytes: Sequence[bytes | None]) -> None:
        """Append batches that follow those before, with what is kept of each (None for ROWS).

        Raises FatalError for batches that don't follow, or whose `kept` says something else.
        """
        if len(batches) != len(kept_bytes):
            raise FatalError(f"{self.key}: {len(kept_bytes)} kept for {len(batches)} batches")
        if not len(batches):
            return
        self._check_kept(batches, kept_bytes)
        self._check_positions(batches)
        for i in np.flatnonzero(batches.kept != Kept.ROWS).tolist():
            self._keep(int(batches.headers.position[i]), kept_bytes[i] or b"")
        # The arrays may be a reader's buffers: what is held must be a copy.
        self._batches.append(BatchTable.concat([batches]))
        self._buffered += len(batches)
        if self._buffered >= _BATCHES_MAX:
            self._write_batches()

    def add_index(self, part: str, data: bytes) -> None:
        """Write an index part. Best before the batches, which then lie together at the end."""
        if part in self._indexes:
            raise FatalError(f"{self.key}: {part} was added twice")
        self._indexes.add(part)
        properties, codec, stored = blobs.index_properties(part, data)
        self._add(blobs.INDEX, stored, properties, codec)

    def finish(self) -> SideFileInfo:
        """Write the rest, make the file durable and visible, and say what it holds."""
        self._write_kept()
        # Last, and also when there are none: near the footer they are read together with it.
        if self._buffered or not self._written:
            self._write_batches()
        return SideFileInfo(
            key=self.key,
            size_bytes=self._upload.finish(),
            batches=self._written,
            kept_bytes=self._kept_total,
        )

    def abort(self) -> None:
        """Drop what was written; never raises, nothing happens after `finish`."""
        self._upload.abort()

    def _check_kept(self, batches: BatchTable, kept_bytes: Sequence[bytes | None]) -> None:
        given = np.fromiter((data is not None for data in kept_bytes), bool, len(kept_bytes))
        wrong = np.flatnonzero(given != (batches.kept != Kept.ROWS))
        if len(wrong):
            kind = Kept(int(batches.kept[wrong[0]])).name
            raise FatalError(f"{self.key}: batch {wrong[0]} of those added is kept as {kind}")

    def _check_positions(self, batches: BatchTable) -> None:
        position, size = batches.headers.position, batches.headers.size
        expected = position[0] if self._next_position is None else self._next_position
        if position[0] != expected or not np.array_equal(position[1:], (position + size)[:-1]):
            raise FatalError(f"{self.key}: batches from position {position[0]} on don't follow")
        self._next_position = int(position[-1] + size[-1])

    def _keep(self, position: int, data: bytes) -> None:
        self._kept.append((position, data))
        self._kept_buffered += len(data)
        self._kept_total += len(data)
        if self._kept_buffered >= _KEPT_BYTES_MAX:
            self._write_kept()

    def _write_kept(self) -> None:
        if self._kept:
            positions, kept_bytes = zip(*self._kept, strict=True)
            self._kept.clear()
            self._kept_buffered = 0
            properties = blobs.kept_properties(positions[0])
            self._add(blobs.KEPT, encode_kept(positions, kept_bytes), properties)

    def _write_batches(self) -> None:
        batches = BatchTable.concat(self._batches or [no_batches()])
        self._batches.clear()
        self._buffered = 0
        self._written += len(batches)
        self._add(blobs.BATCHES, encode_batches(batches), blobs.batches_properties(batches))

    def _add(
        self, kind: str, data: bytes, properties: dict[str, str], codec: str | None = None
    ) -> None:
        self._upload.add(kind, data, {blobs.SEGMENT: self._segment.path, **properties}, codec)
