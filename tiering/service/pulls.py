"""What a pull of a segment's log gives, wherever its batches come from."""

from __future__ import annotations

from dataclasses import dataclass

from segment_reader.indexes import SERVED_POSITION_DIVISOR as POSITION_DIVISOR
from tiering.segments import SegmentId
from tiering.service.refusals import Refusal

__all__ = ["POSITION_DIVISOR", "Pull", "out_of_range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Whole batches, and the original position of the next one (None: nothing is left)."""

    data: bytes | memoryview
    next_position: int | None


def out_of_range(segment: SegmentId) -> Refusal:
    """The answer to a position at or behind a log's end."""
    return Refusal(416, "position_out_of_range", f"segment {segment.path} ends before that")
