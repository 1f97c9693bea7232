"""What a pull of a segment's log gives, wherever its batches come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from segment_reader.indexes import SERVED_POSITION_DIVISOR as POSITION_DIVISOR
from tiering.segments import SegmentId
from tiering.service.refusals import Refusal

__all__ = ["POSITION_DIVISOR", "Pull", "out_of_range"]

_MARKS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Whole batches.

    Attributes:
        parts: their bytes, one behind the other: not put together, for that would copy them.
        next_position: the original position of the next one (None: nothing is left).
        starts: original position of each batch.
        places: where each batch begins in `data`.
    """

    parts: Sequence[bytes | memoryview]
    next_position: int | None
    starts: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    @property
    def data(self) -> bytes | memoryview:
        """All parts in one."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(map(len, self.parts))

    def marks(self) -> str:
        """ "start:place,..." of some batches, spread evenly over the bytes, the first one always.

        By these a client finds its way in bytes that it has kept.
        """
        if len(self.places) <= _MARKS_MAX:
            chosen = np.arange(len(self.places))
        else:
            even = np.arange(_MARKS_MAX) * self.size // _MARKS_MAX
            chosen = np.unique(np.searchsorted(self.places, even, side="right") - 1)
        pairs = zip(self.starts[chosen].tolist(), self.places[chosen].tolist(), strict=True)
        return ",".join(f"{start}:{place}" for start, place in pairs)


def out_of_range(segment: SegmentId) -> Refusal:
    """The answer to a position at or behind a log's end."""
    return Refusal(416, "position_out_of_range", f"segment {segment.path} ends before that")
