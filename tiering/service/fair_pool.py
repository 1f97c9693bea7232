"""A few threads for work that uses processors, shared fairly by topics."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["FairPool"]

T = TypeVar("T")


class FairPool:
    """Runs calls in `threads` threads. Groups take turns.

    Unlike an executor's, its queue is per group: a hundred calls of one topic delay another
    topic's by one call, not by a hundred. A group takes another thread only while more are free
    than it has: half of them at most, and each further slow group half of the rest. Threads are
    daemons: they hold nothing that must be given back.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._queues: OrderedDict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = (
            OrderedDict()
        )
        self._running: dict[Hashable, int] = {}
        self._free = threads
        self._changed = threading.Condition()
        self._closed = False
        for number in range(threads):
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    def submit(self, group: Hashable, call: Callable[[], T]) -> Future[T]:
        """Run `call` when it is the group's turn."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                future.cancel()
                return future
            self._queues.setdefault(group, deque()).append((future, call))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Cancel what has not begun and let the threads end."""
        with self._changed:
            self._closed = True
            waiting = [future for queue in self._queues.values() for future, _ in queue]
            self._queues.clear()
            self._changed.notify_all()
        for future in waiting:
            future.cancel()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            group, future, call = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                    future.set_exception(error)
            del taken, future, call  # what came out mustn't be held until the next call
            with self._changed:
                self._running[group] -= 1
                if not self._running[group]:
                    del self._running[group]
                self._free += 1
                self._changed.notify_all()

    def _take(self) -> tuple[Hashable, Future[Any], Callable[[], Any]] | None:
        with self._changed:
            while not self._closed:
                for group, queue in self._queues.items():
                    if self._running.get(group, 0) >= self._free:
                        continue
                    future, call = queue.popleft()
                    self._queues.pop(group)
                    if queue:
                        self._queues[group] = queue  # behind the others now
                    self._running[group] = self._running.get(group, 0) + 1
                    self._free -= 1
                    return group, future, call
                self._changed.wait()
        return None
