"""The body of an upload, taken apart as its bytes arrive. Pure: no store, no sockets.

    u32 manifest length (big endian) | manifest, JSON | parts in manifest order | SHA-256

The digest covers every byte before it.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from tiering.errors import BadInput
from tiering.segments import SegmentId
from tiering.service.limits import ServiceLimits
from tiering.service.manifest import Manifest, parse_manifest

__all__ = ["DigestMismatch", "Piece", "UploadBody"]

_LENGTH_BYTES: Final = 4
_DIGEST_BYTES: Final = 32


class DigestMismatch(BadInput):
    """The body's bytes are not those that its sender hashed."""


class Piece(NamedTuple):
    """Consecutive bytes of one part."""

    part: str
    data: memoryview


class UploadBody:
    """Fed with the body's blocks of any size, gives back the parts' bytes in order.

    `manifest` is set as soon as its last byte was fed. Holds at most the manifest and one
    block in memory.
    """

    def __init__(self, content_length: int, segment: SegmentId, limits: ServiceLimits) -> None:
        if content_length <= _LENGTH_BYTES + _DIGEST_BYTES:
            raise BadInput(f"a body of {content_length} bytes is too short for an upload")
        self.manifest: Manifest | None = None
        self._segment = segment
        self._limits = limits
        self._digest_at = content_length - _DIGEST_BYTES
        self._fed = 0
        self._hash = hashlib.sha256()
        self._head = bytearray()
        self._trailer = bytearray()
        self._part = 0
        self._left = 0

    def feed(self, block: bytes) -> list[Piece]:
        """Take the next block; raises BadInput when the manifest is wrong."""
        view = memoryview(block)
        hashed = view[: max(0, self._digest_at - self._fed)]
        self._hash.update(hashed)
        self._trailer += view[len(hashed) :]
        if len(self._trailer) > _DIGEST_BYTES:
            raise BadInput("the body is longer than its Content-Length")
        self._fed += len(view)
        if self.manifest is None:
            hashed = self._take_manifest(hashed)
        return self._split(hashed)

    def finish(self) -> str:
        """The body's SHA-256 in hex; BadInput if it was cut, DigestMismatch if altered."""
        if len(self._trailer) != _DIGEST_BYTES:
            raise BadInput(f"the body ended after {self._fed} bytes")
        if self._hash.digest() != self._trailer:
            raise DigestMismatch(f"segment {self._segment.path}: SHA-256 of the body differs")
        return self._hash.hexdigest()

    def _take_manifest(self, data: memoryview) -> memoryview:
        """Collect the manifest from the body's first bytes; returns what lies behind it."""
        self._head += data
        if len(self._head) < _LENGTH_BYTES:
            return memoryview(b"")
        length = int.from_bytes(self._head[:_LENGTH_BYTES], "big")
        parts_bytes = self._digest_at - _LENGTH_BYTES - length
        if length > self._limits.manifest_bytes_max or parts_bytes < 0:
            raise BadInput(f"manifest: a length of {length} bytes is not possible")
        end = _LENGTH_BYTES + length
        if len(self._head) < end:
            return memoryview(b"")
        head, self._head = bytes(self._head), bytearray()
        self.manifest = parse_manifest(
            head[_LENGTH_BYTES:end], self._segment, parts_bytes=parts_bytes, limits=self._limits
        )
        self._left = self.manifest.parts[0][1]
        return memoryview(head)[end:]

    def _split(self, data: memoryview) -> list[Piece]:
        pieces: list[Piece] = []
        while data and self.manifest is not None:
            if not self._left:
                self._part += 1
                self._left = self.manifest.parts[self._part][1]
                continue
            piece = data[: self._left]
            pieces.append(Piece(self.manifest.parts[self._part][0], piece))
            self._left -= len(piece)
            data = data[len(piece) :]
        return pieces
