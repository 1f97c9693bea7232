"""Records of magic 2 (KIP-98, KIP-82 for headers): find their fields, then copy them out.

Two kernels, because Arrow wants each column in one piece: `parse_records` checks the records and
notes where their fields lie, and knows afterwards how large each column becomes; `gather_records`
copies the fields there. `parse_records` can stop anywhere between two records and go on later.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import (
    BYTES,
    INT8S,
    INT32_MATRIX,
    INT32S,
    INT64,
    INT64_MATRIX,
    INT64S,
    UINT8S,
    VOID,
    Int,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import copy_bytes

__all__ = [
    "BATCH_ROWS",
    "DONE",
    "FAULTS",
    "NEEDS_BYTES",
    "SPAN_ROWS",
    "STATE_SIZE",
    "STOPPED",
    "gather_records",
    "parse_records",
]

BATCH_ROWS: Final = 9
"""Rows of `batches`: start, end, count, base offset, last offset delta, base timestamp,
append timestamp, is append time, leader epoch. Start and end lie in the buffer."""

SPAN_ROWS: Final = 6
"""Rows of `spans`: key at, key length, value at, value length, headers at, number of headers.
A length of -1 is a null."""

STATE_SIZE: Final = 10
"""`state`: batch, position (-1: the batch's start), records done in the batch, last offset delta,
then the totals of this call: rows, key bytes, value bytes, headers, bytes of their keys, of their
values."""

DONE: Final = 0
STOPPED: Final = 1
NEEDS_BYTES: Final = 2

_LENGTH, _FIELDS, _OFFSET, _HEADERS, _TRAILING, _OVERRUN = 10, 11, 12, 13, 14, 15

FAULTS: Final = {
    _LENGTH: "a record's length is impossible or reaches past the batch's end",
    _FIELDS: "a record's fields do not fit its length",
    _OFFSET: "a record's offset does not rise or is past the batch's last offset",
    _HEADERS: "a record's headers do not fit its length",
    _TRAILING: "there are bytes left after the batch's last record",
    _OVERRUN: "the batch ends before its last record",
}

_HEADER_COST: Final = 16
_LENGTH_BYTES_MAX: Final = 5

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int8s = np.ndarray[Any, np.dtype[np.int8]]
_Int32s = np.ndarray[Any, np.dtype[np.int32]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _varint(buffer: _Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Zigzag int32 at `at` and the position after it; -1 past the end, -2 for over 5 bytes."""
    result = np.uint64(0)
    shift = np.uint64(0)
    for i in range(5):
        if at + i >= end:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(buffer[at + i])
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            low = np.uint32(result)  # Kafka drops what does not fit, too
            value = np.int32(low >> np.uint32(1)) ^ -np.int32(low & np.uint32(1))
            return np.int64(np.int32(value)), at + i + 1
        shift += np.uint64(7)
    return np.int64(0), np.int64(-2)


@inlined
def _varlong(buffer: _Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Zigzag int64 at `at` and the position after it; -1 past the end, -2 for over 10 bytes."""
    result = np.uint64(0)
    shift = np.uint64(0)
    for i in range(10):
        if at + i >= end:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(buffer[at + i])
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), at + i + 1
        shift += np.uint64(7)
    return np.int64(0), np.int64(-2)


@inlined
def _headers(buffer: _Bytes, at: Int, end: Int, count: Int) -> tuple[Int, Int, Int]:
    """Bytes of keys and of values of `count` headers, and the position after them or -1."""
    key_bytes, value_bytes = np.int64(0), np.int64(0)
    for _ in range(count):
        length, at = _varint(buffer, at, end)
        if at < 0 or length < 0 or length > end - at:
            return key_bytes, value_bytes, np.int64(-1)
        key_bytes += length
        length, at = _varint(buffer, at + length, end)
        if at < 0 or length > end - at:
            return key_bytes, value_bytes, np.int64(-1)
        if length > 0:
            value_bytes += length
            at += length
    return key_bytes, value_bytes, at


@compiled(
    INT64(
        *(BYTES, INT64_MATRIX, INT64, INT64, INT64, INT64, INT64S),
        *(INT32_MATRIX, INT64S, INT64S, INT8S, INT32S),
    )
)
def parse_records(
    buffer: _Bytes,
    batches: _Int64s,
    open_ended: int,
    from_offset: int,
    to_offset: int,
    bytes_max: int,
    state: _Int64s,
    spans: _Int32s,
    offsets: _Int64s,
    timestamps: _Int64s,
    timestamp_types: _Int8s,
    epochs: _Int32s,
) -> int:
    """Check records from `state` on and note the rows of [from_offset, to_offset).

    Returns DONE after the last batch, STOPPED when the arrays are full or the rows hold
    `bytes_max`, NEEDS_BYTES when the last batch is `open_ended` (more of it can be had) and its
    next record is not whole, or a key of FAULTS. `state` says where.
    """
    batch, at, done, last_delta = state[0], state[1], state[2], state[3]
    rows, key_bytes, value_bytes = np.int64(0), np.int64(0), np.int64(0)
    headers, header_key_bytes, header_value_bytes = np.int64(0), np.int64(0), np.int64(0)
    outcome = DONE
    while batch < batches.shape[1]:
        end, count = batches[1, batch], batches[2, batch]
        base_offset, delta_max = batches[3, batch], batches[4, batch]
        base_timestamp, append_timestamp = batches[5, batch], batches[6, batch]
        is_append_time, epoch = batches[7, batch], batches[8, batch]
        last = open_ended != 0 and batch == batches.shape[1] - 1
        if at < 0:
            at, done, last_delta = batches[0, batch], np.int64(0), np.int64(-1)
        while done < count:
            taken = key_bytes + value_bytes + header_key_bytes + header_value_bytes
            if rows == len(offsets) or taken + headers * _HEADER_COST >= bytes_max:
                outcome = STOPPED
                break
            length, body = _varint(buffer, at, end)
            if body < 0:
                if last and body == -1 and end - at < _LENGTH_BYTES_MAX:
                    outcome = NEEDS_BYTES
                else:
                    outcome = _OVERRUN if body == -1 else _LENGTH
                break
            if length < 6:
                outcome = _LENGTH
                break
            if length > end - body:
                outcome = NEEDS_BYTES if last else _LENGTH
                break
            record_end = body + length
            timestamp_delta, p = _varlong(buffer, body + 1, record_end)
            if p < 0:
                outcome = _FIELDS
                break
            delta, p = _varint(buffer, p, record_end)
            if p < 0:
                outcome = _FIELDS
                break
            if delta <= last_delta or delta > delta_max:
                outcome = _OFFSET
                break
            key_length, key_at = _varint(buffer, p, record_end)
            if key_at < 0 or key_length > record_end - key_at:
                outcome = _FIELDS
                break
            value_length, value_at = _varint(buffer, key_at + max(key_length, 0), record_end)
            if value_at < 0 or value_length > record_end - value_at:
                outcome = _FIELDS
                break
            header_count, p = _varint(buffer, value_at + max(value_length, 0), record_end)
            if p < 0 or header_count < 0 or header_count * 2 > record_end - p:
                outcome = _HEADERS
                break
            header_keys, header_values, after = np.int64(0), np.int64(0), p
            if header_count > 0:
                header_keys, header_values, after = _headers(buffer, p, record_end, header_count)
            if after != record_end:
                outcome = _HEADERS
                break
            offset = base_offset + delta
            if from_offset <= offset < to_offset:
                offsets[rows] = offset
                timestamps[rows] = (
                    append_timestamp if is_append_time else base_timestamp + timestamp_delta
                )
                timestamp_types[rows] = is_append_time
                epochs[rows] = epoch
                spans[0, rows] = key_at
                spans[1, rows] = max(key_length, -1)
                spans[2, rows] = value_at
                spans[3, rows] = max(value_length, -1)
                spans[4, rows] = p
                spans[5, rows] = header_count
                rows += 1
                key_bytes += max(key_length, 0)
                value_bytes += max(value_length, 0)
                headers += header_count
                header_key_bytes += header_keys
                header_value_bytes += header_values
            at = record_end
            last_delta = delta
            done += 1
        if outcome != DONE:
            break
        if at != end or last:
            # An open-ended batch is never found to be whole here: its caller looks for its end.
            outcome = NEEDS_BYTES if last else _TRAILING
            break
        batch += 1
        at = np.int64(-1)
    state[0], state[1], state[2], state[3] = batch, at, done, last_delta
    state[4], state[5], state[6] = rows, key_bytes, value_bytes
    state[7], state[8], state[9] = headers, header_key_bytes, header_value_bytes
    return outcome


@compiled(
    VOID(
        *(BYTES, INT32_MATRIX, INT64),
        *(INT32S, UINT8S, UINT8S, INT32S, UINT8S, UINT8S),
        *(INT32S, INT32S, UINT8S, INT32S, UINT8S, UINT8S, INT64S),
    )
)
def gather_records(
    buffer: _Bytes,
    spans: _Int32s,
    rows: int,
    key_offsets: _Int32s,
    key_valid: _Bytes,
    keys: _Bytes,
    value_offsets: _Int32s,
    value_valid: _Bytes,
    values: _Bytes,
    list_offsets: _Int32s,
    header_key_offsets: _Int32s,
    header_keys: _Bytes,
    header_value_offsets: _Int32s,
    header_value_valid: _Bytes,
    header_values: _Bytes,
    nulls: _Int64s,
) -> None:
    """Copy the fields that `parse_records` found into Arrow's buffers.

    The offset arrays have one element more than rows (or headers); the validity bitmaps come in
    with all bits set; `nulls` becomes the number of null keys, values and header values.
    """
    key_end, value_end = np.int64(0), np.int64(0)
    header, header_key_end, header_value_end = np.int64(0), np.int64(0), np.int64(0)
    key_offsets[0], value_offsets[0], list_offsets[0] = 0, 0, 0
    header_key_offsets[0], header_value_offsets[0] = 0, 0
    for row in range(rows):
        length = np.int64(spans[1, row])
        if length > 0:
            copy_bytes(keys, key_end, buffer, np.int64(spans[0, row]), length)
            key_end += length
        elif length < 0:
            key_valid[row >> 3] &= np.uint8(~(1 << (row & 7)) & 0xFF)
            nulls[0] += 1
        key_offsets[row + 1] = key_end
        length = np.int64(spans[3, row])
        if length > 0:
            copy_bytes(values, value_end, buffer, np.int64(spans[2, row]), length)
            value_end += length
        elif length < 0:
            value_valid[row >> 3] &= np.uint8(~(1 << (row & 7)) & 0xFF)
            nulls[1] += 1
        value_offsets[row + 1] = value_end
        at = np.int64(spans[4, row])
        for _ in range(spans[5, row]):
            length, at = _varint(buffer, at, len(buffer))
            copy_bytes(header_keys, header_key_end, buffer, at, length)
            header_key_end += length
            header_key_offsets[header + 1] = header_key_end
            length, at = _varint(buffer, at + length, len(buffer))
            if length > 0:
                copy_bytes(header_values, header_value_end, buffer, at, length)
                header_value_end += length
                at += length
            elif length < 0:
                header_value_valid[header >> 3] &= np.uint8(~(1 << (header & 7)) & 0xFF)
                nulls[2] += 1
            header_value_offsets[header + 1] = header_value_end
            header += 1
        list_offsets[row + 1] = header
