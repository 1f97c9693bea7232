"""Records of magic 2 (KIP-98, KIP-82 for headers): checks them and finds their fields.

Arrow wants each column in one piece, so fields are copied in a second step (`gather`), when it is
known how large each column becomes. Parsing can stop between any two records and go on later.
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
    Int,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import address_of
from segment_reader.kernels.varints import varint, varlong

__all__ = [
    "BATCH_ROWS",
    "DONE",
    "FAULTS",
    "NEEDS_BYTES",
    "SPAN_ROWS",
    "STATE_SIZE",
    "STOPPED",
    "parse_records",
]

BATCH_ROWS: Final = 9
"""Rows of `batches`: start, end, count, base offset, last offset delta, base timestamp,
append timestamp, is append time, leader epoch. Start and end lie in the buffer."""

SPAN_ROWS: Final = 6
"""Rows of `spans`: key at, key length, value at, value length, headers at, number of headers.
A length of -1 is a null."""

STATE_SIZE: Final = 11
"""`state`: batch, position (-1: the batch's start), records done in the batch, last offset delta,
then the totals of this call: rows, key bytes, value bytes, headers, bytes of their keys, of their
values, and what all of it takes in memory, roughly."""

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

_TOTALS: Final = 4
_HEADER_COST: Final = 16
_HEADER_BYTES_MIN: Final = 2
_BODY_BYTES_MIN: Final = 6
_LENGTH_BYTES_MAX: Final = 5

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int8s = np.ndarray[Any, np.dtype[np.int8]]
_Int32s = np.ndarray[Any, np.dtype[np.int32]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _body(origin: Int, at: Int, end: Int, open_ended: Int) -> tuple[Int, Int, Int]:
    """Outcome for the record at `at`, and where it begins and ends behind its length."""
    length, start = varint(origin, at, end)
    if start < 0:
        if start == -2:
            return np.int64(_LENGTH), at, at
        cut = open_ended and end - at < _LENGTH_BYTES_MAX
        return np.int64(NEEDS_BYTES if cut else _OVERRUN), at, at
    if length < _BODY_BYTES_MIN:
        return np.int64(_LENGTH), at, at
    if length > end - start:
        return np.int64(NEEDS_BYTES if open_ended else _LENGTH), at, at
    return np.int64(DONE), start, start + length


@inlined
def _fields(origin: Int, at: Int, end: Int) -> tuple[Int, Int, Int, Int, Int, Int, Int, Int]:
    """Outcome, timestamp and offset delta, key (at, length), value (at, length), and what follows.

    `at` is behind the attributes, which mean nothing yet.
    """
    zero = np.int64(0)
    timestamp, at = varlong(origin, at, end)
    if at < 0:
        return np.int64(_FIELDS), zero, zero, zero, zero, zero, zero, zero
    delta, at = varint(origin, at, end)
    if at < 0:
        return np.int64(_FIELDS), zero, zero, zero, zero, zero, zero, zero
    key_length, key_at = varint(origin, at, end)
    if key_at < 0 or key_length > end - key_at:
        return np.int64(_FIELDS), zero, zero, zero, zero, zero, zero, zero
    value_length, value_at = varint(origin, key_at + max(key_length, zero), end)
    if value_at < 0 or value_length > end - value_at:
        return np.int64(_FIELDS), zero, zero, zero, zero, zero, zero, zero
    after = value_at + max(value_length, zero)
    return np.int64(DONE), timestamp, delta, key_at, key_length, value_at, value_length, after


@inlined
def _headers(origin: Int, at: Int, end: Int) -> tuple[Int, Int, Int, Int, Int]:
    """Outcome, number of headers, where the first is, bytes of their keys and of their values.

    Nothing may lie between the last header and `end`.
    """
    key_bytes, value_bytes, bad = np.int64(0), np.int64(0), np.int64(_HEADERS)
    count, first = varint(origin, at, end)
    if first < 0 or count < 0 or count * _HEADER_BYTES_MIN > end - first:
        return bad, count, first, key_bytes, value_bytes
    at = first
    for _ in range(count):
        length, at = varint(origin, at, end)
        if at < 0 or length < 0 or length > end - at:
            return bad, count, first, key_bytes, value_bytes
        key_bytes += length
        length, at = varint(origin, at + length, end)
        if at < 0 or length > end - at:
            return bad, count, first, key_bytes, value_bytes
        if length > 0:
            value_bytes += length
            at += length
    return np.int64(DONE if at == end else _HEADERS), count, first, key_bytes, value_bytes


@inlined
def _parse_batch(
    origin: Int,
    facts: _Int64s,
    open_ended: Int,
    from_offset: Int,
    to_offset: Int,
    bytes_max: Int,
    state: _Int64s,
    spans: _Int32s,
    offsets: _Int64s,
    timestamps: _Int64s,
    timestamp_deltas: _Int64s,
    timestamp_types: _Int8s,
    epochs: _Int32s,
) -> Int:
    """The records of one batch from state[1] on; see `parse_records`."""
    end, count, base_offset, delta_max = facts[1], facts[2], facts[3], facts[4]
    base_timestamp, append_timestamp, is_append_time, epoch = facts[5], facts[6], facts[7], facts[8]
    at, done, last_delta, rows, held = state[1], state[2], state[3], state[4], state[10]
    key_bytes, value_bytes, header_count = state[5], state[6], state[7]
    header_key_bytes, header_value_bytes = state[8], state[9]
    outcome = np.int64(DONE)
    while done < count:
        if rows == len(offsets) or held >= bytes_max:
            outcome = np.int64(STOPPED)
            break
        outcome, body, record_end = _body(origin, at, end, open_ended)
        if outcome != DONE:
            break
        outcome, timestamp_delta, delta, key_at, key_length, value_at, value_length, after = (
            _fields(origin, body + 1, record_end)
        )
        if outcome != DONE:
            break
        if delta <= last_delta or delta > delta_max:
            outcome = np.int64(_OFFSET)
            break
        outcome, headers, header_at, header_keys, header_values = _headers(
            origin, after, record_end
        )
        if outcome != DONE:
            break
        if from_offset <= base_offset + delta < to_offset:
            offsets[rows] = base_offset + delta
            timestamps[rows] = base_timestamp + timestamp_delta
            timestamp_deltas[rows] = timestamp_delta
            if is_append_time:
                timestamps[rows] = append_timestamp
            timestamp_types[rows] = is_append_time
            epochs[rows] = epoch
            spans[0, rows], spans[1, rows] = key_at, max(key_length, -1)
            spans[2, rows], spans[3, rows] = value_at, max(value_length, -1)
            spans[4, rows], spans[5, rows] = header_at, headers
            rows += 1
            key_bytes += max(key_length, 0)
            value_bytes += max(value_length, 0)
            header_count += headers
            header_key_bytes += header_keys
            header_value_bytes += header_values
            held += record_end - body + headers * _HEADER_COST
        at, last_delta, done = record_end, delta, done + 1
    state[1], state[2], state[3], state[4], state[10] = at, done, last_delta, rows, held
    state[5], state[6], state[7] = key_bytes, value_bytes, header_count
    state[8], state[9] = header_key_bytes, header_value_bytes
    return outcome


@compiled(
    INT64(
        *(BYTES, INT64_MATRIX, INT64, INT64, INT64, INT64, INT64S),
        *(INT32_MATRIX, INT64S, INT64S, INT64S, INT8S, INT32S),
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
    timestamp_deltas: _Int64s,
    timestamp_types: _Int8s,
    epochs: _Int32s,
) -> int:
    """Check records from `state` on and note the rows of [from_offset, to_offset).

    Returns DONE after the last batch, STOPPED when the arrays are full or the rows hold
    `bytes_max`, NEEDS_BYTES when the last batch is `open_ended` (more of it can be had) and its
    next record is not whole, or a key of FAULTS. `state` says where.
    """
    outcome: Int = np.int64(DONE)
    state[_TOTALS:] = 0
    while outcome == DONE and state[0] < batches.shape[1]:
        batch = state[0]
        if state[1] < 0:
            state[1], state[2], state[3] = batches[0, batch], 0, -1
        last = np.int64(open_ended != 0 and batch == batches.shape[1] - 1)
        outcome = _parse_batch(
            *(
                address_of(buffer),
                batches[:, batch],
                last,
                from_offset,
                to_offset,
                bytes_max,
                state,
            ),
            *(spans, offsets, timestamps, timestamp_deltas, timestamp_types, epochs),
        )
        if outcome == DONE and last:
            # Its caller looks for the end of an open-ended batch.
            outcome = np.int64(NEEDS_BYTES)
        elif outcome == DONE and state[1] != batches[1, batch]:
            outcome = np.int64(_TRAILING)
        elif outcome == DONE:
            state[0] += 1
            state[1] = -1
    return int(outcome)
