"""A least-recently-used cache bounded by the bytes it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key with their sizes in bytes; safe to use from several threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of what is held."""
        return self._bytes

    def get(self, key: K) -> V | None:
        """The value, now the most recently used; None if it isn't held."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Hold a value; the longest unused ones go. One larger than the cache isn't held."""
        with self._lock:
            self._drop(key)
            if size_bytes > self._bytes_max:
                return
            self._values[key] = (value, size_bytes)
            self._bytes += size_bytes
            while self._bytes > self._bytes_max:
                self._drop(next(iter(self._values)))

    def discard(self, key: K) -> None:
        """Forget a value; nothing happens if it isn't held."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: K) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self._bytes -= found[1]
