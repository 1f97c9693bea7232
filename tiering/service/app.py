"""The tier service's HTTP interface: what the broker's plug-in speaks.

PUT    /v1/segments/{topic id}/{partition}/{base offset, 20 digits}-{segment id}
GET    .../log?position=P|cursor=C[&end_position=E][&max_bytes=M]
GET    .../indexes/{offset|timestamp|producer_snapshot|transaction|leader_epoch}
DELETE ...
GET    /v1/health   (the only one without the token)
GET    /metrics
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from segment_reader import SegmentReaderError
from tiering.errors import BadInput, TieringError, TransientError
from tiering.segments import SegmentId
from tiering.service.admission import Admission
from tiering.service.body_receiver import ClientGone
from tiering.service.edge import HEALTH_PATH, Measured, TokenGate, check_token
from tiering.service.limits import DEFAULT_SERVICE_LIMITS, ServiceLimits
from tiering.service.metrics import ServiceMetrics
from tiering.service.observation import StoreObservation
from tiering.service.refusals import Refusal, refusal_for
from tiering.service.retired_reads import RetiredReads
from tiering.service.segment_reads import SegmentReads
from tiering.service.segment_writes import SegmentWrites
from tiering.service.table_views import LoadTable, TableViews
from tiering.store.objects import ObjectStore

__all__ = ["BATCH_MARKS", "NEXT_CURSOR", "build_app", "system_clock_ms"]

NEXT_CURSOR = "Onecopy-Next-Cursor"
BATCH_MARKS = "Onecopy-Batch-Marks"
_SEGMENT_PATH = "/v1/segments/{topic_id}/{partition}/{name}"
_DIGITS_MAX = 19

_log = logging.getLogger("onecopy.service")


def system_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def build_app(
    store: ObjectStore,
    token: str,
    limits: ServiceLimits = DEFAULT_SERVICE_LIMITS,
    clock: Callable[[], int] = system_clock_ms,
    load_table: LoadTable | None = None,
) -> Starlette:
    """The ASGI application over `store`; `clock` gives epoch milliseconds.

    `load_table` asks the catalog for a topic's table; without it the tables' pointers in the
    store have to do.

    Raises BadInput when the token is too weak to be one.
    """
    metrics = ServiceMetrics()
    endpoints = _Endpoints(store, limits, metrics, clock, load_table)
    errors = (BadInput, TieringError, SegmentReaderError, Refusal)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            endpoints.close()

    return Starlette(
        routes=[
            Route(_SEGMENT_PATH, endpoints.put_segment, methods=["PUT"]),
            Route(_SEGMENT_PATH, endpoints.delete_segment, methods=["DELETE"]),
            Route(_SEGMENT_PATH + "/log", endpoints.get_log, methods=["GET"]),
            Route(_SEGMENT_PATH + "/indexes/{index}", endpoints.get_index, methods=["GET"]),
            Route(HEALTH_PATH, endpoints.health, methods=["GET"]),
            Route("/metrics", endpoints.show_metrics, methods=["GET"]),
        ],
        middleware=[
            Middleware(Measured, metrics=metrics),
            Middleware(TokenGate, token=check_token(token)),
        ],
        exception_handlers={
            **{error: partial(_answer_error, metrics) for error in errors},
            ClientGone: partial(_answer_nobody, metrics),
            HTTPException: _answer_unrouted,
        },
        lifespan=lifespan,
    )


class _Endpoints:
    """The handlers and what they share."""

    def __init__(
        self,
        store: ObjectStore,
        limits: ServiceLimits,
        metrics: ServiceMetrics,
        clock: Callable[[], int],
        load_table: LoadTable | None,
    ) -> None:
        self._limits = limits
        views = TableViews(store, limits=limits, monotonic=time.monotonic, load_table=load_table)
        self._retired = RetiredReads(
            store, views, limits=limits, metrics=metrics, monotonic=time.monotonic
        )
        self._reads = SegmentReads(store, self._retired, limits=limits, monotonic=time.monotonic)
        self._writes = SegmentWrites(store, limits=limits, metrics=metrics, now_ms=clock)
        self._observation = StoreObservation(store, limits=limits, metrics=metrics)
        self._admission = Admission(
            "GET",
            total=limits.get_in_flight_max,
            per_topic=limits.get_per_topic_max,
            retry_after_s=limits.retry_after_s,
        )
        metrics.watch_in_flight("get", lambda: self._admission.in_flight)
        self._threads = ThreadPoolExecutor(limits.get_in_flight_max, thread_name_prefix="get")

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._retired.close()
        self._writes.close()
        self._observation.close()

    async def put_segment(self, request: Request) -> Response:
        """Make one segment durable."""
        segment = _segment(request)
        length = request.headers.get("content-length", "")
        if not _is_number(length):
            raise BadInput("an upload needs its Content-Length")
        body_max = self._limits.log_bytes_max + self._limits.indexes_bytes_max
        if int(length) > body_max + self._limits.manifest_bytes_max:
            raise Refusal(413, "too_large", f"a segment of {length} bytes is over the limit")
        receipt = await self._writes.put(segment, int(length), request.receive)
        return JSONResponse({"sha256": receipt.sha256}, 201 if receipt.created else 200)

    async def delete_segment(self, request: Request) -> Response:
        """Forget one segment."""
        segment = _segment(request)
        try:
            await self._writes.delete(segment)
        finally:
            self._reads.forget(segment)
        return Response(status_code=204)

    async def get_log(self, request: Request) -> Response:
        """Answer whole batches, bounded."""
        segment = _segment(request)
        position, cursor = _number(request, "position"), _number(request, "cursor")
        if (position is None) == (cursor is None):
            raise BadInput("give either position or cursor")
        max_bytes = _number(request, "max_bytes") or self._limits.pull_bytes_default
        pull = partial(
            self._reads.pull,
            segment,
            position=position,
            cursor=cursor,
            end_position=_number(request, "end_position"),
            max_bytes=min(max_bytes, self._limits.pull_bytes_max),
        )
        with self._admission.slot(segment.topic_id):
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, pull)
        headers = {BATCH_MARKS: answer.marks()}
        if answer.next_position is not None:
            headers[NEXT_CURSOR] = str(answer.next_position)
        return _Parts(answer.parts, answer.size, headers)

    async def get_index(self, request: Request) -> Response:
        """Answer one index."""
        segment = _segment(request)
        with self._admission.slot(segment.topic_id):
            loop = asyncio.get_running_loop()
            read = partial(self._reads.index, segment, request.path_params["index"])
            data = await loop.run_in_executor(self._threads, read)
        return Response(data, media_type="application/octet-stream")

    async def health(self, _: Request) -> Response:
        """Say whether the store answers."""
        if await self._observation.store_answers():
            return JSONResponse({"status": "ok"})
        raise TransientError("the object store doesn't answer")

    async def show_metrics(self, _: Request) -> Response:
        """Prometheus text."""
        text, content_type = await self._observation.exposition()
        return Response(text, media_type=content_type)


class _Parts(Response):
    """A body whose parts are sent as they are, of a length that is known."""

    media_type = "application/octet-stream"

    def __init__(
        self, parts: Sequence[bytes | memoryview], size: int, headers: Mapping[str, str]
    ) -> None:
        self._parts = parts
        super().__init__(headers={**headers, "Content-Length": str(size)})

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        for number, part in enumerate(self._parts, 1):
            more = number < len(self._parts)
            await send({"type": "http.response.body", "body": part, "more_body": more})


async def _answer_error(metrics: ServiceMetrics, request: Request, error: Exception) -> Response:
    refusal = refusal_for(error)
    route = getattr(request.scope.get("endpoint"), "__name__", "other")
    if refusal.code == "store_unavailable":
        metrics.store_errors.labels(route).inc()
    level = logging.WARNING if refusal.status >= 500 and refusal.code != "busy" else logging.DEBUG
    _log.log(
        level,
        "%s %s: %d %s: %s",
        request.method,
        request.scope["path"],
        refusal.status,
        refusal.code,
        refusal.message,
    )
    return JSONResponse(
        {"error": refusal.code, "message": refusal.message},
        refusal.status,
        headers=refusal.headers,
    )


async def _answer_nobody(metrics: ServiceMetrics, _: Request, __: Exception) -> Response:
    metrics.disconnects.inc()
    return Response(status_code=400)


async def _answer_unrouted(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return JSONResponse({"error": "bad_request", "message": "no such path or method"}, status)


def _segment(request: Request) -> SegmentId:
    path = request.path_params
    return SegmentId.parse(f"{path['topic_id']}/{path['partition']}/{path['name']}")


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not _is_number(text):
        raise BadInput(f"{name} is not a number")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
