"""From headers and record bytes to complete batches of magic 2, as a broker serves them.

Every header field is the original's but for length, CRC-32C and, after a deletion of rows, the
count. The codec is the original's; how well it compresses is a matter of speed, within the bounds
of `ServingLimits`:

* no batch is smaller than a quarter of its original: it is served uncompressed then (codec bits
  cleared) or, where that breaks another bound, padded;
* what hardly gets smaller is stored in its codec's framing without being compressed;
* what the fastest level leaves too large is compressed at the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from segment_reader.batches import BATCH_OVERHEAD, BatchHeaders, Codec
from segment_reader.compression import STEPS, stored_sizes
from segment_reader.kernels import batch_writing
from segment_reader.kernels.checksum import checksums
from segment_reader.limits import DEFAULT_SERVING_LIMITS, ServingLimits
from segment_reader.padding import PADDABLE, gap_record, padded

__all__ = ["ServedBatches", "assemble"]

_FACTS: Final = batch_writing.FACTS
_PACKED: Final = batch_writing.PACKED
_CODEC_BITS: Final = 0x07
_CONTROL_BIT: Final = 0x20
_CRC_AT: Final = 17
_CRC_COVERS_FROM: Final = 21
_KERNEL_CHECKSUM_MAX: Final = 8 * 1024
"""Longer batches go through google-crc32c, which is twice as fast once its call is paid for."""

_Int64s = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBatches:
    """Complete batches: number i is data[borders[i]:borders[i + 1]]."""

    data: memoryview
    borders: _Int64s

    def __len__(self) -> int:
        return len(self.borders) - 1


def assemble(
    headers: BatchHeaders,
    counts: _Int64s,
    records: _Bytes,
    borders: _Int64s,
    limits: ServingLimits = DEFAULT_SERVING_LIMITS,
) -> ServedBatches:
    """The batches of `headers` with the record bytes records[borders[i]:borders[i + 1]].

    `headers.size` is the originals' size, with the header's 61 bytes; `counts` are the numbers of
    records that are there. Control batches are nothing special. The same batch gives the same
    bytes, whatever is served with it. The result has memory of its own.
    """
    payloads = _Payloads(headers, counts, records, borders, limits)
    payloads.pack()
    return payloads.write()


class _Payloads:
    """How each batch's payload is made: arrays with one element per batch."""

    def __init__(
        self,
        headers: BatchHeaders,
        counts: _Int64s,
        records: _Bytes,
        borders: _Int64s,
        limits: ServingLimits,
    ) -> None:
        self._headers = headers
        self._attributes, self._count = headers.attributes & ~_CODEC_BITS, counts.copy()
        self._limits = limits
        self._records = _read_only(records)
        self._starts, self._raw = borders[:-1], np.diff(borders)
        self._smallest = -(-headers.size // limits.shrink_max) - BATCH_OVERHEAD
        largest = np.maximum(headers.size * limits.growth_max, limits.growth_free_bytes)
        self._largest = largest - BATCH_OVERHEAD
        # A batch without records says that it is not compressed, as Kafka's own empty ones do.
        self._codec = np.where(self._raw > 0, headers.codec, Codec.NONE)
        # What is not compressed below is copied from the records into its codec's framing.
        self._form = self._codec.copy()
        self._size = stored_sizes(self._codec, self._raw)
        self._source, self._taken = self._starts.copy(), self._raw.copy()
        self._frames: list[_Bytes] = []
        self._frames_bytes = 0

    def pack(self) -> None:
        """Compress what is worth it, then mend what came out too small."""
        limits = self._limits
        worth = np.flatnonzero(self._is_worth_packing())
        fast = np.maximum(self._allowed(limits.growth_fast_max), limits.unpacked_bytes_max)
        for codec, steps in STEPS.items():
            chosen = worth[self._codec[worth] == codec]
            enough = np.minimum(fast, self._largest)
            for step in steps:
                if not len(chosen):
                    break
                frames = step(self._records, self._starts[chosen], self._raw[chosen])
                self._adopt(chosen, frames.data, frames.borders)
                chosen = chosen[self._size[chosen] > enough[chosen]]
                enough = self._largest
        for i in np.flatnonzero(self._size < self._smallest).tolist():
            self._enlarge(i)

    def _is_worth_packing(self) -> npt.NDArray[np.bool_]:
        is_small = self._raw <= self._limits.unpacked_bytes_max
        growth = np.full(len(self._raw), self._limits.growth_unpacked_max, np.float64)
        growth[is_small] = self._limits.growth_small_max
        unpacked_max = np.minimum(self._allowed(growth), self._largest)
        unpacked_max[self._codec == Codec.NONE] = np.inf
        is_large: npt.NDArray[np.bool_] = self._size > unpacked_max
        return is_large

    def _allowed(self, growth: float | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(self._headers.size * growth - BATCH_OVERHEAD, np.float64)

    def _adopt(self, chosen: _Int64s, frames: _Bytes, borders: _Int64s) -> None:
        """Use the frames that are smaller than what the batches have had so far."""
        sizes = np.diff(borders)
        smaller = sizes < self._size[chosen]
        self._use(chosen[smaller], borders[:-1][smaller], sizes[smaller], frames)

    def _use(self, chosen: _Int64s, at: _Int64s, sizes: _Int64s, frames: _Bytes) -> None:
        self._form[chosen] = _PACKED
        self._source[chosen] = at + self._frames_bytes
        self._size[chosen] = self._taken[chosen] = sizes
        self._frames.append(frames)
        self._frames_bytes += len(frames)

    def _enlarge(self, i: int) -> None:
        """Serve batch i uncompressed; where that is out of bounds, padded."""
        smallest = int(self._smallest[i])
        if smallest <= self._raw[i] <= self._largest[i]:
            self._codec[i] = self._form[i] = Codec.NONE
            self._source[i] = self._starts[i]
            self._size[i] = self._taken[i] = self._raw[i]
        elif self._raw[i]:
            codec, frame = self._paddable_frame(i)
            self._codec[i] = codec
            self._use_one(i, padded(codec, frame, smallest))
        else:
            self._attributes[i] |= _CONTROL_BIT
            self._count[i] = 1
            self._use_one(i, gap_record(int(self._headers.last_offset_delta[i]), smallest))

    def _paddable_frame(self, i: int) -> tuple[Codec, bytes]:
        codec = Codec(int(self._codec[i]))
        if codec in PADDABLE and self._form[i] == _PACKED:
            at = int(self._source[i])
            return codec, self._packed()[at : at + int(self._size[i])].tobytes()
        codec = codec if codec in PADDABLE else Codec.GZIP
        packed = STEPS[codec][0](self._records, self._starts[i : i + 1], self._raw[i : i + 1])
        return codec, packed.data[: packed.borders[1]].tobytes()

    def _use_one(self, i: int, payload: bytes) -> None:
        one = np.array([i]), np.zeros(1, np.int64), np.array([len(payload)])
        self._use(*one, np.frombuffer(payload, np.uint8))

    def write(self) -> ServedBatches:
        if (self._size < self._smallest).any():
            raise AssertionError("a batch is smaller than its served position allows")
        borders = np.zeros(len(self._headers) + 1, np.int64)
        np.cumsum(self._size + BATCH_OVERHEAD, out=borders[1:])
        out = np.empty(int(borders[-1]), np.uint8)
        batch_writing.write_batches(self._facts(borders), self._records, self._packed(), out)
        _put_checksums(out, borders)
        return ServedBatches(data=out.data, borders=borders)

    def _facts(self, borders: _Int64s) -> _Int64s:
        own = {
            "at": borders[:-1],
            "end": borders[1:],
            "form": self._form,
            "source": self._source,
            "size": self._taken,
            "attributes": self._attributes | self._codec,
            "count": self._count,
        }
        facts = np.empty((len(_FACTS), len(self._headers)), np.int64)
        for row, name in enumerate(_FACTS):
            facts[row] = own[name] if name in own else getattr(self._headers, name)
        return facts

    def _packed(self) -> _Bytes:
        """All frames in one array."""
        if len(self._frames) != 1:
            self._frames = [np.concatenate([np.empty(0, np.uint8), *self._frames])]
        return _read_only(self._frames[0])


def _put_checksums(out: _Bytes, borders: _Int64s) -> None:
    starts, ends = borders[:-1] + _CRC_COVERS_FROM, borders[1:]
    crcs = np.zeros(len(starts), np.int64)
    is_large = ends - starts > _KERNEL_CHECKSUM_MAX
    checksums(_read_only(out), starts, np.where(is_large, starts, ends), crcs)
    for i in np.flatnonzero(is_large).tolist():
        crcs[i] = google_crc32c.value(out[starts[i] : ends[i]])
    places = (borders[:-1] + _CRC_AT)[:, None] + np.arange(4)
    out[places] = crcs.astype(">u4").view(np.uint8).reshape(-1, 4)


def _read_only(buffer: _Bytes) -> _Bytes:
    view = buffer.view()
    view.flags.writeable = False
    return view
