"""Which transactional batches were aborted (KIP-98), as the `.txnindex` entries say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from segment_reader.batches import BatchHeaders
from segment_reader.indexes import parse_transaction_index
from segment_reader.kernels.verdicts import covered

__all__ = ["NO_VERDICTS", "Verdicts", "first_open_offset", "overlapping_entries"]

_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The aborted transactions that reach into a segment, ordered by (producer id, first offset).

    A transaction without an entry is committed: a segment leaves the broker only when all of its
    transactions are decided. `last_offset` is that of the abort marker.
    """

    producer_id: _Int64s
    first_offset: _Int64s
    last_offset: _Int64s

    @classmethod
    def from_entries(cls, data: bytes, *, name: str = "verdicts") -> Verdicts:
        """From 34-byte `.txnindex` entries of any number of segments, in any order.

        Raises CorruptSegment for bytes that are no such entries.
        """
        index = parse_transaction_index(data, name=name, ordered=False)
        order = np.lexsort((index.last_offset, index.first_offset, index.producer_id))
        return cls(
            producer_id=index.producer_id[order],
            first_offset=index.first_offset[order],
            last_offset=index.last_offset[order],
        )

    def aborted(self, headers: BatchHeaders) -> npt.NDArray[np.bool_]:
        """For each batch: whether it is transactional and an aborted one covers its offset."""
        result = np.zeros(len(headers), np.bool_)
        asked = np.flatnonzero(headers.transactional)
        if len(asked) and len(self.producer_id):
            result[asked] = self.covers(headers.producer_id[asked], headers.base_offset[asked])
        return result

    def covers(self, producer_ids: _Int64s, offsets: _Int64s) -> npt.NDArray[np.bool_]:
        """For each pair of producer id and offset: whether an aborted transaction holds it."""
        found = np.zeros(len(offsets), np.int8)
        own = (self.producer_id, self.first_offset, self.last_offset)
        covered(*own, producer_ids, offsets, found)
        return found.view(np.bool_)


NO_VERDICTS = Verdicts.from_entries(b"")
"""For segments without transactions, or all of whose transactions are committed."""


def overlapping_entries(data: bytes, start_offset: int, end_offset: int) -> bytes:
    """Those of the 34-byte entries, each once, whose transactions reach into [start, end]."""
    index = parse_transaction_index(data, ordered=False)
    inside = (index.first_offset <= end_offset) & (index.last_offset >= start_offset)
    entries = np.frombuffer(data, dtype="V34")[inside]
    return b"".join(dict.fromkeys(entry.tobytes() for entry in entries))


def first_open_offset(chunks: Iterable[BatchHeaders]) -> int | None:
    """Where the earliest transaction begins that has no marker in `chunks`, or None.

    `chunks` come in offset order; overlapping copies may repeat batches.
    """
    open_from: dict[int, int] = {}
    closed_at: dict[int, int] = {}
    for headers in chunks:
        batches = headers.take(headers.transactional)
        facts = zip(
            batches.producer_id.tolist(),
            batches.base_offset.tolist(),
            batches.control.tolist(),
            strict=True,
        )
        for producer, offset, is_marker in facts:
            if offset <= closed_at.get(producer, -1):
                continue
            if is_marker:
                closed_at[producer] = offset
                open_from.pop(producer, None)
            else:
                open_from.setdefault(producer, offset)
    return min(open_from.values(), default=None)
