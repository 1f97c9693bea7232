"""From rows back to the record bytes of their batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batches import BatchHeaders
from segment_reader.kernels import encoding
from segment_reader.kernels.checksum import checksums
from segment_reader.limits import DEFAULT_LIMITS, Limits

__all__ = ["EncodedRecords", "RecordEncoder", "varlongs"]

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]

_VARLONG_BYTES_MAX: Final = 10
_INT64: Final = pa.int64()
_BINARIES: Final = (pa.binary(), pa.string())
_NO_BORDERS: Final = np.zeros(1, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRecords:
    """Record bytes of consecutive batches: batch i's are buffer[borders[i]:borders[i + 1]]."""

    buffer: _Bytes
    borders: _Int64s

    def __len__(self) -> int:
        return len(self.borders) - 1

    def checksums(self) -> _Int64s:
        """CRC-32C of each batch's record bytes."""
        crcs = np.zeros(len(self), np.int64)
        checksums(self.buffer, self.borders[:-1], self.borders[1:], crcs)
        return crcs


class RecordEncoder:
    """Writes rows as records of magic 2, the way Kafka's producers and brokers do.

    Not for two threads at once: its buffers are used again.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._kept_bytes_max = 2 * limits.arrow_batch_bytes
        self._buffer = np.empty(0, np.uint8)

    def encode(
        self,
        headers: BatchHeaders,
        rows: pa.RecordBatch,
        row_borders: _Int64s,
        deltas: Sequence[bytes | None] | None = None,
    ) -> EncodedRecords:
        """Batch i's records from rows[row_borders[i]:row_borders[i + 1]], in their order.

        `rows` has (at least) offset, timestamp_ms, key, value and headers of RECORD_SCHEMA.
        `deltas`, for batches with log-append time: what is kept of them as `Kept.DELTAS`; without
        it the records' timestamp deltas are 0. A batch may have fewer rows than its header
        counts. The result is good until the next call. Raises ValueError where borders or columns
        are not such, or deltas end before a batch's rows.
        """
        columns = _Columns(rows)
        borders = columns.checked_borders(headers, row_borders)
        row_deltas = _spread(headers, columns, borders, deltas) if deltas is not None else None
        columns.write_timestamps(headers, borders, row_deltas)
        target = self._room(columns.bytes_max(borders))
        ends = np.empty(len(borders), np.int64)
        encoding.encode_records(
            borders,
            _array(headers.base_offset),
            _array(headers.base_timestamp),
            columns.places,
            target,
            ends,
        )
        return EncodedRecords(buffer=target[: ends[-1]], borders=ends)

    def match(
        self,
        headers: BatchHeaders,
        rows: pa.RecordBatch,
        row_borders: _Int64s,
        deltas: _Int64s,
        original: _Bytes,
        places: tuple[_Int64s, _Int64s],
        crcs: _Int64s,
    ) -> npt.NDArray[np.bool_]:
        """Whether each batch is encoded as original[start:end], byte for byte.

        `deltas` are the records' timestamp deltas, one per row, for batches with log-append time.
        `places` are the starts and ends. `crcs` are extended by the CRC-32C of the original bytes.
        """
        columns = _Columns(rows)
        columns.write_timestamps(headers, row_borders, deltas)
        equal = np.empty(len(headers), np.uint8)
        encoding.match_records(
            row_borders,
            _array(headers.base_offset),
            _array(headers.base_timestamp),
            columns.places,
            self._room(columns.bytes_max(row_borders)),
            original,
            *places,
            equal,
            crcs,
        )
        return equal.view(np.bool_)

    def _room(self, needed: int) -> _Bytes:
        if needed > len(self._buffer) or len(self._buffer) > max(needed, self._kept_bytes_max):
            self._buffer = np.empty(needed, np.uint8)
        return self._buffer


class _Columns:
    """The columns that a record is made of; `places` is what the kernels take of them.

    That holds addresses: they are good as long as this is, and the rows.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        lists = rows.column("headers")
        if not pa.types.is_list(lists.type):
            raise ValueError(f"column headers is {lists.type}, not a list")
        headers = lists.values
        self.places = np.array(
            [
                *(_int64s_at(rows.column(name), name) for name in ("offset", "timestamp_ms")),
                _borders_at(lists, lists.buffers()[1]),
                *(place for name in ("key", "value") for place in _binary_at(rows.column(name))),
                *(place for i in (0, 1) for place in _binary_at(headers.field(i))),
            ]
        )

    def checked_borders(self, headers: BatchHeaders, row_borders: _Int64s) -> _Int64s:
        borders, rows = _array(row_borders), self._rows.num_rows
        if len(borders) != len(headers) + 1:
            raise ValueError(f"{len(borders)} row borders for {len(headers)} batches")
        if borders[0] < 0 or borders[-1] > rows or (borders[1:] < borders[:-1]).any():
            raise ValueError(f"row borders do not rise from 0 to at most {rows}")
        return borders

    def bytes_max(self, borders: _Int64s) -> int:
        """Upper bound of what these rows take as records."""
        return encoding.bytes_max(self.places, borders[0], borders[-1])

    def write_timestamps(
        self, headers: BatchHeaders, borders: _Int64s, deltas: _Int64s | None
    ) -> None:
        """Give rows with log-append time their records' own timestamps: base plus `deltas`."""
        appended = headers.log_append_time
        if not appended.any():
            return
        written: _Int64s = self._rows.column("timestamp_ms").to_numpy().copy()
        rows, inside = borders[1:] - borders[:-1], slice(int(borders[0]), int(borders[-1]))
        own = np.repeat(headers.base_timestamp, rows)
        if deltas is not None:
            own += deltas[inside]
        np.copyto(written[inside], own, where=np.repeat(appended, rows))
        self._written = written
        self.places[encoding.TIMESTAMPS_PLACE] = written.ctypes.data


