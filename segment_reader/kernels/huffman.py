"""Length-limited, canonical Huffman codes, as deflate wants them (RFC 1951, 3.2.2).

A workspace is an int64 matrix with one column per symbol and the rows below; several alphabets
lie side by side in it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from segment_reader.kernels.compiler import Int, called, inlined
from segment_reader.kernels.words import reversed_bits

__all__ = ["COUNT", "EMIT", "LENGTH", "LENGTH_BITS", "WORK_ROWS", "make_codes"]

COUNT: Final = 0
"""How often a symbol occurs."""
LENGTH: Final = 1
"""Bits of its code; 0 if it does not occur."""
EMIT: Final = 2
"""The code, first bit lowest, above LENGTH_BITS bits with its length."""
_ORDER: Final = 3
_TREE: Final = 4
_PER_LENGTH: Final = 5
WORK_ROWS: Final = 6

LENGTH_BITS: Final = 5
_LENGTHS: Final = 64

_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@called
def make_codes(work: _Int64s, first: Int, stop: Int, limit: Int) -> None:
    """Fill LENGTH and EMIT of the alphabet [first, stop) from COUNT; `limit` bits at most.

    At least two symbols get a code, because some decoders want complete ones.
    """
    used = _used_symbols(work, first, stop)
    _sort_by_count(work, used)
    _tree_depths(work, used)
    _limit_depths(work, used, limit)
    _assign_lengths(work, first, stop, used, limit)
    _assign_codes(work, first, stop, limit)


@inlined
def _used_symbols(work: _Int64s, first: Int, stop: Int) -> Int:
    used = np.int64(0)
    for symbol in range(first, stop):
        if work[COUNT, symbol] > 0:
            used += 1
    for symbol in range(first, stop):
        if used < 2 and work[COUNT, symbol] == 0:
            work[COUNT, symbol] = 1
            used += 1
    found = np.int64(0)
    for symbol in range(first, stop):
        if work[COUNT, symbol] > 0:
            work[_ORDER, found] = symbol
            found += 1
    return found


@inlined
def _sort_by_count(work: _Int64s, used: Int) -> None:
    """Shell's sort of ORDER: rising counts, and for equal ones rising symbols."""
    for gap in (132, 57, 23, 10, 4, 1):
        for i in range(gap, used):
            symbol = work[_ORDER, i]
            key = (work[COUNT, symbol] << 9) | symbol
            j = np.int64(i)
            while j >= gap:
                before = work[_ORDER, j - gap]
                if (work[COUNT, before] << 9) | before <= key:
                    break
                work[_ORDER, j] = before
                j -= gap
            work[_ORDER, j] = symbol


@inlined
def _tree_depths(work: _Int64s, used: Int) -> None:
    """TREE becomes the depth of each symbol of ORDER (Moffat and Katajainen, in place)."""
    for i in range(used):
        work[_TREE, i] = work[COUNT, work[_ORDER, i]]
    leaf, root = np.int64(0), np.int64(0)
    for node in range(used - 1):
        weight = np.int64(0)
        for _ in range(2):
            take_root = leaf >= used or (root < node and work[_TREE, root] < work[_TREE, leaf])
            if take_root:
                weight += work[_TREE, root]
                work[_TREE, root] = node
                root += 1
            else:
                weight += work[_TREE, leaf]
                leaf += 1
        work[_TREE, node] = weight
    work[_TREE, used - 2] = 0
    for i in range(used - 2):
        node = used - 3 - i
        work[_TREE, node] = work[_TREE, work[_TREE, node]] + 1
    available, inner, depth = np.int64(1), np.int64(0), np.int64(0)
    root, put = used - 2, used - 1
    while available > 0:
        while root >= 0 and work[_TREE, root] == depth:
            inner += 1
            root -= 1
        while available > inner:
            work[_TREE, put] = depth
            put -= 1
            available -= 1
        available = 2 * inner
        depth += 1
        inner = np.int64(0)


@inlined
def _limit_depths(work: _Int64s, used: Int, limit: Int) -> None:
    """PER_LENGTH becomes how many codes of each length there are, none above `limit`."""
    for length in range(_LENGTHS):
        work[_PER_LENGTH, length] = 0
    for i in range(used):
        work[_PER_LENGTH, min(work[_TREE, i], limit)] += 1
    total = np.int64(0)
    for length in range(1, limit + 1):
        total += work[_PER_LENGTH, length] << (limit - length)
    while total > np.int64(1) << limit:
        work[_PER_LENGTH, limit] -= 1
        length = limit - 1
        while work[_PER_LENGTH, length] == 0:
            length -= 1
        work[_PER_LENGTH, length] -= 1
        work[_PER_LENGTH, length + 1] += 2
        total -= 1


@inlined
def _assign_lengths(work: _Int64s, first: Int, stop: Int, used: Int, limit: Int) -> None:
    for symbol in range(first, stop):
        work[LENGTH, symbol] = 0
    at = used
    for length in range(1, limit + 1):
        for _ in range(work[_PER_LENGTH, length]):
            at -= 1
            work[LENGTH, work[_ORDER, at]] = length


@inlined
def _assign_codes(work: _Int64s, first: Int, stop: Int, limit: Int) -> None:
    """PER_LENGTH becomes the next code of each length on the way."""
    code = np.int64(0)
    for length in range(1, limit + 1):
        codes = work[_PER_LENGTH, length]
        work[_PER_LENGTH, length] = code
        code = (code + codes) << 1
    for symbol in range(first, stop):
        length = work[LENGTH, symbol]
        if length > 0:
            code = work[_PER_LENGTH, length]
            work[_PER_LENGTH, length] += 1
            reverse = reversed_bits(np.uint64(code)) >> np.uint64(64 - length)
            work[EMIT, symbol] = np.int64(reverse) << LENGTH_BITS | length
