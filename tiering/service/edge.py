"""What every request passes before it is routed: measuring, then the token."""

from __future__ import annotations

import hmac
import time
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiering.errors import BadInput
from tiering.service.metrics import ServiceMetrics

__all__ = ["HEALTH_PATH", "Measured", "TokenGate", "check_token"]

HEALTH_PATH: Final = "/v1/health"
_TOKEN_LENGTH_MIN: Final = 8


def check_token(token: str) -> str:
    """Return `token`, or raise BadInput if it is too weak to be one."""
    if len(token) < _TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable():
        raise BadInput(
            f"the service's token must have at least {_TOKEN_LENGTH_MIN} printable characters"
        )
    return token


class TokenGate:
    """Lets pass what carries the bearer token, and /v1/health."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse with 401, or hand on."""
        if scope["type"] != "http" or scope["path"] == HEALTH_PATH or self._allows(scope):
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse(
            {"error": "unauthorized", "message": "a valid bearer token is required"},
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(sent) == 1 and hmac.compare_digest(sent[0], self._expected)


class Measured:
    """Counts requests by route and status, their seconds and the bytes sent."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, then record."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status, sent = "none", 0

        async def watched(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = str(message["status"])
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("endpoint"), "__name__", "other")
            self._metrics.requests.labels(route, status).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
            if sent:
                self._metrics.bytes_out.labels(route).inc(sent)
