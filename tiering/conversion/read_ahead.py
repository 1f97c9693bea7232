"""Reading a remote log one step ahead of its decoding."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final

from segment_reader import RangeSource

__all__ = ["ReadAhead"]

_STEP_BYTES: Final = 4 * 1024 * 1024


class ReadAhead:
    """A source over another one: while a range is being worked on, the next one is fetched.

    For reads that go forward through [0, end_position), each beginning at or before the end of
    the last one; any other read is passed on as it is. Holds up to three steps. To be used as a
    context manager: a fetch that is still under way at its end is left to run out.
    """

    def __init__(
        self, source: RangeSource, end_position: int | None, step_bytes: int = _STEP_BYTES
    ) -> None:
        self.name = source.name
        self.size_bytes = source.size_bytes
        self._source = source
        self._end = source.size_bytes if end_position is None else end_position
        self._step_bytes = step_bytes
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._held = b""
        self._held_start = 0
        self._next: Future[bytes] | None = None

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes; raises what the source raises."""
        if not self._held_start <= start <= self._held_end or start + length > self._end:
            self._restart(start)
        while self._held_end < start + length and self._held_end < self._end:
            fetched = self._fetched(start + length - self._held_end)
            self._held = self._held[start - self._held_start :] + fetched
            self._held_start = start
            self._fetch_ahead()
        if start + length > self._held_end:
            return self._source.read(start, length)
        at = start - self._held_start
        return self._held[at : at + length]

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def _held_end(self) -> int:
        return self._held_start + len(self._held)

    def _restart(self, start: int) -> None:
        self._held, self._held_start, self._next = b"", start, None

    def _fetched(self, wanted: int) -> bytes:
        """The bytes behind those held: what was fetched meanwhile, or now as many as wanted."""
        if self._next is not None:
            return self._next.result()
        return self._source.read(self._held_end, min(wanted, self._end - self._held_end))

    def _fetch_ahead(self) -> None:
        length = min(self._step_bytes, self._end - self._held_end)
        self._next = (
            self._threads.submit(self._source.read, self._held_end, length) if length > 0 else None
        )
