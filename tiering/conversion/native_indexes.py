"""The broker's indexes of a segment, as they were uploaded."""

from __future__ import annotations

from functools import partial

from segment_reader import CorruptSegment
from tiering.conversion.stored_log import found
from tiering.ledger import LedgerEntry
from tiering.segments import CHECKSUMS_PART
from tiering.store import ObjectStore

__all__ = ["native_indexes"]


def native_indexes(store: ObjectStore, entry: LedgerEntry) -> dict[str, bytes]:
    """All parts that the broker sent with a segment, empty ones included, by name.

    The checksums of the log's blocks are no index. Raises MissingSegment when the object is gone,
    CorruptSegment when it is too short.
    """
    key = entry.metadata.id.indexes_key
    size = sum(size for _, size in entry.parts)
    data = found(partial(store.get_range, key, 0, size)) if size else b""
    if len(data) != size:
        raise CorruptSegment(
            f"the indexes have {len(data)} of {size} bytes", segment=key, position=len(data)
        )
    parts, start = {}, 0
    for name, length in entry.parts:
        parts[name] = data[start : start + length]
        start += length
    parts.pop(CHECKSUMS_PART, None)
    return parts
