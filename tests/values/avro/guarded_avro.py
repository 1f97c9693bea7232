"""Decode and encode in memory that ends at pages which must not be touched.

Run by test_avro_hostile.py in a process of its own: an access past an end kills it. Payloads are
read from such memory, and columns and payloads are written to such memory.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import random
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from hostile_payloads import SCHEMA, damaged, whole_payloads

from tiering.values.avro import AvroCodec, buffers, codec

PAGE = mmap.PAGESIZE


def guarded(size: int) -> Any:
    """Memory that is followed by a page without any permission."""
    room = -(-max(size, 1) // PAGE) * PAGE
    area = mmap.mmap(-1, room + PAGE)
    array = np.frombuffer(area, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + room), PAGE, 0) == 0
    return array[room - size : room]


class GuardedNumpy:
    """numpy, but new arrays end at a guard."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: int, dtype: Any) -> Any:
        return guarded(shape * np.dtype(dtype).itemsize).view(dtype)

    @staticmethod
    def full(shape: int, value: int, dtype: Any) -> Any:
        made = GuardedNumpy.empty(shape, dtype)
        made[:] = value
        return made

    @staticmethod
    def zeros(shape: Any, dtype: Any) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return guarded(size).view(dtype).reshape(shape)


def payload_array(payloads: list[bytes]) -> Any:
    data = b"".join(payloads)
    borders = np.cumsum([0, *map(len, payloads)]).astype(np.int32)
    place = guarded(len(data))
    place[:] = np.frombuffer(data, np.uint8)
    offsets = guarded(borders.nbytes).view(np.int32)
    offsets[:] = borders
    pieces = [None, pa.py_buffer(offsets), pa.py_buffer(place)]
    return pa.Array.from_buffers(pa.binary(), len(payloads), pieces, 0)


def main() -> None:
    if "--overrun" in sys.argv:  # shows that the guard works
        ctypes.string_at(guarded(10).ctypes.data + 9, 2)
    buffers.np = codec.np = GuardedNumpy()  # type: ignore[attr-defined]
    rng, avro = random.Random(5), AvroCodec(json.dumps(SCHEMA))
    whole = whole_payloads(rng, 40)
    for payload in whole[:6]:
        for length in range(len(payload) + 1):
            decoded = avro.decode(payload_array([payload[:length]]))
            assert (decoded.faults[0] == 0) == (length == len(payload))
    for _ in range(300):
        payloads = [damaged(rng, rng.choice(whole)) for _ in range(rng.randrange(1, 6))]
        decoded = avro.decode(payload_array(payloads))
        decoded.columns.validate(full=True)
        avro.encode(decoded.columns)
    assert avro.encode(avro.decode(payload_array(whole)).columns).to_pylist() == whole
    sys.stdout.write("ok")


main()
