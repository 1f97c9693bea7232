"""From checked batches to Arrow record batches, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batches import BATCH_OVERHEAD, BatchHeaders, Codec
from segment_reader.codecs import Payload, new_zstd_decompressor
from segment_reader.columns import ParsedRecords
from segment_reader.errors import CorruptSegment
from segment_reader.kernels import records
from segment_reader.limits import Limits

__all__ = ["OffsetRange", "RecordDecoder"]

_START, _END = 0, 1
_BATCH, _AT, _DONE, _ROWS = 0, 1, 2, 4

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets [start, stop)."""

    start: int
    stop: int


class RecordDecoder:
    """Decodes the records of one log, chunk after chunk.

    Uncompressed batches are parsed where they lie. Compressed ones are put one after the other
    into a window of `limits.arrow_batch_bytes`, so that many small ones cost one kernel call; a
    batch that is larger than the window goes through it piece by piece.
    """

    def __init__(self, name: str, rows: OffsetRange, limits: Limits) -> None:
        self._name = name
        self._rows = rows
        self._limits = limits
        self._window: _Bytes = np.empty(0, np.uint8)
        self._spans = np.empty((records.SPAN_ROWS, 0), np.int32)
        self._zstd = new_zstd_decompressor()

    def decode(
        self, chunk: _Bytes, position: int, headers: BatchHeaders
    ) -> Iterator[pa.RecordBatch]:
        """Records of `headers`' batches, which lie in `chunk` (at `position` of the log).

        Raises CorruptSegment.
        """
        if not len(headers):
            return
        starts = headers.position - position + BATCH_OVERHEAD
        ends = headers.position - position + headers.size
        if (headers.codec == Codec.NONE).all():
            yield from self._parse(chunk, _matrix(headers, starts, ends), headers)
        else:
            yield from self._decode_through_window(chunk, headers, starts, ends)

    def _decode_through_window(
        self, chunk: _Bytes, headers: BatchHeaders, starts: _Int64s, ends: _Int64s
    ) -> Iterator[pa.RecordBatch]:
        if not len(self._window):
            self._window = np.empty(self._limits.arrow_batch_bytes, np.uint8)
        inside = _Inside(len(headers))
        codecs, view = headers.codec.tolist(), chunk.data
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        for i, (start, end) in enumerate(places):
            payload = self._open(headers, i, codecs[i], view[start:end])
            filled = payload.fill(self._window.data[inside.used :])
            if inside.used + filled == len(self._window):
                yield from self._parse_inside(headers, inside)
                self._window[:filled] = self._window[inside.used : inside.used + filled]
                inside = _Inside(len(headers), first=i)
                filled += payload.fill(self._window.data[filled:])
                if filled == len(self._window):
                    yield from self._stream(headers, i, payload)
                    inside = _Inside(len(headers), first=i + 1)
                    continue
            inside.add(filled)
        yield from self._parse_inside(headers, inside)

    def _open(self, headers: BatchHeaders, i: int, codec: int, data: memoryview) -> Payload:
        # A batch without records has no payload either, whatever its codec.
        codec = codec if len(data) else Codec.NONE
        place = int(headers.position[i])
        return Payload(codec, data, self._limits, self._zstd, name=self._name, position=place)

    def _parse_inside(self, headers: BatchHeaders, inside: _Inside) -> Iterator[pa.RecordBatch]:
        chosen = slice(inside.first, inside.first + inside.count)
        if inside.count:
            part = headers.slice(chosen)
            matrix = _matrix(part, inside.starts[: inside.count], inside.ends[: inside.count])
            yield from self._parse(self._window[: inside.used], matrix, part)

    def _parse(
        self, buffer: _Bytes, matrix: _Int64s, headers: BatchHeaders
    ) -> Iterator[pa.RecordBatch]:
        state = _new_state()
        outcome = records.STOPPED
        while outcome == records.STOPPED:
            outcome, parsed = self._step(buffer, matrix, headers, state, open_ended=False)
            if len(parsed.offsets):
                yield parsed.gather(_read_only(buffer))

    def _stream(self, headers: BatchHeaders, i: int, payload: Payload) -> Iterator[pa.RecordBatch]:
        """The records of one batch that fills the window and may have more to come."""
        part = headers.slice(slice(i, i + 1))
        matrix = _matrix(part, np.zeros(1, np.int64), np.array([len(self._window)], np.int64))
        state = _new_state()
        open_ended = True
        while True:
            window = self._window[: matrix[_END, 0]]
            outcome, parsed = self._step(window, matrix, part, state, open_ended=open_ended)
            if len(parsed.offsets):
                yield parsed.gather(_read_only(window))
            if outcome == records.DONE:
                return
            if outcome == records.NEEDS_BYTES:
                kept = self._keep_tail(int(state[_AT]), part, payload)
                state[_AT] = 0
                filled = kept + payload.fill(self._window.data[kept:])
                matrix[_END, 0] = filled
                # Nothing may follow the last record: then the next step raises.
                open_ended = filled == len(self._window) and state[_DONE] < part.count[0]

    def _keep_tail(self, at: int, part: BatchHeaders, payload: Payload) -> int:
        """Move what is left of the window to its head; enlarge it if that is all of it."""
        kept = len(self._window) - at
        if at:
            self._window[:kept] = self._window[at:]
            return kept
        allowed = payload.size * self._limits.large_record_ratio_max
        if 2 * kept > max(allowed, self._limits.arrow_batch_bytes):
            raise CorruptSegment(
                f"batch refused: one record is larger than {kept} bytes, of which the batch's "
                f"{payload.size} compressed bytes allow {allowed}",
                segment=self._name,
                position=int(part.position[0]),
            )
        larger = np.empty(2 * kept, np.uint8)
        larger[:kept] = self._window
        self._window = larger
        return kept

    def _step(
        self,
        buffer: _Bytes,
        matrix: _Int64s,
        headers: BatchHeaders,
        state: _Int64s,
        *,
        open_ended: bool,
    ) -> tuple[int, ParsedRecords]:
        """Parse on from `state` until the batches or the limits of an Arrow batch are reached."""
        left = int(headers.count[state[_BATCH] :].sum() - max(state[_DONE], 0))
        capacity = max(min(left, self._limits.arrow_batch_rows_max), 1)
        if capacity > self._spans.shape[1]:
            self._spans = np.empty((records.SPAN_ROWS, capacity), np.int32)
        offsets, timestamps = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        types, epochs = np.empty(capacity, np.int8), np.empty(capacity, np.int32)
        outcome = records.parse_records(
            _read_only(buffer),
            matrix,
            int(open_ended),
            self._rows.start,
            self._rows.stop,
            self._limits.arrow_batch_bytes,
            state,
            self._spans,
            offsets,
            timestamps,
            types,
            epochs,
        )
        if outcome in records.FAULTS:
            raise self._fault(outcome, headers, matrix, state)
        rows = int(state[_ROWS])
        return outcome, ParsedRecords(
            offsets=offsets[:rows],
            timestamps=timestamps[:rows],
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


class _Inside:
    """Which batches lie whole in the window: from index `first` on, `count` of them."""

    __slots__ = ("count", "ends", "first", "starts", "used")

    def __init__(self, capacity: int, first: int = 0) -> None:
        self.first = first
        self.count = 0
        self.used = 0
        self.starts = np.empty(capacity, np.int64)
        self.ends = np.empty(capacity, np.int64)

    def add(self, size: int) -> None:
        self.starts[self.count] = self.used
        self.used += size
        self.ends[self.count] = self.used
        self.count += 1


def _matrix(headers: BatchHeaders, starts: _Int64s, ends: _Int64s) -> _Int64s:
    """What the parse kernel wants to know of each batch, a row per fact."""
    matrix = np.empty((records.BATCH_ROWS, len(headers)), np.int64)
    facts = (
        *(starts, ends, headers.count, headers.base_offset, headers.last_offset_delta),
        *(headers.base_timestamp, headers.max_timestamp, headers.log_append_time),
        headers.leader_epoch,
    )
    for row, values in enumerate(facts):
        matrix[row] = values
    return matrix


def _new_state() -> _Int64s:
    state = np.zeros(records.STATE_SIZE, np.int64)
    state[_AT] = -1
    return state


def _read_only(buffer: _Bytes) -> _Bytes:
    view = buffer.view()
    view.flags.writeable = False
    return view
