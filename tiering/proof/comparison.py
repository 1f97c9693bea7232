"""Regenerated batches against those of the native log: headers field by field, records byte by
byte, some batches at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from segment_reader.batch_table import BatchTable, Kept
from segment_reader.kernels import batch_scan
from segment_reader.kernels.comparison import first_difference, gone_records
from segment_reader.payloads import BatchPayloads
from tiering.errors import TieringError
from tiering.history import HistoryMismatch, RegeneratedRun

__all__ = ["Comparison", "Mismatch"]

_COMPARED: Final = tuple(name for name in batch_scan.FIELDS if name != "crc")
"""All that a header says, and the original's place and size, which pulls go by. The CRC covers
compressed bytes: it is made anew for what is served, and is no field of the side file."""

_Bools = npt.NDArray[np.bool_]


class Mismatch(TieringError):
    """Table and side file don't give the native log's records.

    Attributes:
        reason: what differs, without the place.
        offset: base offset of the first batch at fault, -1 where it is none.
    """

    def __init__(self, reason: str, offset: int = -1) -> None:
        super().__init__(reason if offset < 0 else f"batch at offset {offset}: {reason}")
        self.reason = reason
        self.offset = offset


class Comparison:
    """Takes the native log's batches in their order and regenerates one after the other beside.

    Attributes:
        batches: how many were the same so far.
        native_bytes: their bytes in the log.
        deleted_rows: records of theirs that the table has no rows for any more.
    """

    def __init__(
        self,
        expected: BatchTable,
        runs: Iterator[RegeneratedRun],
        accepted: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`expected` is what the side file says of the batches, `runs` regenerates them all.

        Records of batches with offsets in one of the ranges `accepted` (first, after the last)
        may have been changed: somebody has seen that."""
        self.batches = 0
        self.native_bytes = 0
        self.deleted_rows = 0
        self._expected = expected
        self._runs = runs
        self._accepted = tuple(accepted)
        self._run: RegeneratedRun | None = None

    def add(self, native: BatchPayloads) -> None:
        """Compare the next batches of the log; raises Mismatch at the first that differs."""
        differing = self._differing_headers(native)
        good = int(np.argmax(differing)) if differing.any() else len(native)
        taken = 0
        while taken < good:
            run = self._current()
            at = self.batches - run.first
            count = min(good - taken, len(run) - at)
            self._compare(native, taken, run, at, count)
            taken += count
            self.batches += count
        self.native_bytes += int(native.headers.size[:good].sum())
        if good < len(native):
            raise self._other_header(native, good)

    def finish(self) -> None:
        """Raises Mismatch when the log has ended before the side file."""
        if self.batches < len(self._expected):
            raise Mismatch(
                "the side file has this batch, the log ends before it",
                int(self._expected.headers.base_offset[self.batches]),
            )

    def _current(self) -> RegeneratedRun:
        """The run that the next batch is in."""
        if self._run is None or self.batches >= self._run.first + len(self._run):
            try:
                self._run = next(self._runs)
            except HistoryMismatch as error:
                raise Mismatch(error.reason, error.offset) from error
            self.deleted_rows += self._run.deleted_rows
        return self._run

    def _differing_headers(self, native: BatchPayloads) -> _Bools:
        known = min(len(native), len(self._expected) - self.batches)
        differing = np.ones(len(native), np.bool_)
        differing[:known] = False
        for name in _COMPARED:
            ours = getattr(self._expected.headers, name)[self.batches : self.batches + known]
            differing[:known] |= getattr(native.headers, name)[:known] != ours
        return differing

    def _other_header(self, native: BatchPayloads, i: int) -> Mismatch:
        offset = int(native.headers.base_offset[i])
        if self.batches >= len(self._expected):
            return Mismatch("the side file ends before this batch", offset)
        values = (
            (name, int(getattr(self._expected.headers, name)[self.batches]), int(value[i]))
            for name, value in ((n, getattr(native.headers, n)) for n in _COMPARED)
        )
        wrong = [
            f"{name} is {ours}, in the log {theirs}"
            for name, ours, theirs in values
            if ours != theirs
        ]
        return Mismatch(f"header in the side file: {'; '.join(wrong)}", offset)

    def _compare(
        self, native: BatchPayloads, start: int, run: RegeneratedRun, at: int, count: int
    ) -> None:
        """Compare batches [start, start + count) of the log with those from `at` on of a run."""
        done = 0
        while done < count:
            first, own = slice(start + done, start + count), slice(at + done, at + count)
            different = first_difference(
                native.buffer,
                np.ascontiguousarray(native.starts[first]),
                np.ascontiguousarray(native.ends[first]),
                run.records.buffer,
                np.ascontiguousarray(run.records.borders[own]),
                np.ascontiguousarray(run.records.borders[at + done + 1 : at + count + 1]),
            )
            if different < 0:
                return
            done += different
            self._require_only_deleted(native, start + done, run, at + done)
            done += 1

    def _require_only_deleted(
        self, native: BatchPayloads, i: int, run: RegeneratedRun, at: int
    ) -> None:
        """A batch that isn't the same may lack records, where some were deleted, and no more."""
        base, last = int(run.headers.base_offset[at]), int(run.headers.last_offset[at])
        kept_whole = self._expected.kept[run.first + at] == Kept.RAW
        if not kept_whole and any(base < end and last >= start for start, end in self._accepted):
            return
        missing = int(run.headers.count[at] - run.counts[at])
        whole = native.buffer[native.starts[i] : native.ends[i]]
        left = run.records.buffer[run.records.borders[at] : run.records.borders[at + 1]]
        if missing > 0 and gone_records(whole, left) == missing:
            return
        reason = "its records are not those of the log"
        if missing > 0:
            reason = f"{missing} of its rows are gone, and those left are not the log's records"
        elif len(left) != len(whole):
            reason += f": {len(left)} bytes, in the log {len(whole)}"
        else:
            byte = int(np.argmax(left != whole))
            reason += f": byte {byte} of {len(whole)} (decompressed) differs"
        raise Mismatch(reason, int(native.headers.base_offset[i]))
