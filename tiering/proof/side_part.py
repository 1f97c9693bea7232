"""The part of a side file that a task proves, and which of the log's bytes and offsets it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segment_reader import RangeSource
from tiering.proof.comparison import Mismatch
from tiering.segments import SegmentId
from tiering.side_files import SideFile
from tiering.store import ObjectStore
from tiering.tasks import ProofTask

__all__ = ["SidePart"]

_BASE_OFFSET_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SidePart:
    """One part of a segment's side file.

    The parts of a segment have all of its log and all of its offsets between them: each has what
    begins with it and ends where the next one begins.

    Attributes:
        side: its batches and kept bytes.
        start_position, end_position: the bytes of the log that must be its batches.
        start_offset, end_offset: the offsets whose rows must be its batches', end exclusive.
    """

    side: SideFile
    start_position: int
    end_position: int
    start_offset: int
    end_offset: int

    @classmethod
    def open(cls, store: ObjectStore, task: ProofTask, log: RangeSource) -> SidePart:
        """Read the part's headers, and where the next one begins.

        Raises Mismatch where that is no batch of the log, NotFound when an object is gone,
        FatalError when it is damaged or of another segment.
        """
        segment = SegmentId.parse(task.segment_path)
        side = SideFile.open(store, segment, task.side_keys, part=task.part)
        headers = side.batches.headers
        start_position, start_offset = 0, task.segment_start_offset
        if task.part:
            # What lies before its first batch is proven with the part before it.
            if not len(headers):
                return cls(
                    side=side, start_position=0, end_position=0, start_offset=0, end_offset=0
                )
            start_position, start_offset = int(headers.position[0]), int(headers.base_offset[0])
            _require_batch(log, start_position, start_offset)
        end_position, end_offset = log.size_bytes, task.segment_end_offset + 1
        for number in range(task.part + 1, len(task.side_keys)):
            following = SideFile.open(store, segment, task.side_keys, part=number).batches.headers
            if len(following):
                end_position, end_offset = int(following.position[0]), int(following.base_offset[0])
                _require_batch(log, end_position, end_offset)
                break
        return cls(
            side=side,
            start_position=start_position,
            end_position=end_position,
            start_offset=start_offset,
            end_offset=end_offset,
        )


def _require_batch(log: RangeSource, position: int, offset: int) -> None:
    found = None
    if position + _BASE_OFFSET_BYTES <= log.size_bytes:
        data = log.read(position, _BASE_OFFSET_BYTES)
        found = int.from_bytes(data, "big", signed=True)
    if found != offset:
        raise Mismatch(
            f"a part of the side file begins at position {position} with offset {offset}, where "
            f"the log has {'its end' if found is None else found}",
            offset,
        )
