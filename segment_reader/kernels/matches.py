"""The search for repetitions that LZ4, snappy and deflate have in common (LZ4's fast mode).

A table has the last place at which four bytes had a hash, as 16 bits relative to the block's
start. Everything is an address or a position relative to one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from segment_reader.kernels.compiler import Int, inlined
from segment_reader.kernels.memory import byte_at
from segment_reader.kernels.words import (
    load_16,
    load_32,
    load_64,
    store_16,
    store_64,
    trailing_zeros,
)

__all__ = [
    "MATCH_MIN",
    "TABLE_BYTES",
    "clear_table",
    "find_match",
    "match_end",
    "match_start",
    "remember",
]

MATCH_MIN: Final = 4
TABLE_BYTES: Final = 1 << 14


@inlined
def clear_table(table: Int, size: Int) -> Int:
    """Zero as much of the table as a block of `size` needs; the hash's shift for that."""
    bits = np.int64(8)
    while bits < 13 and (np.int64(1) << bits) < size:
        bits += 1
    for at in range(0, np.int64(2) << bits, 8):
        store_64(table, np.int64(at), np.uint64(0))
    return np.uint64(32 - bits)


@inlined
def _slot(word: Int, shift: Int) -> Int:
    product = (word * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    return np.int64(product >> shift) << 1


@inlined
def find_match(
    source: Int, at: Int, limit: Int, base: Int, table: Int, shift: Int, acceleration: Int
) -> tuple[Int, Int]:
    """The next place up to `limit` whose four bytes came before, and where; -1 if none.

    Steps get longer the longer nothing is found; the table has places relative to `base`.
    """
    tries = acceleration << 6
    while at <= limit:
        word = load_32(source, at)
        slot = _slot(word, shift)
        candidate = base + np.int64(load_16(table, slot))
        store_16(table, slot, np.uint64(at - base))
        if load_32(source, candidate) == word:
            return at, candidate
        at += tries >> 6
        tries += 1
    return np.int64(-1), np.int64(-1)


@inlined
def match_end(source: Int, at: Int, candidate: Int, limit: Int) -> Int:
    """How far from `at` on the bytes are those at `candidate`, at most up to `limit`."""
    while at + 8 <= limit:
        difference = load_64(source, at) ^ load_64(source, candidate)
        if difference != np.uint64(0):
            return at + (trailing_zeros(difference) >> 3)
        at += 8
        candidate += 8
    while at < limit and byte_at(source, at) == byte_at(source, candidate):
        at += 1
        candidate += 1
    return at


@inlined
def match_start(source: Int, at: Int, candidate: Int, anchor: Int, base: Int) -> tuple[Int, Int]:
    """Both places, moved back while the bytes before them are the same, not behind `anchor`."""
    while (
        at > anchor
        and candidate > base
        and byte_at(source, at - 1) == byte_at(source, candidate - 1)
    ):
        at -= 1
        candidate -= 1
    return at, candidate


@inlined
def remember(source: Int, at: Int, base: Int, table: Int, shift: Int) -> None:
    """Put a place that the search has stepped over into the table."""
    store_16(table, _slot(load_32(source, at), shift), np.uint64(at - base))
