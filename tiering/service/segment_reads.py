"""Reads of stored segments: whole batches by served position, and the five indexes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from segment_reader import (
    BatchStarts,
    CorruptSegment,
    Limits,
    parse_offset_index,
    serve_offset_index,
    whole_batches,
)
from tiering.errors import FatalError, NotFound
from tiering.ledger import Ledger, LedgerEntry, SegmentState
from tiering.segments import SegmentId
from tiering.service.bounded_cache import BoundedCache
from tiering.service.limits import ServiceLimits
from tiering.service.pulls import POSITION_DIVISOR, Pull, out_of_range
from tiering.service.refusals import Refusal
from tiering.service.retired_reads import RetiredReads
from tiering.store.objects import ObjectStore

__all__ = ["INDEX_PART_OF", "SegmentReads"]

INDEX_PART_OF: Final = {
    "offset": "offset_index",
    "timestamp": "time_index",
    "producer_snapshot": "producer_snapshot",
    "transaction": "transaction_index",
    "leader_epoch": "leader_epochs",
}
_LENGTH_END: Final = 12
"""Bytes of a batch (of any magic) up to the end of its length field."""
_T = TypeVar("_T")
_ENTRY_SIZE: Final = 1024
"""What a cached ledger entry is taken to weigh, without its epochs."""


class SegmentReads:
    """Blocking reads, for worker threads; caches ledger entries and positions of indexes.

    A segment is read from its native objects until it is retired, and from its side file and the
    table afterwards (`RetiredReads`). Positions mean the same in both, so a reader crosses over
    without noticing.
    """

    def __init__(
        self,
        store: ObjectStore,
        retired: RetiredReads,
        *,
        limits: ServiceLimits,
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._retired = retired
        self._ledger = Ledger(store)
        self._limits = limits
        self._monotonic = monotonic
        self._entries: BoundedCache[SegmentId, tuple[float, LedgerEntry]] = BoundedCache(
            limits.cache_bytes_max // 4
        )
        self._positions: BoundedCache[SegmentId, npt.NDArray[np.int64]] = BoundedCache(
            limits.cache_bytes_max - limits.cache_bytes_max // 4
        )

    def forget(self, segment: SegmentId) -> None:
        """Drop what is cached of a segment: its ledger entry has changed."""
        self._retired.forget(segment)
        self._entries.discard(segment)
        self._positions.discard(segment)

    def index(self, segment: SegmentId, name: str) -> bytes:
        """The bytes of one index as the broker gets them; `name` as in the URL."""
        part = INDEX_PART_OF.get(name)
        if part is None:
            raise Refusal(400, "bad_request", f"no index is called {name!r}")
        # Read afresh: the broker keeps what it gets, and a delete may be known elsewhere.
        data = self._across(segment, lambda entry: self._index(entry, part), fresh=True)
        if data is None:
            raise Refusal(404, "index_not_found", f"segment {segment.path} has no {part}")
        return serve_offset_index(data) if name == "offset" else data

    def pull(
        self,
        segment: SegmentId,
        *,
        position: int | None,
        cursor: int | None,
        end_position: int | None,
        max_bytes: int,
    ) -> Pull:
        """Whole batches from a served position, or from a cursor (an original position).

        At least one batch, else as many as fit `max_bytes` and begin at or before the served
        `end_position`. Raises Refusal 416 behind the log's end.
        """

        def pull(entry: LedgerEntry) -> Pull:
            if entry.state is SegmentState.RETIRED:
                return self._retired.pull(
                    entry,
                    position=position,
                    cursor=cursor,
                    end_position=end_position,
                    max_bytes=max_bytes,
                )
            return self._pull(entry, position, cursor, end_position, max_bytes)

        return self._across(segment, pull)

    def _across(
        self, segment: SegmentId, read: Callable[[LedgerEntry], _T], *, fresh: bool = False
    ) -> _T:
        """Read by the entry that is known; where what it names is gone or no longer gives the
        segment, by the one of now.

        The native objects of a segment go once it is retired, a side file when compaction has
        put it into a bundle, and rows when their records were saved into another side file: then
        the entry says so already.
        """
        entry = self._fresh_entry(segment) if fresh else self._entry(segment)
        try:
            return read(entry)
        except NotFound as error:
            self.forget(segment)
            now = self._fresh_entry(segment)
            if (now.state, now.side) == (entry.state, entry.side):
                raise FatalError(f"{segment.path}: the ledger has it, the store doesn't") from error
        except FatalError:
            now = self._fresh_entry(segment)
            if (now.state, now.side) == (entry.state, entry.side):
                raise
        try:
            return read(now)
        except NotFound as error:
            raise FatalError(f"{segment.path}: the ledger has it, the store doesn't") from error

    def _index(self, entry: LedgerEntry, part: str) -> bytes | None:
        if entry.state is SegmentState.RETIRED:
            return self._retired.index(entry, part)
        return self._part(entry, part)

    def _pull(
        self,
        entry: LedgerEntry,
        position: int | None,
        cursor: int | None,
        end_position: int | None,
        max_bytes: int,
    ) -> Pull:
        log = _Log(self._store, entry, self._limits)
        if position is None:
            start = cursor or 0
            log.check_position(start)
            window = log.window(start, max_bytes)
        else:
            log.check_position(position * POSITION_DIVISOR)
            near = self._floor(entry, position)
            start, window = log.find(near, position, max_bytes)
        end = window.cut(start, max_bytes, end_position)
        past_end = end_position is not None and end // POSITION_DIVISOR > end_position
        starts = window.starts(start, end)
        return Pull(
            parts=(window.slice(start, end),),
            next_position=None if end >= log.size or past_end else end,
            starts=starts,
            places=starts - start,
        )

    def _floor(self, entry: LedgerEntry, position: int) -> int:
        """Original position of the last indexed batch whose served position is <= `position`."""
        segment = entry.metadata.id
        positions = self._positions.get(segment)
        if positions is None:
            data = self._part(entry, INDEX_PART_OF["offset"]) or b""
            index = parse_offset_index(data, segment.base_offset, name=segment.indexes_key)
            positions = index.position
            self._positions.put(segment, positions, positions.nbytes + 64)
        at = int(np.searchsorted(positions // POSITION_DIVISOR, position, side="right"))
        return int(positions[at - 1]) if at else 0

    def _part(self, entry: LedgerEntry, part: str) -> bytes | None:
        place = entry.part_range(part)
        if place is None:
            return None
        start, size = place
        if not size:
            return b""
        key = entry.metadata.id.indexes_key
        data = self._store.get_range(key, start, size)
        if len(data) != size:
            raise FatalError(f"{key}: {part} is cut at {len(data)} of {size} bytes")
        return data

    def _entry(self, segment: SegmentId) -> LedgerEntry:
        cached = self._entries.get(segment)
        if cached is not None and self._monotonic() - cached[0] < self._limits.entry_cache_s:
            return cached[1]
        return self._fresh_entry(segment)

    def _fresh_entry(self, segment: SegmentId) -> LedgerEntry:
        loaded_at = self._monotonic()
        entry = self._ledger.load(segment)
        if entry.delete_requested:
            self.forget(segment)
            raise NotFound(f"{entry.metadata}: its delete was asked")
        size = _ENTRY_SIZE + 32 * len(entry.metadata.leader_epochs)
        self._entries.put(segment, (loaded_at, entry), size)
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Bytes of a log from `start` on, with the batches that lie whole in them."""

    start: int
    data: bytes
    batches: BatchStarts

    @property
    def batches_end(self) -> int:
        """Original position behind the last whole batch."""
        if not len(self.batches.starts):
            return self.start
        return int(self.batches.starts[-1] + self.batches.sizes[-1])

    def cut(self, start: int, max_bytes: int, end_position: int | None) -> int:
        """Where an answer that begins with the batch at `start` ends."""
        starts = self.batches.starts
        ends = starts + self.batches.sizes
        fits = (starts >= start) & (ends - start <= max_bytes)
        if end_position is not None:
            fits &= starts // POSITION_DIVISOR <= end_position
        first_end = int(ends[np.searchsorted(starts, start)])
        return max(first_end, int(ends[fits][-1]) if fits.any() else 0)

    def starts(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """Where the batches in [start, end) begin in the log."""
        first, stop = np.searchsorted(self.batches.starts, (start, end))
        return self.batches.starts[first:stop]

    def slice(self, start: int, end: int) -> bytes | memoryview:
        """Bytes [start, end) of the log, not copied."""
        if start == self.start and end == self.start + len(self.data):
            return self.data
        return memoryview(self.data)[start - self.start : end - self.start]


class _Log:
    """The native log object of one segment."""

    def __init__(self, store: ObjectStore, entry: LedgerEntry, limits: ServiceLimits) -> None:
        self._store = store
        self._limits = limits
        self._segment = entry.metadata.id
        self._batch_limits = Limits(batch_bytes_max=limits.batch_bytes_max)
        self.size = entry.metadata.size_bytes

    def check_position(self, position: int) -> None:
        """Raise Refusal 416 for an original position at or behind the log's end."""
        if position >= self.size:
            raise out_of_range(self._segment)

    def find(self, near: int, position: int, max_bytes: int) -> tuple[int, _Window]:
        """The batch with the largest start // 4 <= `position`, walking from a batch before it.

        Returns its start, and a window that holds it whole and about `max_bytes` behind it.
        """
        window = self.window(near, max_bytes + self._limits.walk_bytes)
        while window.batches_end // POSITION_DIVISOR <= position and window.batches_end < self.size:
            window = self.window(window.batches_end, max_bytes + self._limits.walk_bytes)
        served = window.batches.starts // POSITION_DIVISOR
        at = int(np.searchsorted(served, position, side="right")) - 1
        return int(window.batches.starts[max(at, 0)]), window

    def window(self, start: int, length: int) -> _Window:
        """Read about `length` bytes from the batch at `start` on, at least that batch whole."""
        length = max(length, self._limits.walk_bytes)
        data = self._read(start, min(length, self.size - start))
        try:
            batches = self._batches(data, start)
        except CorruptSegment as error:
            if error.position <= start:
                raise
            # What lies before the damage is still served; the pull that reaches it fails.
            data = data[: error.position - start]
            batches = self._batches(data, start)
        if not len(batches.starts):
            size = self._batch_size(data, start)
            data += self._read(start + len(data), size - len(data))
            batches = self._batches(data, start)
        return _Window(start=start, data=data, batches=batches)

    def _batches(self, data: bytes, start: int) -> BatchStarts:
        return whole_batches(data, start, name=self._segment.path, limits=self._batch_limits)

    def _batch_size(self, data: bytes, start: int) -> int:
        size = _LENGTH_END + int.from_bytes(data[_LENGTH_END - 4 : _LENGTH_END], "big", signed=True)
        if len(data) < _LENGTH_END or not len(data) < size <= self.size - start:
            raise self._corrupt(f"a batch of {size} bytes doesn't fit the log", start)
        return size

    def _read(self, start: int, length: int) -> bytes:
        data = self._store.get_range(self._segment.log_key, start, length)
        if len(data) != length:
            raise self._corrupt(f"the log is cut: it should have {self.size} bytes", start)
        return data

    def _corrupt(self, reason: str, position: int) -> CorruptSegment:
        return CorruptSegment(reason, segment=self._segment.path, position=position)
