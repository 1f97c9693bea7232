"""gzip for many payloads in one call: deflate (RFC 1951) of the fast kind.

One search for repetitions as in LZ4, then a Huffman code per block of 64 KiB. Between zlib's level
1 and LZ4 in size, near LZ4 in speed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import types

from segment_reader.kernels.compiler import (
    BYTES,
    INT64,
    INT64_MATRIX,
    INT64S,
    READ_INT64S,
    UINT8S,
    VOID,
    Int,
    called,
    compiled,
    inlined,
)
from segment_reader.kernels.huffman import COUNT, EMIT, LENGTH, LENGTH_BITS, make_codes
from segment_reader.kernels.matches import (
    MATCH_MIN,
    clear_table,
    find_match,
    match_end,
    match_start,
    remember,
)
from segment_reader.kernels.memory import address_of, byte_at, copy, significant_bits
from segment_reader.kernels.stored_frames import GZIP_BLOCK, crc32
from segment_reader.kernels.words import store_16, store_32, store_64

__all__ = ["SEQUENCES", "SYMBOLS", "Work", "pack_gzip"]

SEQUENCES: Final = GZIP_BLOCK // MATCH_MIN + 2
"""How many repetitions, each with the literals before it, one block can have."""

_END: Final = 256
_LENGTH_SYMBOLS: Final = 257
_DISTANCES: Final = 286
SYMBOLS: Final = 316
"""Literals, the end of the block and lengths (286), then distances (30)."""

_CODE_BITS_MAX: Final = 15
_DISTANCE_MAX: Final = 32 * 1024
_MATCH_MAX: Final = 258
_MATCH_START_MARGIN: Final = 8
_HEADER_BITS: Final = 17 + 19 * 3
_LENGTH_CODE_BITS_MAX: Final = 5 + 7

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


def _length_codes() -> _Int64s:
    """Per match length - 3: symbol, how many extra bits, what they say (RFC 1951, 3.2.5)."""
    rows = np.zeros((3, 256), np.int64)
    length, symbol = 0, _LENGTH_SYMBOLS
    while length < 255:
        extra = max((symbol - _LENGTH_SYMBOLS) // 4 - 1, 0)
        for value in range(1 << extra):
            if length < 255:
                rows[:, length] = symbol, extra, value
            length += 1
        symbol += 1
    rows[:, 255] = 285, 0, 0
    return rows


_LENGTH_CODES: Final = _length_codes()

# The code for code lengths is always the same: 4 bits for no code and 3 to 15, 5 bits for 1, 2
# and runs of zeros (17, 18); repetitions of others (16) are not used.
_LENGTH_LENGTHS: Final = (4, 5, 5, *[4] * 13, 0, 5, 5)
_LENGTH_ORDER: Final = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)


def _length_emits() -> _Int64s:
    """The codes of that code, in `huffman.EMIT`'s form."""
    emits = np.zeros(19, np.int64)
    code = 0
    for length in (4, 5):
        code <<= 1
        for symbol, own in enumerate(_LENGTH_LENGTHS):
            if own == length:
                reverse = int(f"{code:0{length}b}"[::-1], 2)
                emits[symbol] = reverse << LENGTH_BITS | length
                code += 1
    return emits


_LENGTH_EMITS: Final = _length_emits()
_ORDERED_LENGTHS: Final = np.array([_LENGTH_LENGTHS[symbol] for symbol in _LENGTH_ORDER])


@inlined
def _flush(into: Int, put: Int, bits: Int, count: Int) -> tuple[Int, Int, Int]:
    """Write the whole bytes of a bit buffer of less than 64 bits; fewer than 8 bits stay."""
    store_64(into, put, bits)
    return put + (count >> 3), bits >> np.uint64(count & ~7), count & 7


@inlined
def _add(bits: Int, count: Int, value: Int, size: Int) -> tuple[Int, Int]:
    return bits | (np.uint64(value) << np.uint64(count)), count + size


@inlined
def _add_symbol(bits: Int, count: Int, emit: Int) -> tuple[Int, Int]:
    return _add(bits, count, emit >> LENGTH_BITS, emit & ((1 << LENGTH_BITS) - 1))


@inlined
def _distance_code(distance: Int) -> tuple[Int, Int]:
    """Symbol (from 0) and number of extra bits."""
    below = distance - 1
    if below < 4:
        return below, np.int64(0)
    extra = significant_bits(np.uint64(below)) - 2
    return 2 * extra + (below >> extra), extra


