"""The bytes of an Arrow array of strings or byte strings, as compiled loops take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.kernels.compiler import (
    BYTES,
    READ_INT64S,
    UINT8S,
    VOID,
    Int,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import address_of, byte_at
from segment_reader.kernels.words import load_64

__all__ = ["PayloadBytes", "is_text", "payload_bytes", "texts_valid"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadBytes:
    """Payload `i` is `data[starts[i]:ends[i]]`."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        """Of all payloads."""
        return int(self.ends[-1] - self.starts[0]) if len(self.starts) else 0


def payload_bytes(array: pa.Array) -> PayloadBytes:
    """Of a binary or string array (32 bit offsets). Elements that are null have any bytes."""
    count = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    data = np.zeros(0, dtype=np.uint8)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, dtype=np.uint8)
    data.flags.writeable = False
    if count == 0:
        return PayloadBytes(
            data=data, starts=np.zeros(0, dtype=np.int64), ends=np.zeros(0, dtype=np.int64)
        )
    offsets = np.frombuffer(
        offsets_buffer, dtype=np.int32, count=count + 1, offset=array.offset * 4
    )
    wide = offsets.astype(np.int64)
    return PayloadBytes(data=data, starts=wide[:-1].copy(), ends=wide[1:].copy())


@inlined
def is_text(origin: Int, at: Int, end: Int) -> bool:
    """Whether the bytes from `at` to `end` behind an address are UTF-8 (RFC 3629)."""
    while at < end:
        while at + 8 <= end and load_64(origin, at) & np.uint64(0x8080808080808080) == np.uint64(0):
            at += np.int64(8)
        if at >= end:
            return True
        first = byte_at(origin, at)
        at += np.int64(1)
        if first < np.uint64(0x80):
            continue
        low, high = np.uint64(0x80), np.uint64(0xBF)
        more = np.int64(1)
        if first < np.uint64(0xC2) or first > np.uint64(0xF4):
            return False
        if first >= np.uint64(0xF0):
            more = np.int64(3)
            if first == np.uint64(0xF0):
                low = np.uint64(0x90)
            elif first == np.uint64(0xF4):
                high = np.uint64(0x8F)
        elif first >= np.uint64(0xE0):
            more = np.int64(2)
            if first == np.uint64(0xE0):
                low = np.uint64(0xA0)
            elif first == np.uint64(0xED):
                high = np.uint64(0x9F)
        if at + more > end:
            return False
        second = byte_at(origin, at)
        if second < low or second > high:
            return False
        for i in range(1, more):
            if byte_at(origin, at + i) & np.uint64(0xC0) != np.uint64(0x80):
                return False
        at += more
    return True


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, UINT8S))
def texts_valid(data: _Bytes, starts: _Int64s, ends: _Int64s, valid: _Bytes) -> None:
    """Set `valid` to 1 where a span is UTF-8, else to 0. Empty and negative spans are."""
    origin = address_of(data)
    for i in range(len(starts)):
        valid[i] = np.uint8(1) if is_text(origin, starts[i], ends[i]) else np.uint8(0)
