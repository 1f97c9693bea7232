"""A reader of records, one after the other, written from the format alone. Slow on purpose.

It shares nothing with the package.
"""

from __future__ import annotations

from kafka_oracle import Row


class Refused(Exception):
    """The bytes are no such records."""


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        if length < 0 or self.at + length > len(self.data):
            raise Refused("past the end")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, bits: int) -> int:
        result = 0
        for i in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            result |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                result &= (1 << bits) - 1
                return (result >> 1) ^ -(result & 1)
        raise Refused("number too long")

    def field(self) -> bytes | None:
        length = self.number(32)
        return None if length < 0 else self.take(length)


def read_records(
    payload: bytes,
    *,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None = None,
    epoch: int = 0,
) -> list[Row]:
    """Rows of one batch's records; raises Refused."""
    cursor, rows, delta_before = _Cursor(payload), [], -1
    for _ in range(count):
        record = _Cursor(cursor.take(cursor.number(32)))
        record.take(1)
        timestamp = _wrap(base_timestamp + record.number(64))
        delta = record.number(32)
        if not delta_before < delta <= last_offset_delta:
            raise Refused("offsets do not rise")
        delta_before = delta
        key, value = record.field(), record.field()
        headers = _headers(record)
        if record.at != len(record.data):
            raise Refused("bytes left in a record")
        kind = 0 if append_time is None else 1
        stamp = timestamp if append_time is None else append_time
        rows.append((base_offset + delta, stamp, kind, epoch, key, value, headers))
    if cursor.at != len(payload):
        raise Refused("bytes left in a batch")
    return rows


def _headers(record: _Cursor) -> tuple[tuple[bytes, bytes | None], ...]:
    count = record.number(32)
    if count < 0 or count > len(record.data):
        raise Refused("number of headers")
    made = []
    for _ in range(count):
        key = record.field()
        if key is None:
            raise Refused("null header key")
        # Like Kafka's clients: what is not UTF-8 is replaced.
        made.append((key.decode("utf-8", "replace").encode(), record.field()))
    return tuple(made)


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