@called
def _find_sequences(
    source: Int,
    start: Int,
    end: Int,
    table: Int,
    acceleration: Int,
    sequences: _Int64s,
    work: _Int64s,
) -> Int:
    """Cut [start, end) into literals and matches and count their symbols; how many matches.

    A sequence is literals << 32 | match length << 16 | distance - 1.
    """
    anchor, at, found = start, start + 1, np.int64(0)
    shift = clear_table(table, end - start)
    limit = end - _MATCH_START_MARGIN
    while True:
        at, candidate = find_match(source, at, limit, start, table, shift, acceleration)
        if at < 0:
            break
        if at - candidate > _DISTANCE_MAX:
            at += 1
            continue
        at, candidate = match_start(source, at, candidate, anchor, start)
        stop = match_end(source, at + MATCH_MIN, candidate + MATCH_MIN, end)
        distance = at - candidate
        symbol, _ = _distance_code(distance)
        literals = at - anchor
        for i in range(anchor, at):
            work[COUNT, np.int64(byte_at(source, np.int64(i)))] += 1
        while stop - at >= MATCH_MIN:
            # What is left over is long enough for a match, or nothing, or literals.
            length = min(stop - at, np.int64(_MATCH_MAX))
            sequences[found] = literals << 32 | length << 16 | (distance - 1)
            work[COUNT, _LENGTH_CODES[0, length - 3]] += 1
            work[COUNT, _DISTANCES + symbol] += 1
            found += 1
            literals = np.int64(0)
            at += length
        anchor = at
        if at <= limit:
            remember(source, at - 2, start, table, shift)
    for i in range(anchor, end):
        work[COUNT, np.int64(byte_at(source, np.int64(i)))] += 1
    return found


@called
def _block_bits(work: _Int64s) -> Int:
    """How many bits the block takes, at most."""
    bits = np.int64(_HEADER_BITS + SYMBOLS * 5)
    for symbol in range(SYMBOLS):
        bits += work[COUNT, symbol] * work[LENGTH, symbol]
    for length in range(255):
        # Symbols of lengths have a run of equal columns: count the extra bits at the first one.
        if _LENGTH_CODES[2, length] == 0:
            bits += work[COUNT, _LENGTH_CODES[0, length]] * _LENGTH_CODES[1, length]
    for symbol in range(4, SYMBOLS - _DISTANCES):
        bits += work[COUNT, _DISTANCES + symbol] * ((symbol >> 1) - 1)
    return bits


@called
def _put_code_lengths(
    into: Int, put: Int, bits: Int, count: Int, work: _Int64s, first: Int, stop: Int
) -> tuple[Int, Int, Int]:
    symbol = np.int64(first)
    while symbol < stop:
        length = work[LENGTH, symbol]
        run = np.int64(0)
        while length == 0 and symbol + run < stop and work[LENGTH, symbol + run] == 0 and run < 138:
            run += 1
        if run >= 11:
            bits, count = _add_symbol(bits, count, _LENGTH_EMITS[18])
            bits, count = _add(bits, count, run - 11, np.int64(7))
        elif run >= 3:
            bits, count = _add_symbol(bits, count, _LENGTH_EMITS[17])
            bits, count = _add(bits, count, run - 3, np.int64(3))
        else:
            bits, count = _add_symbol(bits, count, _LENGTH_EMITS[length])
            run = np.int64(1)
        put, bits, count = _flush(into, put, bits, count)
        symbol += run
    return put, bits, count


@inlined
def _put_tables(into: Int, put: Int, bits: Int, count: Int, work: _Int64s) -> tuple[Int, Int, Int]:
    """What a dynamic block has behind its type: the codes (RFC 1951, 3.2.7)."""
    literals, distances = np.int64(_DISTANCES), np.int64(SYMBOLS)
    while work[LENGTH, literals - 1] == 0:
        literals -= 1
    while distances > _DISTANCES + 1 and work[LENGTH, distances - 1] == 0:
        distances -= 1
    bits, count = _add(bits, count, literals - 257, np.int64(5))
    bits, count = _add(bits, count, distances - _DISTANCES - 1, np.int64(5))
    bits, count = _add(bits, count, np.int64(15), np.int64(4))
    put, bits, count = _flush(into, put, bits, count)
    for i in range(19):
        bits, count = _add(bits, count, _ORDERED_LENGTHS[i], np.int64(3))
        put, bits, count = _flush(into, put, bits, count)
    put, bits, count = _put_code_lengths(into, put, bits, count, work, np.int64(0), literals)
    return _put_code_lengths(into, put, bits, count, work, np.int64(_DISTANCES), distances)


@inlined
def _put_literals(
    into: Int, put: Int, bits: Int, count: Int, source: Int, at: Int, stop: Int, work: _Int64s
) -> tuple[Int, Int, Int]:
    while at + 3 <= stop:
        for i in range(3):
            emit = work[EMIT, np.int64(byte_at(source, at + i))]
            bits, count = _add_symbol(bits, count, emit)
        put, bits, count = _flush(into, put, bits, count)
        at += 3
    while at < stop:
        bits, count = _add_symbol(bits, count, work[EMIT, np.int64(byte_at(source, at))])
        at += 1
    return _flush(into, put, bits, count)


