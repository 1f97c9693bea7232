"""From checked batches to Arrow record batches, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batches import BATCH_OVERHEAD, BatchHeaders, Codec
from segment_reader.columns import ParsedRecords
from segment_reader.errors import CorruptSegment
from segment_reader.kernels import records
from segment_reader.limits import Limits
from segment_reader.record_window import HeldBatches, LargeBatch, RecordWindow

__all__ = ["OffsetRange", "ParsedPart", "RecordDecoder", "RecordParser"]

_START, _END = 0, 1
_BATCH, _AT, _DONE, _ROWS = 0, 1, 2, 4

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets [start, stop)."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPart:
    """What one step of parsing has gone through: from one place in the batches to another.

    A place is a batch, where in the buffer (-1: at its start) and how many records in.
    """

    parsed: ParsedRecords
    begin: tuple[int, int, int]
    end: tuple[int, int, int]


class RecordDecoder:
    """Decodes the records of one log, chunk after chunk."""

    def __init__(self, name: str, rows: OffsetRange, limits: Limits) -> None:
        self._window = RecordWindow(name, limits)
        self._parser = RecordParser(name, rows, limits)

    def decode(
        self, chunk: _Bytes, position: int, headers: BatchHeaders
    ) -> Iterator[pa.RecordBatch]:
        """Records of `headers`' batches, which lie in `chunk` (at `position` of the log).

        Raises CorruptSegment.
        """
        for held in self._window.batches(chunk, position, headers):
            for part in self._parser.parts(held):
                yield part.parsed.gather(held.buffer)


class RecordParser:
    """Finds the records of batches, as many at a time as one Arrow batch may have."""

    def __init__(self, name: str, rows: OffsetRange, limits: Limits) -> None:
        self._name = name
        self._rows = rows
        self._limits = limits
        self._spans = np.empty((records.SPAN_ROWS, 0), np.int32)

    def parts(self, held: HeldBatches) -> Iterator[ParsedPart]:
        """The parts of the batches that have rows in the range, in order.

        A part is good until the next one is asked for. Raises CorruptSegment.
        """
        state = np.zeros(records.STATE_SIZE, np.int64)
        state[_AT] = -1
        matrix, outcome = _matrix(held), records.STOPPED
        while outcome != records.DONE:
            if outcome == records.NEEDS_BYTES and isinstance(held, LargeBatch):
                held.refill(int(state[_AT]))
                state[_AT], matrix[_END] = 0, held.ends
            begin = _place(state)
            outcome, parsed = self._step(held, matrix, state)
            if len(parsed.offsets):
                yield ParsedPart(parsed=parsed, begin=begin, end=_place(state))

    def _step(
        self, held: HeldBatches, matrix: _Int64s, state: _Int64s
    ) -> tuple[int, ParsedRecords]:
        """Parse on from `state` until the batches or the limits of an Arrow batch are reached."""
        counts = held.headers.count
        # Nothing may follow the last record: then the end of the batch is where this piece ends.
        more = isinstance(held, LargeBatch) and held.open_ended and state[_DONE] < counts[0]
        left = int(counts[state[_BATCH] :].sum() - max(state[_DONE], 0))
        capacity = max(min(left, self._limits.arrow_batch_rows_max), 1)
        if capacity > self._spans.shape[1]:
            self._spans = np.empty((records.SPAN_ROWS, capacity), np.int32)
        offsets, timestamps = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        deltas, types = np.empty(capacity, np.int64), np.empty(capacity, np.int8)
        epochs = np.empty(capacity, np.int32)
        outcome = records.parse_records(
            held.buffer,
            matrix,
            int(more),
            self._rows.start,
            self._rows.stop,
            self._limits.arrow_batch_bytes,
            state,
            self._spans,
            offsets,
            timestamps,
            deltas,
            types,
            epochs,
        )
        if outcome in records.FAULTS:
            raise self._fault(outcome, held.headers, matrix, state)
        rows = int(state[_ROWS])
        return outcome, ParsedRecords(
            offsets=offsets[:rows],
            timestamps=timestamps[:rows],
            timestamp_deltas=deltas[:rows],
            timestamp_types=types[:rows],
            epochs=epochs[:rows],
            spans=self._spans,
            totals=state[_ROWS : records.STATE_SIZE - 1].tolist(),
        )

    def _fault(
        self, fault: int, headers: BatchHeaders, matrix: _Int64s, state: _Int64s
    ) -> CorruptSegment:
        batch = int(state[_BATCH])
        position = int(headers.position[batch])
        if headers.codec[batch] == Codec.NONE:
            position += BATCH_OVERHEAD + int(state[_AT] - matrix[_START, batch])
        reason = f"{records.FAULTS[fault]} (base offset {int(headers.base_offset[batch])}, "
        reason += f"record {int(state[_DONE])} of {int(headers.count[batch])})"
        return CorruptSegment(f"batch refused: {reason}", segment=self._name, position=position)


def _matrix(held: HeldBatches) -> _Int64s:
    """What the parse kernel wants to know of each batch, a row per fact."""
    headers = held.headers
    matrix = np.empty((records.BATCH_ROWS, len(headers)), np.int64)
    facts = (
        *(held.starts, held.ends, headers.count, headers.base_offset, headers.last_offset_delta),
        *(headers.base_timestamp, headers.max_timestamp, headers.log_append_time),
        headers.leader_epoch,
    )
    for row, values in enumerate(facts):
        matrix[row] = values
    return matrix


def _place(state: _Int64s) -> tuple[int, int, int]:
    batch, at, done = state[[_BATCH, _AT, _DONE]].tolist()
    return batch, at, done if at >= 0 else 0
