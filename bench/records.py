"""The records that benchmarks produce: Avro of sixteen fields, and small ones.

Every record is an Avro-encoded row of fixed length. About half of its bytes are random, so that
zstd makes them half as large, as it does with ordinary event data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["DISTINCT", "LARGE", "SMALL", "RecordForm", "Records"]

_POOL: Final = 8192
_FIRST_MS: Final = 1_750_000_000_000
_SENTENCE_END: Final = 6
_SEED: Final = 20_260_101
_WORDS: Final = (
    b"checkout search product basket account payment shipping review invoice coupon "
    b"mobile desktop tablet browser android safari firefox chrome windows linux macos "
    b"Berlin Madrid Lisbon Vienna Prague Warsaw Dublin London Oslo Helsinki Athens Rome"
).split()

_Bytes = npt.NDArray[np.uint8]


class Records(Protocol):
    """A kind of records, all values of one length."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def value_bytes(self) -> int:
        """Length of every value."""

    def records(self, start: int, count: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of `count` records; the same ones for the same arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordForm:
    """A shape of records.

    Attributes:
        value_bytes: length of every value.
        words, noise: lengths of the string fields that hold words, and hexadecimal noise.
        distinct: whether noise and sentences never come again; otherwise all but the numbers
            repeats after 8,192 records, at other places of each field.
    """

    name: str
    value_bytes: int
    words: tuple[int, ...]
    noise: tuple[int, ...]
    distinct: bool = False

    def records(self, start: int, count: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of `count` records; the same ones for the same arguments."""
        pool = self._pool()
        for first in range(start, start + count, _POOL):
            numbers = np.arange(first, min(first + _POOL, start + count), dtype=np.int64)
            rows = self._rows(pool, numbers).tobytes()
            for i, number in enumerate(numbers.tolist()):
                at = i * self.value_bytes
                yield b"key-%07d" % (number % 5_000_000), rows[at : at + self.value_bytes]

    def _rows(self, pool: _Bytes, numbers: npt.NDArray[np.int64]) -> _Bytes:
        """Pool rows, shifted against each other field by field, with what is each record's own."""
        n = len(numbers)
        rows = np.empty((n, self.value_bytes), np.uint8)
        at = 0
        for width in self._widths():
            shift = int(numbers[0] // _POOL) * 7 * (at + 1)
            rows[:, at : at + width] = np.roll(pool[:, at : at + width], shift, axis=0)[:n]
            at += width
        if self.distinct:
            self._make_distinct(rows, int(numbers[0]))
        rows[:, :6] = _varints(numbers + (1 << 36), 6)
        rows[:, 6:12] = _varints(numbers * 3 + _FIRST_MS, 6)
        return rows

    def _make_distinct(self, rows: _Bytes, first: int) -> None:
        """New noise, and new ends of all sentences that are long enough."""
        chance = np.random.default_rng([_SEED, first])
        at = self._first_text()
        for length in (*self.words, *self.noise):
            end = at + _prefix_bytes(length) + length
            start = end - (length if length in self.noise else _SENTENCE_END)
            if length in self.noise or length >= 4 * _SENTENCE_END:
                digits = chance.integers(0, 16, (len(rows), end - start))
                rows[:, start:end] = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
            at = end

    def _first_text(self) -> int:
        texts = sum(length + _prefix_bytes(length) for length in (*self.words, *self.noise))
        return self.value_bytes - texts

    def _widths(self) -> list[int]:
        """Encoded bytes per field: id, time, double, int, boolean, and the strings."""
        strings = [length + _prefix_bytes(length) for length in (*self.words, *self.noise)]
        widths = [6, 6, 8, 2, 1, *strings]
        assert sum(widths) == self.value_bytes, sum(widths)
        return widths

    def _pool(self) -> _Bytes:
        chance = np.random.default_rng(_SEED)
        rows = bytearray()
        for _ in range(_POOL):
            row = bytes(12) + struct.pack("<d", round(float(chance.random()) * 1000, 2))
            row += bytes(_varints(np.array([64 + chance.integers(0, 8000)]), 2)[0])
            row += bytes([int(chance.integers(0, 2))])
            for length in self.words:
                row += _string(_sentence(chance, length))
            for length in self.noise:
                row += _string(chance.bytes(length // 2 + 1).hex().encode()[:length])
            rows += row
        return np.frombuffer(bytes(rows), np.uint8).reshape(_POOL, self.value_bytes)


def _sentence(chance: np.random.Generator, length: int) -> bytes:
    words = [_WORDS[i] for i in chance.integers(0, len(_WORDS), length // 4 + 1)]
    return b" ".join(words)[:length]


def _string(text: bytes) -> bytes:
    return bytes(_varints(np.array([len(text)]), _prefix_bytes(len(text)))[0]) + text


def _prefix_bytes(length: int) -> int:
    return 1 if length < 64 else 2


def _varints(values: npt.NDArray[np.int64], width: int) -> _Bytes:
    """Zigzag varints of exactly `width` bytes each: the values must need that many."""
    coded = values.astype(np.uint64) << np.uint64(1)
    out = np.empty((len(values), width), np.uint8)
    for i in range(width):
        more = 0x80 if i < width - 1 else 0
        out[:, i] = ((coded >> np.uint64(7 * i)) & np.uint64(0x7F)) | np.uint64(more)
    return out


LARGE: Final = RecordForm(
    name="512 bytes, 16 fields",
    value_bytes=512,
    words=(2, 10, 12, 14, 24, 62, 80),
    noise=(16, 32, 32, 192),
)
DISTINCT: Final = replace(LARGE, name="512 bytes, 16 fields, all distinct", distinct=True)
SMALL: Final = RecordForm(
    name="120 bytes, 16 fields", value_bytes=120, words=(2, 4, 6, 6, 8, 10), noise=(4, 8, 16, 16, 6)
)
