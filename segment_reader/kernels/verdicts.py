"""Looks batches up among aborted transactions."""

from __future__ import annotations

from typing import Any

import numpy as np

from segment_reader.kernels.compiler import INT8S, INT64S, VOID, compiled

__all__ = ["covered"]

_Int8s = np.ndarray[Any, np.dtype[np.int8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@compiled(VOID(INT64S, INT64S, INT64S, INT64S, INT64S, INT8S))
def covered(
    producers: _Int64s,
    firsts: _Int64s,
    lasts: _Int64s,
    batch_producers: _Int64s,
    batch_offsets: _Int64s,
    found: _Int8s,
) -> None:
    """Set found[i] where an entry of the batch's producer has first <= its offset <= last.

    Entries are ordered by (producer, first, last). A producer's transactions do not overlap, but
    one may be listed more than once: the last entry at or before the offset decides.
    """
    for i in range(len(found)):
        producer, offset = batch_producers[i], batch_offsets[i]
        low, high = 0, len(producers)
        while low < high:
            middle = (low + high) >> 1
            before = producers[middle] < producer or (
                producers[middle] == producer and firsts[middle] <= offset
            )
            if before:
                low = middle + 1
            else:
                high = middle
        if low > 0 and producers[low - 1] == producer and offset <= lasts[low - 1]:
            found[i] = 1