def _int64s_at(array: Any, name: str) -> int:
    if array.type != _INT64 or array.null_count:
        raise ValueError(f"column {name} is {array.type} with {array.null_count} nulls, not int64")
    return int(array.buffers()[1].address) + 8 * int(array.offset) if len(array) else 0


def _binary_at(array: Any) -> tuple[int, int, int, int]:
    """Borders, data, bitmap and first bit of a binary or string array."""
    if array.type not in _BINARIES:
        raise ValueError(f"a column of {array.type} where binary or string is needed")
    valid, borders, data = array.buffers()
    nulls = (valid.address, array.offset) if array.null_count else (0, -1)
    return (_borders_at(array, borders), data.address if data is not None else 0, *nulls)


def _borders_at(array: Any, borders: Any) -> int:
    if not len(array):  # then it may have no buffer
        return _NO_BORDERS.ctypes.data
    return int(borders.address) + 4 * int(array.offset)


def _array(values: _Int64s) -> _Int64s:
    return np.ascontiguousarray(values, dtype=np.int64)


def _spread(
    headers: BatchHeaders, columns: _Columns, borders: _Int64s, deltas: Sequence[bytes | None]
) -> _Int64s:
    """Kept deltas, one per row."""
    if len(deltas) != len(headers):
        raise ValueError(f"deltas of {len(deltas)} batches for {len(headers)}")
    appended = headers.log_append_time.tolist()
    kept = [own if own and is_its else b"" for own, is_its in zip(deltas, appended, strict=True)]
    row_deltas = np.zeros(int(borders[-1]), np.int64)
    bad = encoding.spread_deltas(
        np.frombuffer(b"".join(kept), np.uint8),
        np.cumsum([0, *map(len, kept)], dtype=np.int64),
        borders,
        _array(headers.base_offset),
        columns.places,
        row_deltas,
    )
    if bad >= 0:
        base_offset = int(headers.base_offset[bad])
        raise ValueError(f"the timestamp deltas of batch {base_offset} end before its rows")
    return row_deltas


def varlongs(numbers: _Int64s) -> tuple[bytes, _Int64s]:
    """Numbers as varlongs back to back, and where each begins (and the last one ends)."""
    target = np.empty(_VARLONG_BYTES_MAX * len(numbers), np.uint8)
    borders = np.empty(len(numbers) + 1, np.int64)
    encoding.put_varlongs(numbers, target, borders)
    return target[: borders[-1]].tobytes(), borders
