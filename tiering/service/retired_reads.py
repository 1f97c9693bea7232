"""Reads of retired segments: batches regenerated from the table and the side file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tiering.errors import FatalError, TransientError
from tiering.ledger import LedgerEntry
from tiering.segments import SegmentId
from tiering.service.bounded_cache import BoundedCache
from tiering.service.limits import ServiceLimits
from tiering.service.metrics import ServiceMetrics
from tiering.service.pulls import POSITION_DIVISOR, Pull, out_of_range
from tiering.service.readers import Readers, units_ahead
from tiering.service.shared_calls import SharedCalls
from tiering.service.table_views import TableViews
from tiering.service.unit_making import UnitMaker
from tiering.service.units import RetiredSegment, Unit
from tiering.side_files import SideFile
from tiering.store.objects import ObjectStore

__all__ = ["RetiredReads"]


class RetiredReads:
    """Blocking reads, for worker threads."""

    def __init__(
        self,
        store: ObjectStore,
        views: TableViews,
        *,
        limits: ServiceLimits,
        metrics: ServiceMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._limits = limits
        self._monotonic = monotonic
        self._units = UnitMaker(views, limits=limits, metrics=metrics, monotonic=monotonic)
        self._segments: BoundedCache[SegmentId, RetiredSegment] = BoundedCache(
            limits.side_cache_bytes_max
        )
        self._readers = Readers(limits.readers_max)
        self._opening: SharedCalls[
            tuple[SegmentId, tuple[str, ...], int | None], RetiredSegment
        ] = SharedCalls()

    @property
    def cached_bytes(self) -> tuple[int, int]:
        """What units and side files take that are kept."""
        return self._units.cached_bytes, self._segments.size_bytes

    def close(self) -> None:
        """Let the threads end."""
        self._units.close()

    def forget(self, segment: SegmentId) -> None:
        """Drop the side file: the ledger names another one now. Units stay, as long as it
        says the same."""
        self._segments.discard(segment)

    def index(self, entry: LedgerEntry, part: str) -> bytes | None:
        """One index as it was uploaded; None if the segment has none."""
        return self._segment(entry).side.index(part)

    def pull(
        self,
        entry: LedgerEntry,
        *,
        position: int | None,
        cursor: int | None,
        end_position: int | None,
        max_bytes: int,
    ) -> Pull:
        """Whole batches, as `SegmentReads.pull` gives them; positions are the original log's.

        At most to the end of what has been regenerated, which is at least the unit that it begins
        in, and to the first batch whose rows aren't what they were; a pull that begins there
        raises FatalError: nothing is served that isn't what was produced.
        """
        segment = self._segment(entry)
        wanted = cursor or 0 if position is None else position * POSITION_DIVISOR
        if wanted >= segment.size:
            raise out_of_range(entry.metadata.id)
        if position is not None:
            wanted += POSITION_DIVISOR - 1  # the last batch with start // 4 <= position
        batch = max(int(np.searchsorted(segment.starts, wanted, side="right")) - 1, 0)
        run = self._readers.run(entry.metadata.id, cursor)
        ahead = None if cursor is None else units_ahead(run, self._limits.units_ahead_max)
        unit = self._unit(segment, batch, ahead)
        if batch in unit.faults:
            raise self._refusal(entry, unit, batch)
        units = self._kept_from(segment, unit, segment.unit_of(batch))
        answer = _answer(segment, units, batch, end_position, max_bytes)
        self._readers.answered(entry.metadata.id, answer.next_position, run)
        return answer

    def _kept_from(self, segment: RetiredSegment, unit: Unit, number: int) -> Iterator[Unit]:
        """A unit, and those behind it that are there without waiting."""
        yield unit
        while segment.has_unit(number := number + 1):
            following = self._units.kept(segment, number)
            if following is None:
                return
            yield following

    def _unit(self, segment: RetiredSegment, batch: int, ahead: int | None) -> Unit:
        """The unit that a batch is in; one in which that batch is bad is made again when it has
        had its time: the table may have been mended, or its change been accepted."""
        number = segment.unit_of(batch)
        unit = self._units.unit(segment, number, ahead)
        age = self._monotonic() - unit.made_at
        if batch in unit.faults and age >= self._limits.fault_check_s:
            self._units.discard(segment, number)
            unit = self._units.made(segment, number)
        return unit

    def _refusal(self, entry: LedgerEntry, unit: Unit, batch: int) -> Exception:
        fault = unit.faults[batch]
        if isinstance(fault, TransientError):
            return TransientError(f"{entry.metadata}: {fault}")
        return FatalError(
            f"{entry.metadata}: {fault}; nothing is served that isn't what was produced "
            "(`onecopy accept` lets a change through)"
        )

    def _segment(self, entry: LedgerEntry) -> RetiredSegment:
        found = self._segments.get(entry.metadata.id)
        if found is None or (found.entry.side, found.entry.cut) != (entry.side, entry.cut):
            opening = (entry.metadata.id, entry.side, entry.cut)
            found = self._opening.call(opening, partial(self._opened, entry))
        return found

    def _opened(self, entry: LedgerEntry) -> RetiredSegment:
        opened_at = self._monotonic()
        side = SideFile.open(self._store, entry.metadata.id, entry.side)
        segment = RetiredSegment.of(
            entry, side, unit_bytes=self._limits.unit_bytes, opened_at=opened_at
        )
        self._segments.put(entry.metadata.id, segment, side.nbytes + segment.borders.nbytes)
        return segment


def _answer(
    segment: RetiredSegment,
    units: Iterator[Unit],
    batch: int,
    end_position: int | None,
    max_bytes: int,
) -> Pull:
    """Batches from `batch` on: at least that one, else as many as fit and may be served."""
    last, end = len(segment.starts), segment.size
    if end_position is not None:
        last_start = min(end_position, end) * POSITION_DIVISOR + POSITION_DIVISOR - 1
        last = int(np.searchsorted(segment.starts, last_start, side="right"))
    parts: list[memoryview] = []
    ends = [np.zeros(1, np.int64)]
    stop = batch
    for unit in units:
        at, size = stop, int(ends[-1][-1])
        begin = int(unit.ends[at - unit.first - 1]) if at > unit.first else 0
        fitting = int(np.searchsorted(unit.ends, begin + max_bytes - size, side="right"))
        stop = min(unit.first + fitting, last, unit.first_fault(at))
        stop = max(stop, at if parts else at + 1)
        if stop > at:
            own = unit.ends[at - unit.first : stop - unit.first]
            parts.append(unit.data[begin : int(own[-1])])
            ends.append(own - begin + size)
        if stop < unit.first + len(unit.ends):
            break
    following = int(segment.starts[stop]) if stop < len(segment.starts) else end
    past_end = end_position is not None and following // POSITION_DIVISOR > end_position
    return Pull(
        parts=parts,
        next_position=None if following >= end or past_end else following,
        starts=segment.starts[batch:stop],
        places=np.concatenate(ends)[:-1],
    )
