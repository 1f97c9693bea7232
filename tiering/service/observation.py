"""What the service looks up about its store for /v1/health and /metrics, seldom and bounded."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tiering.errors import NotFound, TieringError
from tiering.heartbeat import HEARTBEAT_KEY
from tiering.ledger import Ledger, SegmentState
from tiering.service.limits import ServiceLimits
from tiering.service.metrics import ServiceMetrics
from tiering.store.objects import ObjectStore

__all__ = ["StoreObservation"]

_DELETE_REQUESTED: Final = "delete_requested"
_QUARANTINED: Final = "quarantined"

_log = logging.getLogger("onecopy.service")


class StoreObservation:
    """Looks at the store in threads of its own, so that a slow store can't use up the others."""

    def __init__(
        self, store: ObjectStore, *, limits: ServiceLimits, metrics: ServiceMetrics
    ) -> None:
        self._store = store
        self._limits = limits
        self._metrics = metrics
        self._ledger = Ledger(store)
        self._look_threads = ThreadPoolExecutor(2, thread_name_prefix="look")
        self._count_thread = ThreadPoolExecutor(1, thread_name_prefix="count")
        self._health: tuple[float, asyncio.Future[bool]] | None = None
        self._count: tuple[float, asyncio.Future[None]] | None = None

    def close(self) -> None:
        """Let the threads end."""
        self._look_threads.shutdown(wait=False, cancel_futures=True)
        self._count_thread.shutdown(wait=False, cancel_futures=True)

    async def store_answers(self) -> bool:
        """True if the store answered a moment ago, or does now in time."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._health is None or (
            self._health[1].done() and now - self._health[0] > self._limits.health_cache_s
        ):
            self._health = now, loop.run_in_executor(self._look_threads, self._look)
        try:
            async with asyncio.timeout(self._limits.store_answer_s):
                return await asyncio.shield(self._health[1])
        except TimeoutError:
            return False

    async def exposition(self) -> tuple[bytes, str]:
        """Prometheus' text and its content type."""
        loop = asyncio.get_running_loop()
        self._count_sometimes(loop)
        render = loop.run_in_executor(self._look_threads, self._beat)
        try:
            async with asyncio.timeout(self._limits.store_answer_s):
                await asyncio.shield(render)
        except TimeoutError:
            self._metrics.heartbeat.update(None)
        return generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST

    def _count_sometimes(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        if self._count is None or (
            self._count[1].done() and now - self._count[0] > self._limits.ledger_count_every_s
        ):
            self._count = now, loop.run_in_executor(self._count_thread, self._count_segments)

    def _look(self) -> bool:
        try:
            self._store.size(HEARTBEAT_KEY)
        except NotFound:
            return True
        except TieringError as error:
            _log.warning("the store doesn't answer: %s", error)
            return False
        return True

    def _beat(self) -> None:
        try:
            self._metrics.heartbeat.update(self._store.get(HEARTBEAT_KEY).data)
        except TieringError:
            self._metrics.heartbeat.update(None)

    def _count_segments(self) -> None:
        counts = Counter({state.value: 0 for state in SegmentState})
        counts.update({_DELETE_REQUESTED: 0, _QUARANTINED: 0})
        try:
            for entry in self._ledger.scan():
                if entry.delete_requested:
                    counts[_DELETE_REQUESTED] += 1
                else:
                    counts[entry.state.value] += 1
                    counts[_QUARANTINED] += entry.quarantine is not None
        except TieringError as error:
            _log.warning("segments can't be counted: %s", error)
            return
        for state, count in counts.items():
            self._metrics.segments.labels(state).set(count)
