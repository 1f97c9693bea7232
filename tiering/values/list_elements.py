"""What is inside list and map columns, for codecs that write them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["list_elements", "validity"]


def validity(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which elements aren't null."""
    found: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def list_elements(column: pa.Array) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    """How many elements each list or map has, and the elements of all: values, or keys and items.
    A null has none."""
    is_map = pa.types.is_map(column.type)
    children = [column.keys, column.items] if is_map else [column.values]
    if not len(column):
        return np.zeros(0, dtype=np.int64), [each.slice(0, 0) for each in children]
    at = column.offset * np.dtype(np.int32).itemsize
    raw = np.frombuffer(column.buffers()[1], dtype=np.int32, count=len(column) + 1, offset=at)
    offsets = raw.astype(np.int64)
    counts = np.where(validity(column), np.diff(offsets), 0)
    total = int(counts.sum())
    if total == offsets[-1] - offsets[0]:
        return counts, [each.slice(offsets[0], total) for each in children]
    before = np.cumsum(counts) - counts
    places = np.arange(total) + np.repeat(offsets[:-1] - before, counts)
    return counts, [each.take(pa.array(places)) for each in children]
