"""What is known of a segment from outside its bytes, to check them against."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["SegmentBounds"]

_OFFSET_MAX: Final = 2**63 - 2
"""One below the highest int64, so that the offset behind it has a number, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentBounds:
    """Offsets [start_offset, end_offset] (inclusive) and leader epochs of a segment.

    A batch's CRC covers neither its base offset nor its leader epoch, so both are checked against
    these. `leader_epochs` holds (epoch, start offset), ascending in both: the leader epoch
    checkpoint (KIP-101). Empty means unknown: then epochs may only not fall.
    """

    start_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset <= _OFFSET_MAX:
            raise ValueError(f"offsets {self.start_offset}..{self.end_offset} are not a range")
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(self.leader_epochs)):
            raise ValueError(f"leader epochs {self.leader_epochs} do not rise")

    def epoch_range(
        self, offsets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Lowest and highest epoch that a record at each of `offsets` may have.

        They are equal wherever the checkpoint knows the offset. Below its first entry (records
        below the log's start, deleted since) any epoch up to that entry's is possible.
        """
        highest_possible = np.iinfo(np.int32).max
        if not self.leader_epochs:
            low = np.full(len(offsets), -1, dtype=np.int64)
            return low, np.full(len(offsets), highest_possible, dtype=np.int64)
        epochs = np.array([epoch for epoch, _ in self.leader_epochs], dtype=np.int64)
        starts = np.array([start for _, start in self.leader_epochs], dtype=np.int64)
        at = np.searchsorted(starts, offsets, side="right") - 1
        high = epochs[np.maximum(at, 0)]
        return np.where(at < 0, np.int64(-1), high), high
