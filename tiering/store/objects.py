"""The object store as the tier sees it: one Protocol and its values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ObjectInfo", "ObjectStore", "StoredObject", "Upload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a listing; `version` changes whenever the object's bytes do."""

    key: str
    size_bytes: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object read whole, with the version to hand to `put_if`."""

    data: bytes
    version: str


class Upload(Protocol):
    """A streamed write: nothing is visible under the key before `commit` returned."""

    def write(self, chunk: bytes | memoryview) -> None:
        """Append `chunk`; raises TransientError when the store failed."""

    def commit(self) -> None:
        """Make the object durable and visible, atomically."""

    def abort(self) -> None:
        """Drop what was written; never raises."""


class ObjectStore(Protocol):
    """Objects by key (`a/b/c`, relative to the store's root), durable once a write returns.

    Every method raises TransientError when the store can't be reached or answers 5xx;
    an outage is never reported as NotFound.
    """

    @property
    def url(self) -> str:
        """The URL this store was opened with (holds no credentials)."""

    def get(self, key: str) -> StoredObject:
        """Read a (small) object whole; NotFound if there is none."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes [start, start+length), shorter only at the object's end; NotFound if missing."""

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes (all, when it has fewer) and its size, in one request."""

    def size(self, key: str) -> int:
        """Size in bytes; NotFound if there is none."""

    def put(self, key: str, data: bytes) -> None:
        """Write a small object whole, replacing what is there."""

    def put_if(self, key: str, data: bytes, *, expected: str | None) -> str:
        """Write only if the object's version is `expected` (None: does not exist).

        Returns the new version; raises StoreConflict when another version is there.
        """

    def open_upload(self, key: str) -> Upload:
        """Start a streamed write of `key`."""

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, in key order."""
