"""What the kernels know of columns and levels: matrices of eight int64 a row."""

from __future__ import annotations

from typing import Final

from segment_reader.kernels.compiler import Int, called, inlined
from segment_reader.kernels.memory import int64_at
from segment_reader.kernels.words import store_32, store_64
from tiering.values.avro.layout import Storage
from tiering.values.avro.memory import clear_bit, int32_of, set_bit

__all__ = ["nullify", "put", "restore_bits", "table_word"]

ROW_BYTES: Final = 64

LEVEL, LIMIT, STORAGE, WIDTH, BITMAP, VALUES, BORDERS, ROOM = range(8)
"""Words of a column: as in `layout.Column`, then addresses, and the bytes that `VALUES` holds.

LIMIT is how many bytes VALUES may come to hold. For encoding it is how many it holds, BITMAP is 0
where nothing is null, and ROOM is the array's offset: which bit of its bitmap (and of its values,
when these are bits) is the first.
"""

CURSOR, SAVED, CAPACITY, MOST = range(4)
"""Words of a level: how many elements it has, how many it had when the payload began, how many its
columns have room for, and how many they may come to have room for."""

PLACES: Final = 13
"""Words of `places`, of a call of `decode_payloads`: addresses of the program, the columns, the
levels, frames (depth + 1 rows), symbol borders, symbols, the payloads' bytes and their borders,
faults, inexact; then the number of columns, of levels, and whether strings are checked one by one.
"""

PROGRAM, COLUMNS, LEVELS, FRAMES, SYMBOL_BORDERS, SYMBOLS = range(6)
DATA, PAYLOADS, FAULTS, INEXACT, COLUMN_COUNT, LEVEL_COUNT, CHECKED = range(6, PLACES)

STRUCT: Final = int(Storage.STRUCT)
BITS: Final = int(Storage.BITS)
FIXED_WIDTH: Final = int(Storage.WORDS)


@inlined
def table_word(table: Int, row: Int, word: Int) -> Int:
    """A word of a table."""
    return int64_at(table, row * 8 + word)


@inlined
def put(table: Int, row: Int, word: Int, value: Int) -> None:
    """Set a word of a table."""
    store_64(table, row * ROW_BYTES + word * 8, value)


@called
def nullify(columns: Int, first: Int, stop: Int, level: Int, i: Int) -> None:
    """Make element i null in those of the columns [first, stop) that are of a level."""
    for column in range(first, stop):
        if table_word(columns, column, LEVEL) != level:
            continue
        clear_bit(table_word(columns, column, BITMAP), i)
        storage = table_word(columns, column, STORAGE)
        if storage == FIXED_WIDTH:
            width, values = table_word(columns, column, WIDTH), table_word(columns, column, VALUES)
            if width == 4:
                store_32(values, i * 4, 0)
            elif width == 8 or width == 16:
                store_64(values, i * width, 0)
                store_64(values, i * width + width - 8, 0)
        elif storage == BITS:
            clear_bit(table_word(columns, column, VALUES), i)
        elif storage != STRUCT:
            borders = table_word(columns, column, BORDERS)
            store_32(borders, i * 4 + 4, int32_of(borders, i * 4))


@called
def restore_bits(columns: Int, count: Int, levels: Int, i: Int) -> None:
    """Make elements valid again that a payload without a row has left: element i of level 0, and
    all those of the others."""
    for column in range(count):
        level, bitmap = table_word(columns, column, LEVEL), table_word(columns, column, BITMAP)
        if level == 0:
            set_bit(bitmap, i)
            continue
        stop = table_word(levels, level, CURSOR) + 1
        for k in range(
            table_word(levels, level, SAVED), min(stop, table_word(levels, level, CAPACITY))
        ):
            set_bit(bitmap, k)
