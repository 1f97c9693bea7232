"""Where the records of batches lie in memory, decompressed, while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from segment_reader.batches import BATCH_OVERHEAD, BatchHeaders, Codec
from segment_reader.codecs import Payload, new_zstd_decompressor
from segment_reader.errors import CorruptSegment
from segment_reader.limits import Limits

__all__ = ["HeldBatches", "LargeBatch", "RecordWindow"]

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]

_PIECE_BYTES: Final = 1024 * 1024


class HeldBatches:
    """Record bytes of batches: those of batch i are buffer[starts[i]:ends[i]].

    Good until the next ones are asked for: the buffer is used again.
    """

    def __init__(
        self, buffer: _Bytes, headers: BatchHeaders, starts: _Int64s, ends: _Int64s
    ) -> None:
        self.buffer = _read_only(buffer)
        self.headers = headers
        self.starts = starts
        self.ends = ends

    def take(self, chosen: npt.NDArray[np.bool_]) -> HeldBatches:
        """The batches where `chosen` is true."""
        if chosen.all():
            return self
        headers = self.headers.take(chosen)
        return HeldBatches(self.buffer, headers, self.starts[chosen], self.ends[chosen])

    def record_bytes(self, i: int) -> bytes:
        """A copy of batch i's record bytes."""
        return self.buffer[self.starts[i] : self.ends[i]].tobytes()


class LargeBatch(HeldBatches):
    """One batch that does not fit into the window: the buffer has a piece of it at a time."""

    def __init__(
        self, window: RecordWindow, headers: BatchHeaders, data: memoryview, payload: Payload
    ) -> None:
        """`payload`, opened for `data`, has filled the window once."""
        size = np.array([len(window.buffer)])
        super().__init__(window.buffer, headers, np.zeros(1, np.int64), size)
        self._window = window
        self._data = data
        self._payload = payload

    @property
    def open_ended(self) -> bool:
        """Whether there may be more of the batch behind this piece."""
        return int(self.ends[0]) == len(self._window.buffer)

    def refill(self, at: int) -> None:
        """Go on with a piece that begins with what was at `at` of this one.

        Raises CorruptSegment.
        """
        kept = int(self.ends[0]) - at
        self._window.keep_tail(at, self.headers, self._payload.size)
        filled = kept + self._payload.fill(self._window.buffer.data[kept:])
        self.buffer = _read_only(self._window.buffer[:filled])
        self.ends = np.array([filled])

    def record_bytes(self, i: int) -> bytes:
        """All of the record bytes, decompressed once more."""
        payload, piece = self._window.open(self.headers, i, self._data), bytearray(_PIECE_BYTES)
        pieces = []
        while filled := payload.fill(memoryview(piece)):
            pieces.append(bytes(piece[:filled]))
        return b"".join(pieces)


class RecordWindow:
    """Gives the batches of chunk after chunk with their records decompressed.

    Uncompressed batches are given where they lie. Compressed ones are put one after the other
    into a window of `limits.arrow_batch_bytes`, so that many small ones cost one kernel call; a
    batch that is larger than the window goes through it piece by piece.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self._zstd = new_zstd_decompressor()
        self.buffer: _Bytes = np.empty(0, np.uint8)

    def batches(self, chunk: _Bytes, position: int, headers: BatchHeaders) -> Iterator[HeldBatches]:
        """All of `headers`' batches, which lie in `chunk` (at `position` of the log), in order.

        Raises CorruptSegment.
        """
        if not len(headers):
            return
        starts = headers.position - position + BATCH_OVERHEAD
        ends = headers.position - position + headers.size
        if (headers.codec == Codec.NONE).all():
            yield HeldBatches(chunk, headers, starts, ends)
        else:
            yield from self._through_window(chunk.data, headers, starts.tolist(), ends.tolist())

    def _through_window(
        self, chunk: memoryview, headers: BatchHeaders, starts: list[int], ends: list[int]
    ) -> Iterator[HeldBatches]:
        if not len(self.buffer):
            self.buffer = np.empty(self._limits.arrow_batch_bytes, np.uint8)
        inside = _Inside(len(headers))
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            payload = self.open(headers, i, chunk[start:end])
            filled = payload.fill(self.buffer.data[inside.used :])
            if inside.used + filled == len(self.buffer):
                yield from inside.held(self.buffer, headers)
                self.buffer[:filled] = self.buffer[inside.used : inside.used + filled]
                inside = _Inside(len(headers), first=i)
                filled += payload.fill(self.buffer.data[filled:])
                if filled == len(self.buffer):
                    part = headers.slice(slice(i, i + 1))
                    yield LargeBatch(self, part, chunk[start:end], payload)
                    inside = _Inside(len(headers), first=i + 1)
                    continue
            inside.add(filled)
        yield from inside.held(self.buffer, headers)

    def open(self, headers: BatchHeaders, i: int, data: memoryview) -> Payload:
        """Batch i's records as a stream; `data` is what lies behind its header."""
        # A batch without records has no payload either, whatever its codec.
        codec = int(headers.codec[i]) if len(data) else Codec.NONE
        place = int(headers.position[i])
        return Payload(codec, data, self._limits, self._zstd, name=self._name, position=place)

    def keep_tail(self, at: int, headers: BatchHeaders, compressed_bytes: int) -> None:
        """Move what is left of the window to its head; enlarge it if that is all of it."""
        kept = len(self.buffer) - at
        if at:
            self.buffer[:kept] = self.buffer[at:]
            return
        allowed = compressed_bytes * self._limits.large_record_ratio_max
        if 2 * kept > max(allowed, self._limits.arrow_batch_bytes):
            raise CorruptSegment(
                f"batch refused: one record is larger than {kept} bytes, of which the batch's "
                f"{compressed_bytes} compressed bytes allow {allowed}",
                segment=self._name,
                position=int(headers.position[0]),
            )
        larger = np.empty(2 * kept, np.uint8)
        larger[:kept] = self.buffer
        self.buffer = larger


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

    def held(self, window: _Bytes, headers: BatchHeaders) -> Iterator[HeldBatches]:
        """These batches, if there are any."""
        if self.count:
            part = headers.slice(slice(self.first, self.first + self.count))
            yield HeldBatches(
                window[: self.used], part, self.starts[: self.count], self.ends[: self.count]
            )


def _read_only(buffer: _Bytes) -> _Bytes:
    view = buffer.view()
    view.flags.writeable = False
    return view
