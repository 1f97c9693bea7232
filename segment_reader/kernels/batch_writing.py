"""Writes batch headers and payloads one behind the other (KIP-98's batch format, magic 2)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import (
    BYTES,
    INT64_MATRIX,
    UINT8S,
    VOID,
    Int,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import copy_bytes
from segment_reader.kernels.stored_frames import (
    store_big_endian,
    store_gzip,
    store_lz4,
    store_snappy,
    store_zstd,
)

__all__ = ["FACTS", "PACKED", "PLAIN", "write_batches"]

PLAIN: Final = 0
PACKED: Final = 5
"""How a payload is made: `PLAIN`, copied from the records; `PACKED`, copied from the packed
frames; in between a codec's number, the records stored in the codec's framing."""

FACTS: Final = (
    "at",
    "end",
    "form",
    "source",
    "size",
    "base_offset",
    "leader_epoch",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)
"""The rows of the matrix that `write_batches` takes: where the batch goes, how its payload is
made and of which bytes, then its header."""

_LOG_OVERHEAD: Final = 12
_CRC_AT, _ATTRIBUTES_AT = 17, 21

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _store_header(out: Int, facts: Int, i: Int) -> Int:
    at, end = facts[0, i], facts[1, i]
    put = store_big_endian(out, at, facts[5, i], 8)
    put = store_big_endian(out, put, end - at - _LOG_OVERHEAD, 4)
    put = store_big_endian(out, put, facts[6, i], 4)
    out[put] = np.uint8(2)
    put = store_big_endian(out, put + 1, np.int64(0), 4)
    put = store_big_endian(out, put, facts[7, i], 2)
    put = store_big_endian(out, put, facts[8, i], 4)
    for row in range(9, 12):
        put = store_big_endian(out, put, facts[row, i], 8)
    put = store_big_endian(out, put, facts[12, i], 2)
    put = store_big_endian(out, put, facts[13, i], 4)
    return store_big_endian(out, put, facts[14, i], 4)


@compiled(VOID(INT64_MATRIX, BYTES, BYTES, UINT8S))
def write_batches(facts: _Int64s, records: _Bytes, packed: _Bytes, out: _Bytes) -> None:
    """Write the batches of `facts` into `out`, all but their CRC-32C, which becomes 0."""
    for i in range(facts.shape[1]):
        form, source, size = facts[2, i], facts[3, i], facts[4, i]
        put = _store_header(out, facts, i)
        if form == PLAIN:
            copy_bytes(out, put, records, source, size)
        elif form == PACKED:
            copy_bytes(out, put, packed, source, size)
        elif form == 1:
            store_gzip(out, put, records, source, size)
        elif form == 2:
            store_snappy(out, put, records, source, size)
        elif form == 3:
            store_lz4(out, put, records, source, size)
        else:
            store_zstd(out, put, records, source, size)
