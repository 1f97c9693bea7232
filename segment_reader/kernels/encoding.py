"""Arrow columns back to records of magic 2, as Kafka's own writers put them (KIP-98, KIP-82).

Attributes 0, varints as short as they can be, nulls as length -1. What a producer wrote otherwise
is not to be had from its rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.checksum import extended
from segment_reader.kernels.compiler import (
    BYTES,
    INT64,
    INT64S,
    READ_INT64S,
    UINT8S,
    VOID,
    Int,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import (
    address_of,
    byte_at,
    copy,
    int32_at,
    int64_at,
    same_bytes,
    store_byte,
)
from segment_reader.kernels.varints import put_varlong, varlong, varlong_bytes

__all__ = [
    "TIMESTAMPS_PLACE",
    "bytes_max",
    "encode_records",
    "match_records",
    "put_varlongs",
    "spread_deltas",
]

_RECORD_BYTES_MAX: Final = 41
"""Most that a record takes beside its key, value and headers: attributes, four lengths of 5 bytes
and two deltas of 10 (an offset's needs so many only where a row doesn't belong to its batch)."""

_HEADER_BYTES_MAX: Final = 10
"""Most that a header takes beside its key and value."""

_MATCHED_BYTES: Final = 8 * 1024
"""How much is encoded at a time for comparison."""

TIMESTAMPS_PLACE: Final = 1
"""`places` says where Arrow's buffers lie, by address, as Arrow's own C interface does: offsets,
timestamps, the borders of the header lists, then for keys, values, header keys and header values
each borders, data, validity bitmap, and which bit of it the first element has (-1: nothing is
null). All count from the first row (header) on. Arrays in their stead would cost more than the
encoding: numba counts references to each, for every record."""

_OFFSETS, _TIMESTAMPS, _LISTS = 0, TIMESTAMPS_PLACE, 2
_KEYS, _VALUES, _HEADER_KEYS, _HEADER_VALUES = 3, 7, 11, 15

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _binary(places: _Int64s, column: int) -> tuple[Int, Int, Int, Int]:
    """Borders, data, bitmap and first bit of one of the binary columns."""
    borders, data = np.uint64(places[column]), np.uint64(places[column + 1])
    return borders, data, np.uint64(places[column + 2]), places[column + 3]


@inlined
def _length(borders: Int, valid: Int, first_bit: Int, i: Int) -> Int:
    """Length of element i, -1 for a null."""
    if first_bit >= 0:
        bit = i + first_bit
        if not (byte_at(valid, bit >> 3) >> np.uint64(bit & 7)) & np.uint64(1):
            return np.int64(-1)
    return int32_at(borders, i + 1) - int32_at(borders, i)


@inlined
def _put_field(target: Int, at: Int, source: Int, start: Int, length: Int) -> Int:
    at = put_varlong(target, at, length)
    if length > 0:
        copy(target, at, source, start, length)
        at += length
    return at


@inlined
def _headers_bytes(places: _Int64s, first: Int, stop: Int) -> Int:
    """What headers [first, stop) take behind their count."""
    keys, _, _, _ = _binary(places, _HEADER_KEYS)
    values, _, valid, first_bit = _binary(places, _HEADER_VALUES)
    size = np.int64(0)
    for h in range(first, stop):
        length = int32_at(keys, h + 1) - int32_at(keys, h)
        size += varlong_bytes(length) + length
        length = _length(values, valid, first_bit, h)
        size += varlong_bytes(length) + max(length, np.int64(0))
    return size


@inlined
def _put_headers(target: Int, at: Int, places: _Int64s, first: Int, stop: Int) -> Int:
    key_borders, keys, _, _ = _binary(places, _HEADER_KEYS)
    value_borders, values, valid, first_bit = _binary(places, _HEADER_VALUES)
    for h in range(first, stop):
        start = int32_at(key_borders, h)
        at = _put_field(target, at, keys, start, int32_at(key_borders, h + 1) - start)
        length = _length(value_borders, valid, first_bit, h)
        at = _put_field(target, at, values, int32_at(value_borders, h), length)
    return at


@inlined
def _put_rows(
    target: Int,
    at: Int,
    enough: Int,
    row: Int,
    stop: Int,
    base_offset: Int,
    base_timestamp: Int,
    places: _Int64s,
) -> tuple[Int, Int]:
    """Write rows [row, stop) as records of one batch at `at`, or as many as reach `enough`.

    Returns the row after the last one and where its record ends.
    """
    zero, one = np.int64(0), np.int64(1)
    offsets, timestamps = np.uint64(places[_OFFSETS]), np.uint64(places[_TIMESTAMPS])
    lists = np.uint64(places[_LISTS])
    key_borders, keys, key_valid, key_bit = _binary(places, _KEYS)
    value_borders, values, value_valid, value_bit = _binary(places, _VALUES)
    while row < stop and at < enough:
        timestamp = int64_at(timestamps, row) - base_timestamp
        offset = int64_at(offsets, row) - base_offset
        key = _length(key_borders, key_valid, key_bit, row)
        value = _length(value_borders, value_valid, value_bit, row)
        header, headers_end = int32_at(lists, row), int32_at(lists, row + 1)
        size = one + varlong_bytes(timestamp) + varlong_bytes(offset)
        size += varlong_bytes(key) + max(key, zero) + varlong_bytes(value) + max(value, zero)
        size += varlong_bytes(headers_end - header)
        if header < headers_end:
            size += _headers_bytes(places, header, headers_end)
        at = put_varlong(target, at, size)
        store_byte(target, at, np.uint64(0))
        at = put_varlong(target, at + one, timestamp)
        at = put_varlong(target, at, offset)
        at = _put_field(target, at, keys, int32_at(key_borders, row), key)
        at = _put_field(target, at, values, int32_at(value_borders, row), value)
        at = put_varlong(target, at, headers_end - header)
        if header < headers_end:
            at = _put_headers(target, at, places, header, headers_end)
        row += one
    return row, at


@inlined
def _bytes_between(places: _Int64s, column: int, first: Int, stop: Int) -> Int:
    borders, _, _, _ = _binary(places, column)
    return int32_at(borders, stop) - int32_at(borders, first)


@compiled(INT64(READ_INT64S, INT64, INT64))
def bytes_max(places: _Int64s, first: int, stop: int) -> int:
    """Upper bound of what rows [first, stop) take as records."""
    lists = np.uint64(places[_LISTS])
    header, headers_end = int32_at(lists, first), int32_at(lists, stop)
    total = _RECORD_BYTES_MAX * (stop - first) + _HEADER_BYTES_MAX * (headers_end - header)
    total += _bytes_between(places, _KEYS, first, stop)
    total += _bytes_between(places, _VALUES, first, stop)
    total += _bytes_between(places, _HEADER_KEYS, header, headers_end)
    return int(total + _bytes_between(places, _HEADER_VALUES, header, headers_end))


@compiled(VOID(READ_INT64S, READ_INT64S, READ_INT64S, READ_INT64S, UINT8S, INT64S))
def encode_records(
    row_borders: _Int64s,
    base_offsets: _Int64s,
    base_timestamps: _Int64s,
    places: _Int64s,
    target: _Bytes,
    borders: _Int64s,
) -> None:
    """Write the batches one after the other into `target`; `borders` become where each begins.

    Batch i has rows [row_borders[i], row_borders[i + 1]). `target` must hold all of it.
    """
    at: Int = np.int64(0)
    borders[0] = 0
    for i in range(len(base_offsets)):
        _, at = _put_rows(
            address_of(target),
            at,
            np.int64(len(target)),
            row_borders[i],
            row_borders[i + 1],
            base_offsets[i],
            base_timestamps[i],
            places,
        )
        borders[i + 1] = at


@compiled(
    VOID(
        *(READ_INT64S, READ_INT64S, READ_INT64S, READ_INT64S, UINT8S),
        *(BYTES, READ_INT64S, READ_INT64S, UINT8S, INT64S),
    )
)
def match_records(
    row_borders: _Int64s,
    base_offsets: _Int64s,
    base_timestamps: _Int64s,
    places: _Int64s,
    scratch: _Bytes,
    original: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    equal: _Bytes,
    crcs: _Int64s,
) -> None:
    """Set equal[i] to whether batch i comes out as original[starts[i]:ends[i]].

    `crcs` are extended by the CRC-32C of the original bytes, while these are near. The records
    are written to the head of `scratch`, some at a time, so that it stays in the processor's
    nearest cache; it holds `bytes_max` of all the rows, and hardly any of it is touched.
    """
    for i in range(len(base_offsets)):
        row, matched, same = row_borders[i], starts[i], True
        while same and row < row_borders[i + 1]:
            row, size = _put_rows(
                address_of(scratch),
                np.int64(0),
                np.int64(_MATCHED_BYTES),
                row,
                row_borders[i + 1],
                base_offsets[i],
                base_timestamps[i],
                places,
            )
            same = matched + size <= ends[i] and same_bytes(
                address_of(scratch), np.int64(0), address_of(original), matched, size
            )
            matched += size
        equal[i] = same and matched == ends[i]
        crcs[i] = extended(crcs[i], original, starts[i], ends[i])


@compiled(INT64(BYTES, READ_INT64S, READ_INT64S, READ_INT64S, READ_INT64S, INT64S))
def spread_deltas(
    deltas: _Bytes,
    delta_borders: _Int64s,
    row_borders: _Int64s,
    base_offsets: _Int64s,
    places: _Int64s,
    row_deltas: _Int64s,
) -> int:
    """Give each row its timestamp delta; return the first bad batch or -1.

    Batch i's varlongs are deltas[delta_borders[i]:delta_borders[i + 1]], one for each offset from
    its base offset on, those whose rows are gone included. It is bad when they end before its
    rows do. Batches without any are passed over.
    """
    origin, offsets = address_of(deltas), np.uint64(places[_OFFSETS])
    for i in range(len(base_offsets)):
        at, end = delta_borders[i], delta_borders[i + 1]
        if at == end:
            continue
        seen, delta = np.int64(-1), np.int64(0)
        for row in range(row_borders[i], row_borders[i + 1]):
            while seen < int64_at(offsets, row) - base_offsets[i]:
                delta, at = varlong(origin, at, end)
                if at < 0:
                    return i
                seen += 1
            row_deltas[row] = delta
    return -1


@compiled(VOID(READ_INT64S, UINT8S, INT64S))
def put_varlongs(numbers: _Int64s, target: _Bytes, borders: _Int64s) -> None:
    """Write varlongs back to back; number i is target[borders[i]:borders[i + 1]].

    `target` holds 10 bytes per number.
    """
    at: Int = np.int64(0)
    borders[0] = 0
    for i in range(len(numbers)):
        at = put_varlong(address_of(target), at, numbers[i])
        borders[i + 1] = at
