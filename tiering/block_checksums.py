"""Checksums of a log's blocks: taken when it is stored, compared whenever it is read. Pure.

Kafka's own checksum of a batch covers neither its base offset nor its leader epoch, and no batch
says which partition it is of. A CRC-32C of every block of the log, kept beside the indexes as part
`log_checksums` (u32 each, little endian, the last block as long as it is), covers all of it.
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK_BYTES", "BlockChecksums", "blocks_of", "first_wrong_block", "parse_checksums"]

BLOCK_BYTES: Final = 64 * 1024
"""Bytes under one checksum. Part of the format: stored checksums can't be read with another."""

_CHECKSUM: Final = np.dtype("<u4")

Checksums = npt.NDArray[np.uint32]


class BlockChecksums:
    """Takes the checksums of a log whose bytes come in pieces of any size."""

    def __init__(self) -> None:
        self._done = bytearray()
        self._crc = 0
        self._in_block = 0

    def update(self, piece: bytes | memoryview) -> None:
        """Take the log's next bytes."""
        rest = _as_array(piece)
        while len(rest):
            taken = rest[: BLOCK_BYTES - self._in_block]
            self._crc = google_crc32c.extend(self._crc, taken)
            self._in_block += len(taken)
            rest = rest[len(taken) :]
            if self._in_block == BLOCK_BYTES:
                self._end_block()

    def finish(self) -> bytes:
        """The part's bytes; nothing may be taken afterwards."""
        if self._in_block:
            self._end_block()
        return bytes(self._done)

    def _end_block(self) -> None:
        self._done += self._crc.to_bytes(4, "little")
        self._crc = self._in_block = 0


def blocks_of(size_bytes: int) -> int:
    """How many blocks a log of that size has."""
    return -(-size_bytes // BLOCK_BYTES)


def parse_checksums(data: bytes, size_bytes: int) -> Checksums:
    """The checksums of a log of `size_bytes`; ValueError if there are more or fewer of them."""
    if len(data) != blocks_of(size_bytes) * _CHECKSUM.itemsize:
        raise ValueError(f"{len(data)} bytes of checksums for a log of {size_bytes} bytes")
    return np.frombuffer(data, _CHECKSUM)


def first_wrong_block(data: bytes | memoryview, expected: Checksums) -> int | None:
    """Index of the first block of `data` whose checksum isn't the expected one, or None.

    `data` begins on a block's border and has as many blocks as there are checksums.
    """
    view = _as_array(data)
    for block, crc in enumerate(expected.tolist()):
        if google_crc32c.value(view[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]) != crc:
            return block
    return None


def _as_array(data: bytes | memoryview) -> npt.NDArray[np.uint8]:
    """What google-crc32c takes without a copy: it refuses memoryviews and writable arrays."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array
