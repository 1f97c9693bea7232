"""A store that fails on demand, before or after it acted, or waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Literal

from tiering.errors import TransientError
from tiering.store import ObjectInfo, ObjectStore, StoredObject, Upload

When = Literal["before", "after"]


class FaultyStore:
    """Wraps a store; `fail` names methods (with what their keys end in) that raise."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.faults: dict[tuple[str, str], When] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.gated: set[str] = set()
        self.waiting = 0

    @property
    def url(self) -> str:
        return self.inner.url

    def fail(self, method: str, ending: str = "", when: When = "before") -> None:
        self.faults[method, ending] = when

    def hold(self, *methods: str) -> None:
        """Let calls of these methods wait until `gate` is set."""
        self.gated = set(methods)
        self.gate.clear()

    def check(self, method: str, key: str, when: When) -> None:
        if when == "before" and method in self.gated:
            self.waiting += 1
            assert self.gate.wait(20)
            self.waiting -= 1
        for (name, ending), at in self.faults.items():
            if name == method and key.endswith(ending) and at == when:
                raise TransientError(f"{method} {key}: planted")

    def get(self, key: str) -> StoredObject:
        self.check("get", key, "before")
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.check("get_range", key, "before")
        return self.inner.get_range(key, start, length)

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        self.check("get_tail", key, "before")
        return self.inner.get_tail(key, length)

    def size(self, key: str) -> int:
        self.check("size", key, "before")
        return self.inner.size(key)

    def put(self, key: str, data: bytes) -> None:
        self.check("put", key, "before")
        self.inner.put(key, data)
        self.check("put", key, "after")

    def put_if(self, key: str, data: bytes, *, expected: str | None) -> str:
        self.check("put_if", key, "before")
        version = self.inner.put_if(key, data, expected=expected)
        self.check("put_if", key, "after")
        return version

    def open_upload(self, key: str) -> Upload:
        self.check("open_upload", key, "before")
        return FaultyUpload(self, key, self.inner.open_upload(key))

    def delete(self, key: str) -> None:
        self.check("delete", key, "before")
        self.inner.delete(key)
        self.check("delete", key, "after")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self.check("list", prefix, "before")
        return self.inner.list(prefix)


class FaultyUpload:
    """An upload of a FaultyStore."""

    def __init__(self, store: FaultyStore, key: str, inner: Upload) -> None:
        self._store = store
        self._key = key
        self._inner = inner

    def write(self, chunk: bytes | memoryview) -> None:
        self._store.check("write", self._key, "before")
        self._inner.write(chunk)

    def commit(self) -> None:
        self._store.check("commit", self._key, "before")
        self._inner.commit()
        self._store.check("commit", self._key, "after")

    def abort(self) -> None:
        self._inner.abort()