@inlined
def _put_match(
    into: Int, put: Int, bits: Int, count: Int, sequence: Int, work: _Int64s
) -> tuple[Int, Int, Int]:
    length, below = sequence >> 16 & 0xFFFF, sequence & 0xFFFF
    bits, count = _add_symbol(bits, count, work[EMIT, _LENGTH_CODES[0, length - 3]])
    bits, count = _add(bits, count, _LENGTH_CODES[2, length - 3], _LENGTH_CODES[1, length - 3])
    symbol, extra = _distance_code(below + 1)
    bits, count = _add_symbol(bits, count, work[EMIT, _DISTANCES + symbol])
    bits, count = _add(bits, count, below & ((np.int64(1) << extra) - 1), extra)
    return _flush(into, put, bits, count)


@inlined
def _put_stored(
    into: Int, put: Int, bits: Int, count: Int, source: Int, start: Int, size: Int
) -> tuple[Int, Int, Int]:
    """The rest of a stored block, behind its type."""
    put, bits, count = _flush(into, put, bits, (count + 7) & ~7)
    store_16(into, put, np.uint64(size))
    store_16(into, put + 2, np.uint64(size ^ 0xFFFF))
    copy(into, put + 4, source, start, size)
    return put + 4 + size, bits, count


@called
def _put_block(
    into: Int,
    put: Int,
    bits: Int,
    count: Int,
    source: Int,
    start: Int,
    end: Int,
    last: Int,
    table: Int,
    acceleration: Int,
    sequences: _Int64s,
    work: _Int64s,
) -> tuple[Int, Int, Int]:
    for symbol in range(SYMBOLS):
        work[COUNT, symbol] = 0
    work[COUNT, _END] = 1
    found = _find_sequences(source, start, end, table, acceleration, sequences, work)
    make_codes(work, np.int64(0), np.int64(_DISTANCES), np.int64(_CODE_BITS_MAX))
    make_codes(work, np.int64(_DISTANCES), np.int64(SYMBOLS), np.int64(_CODE_BITS_MAX))
    if _block_bits(work) > (end - start) * 8:
        bits, count = _add(bits, count, last, np.int64(3))
        return _put_stored(into, put, bits, count, source, start, end - start)
    bits, count = _add(bits, count, last | 4, np.int64(3))
    put, bits, count = _put_tables(into, put, bits, count, work)
    at = start
    for i in range(found):
        sequence = sequences[i]
        stop = at + (sequence >> 32)
        put, bits, count = _put_literals(into, put, bits, count, source, at, stop, work)
        put, bits, count = _put_match(into, put, bits, count, sequence, work)
        at = stop + (sequence >> 16 & 0xFFFF)
    put, bits, count = _put_literals(into, put, bits, count, source, at, end, work)
    bits, count = _add_symbol(bits, count, work[EMIT, _END])
    return _flush(into, put, bits, count)


class Work(NamedTuple):
    """What a call needs beside its arguments.

    `table` has matches.TABLE_BYTES, `sequences` SEQUENCES elements, `symbols` huffman.WORK_ROWS
    rows of SYMBOLS.
    """

    table: _Bytes
    sequences: _Int64s
    symbols: _Int64s


_named_tuple: Final[Any] = types.NamedTuple
_WORK: Final = _named_tuple((UINT8S, INT64S, INT64_MATRIX), Work)


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64, _WORK, UINT8S, INT64S))
def pack_gzip(
    records: _Bytes,
    starts: _Int64s,
    sizes: _Int64s,
    acceleration: int,
    work: Work,
    target: _Bytes,
    borders: _Int64s,
) -> None:
    """Write one gzip member per payload; number i ends at borders[i + 1].

    `target` has room for the payloads' stored frames and packing.FRAME_SLACK more.
    """
    source, into, places = address_of(records), address_of(target), address_of(work.table)
    put = np.int64(0)
    borders[0] = put
    for i in range(len(starts)):
        at, end = starts[i], starts[i] + sizes[i]
        store_64(into, put, np.uint64(0x00088B1F))
        store_16(into, put + 8, np.uint64(0xFF00))
        put += 10
        bits, count = np.uint64(0), np.int64(0)
        last = np.int64(0)
        while last == 0:
            stop = min(at + GZIP_BLOCK, end)
            last = np.int64(1 if stop == end else 0)
            put, bits, count = _put_block(
                *(into, put, bits, count, source, at, stop, last),
                *(places, acceleration, work.sequences, work.symbols),
            )
            at = stop
        put, bits, count = _flush(into, put, bits, (count + 7) & ~7)
        store_32(into, put, crc32(records, starts[i], end))
        store_32(into, put + 4, np.uint64(sizes[i]))
        put += 8
        borders[i + 1] = put
