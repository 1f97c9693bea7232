"""Who reads on: how often those who follow cursors have done so."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from tiering.segments import SegmentId

__all__ = ["Readers", "units_ahead"]

_LOOKS: Final = 2
"""Answers that somebody gets who only looks: a broker fills one fetch of a mebibyte with them."""


class Readers:
    """Answers in a row, by the cursor that each of them gave. For several threads.

    The last `count_max` cursors are known; who comes with another one begins anew.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._runs: OrderedDict[tuple[SegmentId, int], int] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, segment: SegmentId, cursor: int | None) -> int:
        """How many answers in a row somebody has had who comes with that cursor."""
        return 0 if cursor is None else self._runs.get((segment, cursor), 1)

    def answered(self, segment: SegmentId, next_position: int | None, run: int) -> None:
        """Somebody who had `run` answers gets one more, and goes on with `next_position`."""
        if next_position is None:
            return
        with self._lock:
            self._runs[segment, next_position] = run + 1
            self._runs.move_to_end((segment, next_position))
            if len(self._runs) > self._count_max:
                self._runs.popitem(last=False)


def units_ahead(run: int, most: int) -> int:
    """How many units to begin for who has had `run` answers in a row: more and more."""
    return 0 if run < _LOOKS else min(most, 2 ** min(run - _LOOKS, 30))
