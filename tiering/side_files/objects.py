"""Puffin files in the object store: written as a stream, read by ranges, every blob checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tiering.errors import FatalError
from tiering.side_files import puffin
from tiering.side_files.puffin import Blob
from tiering.store import ObjectStore, Upload

__all__ = ["PuffinObject", "PuffinUpload", "open_object"]

TAIL_BYTES: Final = 128 * 1024
"""Read at once from an object's end: mostly the footer and the batches' headers, too."""
_READ_BYTES_MAX: Final = 8 * 1024 * 1024
"""Neighbouring blobs are read together up to that; a larger blob is read alone."""
_GAP_BYTES_MAX: Final = 128 * 1024
"""Blobs are neighbours if no more than that lies between them."""


class PuffinUpload:
    """A Puffin file on its way into the store; nothing is sent before the first blob."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._upload: Upload | None = None
        self._size = 0
        self._blobs: list[Blob] = []

    def add(
        self, kind: str, data: bytes, properties: Mapping[str, str], codec: str | None = None
    ) -> None:
        """Write one blob; its checksum is added to the properties."""
        checked = {**properties, puffin.CRC: puffin.checksum(data)}
        if not self._size:
            self._write(puffin.MAGIC)
        self._blobs.append(
            Blob(type=kind, offset=self._size, length=len(data), codec=codec, properties=checked)
        )
        self._write(data)

    def copy(self, blob: Blob, data: bytes) -> None:
        """Write a blob of another file as it lies there."""
        self.add(blob.type, data, blob.properties, blob.codec)

    def finish(self) -> int:
        """Write the footer, make the file durable and visible; returns its size in bytes."""
        if not self._size:
            self._write(puffin.MAGIC)
        upload = self._write(puffin.footer(self._blobs))
        upload.commit()
        return self._size

    def abort(self) -> None:
        """Drop what was written; never raises, nothing happens after `finish`."""
        if self._upload is not None:
            self._upload.abort()

    def _write(self, data: bytes) -> Upload:
        if self._upload is None:
            self._upload = self._store.open_upload(self._key)
        self._upload.write(data)
        self._size += len(data)
        return self._upload


@dataclass(frozen=True, slots=True, kw_only=True)
class PuffinObject:
    """A Puffin file in the store, its footer read and checked; `tail` is its last bytes."""

    store: ObjectStore
    key: str
    size_bytes: int
    blobs: tuple[Blob, ...]
    tail: bytes

    def read(self, blobs: Sequence[Blob]) -> Iterator[bytes]:
        """The stored bytes of each of `blobs`, checked; neighbours share a request.

        Raises FatalError where they fail their checksum, NotFound when the object is gone.
        """
        for group in _neighbours(blobs):
            start = group[0].offset
            data = self._range(start, group[-1].end - start)
            for blob in group:
                stored = data[blob.offset - start : blob.end - start]
                self._check(blob, stored)
                yield stored

    def has_at_hand(self, blob: Blob) -> bool:
        """Whether reading `blob` costs no request."""
        return blob.offset >= self.size_bytes - len(self.tail)

    def for_later(self) -> PuffinObject:
        """The same for reading known blobs, without what opening it has brought along."""
        return replace(self, blobs=(), tail=b"")

    def _range(self, start: int, length: int) -> bytes:
        at = start - (self.size_bytes - len(self.tail))
        if at >= 0:
            return self.tail[at : at + length]
        return self.store.get_range(self.key, start, length)

    def _check(self, blob: Blob, stored: bytes) -> None:
        if len(stored) != blob.length:
            raise FatalError(f"side file {self.key} is cut: it should have {self.size_bytes} bytes")
        if puffin.checksum(stored) != blob.properties.get(puffin.CRC):
            raise FatalError(
                f"side file {self.key} is damaged: the {blob.type} blob at byte {blob.offset} "
                "fails its checksum"
            )


def open_object(store: ObjectStore, key: str) -> PuffinObject:
    """Read a Puffin file's footer, mostly in one request.

    Raises NotFound when there is no such object, FatalError when it is damaged.
    """
    tail, size_bytes = store.get_tail(key, TAIL_BYTES)
    footer_bytes = puffin.footer_size(tail, size_bytes, key)
    footer = tail[-footer_bytes:]
    if footer_bytes > len(tail):
        footer = store.get_range(key, size_bytes - footer_bytes, footer_bytes - len(tail)) + tail
    blobs = puffin.parse(footer, size_bytes, key)
    return PuffinObject(store=store, key=key, size_bytes=size_bytes, blobs=blobs, tail=tail)


def _neighbours(blobs: Sequence[Blob]) -> Iterator[list[Blob]]:
    """Runs of blobs that lie (almost) one behind the other, up to a size."""
    group: list[Blob] = []
    for blob in blobs:
        if group and (blob.offset != group[-1].end or blob.end - group[0].offset > _READ_BYTES_MAX):
            yield group
            group = []
        group.append(blob)
    if group:
        yield group
