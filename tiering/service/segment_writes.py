"""Uploads and deletes as the event loop sees them: admission, threads, one writer per id."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

from starlette.types import Receive

from tiering.errors import NotFound
from tiering.ledger import Ledger, LedgerEntry
from tiering.segments import SegmentId
from tiering.service.admission import Admission
from tiering.service.body_receiver import BodyReceiver
from tiering.service.limits import ServiceLimits
from tiering.service.metrics import ServiceMetrics
from tiering.service.refusals import Refusal
from tiering.service.segment_upload import SegmentUpload, UploadReceipt
from tiering.store.objects import ObjectStore

__all__ = ["SegmentWrites"]


class SegmentWrites:
    """Takes uploads and deletes; used from the event loop only."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        limits: ServiceLimits,
        metrics: ServiceMetrics,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._limits = limits
        self._metrics = metrics
        self._now_ms = now_ms
        self._admission = Admission(
            "PUT",
            total=limits.put_in_flight_max,
            per_topic=limits.put_per_topic_max,
            retry_after_s=limits.retry_after_s,
        )
        metrics.watch_in_flight("put", lambda: self._admission.in_flight)
        self._threads = ThreadPoolExecutor(limits.put_in_flight_max, thread_name_prefix="put")
        self._delete_threads = ThreadPoolExecutor(4, thread_name_prefix="delete")
        self._under_way: dict[SegmentId, tuple[BodyReceiver, asyncio.Event]] = {}
        self._withdrawn: OrderedDict[SegmentId, None] = OrderedDict()

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._delete_threads.shutdown(wait=False, cancel_futures=True)

    async def put(self, segment: SegmentId, length: int, receive: Receive) -> UploadReceipt:
        """Receive one segment and make it durable; raises Refusal, BadInput, TieringError."""
        if segment in self._withdrawn:
            raise Refusal(410, "segment_deleted", f"{segment.path}: its delete was asked")
        if segment in self._under_way:
            wait = {"Retry-After": str(self._limits.retry_after_s)}
            raise Refusal(503, "busy", f"{segment.path} is being uploaded already", wait)
        with self._admission.slot(segment.topic_id):
            body = BodyReceiver(receive, self._limits)
            done = asyncio.Event()
            self._under_way[segment] = (body, done)
            try:
                return await self._receive(segment, length, body)
            finally:
                del self._under_way[segment]
                done.set()

    async def delete(self, segment: SegmentId) -> None:
        """Mark a segment as deleted, durably, then remove its native objects."""
        self._remember(segment)
        if (under_way := self._under_way.get(segment)) is not None:
            body, done = under_way
            body.withdraw()
            await done.wait()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._delete_threads, _delete, self._store, segment)

    async def _receive(self, segment: SegmentId, length: int, body: BodyReceiver) -> UploadReceipt:
        upload = SegmentUpload(
            self._store, segment, length, limits=self._limits, now_ms=self._now_ms
        )
        work = _InTurn(self._threads)
        try:
            await work.start(upload.open)
            await work.finished()
            async for chunks in body.blocks():
                self._metrics.bytes_in.inc(sum(map(len, chunks)))
                await work.start(partial(upload.feed, chunks))
            await work.finished()
            body.check()
            await work.start(upload.finish)
            await work.finished()
        except BaseException:
            await work.close(upload.abort)
            raise
        return upload.receipt

    def _remember(self, segment: SegmentId) -> None:
        """An upload of this id that is still on its way must not bring it back."""
        self._withdrawn[segment] = None
        while len(self._withdrawn) > self._limits.withdrawn_ids_max:
            self._withdrawn.popitem(last=False)


class _InTurn:
    """Runs blocking calls one after the other, at most one ahead of the event loop.

    A call that was started is always waited for, also when the request is cancelled: two
    threads must never work on one upload.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._running: asyncio.Future[object] | None = None

    async def start(self, call: Callable[[], object]) -> None:
        """Start a call as soon as the one before has ended; raises what that one raised."""
        await self.finished()
        self._running = asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def finished(self) -> None:
        """Wait for the call under way; raises what it raised."""
        if (running := self._running) is not None:
            await asyncio.wait([running])
            self._running = None
            running.result()

    async def close(self, last: Callable[[], object]) -> None:
        """Wait for the call under way, whatever it raises, then run the last one."""
        if self._running is not None:
            await asyncio.wait([self._running])
            self._running.exception()  # retrieved: the request failed already
            self._running = None
        await self.start(last)
        await self.finished()


def _delete(store: ObjectStore, segment: SegmentId) -> None:
    def ask(entry: LedgerEntry) -> LedgerEntry:
        return replace(entry, delete_requested=True)

    with suppress(NotFound):  # a failed try, or an id never seen: its objects go all the same
        Ledger(store).update(segment, ask)
    store.delete(segment.log_key)
    store.delete(segment.indexes_key)
