"""Stand-in until segment_reader provides whole_batches and the index functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from segment_reader.errors import CorruptSegment

__all__ = ["BatchStarts", "serve_offset_index", "whole_batches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStarts:
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def whole_batches(buffer: bytes | memoryview, start_position: int, *, name: str) -> BatchStarts:
    view = memoryview(buffer)
    starts: list[int] = []
    sizes: list[int] = []
    at = 0
    while at + 12 <= len(view):
        size = 12 + int.from_bytes(view[at + 8 : at + 12], "big", signed=True)
        if size < 26:
            raise CorruptSegment(
                f"batch of {size} bytes", segment=name, position=start_position + at
            )
        if at + size > len(view):
            break
        starts.append(start_position + at)
        sizes.append(size)
        at += size
    return BatchStarts(starts=np.array(starts, np.int64), sizes=np.array(sizes, np.int64))


def serve_offset_index(data: bytes) -> bytes:
    entries = np.frombuffer(data, dtype=">i4").reshape(-1, 2).copy()
    entries[:, 1] //= 4
    return entries.tobytes()
