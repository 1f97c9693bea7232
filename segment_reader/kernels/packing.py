"""LZ4 and snappy for many payloads in one call.

A call into a library costs more than compressing a one-record batch does, and each one gives the
interpreter's lock away and waits to get it back. Both formats are byte-wise LZ77, so one search
(that of LZ4's fast mode: the last place where four bytes had the same hash) serves both.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

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
from segment_reader.kernels.matches import (
    MATCH_MIN,
    clear_table,
    find_match,
    match_end,
    match_start,
    remember,
)
from segment_reader.kernels.memory import address_of, byte_at, copy, store_byte
from segment_reader.kernels.stored_frames import LZ4_BLOCK, SNAPPY_BLOCK
from segment_reader.kernels.words import copy_16, store_16, store_32, store_64

__all__ = ["FRAME_SLACK", "pack_lz4", "pack_snappy"]

FRAME_SLACK: Final = 16 * 1024
"""How far behind the final end of the last frame a kernel may write."""

_LZ4_MATCH_START_MARGIN: Final = 12
_LZ4_MATCH_END_MARGIN: Final = 5
_SNAPPY_MARGIN: Final = 15

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@inlined
def _copy_literals(target: Int, put: Int, source: Int, at: Int, length: Int, end: Int) -> Int:
    """Copy, in steps of 16 bytes where the source has them; where the copy ends."""
    if at + length + 16 <= end:
        done = np.int64(0)
        while done < length:
            copy_16(target, put + done, source, at + done)
            done += 16
    else:
        copy(target, put, source, at, length)
    return put + length


@inlined
def _put_length(target: Int, put: Int, rest: Int) -> Int:
    """LZ4's lengths from 15 on."""
    while rest >= 255:
        store_byte(target, put, np.uint64(255))
        put += 1
        rest -= 255
    store_byte(target, put, np.uint64(rest))
    return put + 1


@inlined
def _lz4_literals(target: Int, put: Int, source: Int, at: Int, length: Int, end: Int) -> Int:
    """A token without its match, and literals."""
    store_byte(target, put, np.uint64(min(length, np.int64(15)) << 4))
    put += 1
    if length >= 15:
        put = _put_length(target, put, length - 15)
    return _copy_literals(target, put, source, at, length, end)


@inlined
def _lz4_block(
    target: Int, put: Int, source: Int, start: Int, end: Int, table: Int, acceleration: Int
) -> Int:
    """One block of LZ4's block format; where it ends."""
    anchor = start
    at = start + 1
    shift = clear_table(table, end - start)
    limit = end - _LZ4_MATCH_START_MARGIN
    while True:
        at, candidate = find_match(source, at, limit, start, table, shift, acceleration)
        if at < 0:
            break
        at, candidate = match_start(source, at, candidate, anchor, start)
        token = put
        put = _lz4_literals(target, put, source, anchor, at - anchor, end)
        store_16(target, put, np.uint64(at - candidate))
        put += 2
        first = at + MATCH_MIN
        anchor = match_end(source, first, candidate + MATCH_MIN, end - _LZ4_MATCH_END_MARGIN)
        length = anchor - first
        store_byte(target, token, byte_at(target, token) | np.uint64(min(length, np.int64(15))))
        if length >= 15:
            put = _put_length(target, put, length - 15)
        at = anchor
        if at <= limit:
            remember(source, at - 2, start, table, shift)
    return _lz4_literals(target, put, source, anchor, end - anchor, end)


@inlined
def _snappy_literals(target: Int, put: Int, source: Int, at: Int, length: Int, end: Int) -> Int:
    if length == 0:
        return put
    if length <= 60:
        store_byte(target, put, np.uint64((length - 1) << 2))
        put += 1
    elif length <= 256:
        store_byte(target, put, np.uint64(60 << 2))
        store_byte(target, put + 1, np.uint64(length - 1))
        put += 2
    else:
        store_byte(target, put, np.uint64(61 << 2))
        store_16(target, put + 1, np.uint64(length - 1))
        put += 3
    return _copy_literals(target, put, source, at, length, end)


