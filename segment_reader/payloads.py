"""The record bytes of batches as they are in a log, decompressed and otherwise left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from segment_reader.batches import BATCH_OVERHEAD, BatchHeaders, Codec
from segment_reader.codecs import Payload, new_zstd_decompressor
from segment_reader.limits import Limits

__all__ = ["BatchPayloads", "PayloadReader"]

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPayloads:
    """Consecutive batches: the decompressed records of batch i are buffer[starts[i]:ends[i]].

    Good until the next ones are asked for.
    """

    headers: BatchHeaders
    buffer: _Bytes
    starts: _Int64s
    ends: _Int64s

    def __len__(self) -> int:
        return len(self.headers)


class PayloadReader:
    """Decompresses the batches of one log, chunk after chunk.

    Uncompressed ones are given where they lie. Others are put into a window one after the other;
    it has `limits.arrow_batch_bytes`, and grows for a single batch that is larger, up to
    `limits.decompressed_batch_bytes_max`.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self._window: _Bytes = np.empty(0, np.uint8)
        self._zstd = new_zstd_decompressor()

    def payloads(
        self, chunk: _Bytes, position: int, headers: BatchHeaders
    ) -> Iterator[BatchPayloads]:
        """The payloads of `headers`' batches, which lie in `chunk` (at `position` of the log).

        Raises CorruptSegment.
        """
        starts = headers.position - position + BATCH_OVERHEAD
        ends = headers.position - position + headers.size
        if (headers.codec == Codec.NONE).all():
            yield BatchPayloads(headers=headers, buffer=chunk, starts=starts, ends=ends)
        else:
            yield from self._decompressed(chunk, headers, starts, ends)

    def _decompressed(
        self, chunk: _Bytes, headers: BatchHeaders, starts: _Int64s, ends: _Int64s
    ) -> Iterator[BatchPayloads]:
        if len(self._window) != self._limits.arrow_batch_bytes:
            self._window = np.empty(self._limits.arrow_batch_bytes, np.uint8)
        view, borders, codecs = chunk.data, [0], headers.codec.tolist()
        first = 0
        for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            payload = self._open(headers, i, codecs[i], view[start:end])
            used = borders[-1]
            filled = payload.fill(self._window.data[used:])
            if used + filled == len(self._window):
                # Full: there may be more of it. It begins the window anew.
                if i > first:
                    yield self._given(headers.slice(slice(first, i)), borders)
                self._window[:filled] = self._window[used : used + filled]
                borders, first = [0], i
                filled += self._rest(payload, filled)
            borders.append(borders[-1] + filled)
        yield self._given(headers.slice(slice(first, len(headers))), borders)

    def _rest(self, payload: Payload, filled: int) -> int:
        """Bytes of `payload` behind the first `filled`; the window grows until they fit."""
        taken = 0
        while True:
            taken += payload.fill(self._window.data[filled + taken :])
            if filled + taken < len(self._window):
                return taken
            larger = np.empty(2 * len(self._window), np.uint8)
            larger[: len(self._window)] = self._window
            self._window = larger

    def _open(self, headers: BatchHeaders, i: int, codec: int, data: memoryview) -> Payload:
        # A batch without records has no payload either, whatever its codec.
        codec = codec if len(data) else Codec.NONE
        place = int(headers.position[i])
        return Payload(codec, data, self._limits, self._zstd, name=self._name, position=place)

    def _given(self, headers: BatchHeaders, borders: list[int]) -> BatchPayloads:
        places = np.array(borders, np.int64)
        return BatchPayloads(
            headers=headers, buffer=self._window, starts=places[:-1], ends=places[1:]
        )
