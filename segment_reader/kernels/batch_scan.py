"""Walks over batch borders and headers (KIP-98's batch format, magic 2; sizes of any magic)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import (
    BYTES,
    INT64,
    INT64_MATRIX,
    INT64S,
    Int,
    compiled,
    inlined,
)

__all__ = [
    "FAULT_BAD_COUNT",
    "FAULT_BAD_SIZE",
    "FAULT_LAST_OFFSET_DELTA",
    "FAULT_OLD_MAGIC",
    "FAULT_UNKNOWN_MAGIC",
    "FIELDS",
    "scan_headers",
    "scan_sizes",
]

FIELDS: Final = (
    "position",
    "size",
    "base_offset",
    "leader_epoch",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)
"""The rows of the matrix that `scan_headers` fills, in order."""

FAULT_BAD_SIZE: Final = 1
FAULT_OLD_MAGIC: Final = 2
FAULT_UNKNOWN_MAGIC: Final = 3
FAULT_BAD_COUNT: Final = 4
FAULT_LAST_OFFSET_DELTA: Final = 5

_LOG_OVERHEAD: Final = 12
_OLD_OVERHEAD: Final = 26
_OVERHEAD: Final = 61
_MAGIC_AT: Final = 16
_RECORD_SIZE_MIN: Final = 7

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _int16(buffer: _Bytes, at: Int) -> Int:
    value = (np.uint16(buffer[at]) << np.uint16(8)) | np.uint16(buffer[at + 1])
    return np.int64(np.int16(value))


@inlined
def _uint32(buffer: _Bytes, at: Int) -> Int:
    value = np.uint32(0)
    for i in range(4):
        value = (value << np.uint32(8)) | np.uint32(buffer[at + i])
    return np.int64(value)


@inlined
def _int32(buffer: _Bytes, at: Int) -> Int:
    return np.int64(np.int32(np.uint32(_uint32(buffer, at))))


@inlined
def _int64(buffer: _Bytes, at: Int) -> Int:
    high = np.uint64(_uint32(buffer, at))
    return np.int64((high << np.uint64(32)) | np.uint64(_uint32(buffer, at + 4)))


@compiled(INT64(BYTES, INT64, INT64S, INT64S))
def scan_sizes(buffer: _Bytes, size_max: int, starts: _Int64s, sizes: _Int64s) -> int:
    """Fill starts and sizes of the whole batches at the head of `buffer`; return how many.

    Stops early when the arrays are full. The batch after the last one has an impossible size if
    the result is negative: then it is -1 - number of batches.
    """
    at, n = 0, 0
    while at + _LOG_OVERHEAD <= len(buffer) and n < len(starts):
        size = _int32(buffer, at + 8) + _LOG_OVERHEAD
        if size < _OLD_OVERHEAD or size > size_max:
            return -1 - n
        if at + size > len(buffer):
            break
        starts[n] = at
        sizes[n] = size
        n += 1
        at += size
    return n


@compiled(INT64(BYTES, INT64, INT64_MATRIX, INT64S))
def scan_headers(buffer: _Bytes, size_max: int, fields: _Int64s, result: _Int64s) -> int:
    """Fill one column of `fields` per whole batch at the head of `buffer`; return a fault or 0.

    `result` becomes (batches found, position after them). A fault lies at that position: it ends
    the scan, and the batches before it are good as far as looked at here.
    """
    at, n, fault = 0, 0, 0
    while at + _LOG_OVERHEAD <= len(buffer) and n < fields.shape[1]:
        size = _int32(buffer, at + 8) + _LOG_OVERHEAD
        if size < _OLD_OVERHEAD or size > size_max:
            fault = FAULT_BAD_SIZE
            break
        if at + _MAGIC_AT < len(buffer) and buffer[at + _MAGIC_AT] != 2:
            fault = FAULT_OLD_MAGIC if buffer[at + _MAGIC_AT] < 2 else FAULT_UNKNOWN_MAGIC
            break
        if size < _OVERHEAD:
            fault = FAULT_BAD_SIZE
            break
        if at + size > len(buffer):
            break
        count = _int32(buffer, at + 57)
        last_offset_delta = _int32(buffer, at + 23)
        compressed = (buffer[at + 22] & 7) != 0
        if count < 0 or (not compressed and count * _RECORD_SIZE_MIN > size - _OVERHEAD):
            fault = FAULT_BAD_COUNT
            break
        if last_offset_delta < 0 or last_offset_delta < count - 1:
            fault = FAULT_LAST_OFFSET_DELTA
            break
        fields[0, n] = at
        fields[1, n] = size
        fields[2, n] = _int64(buffer, at)
        fields[3, n] = _int32(buffer, at + 12)
        fields[4, n] = _uint32(buffer, at + 17)
        fields[5, n] = _int16(buffer, at + 21)
        fields[6, n] = last_offset_delta
        fields[7, n] = _int64(buffer, at + 27)
        fields[8, n] = _int64(buffer, at + 35)
        fields[9, n] = _int64(buffer, at + 43)
        fields[10, n] = _int16(buffer, at + 51)
        fields[11, n] = _int32(buffer, at + 53)
        fields[12, n] = count
        n += 1
        at += size
    result[0] = n
    result[1] = at
    return fault