@inlined
def _snappy_copy(target: Int, put: Int, offset: Int, length: Int) -> Int:
    """One match, as elements of at most 64 bytes each and at least 4."""
    while length > 64:
        part = np.int64(64) if length >= 68 else np.int64(60)
        store_byte(target, put, np.uint64((part - 1) << 2 | 2))
        store_16(target, put + 1, np.uint64(offset))
        put += 3
        length -= part
    if length < 12 and offset < 2048:
        store_byte(target, put, np.uint64((offset >> 8) << 5 | (length - 4) << 2 | 1))
        store_byte(target, put + 1, np.uint64(offset & 0xFF))
        return put + 2
    store_byte(target, put, np.uint64((length - 1) << 2 | 2))
    store_16(target, put + 1, np.uint64(offset))
    return put + 3


@inlined
def _snappy_block(
    target: Int, put: Int, source: Int, start: Int, end: Int, table: Int, acceleration: Int
) -> Int:
    """The elements of a raw snappy block, without its length; where they end."""
    anchor = start
    at = start + 1
    shift = clear_table(table, end - start)
    limit = end - _SNAPPY_MARGIN
    while True:
        at, candidate = find_match(source, at, limit, start, table, shift, acceleration)
        if at < 0:
            break
        at, candidate = match_start(source, at, candidate, anchor, start)
        put = _snappy_literals(target, put, source, anchor, at - anchor, end)
        anchor = match_end(source, at + MATCH_MIN, candidate + MATCH_MIN, end)
        put = _snappy_copy(target, put, at - candidate, anchor - at)
        at = anchor
        if at <= limit:
            remember(source, at - 2, start, table, shift)
    return _snappy_literals(target, put, source, anchor, end - anchor, end)


@inlined
def _put_varint(target: Int, put: Int, value: Int) -> Int:
    while value >= 0x80:
        store_byte(target, put, np.uint64(value & 0x7F | 0x80))
        value >>= 7
        put += 1
    store_byte(target, put, np.uint64(value))
    return put + 1


@inlined
def _put_size_big_endian(target: Int, put: Int, size: Int) -> None:
    for i in range(4):
        store_byte(target, put + i, np.uint64((size >> (24 - 8 * i)) & 0xFF))


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64, UINT8S, UINT8S, INT64S))
def pack_lz4(
    records: _Bytes,
    starts: _Int64s,
    sizes: _Int64s,
    acceleration: int,
    table: _Bytes,
    target: _Bytes,
    borders: _Int64s,
) -> None:
    """Write one LZ4 frame of independent blocks per payload; number i ends at borders[i + 1].

    `target` has room for the payloads' stored frames and FRAME_SLACK more, `table` has
    TABLE_BYTES.
    """
    source, into, places = address_of(records), address_of(target), address_of(table)
    put = np.int64(0)
    borders[0] = put
    for i in range(len(starts)):
        at, end = starts[i], starts[i] + sizes[i]
        store_64(into, put, np.uint64(0x82406018_4D2204))
        put += 7
        while at < end:
            block_end = min(at + LZ4_BLOCK, end)
            stop = _lz4_block(into, put + 4, source, at, block_end, places, acceleration)
            size = stop - put - 4
            if size >= block_end - at:
                size = block_end - at
                copy(into, put + 4, source, at, size)
                store_32(into, put, np.uint64(size | 0x80000000))
            else:
                store_32(into, put, np.uint64(size))
            put += 4 + size
            at = block_end
        store_32(into, put, np.uint64(0))
        put += 4
        borders[i + 1] = put


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64, UINT8S, UINT8S, INT64S))
def pack_snappy(
    records: _Bytes,
    starts: _Int64s,
    sizes: _Int64s,
    acceleration: int,
    table: _Bytes,
    target: _Bytes,
    borders: _Int64s,
) -> None:
    """Write xerial's header and blocks per payload; all else as `pack_lz4`."""
    source, into, places = address_of(records), address_of(target), address_of(table)
    put = np.int64(0)
    borders[0] = put
    for i in range(len(starts)):
        at, end = starts[i], starts[i] + sizes[i]
        store_64(into, put, np.uint64(0x0059505041_4E5382))
        store_32(into, put + 8, np.uint64(0x01000000))
        store_32(into, put + 12, np.uint64(0x01000000))
        put += 16
        while at < end:
            block_end = min(at + SNAPPY_BLOCK, end)
            elements = _put_varint(into, put + 4, block_end - at)
            stop = _snappy_block(into, elements, source, at, block_end, places, acceleration)
            if stop - elements > block_end - at:
                stop = _snappy_literals(into, elements, source, at, block_end - at, end)
            _put_size_big_endian(into, put, stop - put - 4)
            put = stop
            at = block_end
        borders[i + 1] = put
