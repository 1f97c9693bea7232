"""Logs taken apart: headers and decompressed record bytes, as they come to be served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from segment_reader import (
    DEFAULT_LIMITS,
    BatchHeaders,
    RangeSource,
    SegmentBounds,
    SegmentReader,
)
from segment_reader.codecs import Payload, new_zstd_decompressor
from segment_reader.kernels.batch_scan import FIELDS


@dataclass(frozen=True)
class Original:
    headers: BatchHeaders
    records: npt.NDArray[np.uint8]
    borders: npt.NDArray[np.int64]

    @classmethod
    def of(cls, headers: BatchHeaders, payloads: list[bytes]) -> Original:
        sizes = [len(payload) for payload in payloads]
        borders = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        return cls(headers, np.frombuffer(b"".join(payloads), np.uint8), borders)


def original(source: RangeSource, bounds: SegmentBounds) -> Original:
    """The batches of a log."""
    chunks = [chunk.copy() for chunk in SegmentReader(source, bounds).headers()]
    headers = BatchHeaders(
        **{name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in FIELDS}
    )
    zstd = new_zstd_decompressor()
    payloads = []
    places = zip(headers.position, headers.size, headers.codec, strict=True)
    for position, size, codec in places:
        data = memoryview(source.read(int(position) + 61, int(size) - 61))
        payload = Payload(
            int(codec) if data else 0, data, DEFAULT_LIMITS, zstd, name="x", position=0
        )
        out = bytearray(1 << 23)
        payloads.append(bytes(out[: payload.fill(memoryview(out))]))
    return Original.of(headers, payloads)


def made_headers(
    codec: int, sizes: Sequence[int], counts: Sequence[int] | None = None
) -> BatchHeaders:
    """Headers of batches one after the other that had these sizes, of one record by default."""
    fields = {name: np.zeros(len(sizes), np.int64) for name in FIELDS}
    fields["size"] += np.array(sizes, np.int64)
    fields["count"] += 1 if counts is None else np.array(counts, np.int64)
    fields["attributes"] += codec
    fields["last_offset_delta"] = np.maximum(fields["count"], 1) - 1
    after = np.cumsum(np.maximum(fields["count"], 1))
    fields["base_offset"] = after - np.maximum(fields["count"], 1)
    return BatchHeaders(**fields)
