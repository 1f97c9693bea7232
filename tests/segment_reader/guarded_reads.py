"""Decode and serve from memory that ends at a page which must not be touched.

Run by test_segment_kernels.py in a process of its own: a read past the end kills it.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys

import google_crc32c
import numpy as np
from batch_maker import MadeBatch, MadeRecord, plain
from served_batches import made_headers

from segment_reader import (
    DEFAULT_LIMITS,
    BytesSource,
    Codec,
    RecordEncoder,
    SegmentBounds,
    SegmentReader,
    SegmentReaderError,
    whole_batches,
)
from segment_reader.batches import HeaderScanner
from segment_reader.limits import ServingLimits
from segment_reader.record_decoder import OffsetRange, RecordDecoder
from segment_reader.serving import assemble

PAGES = 4
SIZE = PAGES * mmap.PAGESIZE
ALWAYS_PACKED = ServingLimits(growth_unpacked_max=0, growth_small_max=0)


def guarded() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Memory that is followed by a page without any permission."""
    area = mmap.mmap(-1, SIZE + mmap.PAGESIZE)
    array = np.frombuffer(area, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    guard = ctypes.c_void_p(array.ctypes.data + SIZE)
    assert libc.mprotect(guard, mmap.PAGESIZE, 0) == 0
    return array


def decode(memory: np.ndarray[tuple[int], np.dtype[np.uint8]], data: bytes) -> None:
    place = memory[SIZE - len(data) : SIZE]
    place[:] = np.frombuffer(data, np.uint8)
    view = place.view()
    view.flags.writeable = False
    bounds = SegmentBounds(start_offset=0, end_offset=2**62)
    try:
        whole_batches(memoryview(view), 0, name="x")
        headers, _ = HeaderScanner("x", bounds, DEFAULT_LIMITS).scan(view, 0)
        rows = OffsetRange(start=0, stop=2**62)
        for batch in RecordDecoder("x", rows, DEFAULT_LIMITS).decode(view, 0, headers):
            batch.validate(full=True)
    except SegmentReaderError:
        pass


def serve(memory: np.ndarray[tuple[int], np.dtype[np.uint8]], data: bytes, codec: int) -> None:
    place = memory[SIZE - len(data) : SIZE]
    place[:] = np.frombuffer(data, np.uint8)
    half = len(data) // 2
    headers = made_headers(codec, [61, 61])
    borders = np.array([0, half, len(data)])
    for limits in (ALWAYS_PACKED, ServingLimits(growth_unpacked_max=1e9, growth_small_max=1e9)):
        assemble(headers, headers.count, place, borders, limits)


def compare(memory: np.ndarray[tuple[int], np.dtype[np.uint8]], left: int) -> None:
    """Rows against only the first bytes of what they become."""
    made = plain(0, 40)
    bounds = SegmentBounds(start_offset=0, end_offset=2**62)
    reader = SegmentReader(BytesSource("x", made.encode()), bounds)
    (headers,), (rows,) = reader.headers(), reader.record_batches()
    data = made.payload[:left]
    memory[SIZE - left : SIZE] = np.frombuffer(data, np.uint8)
    place = (np.array([SIZE - left]), np.array([SIZE]))
    crcs, deltas = np.zeros(1, np.int64), np.zeros(40, np.int64)
    equal = RecordEncoder().match(headers, rows, np.array([0, 40]), deltas, memory, place, crcs)
    assert equal.tolist() == [left == len(made.payload)]
    assert crcs.tolist() == [google_crc32c.value(data)]


def main() -> None:
    memory, rng = guarded(), random.Random(11)
    whole = plain(0, 5).encode() + plain(5, 1).encode()
    for length in range(len(whole) + 1):
        decode(memory, whole[:length])
    records = [MadeRecord(i, 1, b"k", b"v" * i, ((b"h", b"x"), (b"", None))) for i in range(9)]
    payload = b"".join(record.encode() for record in records)
    for _ in range(3000):
        changed = bytearray(payload[: rng.randrange(1, len(payload) + 1)])
        for _ in range(rng.randrange(4)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7E, 0x7F, 0x80, 0xFE, 0xFF])
        count = rng.randrange(1, 10)
        decode(memory, MadeBatch(0, bytes(changed), count, 9).encode())
    for size in [*range(200), SIZE]:
        for codec in Codec:
            serve(memory, rng.randbytes(size), codec)
            serve(memory, (rng.randbytes(rng.randrange(1, 30)) * size)[:size], codec)
    for left in (0, 1, 7, 500, len(plain(0, 40).payload) - 1, len(plain(0, 40).payload)):
        compare(memory, left)
    if "--overrun" in sys.argv:  # shows that the guard works
        ctypes.string_at(memory.ctypes.data + SIZE - 1, 2)
    sys.stdout.write("ok")


main()
