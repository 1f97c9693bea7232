"""Units: consecutive batches of a retired segment that are regenerated in one go."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from segment_reader.batch_table import BatchTable
from tiering.errors import FatalError, TieringError, TransientError
from tiering.ledger import LedgerEntry
from tiering.segments import SegmentId
from tiering.side_files import SideFile

__all__ = ["RetiredSegment", "Unit", "UnitKey", "unit_borders"]

Int64s = npt.NDArray[np.int64]
UnitKey = tuple[SegmentId, int, int]
"""A segment, what its side file says of its batches (`RetiredSegment.content`), and the unit's
number in it."""
_FAULT_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RetiredSegment:
    """A retired segment's side file.

    Batches from the entry's `cut` on are no part of the log any more: it ends before them.

    Attributes:
        entry: its ledger entry, as it was when the side file was opened.
        borders: batch indices at which its units begin, and the number of batches served.
        content: checksum of what the side file says of the batches' records: the same in a bundle,
            another one when records were saved from the table.
        opened_at: when it was known to be retired; its table must be read as of then or later.
    """

    entry: LedgerEntry
    side: SideFile
    borders: Int64s
    content: int
    opened_at: float

    @classmethod
    def of(
        cls, entry: LedgerEntry, side: SideFile, *, unit_bytes: int, opened_at: float
    ) -> RetiredSegment:
        """Cut it into units of about `unit_bytes`."""
        if not len(side.batches):
            raise FatalError(f"{entry.metadata}: its side file has no batches")
        batches, content = side.batches, 0
        if entry.cut is not None:
            count = int(np.searchsorted(batches.headers.base_offset, entry.cut))
            batches, content = batches.slice(slice(0, count)), zlib.crc32(b"%d" % entry.cut)
        borders = unit_borders(batches, unit_bytes)
        for told in (batches.kept, batches.records_size, batches.records_crc):
            content = zlib.crc32(told.tobytes(), content)
        return cls(entry=entry, side=side, borders=borders, content=content, opened_at=opened_at)

    @property
    def starts(self) -> Int64s:
        """Where each batch that is served began in the log as it was."""
        return self.side.batches.headers.position[: self.borders[-1]]

    @property
    def size(self) -> int:
        """Size of the log as it was, up to where it was cut."""
        last = int(self.borders[-1]) - 1
        headers = self.side.batches.headers
        return int(headers.position[last] + headers.size[last]) if last >= 0 else 0

    def key(self, number: int) -> UnitKey:
        """What names a unit."""
        return self.entry.metadata.id, self.content, number

    def unit_of(self, batch: int) -> int:
        """Number of the unit that a batch is in."""
        return int(np.searchsorted(self.borders, batch, side="right")) - 1

    def has_unit(self, number: int) -> bool:
        """Whether there is a unit of that number."""
        return number + 1 < len(self.borders)

    def offsets(self, number: int) -> tuple[int, int]:
        """Offsets [first, after the last) of a unit's batches."""
        first, stop = (int(b) for b in self.borders[number : number + 2])
        headers = self.side.batches.headers
        return int(headers.base_offset[first]), int(headers.last_offset[stop - 1]) + 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """Served batches [first, first + len(ends)): batch i's bytes are data[ends[i-1]:ends[i]].

    Attributes:
        faults: by batch index, what is wrong with batches that must not be served: a
            HistoryMismatch, or a TransientError where that may not be the last word.
        coverage: digest of the table's files that it was made of.
        token: of the view that was last seen to have the same files.
        made_at: when it was made (monotonic seconds).
    """

    first: int
    data: memoryview
    ends: Int64s
    faults: Mapping[int, TieringError]
    coverage: str
    token: object
    made_at: float

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return len(self.data) + self.ends.nbytes + _FAULT_BYTES * (1 + len(self.faults))

    def undecided(self, why: TransientError) -> Unit:
        """The same unit while a newer view, which may have what is missing, is out of reach."""
        unsure = {b: TransientError(f"{fault} ({why})") for b, fault in self.faults.items()}
        return replace(self, faults=unsure)

    def first_fault(self, batch: int) -> int:
        """Index of the first batch from `batch` on that must not be served, or the unit's end."""
        end = self.first + len(self.ends)
        return min((b for b in self.faults if b >= batch), default=end)


def unit_borders(batches: BatchTable, unit_bytes: int) -> Int64s:
    """Batch indices at which units begin, and the number of batches: depends on the side file
    alone, so that units stay the same however often it is read."""
    ends = np.cumsum(batches.records_size + batches.headers.size // 8)
    numbers = (ends - 1) // unit_bytes
    changes = np.flatnonzero(np.diff(numbers, prepend=-1))
    return np.append(changes, len(batches)).astype(np.int64)
