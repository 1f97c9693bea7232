"""Work that several threads ask for at once, done once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["SharedCalls"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedCalls(Generic[K, V]):
    """Calls by key: who asks while one is under way waits for that one's result or error."""

    def __init__(self) -> None:
        self._under_way: dict[K, Future[V]] = {}
        self._lock = threading.Lock()

    def call(self, key: K, make: Callable[[], V]) -> V:
        """What `make` gives, called here or by the thread that asked first."""
        mine: Future[V] = Future()
        with self._lock:
            future = self._under_way.setdefault(key, mine)
        if future is mine:
            try:
                mine.set_result(make())
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                mine.set_exception(error)
            with self._lock:
                del self._under_way[key]
        return future.result()

    def submit(self, key: K, begin: Callable[[], Future[V]]) -> Future[V]:
        """The future of `begin`, called here or by the thread that asked first."""
        with self._lock:
            future = self._under_way.get(key)
            if future is not None:
                return future
            future = self._under_way[key] = begin()
        future.add_done_callback(lambda _: self._forget(key))
        return future

    def _forget(self, key: K) -> None:
        with self._lock:
            self._under_way.pop(key, None)
