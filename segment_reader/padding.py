"""Making a batch larger without changing what consumers are given.

Positions of served batches must not grow faster than the bytes, and a batch whose rows were deleted
may have too few. Both ways stay within the formats; Java's consumer, librdkafka, sarama, franz-go
and kafka-python read them.

Refused, as seen: compressed payloads of no records (librdkafka aborts its process), batches without
records one behind the other (sarama steps one offset forward for each), bytes behind the last
record (an error for all but librdkafka, which reads on).
"""

from __future__ import annotations

from typing import Final

import zstandard

from segment_reader.batches import Codec

__all__ = ["PADDABLE", "gap_record", "padded"]

PADDABLE: Final = (Codec.GZIP, Codec.ZSTD)
"""Codecs whose frames can be made longer."""

_GZIP_HEADER_BYTES: Final = 10
_EMPTY_STORED_BLOCK: Final = b"\0\0\0\xff\xff"
_EMPTY_RAW_BLOCK: Final = b"\0\0\0"
_UNKNOWN_CONTROL_TYPE: Final = b"\0\0\xff\xff"


def padded(codec: Codec, frame: bytes, size: int) -> bytes:
    """`frame` (one of ours) as at least `size` bytes that decompress to the same.

    Empty blocks are put in front of the first one: stored ones (RFC 1951, 3.2.4) or raw ones
    (RFC 8878, 3.1.1.2). Only for the codecs in `PADDABLE`.
    """
    if codec == Codec.GZIP:
        head, block = _GZIP_HEADER_BYTES, _EMPTY_STORED_BLOCK
    else:
        head, block = zstandard.frame_header_size(frame), _EMPTY_RAW_BLOCK
    blocks = max(-(-(size - len(frame)) // len(block)), 0)
    return frame[:head] + block * blocks + frame[head:]


def gap_record(offset_delta: int, size: int) -> bytes:
    """A control record of at least `size` bytes, of the type that Kafka keeps for unknown ones.

    Consumers pass over control records whose type they don't know (KIP-98): in place of a batch
    that has lost all of its records it is a gap.
    """
    body = b"\0\0" + _varint(offset_delta) + _varint(4) + _UNKNOWN_CONTROL_TYPE
    body += _varint(size) + bytes(size) + b"\0"
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Of a number that isn't negative."""
    rest, out = number << 1, bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])
