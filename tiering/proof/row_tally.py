"""How many rows the table has for each batch, to be compared with how many it should have."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batch_table import BatchTable
from tiering.proof.comparison import Mismatch

__all__ = ["Chunks", "RowTally"]

_Bools = npt.NDArray[np.bool_]
_Int64s = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)
Chunks = Generator[pa.RecordBatch, None, None]


class RowTally:
    """Counts the rows that go by.

    Regenerating shows that no row is missing where one is needed. It takes no notice of rows of
    aborted or control batches, of offsets that the log hasn't or of a row that is there twice,
    all of which a SQL engine would see.
    """

    def __init__(self, batches: BatchTable, dead: _Int64s = _NONE) -> None:
        """`dead`: offsets of bad records, rising. One that has become a row meanwhile, and is to
        leave the table of bad records yet, counts once."""
        self._dead, self._buried = dead, np.ones(len(dead), np.bool_)
        self._bases, self._lasts = batches.headers.base_offset, batches.headers.last_offset
        self._counts = np.zeros(len(batches), np.int64)
        self._outside: int | None = None

    def counted(self, chunks: Chunks) -> Chunks:
        """The same chunks (RECORD_SCHEMA, offsets rising)."""
        with closing(chunks):
            for chunk in chunks:
                offsets = chunk.column("offset").to_numpy()
                self._count(offsets)
                self._dig_up(offsets)
                yield chunk

    def check(self, committed: _Bools, counts: _Int64s) -> None:
        """Raises Mismatch unless exactly the records of `committed` batches have rows."""
        self._count(self._dead[self._buried])
        if self._outside is not None:
            raise Mismatch(
                f"the table has a row at offset {self._outside}, which the log hasn't",
                self._base_before(self._outside),
            )
        wanted = np.where(committed, counts, 0)
        wrong = np.flatnonzero(self._counts != wanted)
        if len(wrong):
            i = int(wrong[0])
            kind = "" if committed[i] else "aborted or control "
            raise Mismatch(
                f"the table has {self._counts[i]} rows of this {kind}batch instead of {wanted[i]}",
                int(self._bases[i]),
            )

    def _count(self, offsets: _Int64s) -> None:
        owners = np.searchsorted(self._bases, offsets, side="right") - 1
        inside = owners >= 0
        if len(self._bases):
            inside &= offsets <= self._lasts[owners]
        if not inside.all():
            if self._outside is None:
                self._outside = int(offsets[np.argmin(inside)])
            owners = owners[inside]
        self._counts += np.bincount(owners, minlength=len(self._counts))

    def _dig_up(self, offsets: _Int64s) -> None:
        if not len(self._dead):
            return
        places = np.minimum(np.searchsorted(self._dead, offsets), len(self._dead) - 1)
        self._buried[places[self._dead[places] == offsets]] = False

    def _base_before(self, offset: int) -> int:
        at = int(np.searchsorted(self._bases, offset, side="right")) - 1
        return int(self._bases[at]) if at >= 0 else -1
