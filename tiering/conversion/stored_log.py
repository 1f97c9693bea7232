"""The native log in the store, every byte compared with the checksums taken at its upload."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from segment_reader import CorruptSegment
from tiering.block_checksums import BLOCK_BYTES, first_wrong_block, parse_checksums
from tiering.errors import NotFound
from tiering.ledger import LedgerEntry
from tiering.segments import CHECKSUMS_PART
from tiering.store import ObjectStore

__all__ = ["MissingSegment", "StoredLog", "found", "read_part"]

_T = TypeVar("_T")


class MissingSegment(Exception):
    """A native object is gone: deleted by the broker meanwhile, or never there."""


class StoredLog:
    """A log object as a source of ranges that are checked block by block.

    What it refuses (CorruptSegment naming the block) is more than batches' own checksums do: a
    changed base offset or leader epoch, and whole batches of another log. Segments that were
    uploaded before there were checksums are read without. May be shared by threads.

    Raises MissingSegment when the log is gone, CorruptSegment when it has not the uploaded size.
    """

    def __init__(self, store: ObjectStore, entry: LedgerEntry) -> None:
        self.name = entry.metadata.id.log_key
        self._store = store
        self.size_bytes = found(partial(store.size, self.name))
        uploaded = entry.metadata.size_bytes
        if self.size_bytes != uploaded:
            raise self._corrupt(
                f"the log has {self.size_bytes} bytes, {uploaded} were uploaded",
                min(self.size_bytes, uploaded),
            )
        data = read_part(store, entry, CHECKSUMS_PART)
        try:
            self._checksums = None if data is None else parse_checksums(data, uploaded)
        except ValueError as error:
            raise self._corrupt(str(error), 0) from error

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes; reads whole blocks and checks them where there are checksums."""
        if self._checksums is None or length <= 0:
            return self._bytes(start, length)
        first, behind = start // BLOCK_BYTES, -(-(start + length) // BLOCK_BYTES)
        aligned = first * BLOCK_BYTES
        data = self._bytes(aligned, min(behind * BLOCK_BYTES, self.size_bytes) - aligned)
        wrong = first_wrong_block(data, self._checksums[first:behind])
        if wrong is not None:
            raise self._corrupt(
                f"block {first + wrong} of the log ({BLOCK_BYTES} bytes) is not what was uploaded: "
                "its CRC-32C differs",
                (first + wrong) * BLOCK_BYTES,
            )
        return data[start - aligned : start - aligned + length]

    def _bytes(self, start: int, length: int) -> bytes:
        data = found(partial(self._store.get_range, self.name, start, length))
        if len(data) != length:
            raise self._corrupt(
                f"the log has {len(data)} of the {length} bytes asked for here", start
            )
        return data

    def _corrupt(self, reason: str, position: int) -> CorruptSegment:
        return CorruptSegment(reason, segment=self.name, position=position)


def read_part(store: ObjectStore, entry: LedgerEntry, part: str) -> bytes | None:
    """One part of a segment's indexes object, None if it has no such part.

    Raises MissingSegment when the object is gone, CorruptSegment when it is too short.
    """
    place = entry.part_range(part)
    if place is None or not place[1]:
        return None if place is None else b""
    start, size = place
    key = entry.metadata.id.indexes_key
    data = found(partial(store.get_range, key, start, size))
    if len(data) != size:
        raise CorruptSegment(
            f"{part} has {len(data)} of {size} bytes", segment=key, position=start + len(data)
        )
    return data


def found(read: Callable[[], _T]) -> _T:
    """What `read` gives; NotFound, said of a native object, is told apart from the table's."""
    try:
        return read()
    except NotFound as error:
        raise MissingSegment(str(error)) from error
