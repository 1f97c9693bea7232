"""Hand-made batches sent by the wire protocol: what no client library would write.

A Produce request holds one batch per partition, so batches of one record cost a request each,
unless one request carries many partitions: that is how many of them are made quickly.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from acknowledged import Record
from google_crc32c import value as crc32c

__all__ = ["Sender", "WireProducer", "encode_batch"]

PRODUCE = 0
VERSION = 7
INIT_PRODUCER_ID = 22
ANSWER = struct.Struct(">ihqqq")
"""Of one partition: index, error, base offset, log append time, log start offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """What makes a batch an idempotent producer's; the sequence is that of its first record."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


def encode_batch(records: Sequence[Record], sender: Sender = Sender()) -> bytes:
    """An uncompressed v2 batch; the broker gives the offsets."""
    base = records[0][1]
    body = b"".join(_encode_record(i, r, base) for i, r in enumerate(records))
    tail = struct.pack(
        ">hiqqqhii",
        *(0, len(records) - 1, base, max(r[1] for r in records)),
        *(sender.producer_id, sender.epoch, sender.sequence, len(records)),
    )
    checked = tail + body
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


class WireProducer:
    """One connection to the broker that leads; requests may be in flight together."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._input = self._socket.makefile("rb")
        self._topic = topic.encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._input.close()
        self._socket.close()

    def send(self, batches: Mapping[int, bytes]) -> None:
        """One request with one batch for each partition."""
        topic = struct.pack(">h", len(self._topic)) + self._topic
        parts = [
            struct.pack(">hhih", PRODUCE, VERSION, 0, -1),
            struct.pack(">hhii", -1, -1, 30_000, 1),
            topic,
            struct.pack(">i", len(batches)),
        ]
        for partition, batch in batches.items():
            parts += [struct.pack(">ii", partition, len(batch)), batch]
        request = b"".join(parts)
        self._socket.sendall(struct.pack(">i", len(request)) + request)

    def acknowledged(self) -> dict[int, tuple[int, int]]:
        """(base offset, log append time or -1) by partition, of the oldest open request."""
        offsets = {}
        for partition, (error, base, appended_at) in self.answers().items():
            assert error == 0, f"partition {partition}: error code {error}"
            offsets[partition] = (base, appended_at)
        return offsets

    def answers(self) -> dict[int, tuple[int, int, int]]:
        """(error code, base offset, log append time or -1) by partition, as `acknowledged`."""
        answer = self._answer()
        head = 4 + 4 + 2 + len(self._topic)  # correlation id, topics, the topic's name
        (count,) = struct.unpack_from(">i", answer, head)
        offsets = {}
        for at in range(count):
            partition, error, base, appended_at, _ = ANSWER.unpack_from(
                answer, head + 4 + at * ANSWER.size
            )
            offsets[partition] = (error, base, appended_at)
        return offsets

    def new_sender(self) -> Sender:
        """A producer id that the broker gives."""
        request = struct.pack(">hhihhi", INIT_PRODUCER_ID, 0, 0, -1, -1, 0)
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        _, _, error, producer_id, epoch = struct.unpack(">iihqh", self._answer())
        assert error == 0, f"error code {error}"
        return Sender(producer_id=producer_id, epoch=epoch, sequence=0)

    def _answer(self) -> bytes:
        (length,) = struct.unpack(">i", self._input.read(4))
        return self._input.read(length)


def _encode_record(delta: int, record: Record, base_timestamp: int) -> bytes:
    _, timestamp, key, value, headers = record
    parts = [
        *(b"\x00", _varint(timestamp - base_timestamp), _varint(delta)),
        *(_item(key), _item(value), _varint(len(headers))),
    ]
    for name, content in headers:
        parts += [_item(name.encode()), _item(content)]
    body = b"".join(parts)
    return _varint(len(body)) + body


def _item(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
