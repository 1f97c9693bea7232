"""Reads a segment and makes sure, batch for batch, that its rows give back its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batch_table import BatchTable, Kept
from segment_reader.batches import BatchHeaders
from segment_reader.kernels.checksum import checksums
from segment_reader.limits import Limits
from segment_reader.record_decoder import OffsetRange, ParsedPart, RecordParser
from segment_reader.record_window import HeldBatches, LargeBatch, RecordWindow
from segment_reader.regeneration import RecordEncoder, varlongs

__all__ = ["AsHeld", "Witness", "Witnessed"]

AsHeld = Callable[[pa.RecordBatch], pa.RecordBatch]
"""From decoded records to what will be read back of them later, both as RECORD_SCHEMA."""

_ALL_OFFSETS: Final = OffsetRange(start=-(2**63), stop=2**63 - 1)

_ROWS, _RAW, _DELTAS = np.int64(Kept.ROWS), np.int64(Kept.RAW), np.int64(Kept.DELTAS)

_Bools = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """What one step of reading gave.

    Attributes:
        records: committed records with offsets in the range asked for.
        batches: the batches that this step has finished. Their records may have come earlier.
        kept_bytes: per batch what is kept beside its rows; None for `Kept.ROWS`.
    """

    records: tuple[pa.RecordBatch, ...]
    batches: BatchTable
    kept_bytes: tuple[bytes | None, ...]


class Witness:
    """Decodes chunk after chunk of one log, encodes the rows again and compares the bytes.

    Kept raw are batches whose bytes don't come out of `as_held` of their rows, and those that have
    no rows in a table: control records and aborted ones. Given are records with offsets in
    `rows`, and batches with base offsets in `batches`.
    """

    def __init__(
        self, name: str, rows: OffsetRange, batches: OffsetRange, as_held: AsHeld, limits: Limits
    ) -> None:
        self._rows = rows
        self._batches = batches
        self._as_held = as_held
        self._window = RecordWindow(name, limits)
        self._parser = RecordParser(name, _ALL_OFFSETS, limits)
        self._encoder = RecordEncoder(limits)

    def read(
        self, chunk: _Bytes, position: int, headers: BatchHeaders, hidden: _Bools
    ) -> Iterator[Witnessed]:
        """`headers`' batches, which lie in `chunk` (at `position` of the log).

        `headers` become part of what is given; `hidden` ones have no rows in a table. Raises
        CorruptSegment, and ValueError where `as_held` loses rows.
        """
        first = 0
        for held in self._window.batches(chunk, position, headers):
            stop = first + len(held.headers)
            for step in self._read(held, hidden[first:stop]):
                if step.records or len(step.batches):
                    yield step
            first = stop

    def _read(self, held: HeldBatches, hidden: _Bools) -> Iterator[Witnessed]:
        findings = _Findings(held, hidden)
        findings.digest_hidden()
        if not hidden.all():
            shown = held.take(~hidden)
            for part in self._parser.parts(shown):
                records = part.parsed.gather(held.buffer)
                reached = self._compare(part, shown, records, findings)
                yield self._witnessed(records, findings.finish(reached))
        if not findings.finished:
            yield self._witnessed(None, findings.finish(len(hidden)))

    def _compare(
        self, part: ParsedPart, shown: HeldBatches, records: pa.RecordBatch, findings: _Findings
    ) -> int:
        """Note which batches of the part come out right; how many batches are finished now."""
        rows = self._as_held(records)
        if rows.num_rows != records.num_rows:
            raise ValueError(f"{records.num_rows} records are held as {rows.num_rows}")
        touched, deltas = _Touched.by(part, shown), part.parsed.timestamp_deltas
        crcs = findings.checksums(touched)
        equal = self._encoder.match(
            touched.headers,
            rows,
            touched.borders,
            deltas,
            shown.buffer,
            (touched.starts, touched.ends),
            crcs,
        )
        return findings.add(touched, equal, crcs, deltas)

    def _witnessed(
        self, records: pa.RecordBatch | None, finished: tuple[BatchTable, list[bytes | None]]
    ) -> Witnessed:
        batches, kept_bytes = finished
        first, stop = _range(batches.headers.base_offset, self._batches)
        if stop - first < len(batches):
            batches, kept_bytes = batches.slice(slice(first, stop)), kept_bytes[first:stop]
        given = () if records is None else self._inside(records)
        return Witnessed(records=given, batches=batches, kept_bytes=tuple(kept_bytes))

    def _inside(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, ...]:
        first, stop = _range(records.column("offset").to_numpy(), self._rows)
        if stop - first == records.num_rows:
            return (records,)
        return (records.slice(first, stop - first),) if first < stop else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    """The batches that a part of parsing has gone through, the outer ones perhaps not whole.

    Attributes:
        first: which one of all shown is the first.
        starts, ends: where in the buffer that lies which was gone through, per batch.
        borders: which rows of the part are whose.
        resumed: whether the first one began in the part before.
        cut: whether the last one goes on in the next part.
    """

    first: int
    headers: BatchHeaders
    starts: _Int64s
    ends: _Int64s
    borders: _Int64s
    resumed: bool
    cut: bool

    @classmethod
    def by(cls, part: ParsedPart, shown: HeldBatches) -> _Touched:
        first, start, skipped = part.begin
        last, end, done = part.end
        chosen = slice(first, last + (done > 0))
        headers = _part(shown.headers, chosen)
        starts, ends = shown.starts[chosen].copy(), shown.ends[chosen].copy()
        borders = np.zeros(len(headers) + 1, np.int64)
        borders[1:] = headers.count
        if start >= 0:
            starts[0] = start
        if done:
            ends[-1], borders[-1] = end, done
        borders[1] -= skipped
        return cls(
            first=first,
            headers=headers,
            starts=starts,
            ends=ends,
            borders=borders.cumsum(),
            resumed=skipped > 0,
            cut=done > 0,
        )


class _Findings:
    """What is known so far of batches that lie in the window together."""

    def __init__(self, held: HeldBatches, hidden: _Bools) -> None:
        self._held = held
        self._hidden = hidden
        self._shown = np.flatnonzero(~hidden)
        self._sizes = np.zeros(len(hidden), np.int64)
        self._crcs = np.zeros(len(hidden), np.int64)
        self._raw = hidden.copy()
        self._deltas: dict[int, list[bytes]] = {}
        self._next = 0

    @property
    def finished(self) -> bool:
        """Whether all batches are."""
        return self._next == len(self._hidden)

    def digest_hidden(self) -> None:
        """Digests of the batches that are not decoded."""
        chosen = np.flatnonzero(self._hidden)
        if not len(chosen):
            return
        if isinstance(self._held, LargeBatch):
            data = self._held.record_bytes(0)
            self._sizes[0], self._crcs[0] = len(data), google_crc32c.value(data)
            return
        starts, ends = self._held.starts[chosen], self._held.ends[chosen]
        crcs = np.zeros(len(chosen), np.int64)
        checksums(self._held.buffer, starts, ends, crcs)
        self._sizes[chosen], self._crcs[chosen] = ends - starts, crcs

    def checksums(self, touched: _Touched) -> _Int64s:
        """Checksums, so far, of the batches that a part goes through."""
        return self._crcs[self._chosen(touched)]

    def add(self, touched: _Touched, equal: _Bools, crcs: _Int64s, deltas: _Int64s) -> int:
        """Take in a part that was compared; how many batches are finished with it."""
        chosen = self._chosen(touched)
        self._sizes[chosen] += touched.ends - touched.starts
        self._crcs[chosen] = crcs
        self._raw[chosen] |= ~equal
        if touched.headers.log_append_time.any():
            self._add_deltas(touched, chosen, deltas)
        if touched.cut:
            return int(chosen[-1])
        following = touched.first + len(equal)
        return int(self._shown[following]) if following < len(self._shown) else len(self._hidden)

    def _chosen(self, touched: _Touched) -> _Int64s:
        return self._shown[touched.first : touched.first + len(touched.headers)]

    def _add_deltas(self, touched: _Touched, chosen: _Int64s, deltas: _Int64s) -> None:
        """Remember what log-append time hides; zeros only where others may come before or after."""
        data, places = varlongs(deltas)
        others = np.concatenate(([0], np.cumsum(deltas != 0)))[touched.borders]
        wanted = others[1:] > others[:-1]
        wanted[0] |= touched.resumed
        wanted[-1] |= touched.cut
        starts, ends = places[touched.borders[:-1]], places[touched.borders[1:]]
        for i in np.flatnonzero(wanted & touched.headers.log_append_time).tolist():
            pieces = self._deltas.setdefault(int(chosen[i]), [])
            pieces.append(data[starts[i] : ends[i]])

    def finish(self, stop: int) -> tuple[BatchTable, list[bytes | None]]:
        """The batches before index `stop` that were not given yet, and what is kept of them."""
        chosen = slice(self._next, stop)
        headers = _part(self._held.headers, chosen)
        raw = self._raw[chosen] & (self._sizes[chosen] > 0)
        kept = np.where(raw, _RAW, _ROWS)
        kept_bytes: list[bytes | None] = [None] * len(headers)
        for i in [i for i in self._deltas if i < stop]:
            deltas, at = b"".join(self._deltas.pop(i)), i - self._next
            if deltas.strip(b"\0") and not raw[at]:
                # Deltas are found by offset: a batch with gaps could lose rows unnoticed.
                dense = headers.count[at] == headers.last_offset_delta[at] + 1
                kept[at] = _DELTAS if dense else _RAW
                kept_bytes[at] = deltas
        for at in np.flatnonzero(kept == _RAW).tolist():
            kept_bytes[at] = self._held.record_bytes(self._next + at)
        table = BatchTable(
            headers=headers,
            records_size=self._sizes[chosen],
            records_crc=self._crcs[chosen],
            kept=kept,
        )
        self._next = stop
        return table, kept_bytes


def _part(headers: BatchHeaders, chosen: slice) -> BatchHeaders:
    whole = chosen.start == 0 and chosen.stop == len(headers)
    return headers if whole else headers.slice(chosen)


def _range(rising: _Int64s, wanted: OffsetRange) -> tuple[int, int]:
    """Which elements of `rising` lie in the range, as first and stop."""
    first, stop = np.searchsorted(rising, (wanted.start, wanted.stop)).tolist()
    return first, stop
