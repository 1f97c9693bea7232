"""A request's body as blocks worth a hop to a thread, with deadlines and a way to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Receive

from tiering.service.limits import ServiceLimits
from tiering.service.refusals import Refusal

__all__ = ["BodyReceiver", "ClientGone"]


class ClientGone(Exception):
    """The client closed its connection before the body was complete."""


class BodyReceiver:
    """Gathers ASGI's small messages; raises ClientGone, or Refusal when time is up."""

    def __init__(self, receive: Receive, limits: ServiceLimits) -> None:
        self._receive = receive
        self._limits = limits
        self._ended = False
        self._withdrawn = False
        self._waiting: asyncio.Timeout | None = None
        self._give_up_at = asyncio.get_running_loop().time() + limits.put_deadline_s

    async def blocks(self) -> AsyncIterator[list[bytes]]:
        """Lists of chunks, each list `block_bytes` long or a bit more; the last one shorter."""
        while not self._ended:
            if chunks := await self._gather():
                yield chunks
        self.check()

    def withdraw(self) -> None:
        """The segment's delete was asked: stop receiving, whatever the client still sends."""
        self._withdrawn = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    def check(self) -> None:
        """Raise Refusal 410 after `withdraw`."""
        if self._withdrawn:
            raise Refusal(410, "segment_deleted", "the segment was deleted while it was uploaded")

    async def _gather(self) -> list[bytes]:
        self.check()
        loop = asyncio.get_running_loop()
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout_at(self._deadline(loop.time())) as self._waiting:
                set_at = loop.time()
                while size < self._limits.block_bytes and not self._ended:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    chunk = message.get("body", b"")
                    self._ended = not message.get("more_body", False)
                    if chunk:
                        chunks.append(chunk)
                        size += len(chunk)
                        if loop.time() - set_at > self._limits.no_progress_s / 16:
                            set_at = loop.time()
                            self._waiting.reschedule(self._deadline(set_at))
        except TimeoutError:
            self.check()
            raise Refusal(
                408, "timeout", "the body made no progress in time", {"Connection": "close"}
            ) from None
        finally:
            self._waiting = None
        return chunks

    def _deadline(self, now: float) -> float:
        return min(now + self._limits.no_progress_s, self._give_up_at)
