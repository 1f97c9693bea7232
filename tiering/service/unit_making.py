"""Making units: from a table's rows and a side file to served batches, once for all who ask.

Units are made in a pool that topics share fairly, and kept in a bounded cache: a broker that gave
up waiting finds its unit there when it asks again. Whoever reads on has the next ones begun, one
after the other. Rows come from cursors that stay where they stopped, so that a consumer who reads
on and on has each row group decoded once, across units and segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Final

from segment_reader.serving import assemble
from tiering.errors import TieringError, TransientError
from tiering.history import HistoryMismatch, RecordCursor, Regenerator, coverage
from tiering.offset_reader.parquet_files import MissingFile
from tiering.service.bounded_cache import BoundedCache
from tiering.service.fair_pool import FairPool
from tiering.service.limits import ServiceLimits
from tiering.service.metrics import ServiceMetrics
from tiering.service.row_cursors import RowCursors
from tiering.service.shared_calls import SharedCalls
from tiering.service.table_views import TableView, TableViews
from tiering.service.units import RetiredSegment, Unit, UnitKey

__all__ = ["UnitMaker"]

_log: Final = logging.getLogger("onecopy.service")
_ONE_RUN: Final = 2**62
"""Record bytes: a unit is one run, so that nothing has to be put together."""
_VIEWS_MAX: Final = 4
"""Views tried for one unit, each newer than the one before."""


class UnitMaker:
    """Units of retired segments, from the cache or made. Blocking, for several threads."""

    def __init__(
        self,
        views: TableViews,
        *,
        limits: ServiceLimits,
        metrics: ServiceMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self._views = views
        self._limits = limits
        self._metrics = metrics
        self._monotonic = monotonic
        self._pool = FairPool(limits.regeneration_threads, "regenerate")
        self._units: BoundedCache[UnitKey, Unit] = BoundedCache(limits.unit_cache_bytes_max)
        self._making: SharedCalls[UnitKey, Unit] = SharedCalls()
        self._looking: SharedCalls[str, None] = SharedCalls()
        self._cursors = RowCursors(limits.cursors_max)

    @property
    def cached_bytes(self) -> int:
        """What the kept units take."""
        return self._units.size_bytes

    def close(self) -> None:
        """Let the threads end."""
        self._pool.close()
        self._cursors.close()

    def unit(self, segment: RetiredSegment, number: int, ahead: int | None = None) -> Unit:
        """A unit as the table gives it now; up to `ahead` behind it are begun once it's there.

        Without `ahead`: one, if the unit has been there; who comes back to it is reading on.

        Raises TransientError when it isn't ready in time; it is made all the same.
        """
        unit = self.kept(segment, number)
        if unit is None:
            unit = self.made(segment, number)
        else:
            self._look_sometimes(segment)
            ahead = 1 if ahead is None else ahead
        self._begin(segment, number + 1, number + 1 + (ahead or 0))
        return unit

    def _begin(self, segment: RetiredSegment, number: int, stop: int) -> None:
        """Begin the units [number, stop) one after the other: each one's rows come from the
        cursor that stops where the one before it ends."""
        while number < stop and segment.has_unit(number) and self.kept(segment, number):
            number += 1
        if number >= stop or not segment.has_unit(number):
            return

        def go_on(done: Future[Unit]) -> None:
            if not done.cancelled() and done.exception() is None:
                self._begin(segment, number + 1, stop)

        self._ask(segment, number).add_done_callback(go_on)

    def made(self, segment: RetiredSegment, number: int) -> Unit:
        """A unit that isn't kept, or is no good."""
        meta = segment.entry.metadata
        try:
            return self._ask(segment, number).result(self._limits.regeneration_wait_s)
        except TimeoutError as error:
            raise TransientError(f"{meta}: still being regenerated") from error
        except CancelledError as error:
            raise TransientError("the service is stopping") from error

    def discard(self, segment: RetiredSegment, number: int) -> None:
        """Forget a unit."""
        self._units.discard(segment.key(number))

    def kept(self, segment: RetiredSegment, number: int) -> Unit | None:
        """The unit from the cache, if the table still gives the same."""
        meta = segment.entry.metadata
        unit = self._units.get(segment.key(number))
        view = self._views.current(meta.id.topic_id)
        if unit is None or view is None or unit.token is view.token:
            return unit
        if unit.faults or unit.coverage != _coverage(segment, number, view):
            return None
        unit = replace(unit, token=view.token)
        self._units.put(segment.key(number), unit, unit.nbytes)
        return unit

    def _look_sometimes(self, segment: RetiredSegment) -> None:
        """See to it that a topic which is only read from the cache notices changes, too."""
        meta = segment.entry.metadata
        topic_id = meta.id.topic_id
        if self._views.is_due(topic_id):
            look = lambda: _quietly(self._views, meta.topic, topic_id)  # noqa: E731
            self._looking.submit(topic_id, lambda: self._pool.submit(topic_id, look))

    def _ask(self, segment: RetiredSegment, number: int) -> Future[Unit]:
        """The unit in the making: one for all who ask."""
        meta = segment.entry.metadata

        def begin() -> Future[Unit]:
            future = self._pool.submit(meta.id.topic_id, lambda: self._make(segment, number))
            future.add_done_callback(self._count_failure)
            return future

        return self._making.submit(segment.key(number), begin)

    def _count_failure(self, done: Future[Unit]) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._metrics.regeneration_failures.inc()

    def _make(self, segment: RetiredSegment, number: int) -> Unit:
        kept = self.kept(segment, number)
        if kept is not None:
            return kept
        with self._metrics.regeneration_seconds.time():
            unit = self._from_newest(segment, number)
        for fault in unit.faults.values():
            if isinstance(fault, HistoryMismatch):
                self._metrics.history_mismatches.inc()
            _log.error("%s: %s", segment.entry.metadata, fault)
        self._units.put(segment.key(number), unit, unit.nbytes)
        return unit

    def _from_newest(self, segment: RetiredSegment, number: int) -> Unit:
        """Regenerate a unit; where the view lacks something, from newer ones."""
        meta = segment.entry.metadata
        view = self._views.view(meta.topic, meta.id.topic_id, since=segment.opened_at)
        for _ in range(_VIEWS_MAX):
            unit: Unit | None = None
            problem: Exception
            try:
                unit = self._regenerated(segment, number, view)
                if not unit.faults:
                    return unit
                problem = next(iter(unit.faults.values()))
            except MissingFile as error:
                problem = TransientError(f"data file {error} is gone")
            try:
                newer = self._views.newer(meta.topic, meta.id.topic_id, view)
            except TransientError as error:
                if unit is None:
                    raise
                return unit.undecided(error)
            if newer is view:
                break
            _log.info("%s: %s; reading a newer snapshot", meta, problem)
            view = newer
        if unit is None:
            raise problem
        return unit

    def _regenerated(self, segment: RetiredSegment, number: int, view: TableView) -> Unit:
        meta = segment.entry.metadata
        start, end = segment.offsets(number)
        digest = _coverage(segment, number, view)
        rows = self._cursors.take((meta.id.topic_id, meta.id.partition, start), view)
        try:
            unit = self._assembled(segment, number, rows, view, digest)
        except BaseException:
            self._cursors.drop(rows)
            raise
        self._cursors.keep((meta.id.topic_id, meta.id.partition, end), view, rows)
        return unit

    def _assembled(
        self,
        segment: RetiredSegment,
        number: int,
        rows: RecordCursor,
        view: TableView,
        digest: str,
    ) -> Unit:
        first, stop = (int(b) for b in segment.borders[number : number + 2])
        partition = segment.entry.metadata.id.partition
        regenerator = Regenerator(
            segment.side,
            rows,
            rows_may_miss=view.may_miss(partition, segment.offsets(number)[1]),
            accepted=view.accepted_in(partition),
            run_bytes=_ONE_RUN,
            own_memory=False,
        )
        (run,) = regenerator.marked(first, stop)
        served = assemble(run.headers, run.counts, run.records.buffer, run.records.borders)
        self._metrics.deleted_rows.inc(run.deleted_rows)
        return Unit(
            first=first,
            data=served.data,
            ends=served.borders[1:],
            faults={fault.batch: fault for fault in run.faults},
            coverage=digest,
            token=view.token,
            made_at=self._monotonic(),
        )


def _coverage(segment: RetiredSegment, number: int, view: TableView) -> str:
    start, end = segment.offsets(number)
    return coverage(view.snapshot, segment.entry.metadata.id.partition, start, end)


def _quietly(views: TableViews, topic: str, topic_id: str) -> None:
    try:
        views.view(topic, topic_id, since=0.0)
    except TieringError as error:
        _log.warning("%s", error)
