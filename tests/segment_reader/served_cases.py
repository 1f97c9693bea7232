"""Batches of every form in which one can be served, and why it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from batch_maker import T0, MadeRecord
from kafka_oracle import Row
from served_batches import Original, made_headers

from segment_reader import BatchHeaders, Codec


@dataclass(frozen=True)
class Case:
    """A batch as it was (`count` records in `size` bytes) and the records that there still are."""

    name: str
    size: int
    count: int
    records: list[MadeRecord]


def words(i: int) -> bytes:
    text = b'{"id":%d,"user":"user-%d","path":"/shop/%d","agent":"Mozilla/5.0"}'
    return (text % (i, i * 7919 % 10_000, i * i % 977)) * 7


def noise(i: int) -> bytes:
    return np.random.default_rng(i).bytes(512)


def _records(
    count: int, value: Callable[[int], bytes], kept: Callable[[int], bool] = lambda i: True
) -> list[MadeRecord]:
    headers = ((b"h", b"x"), (b"null", None))
    return [MadeRecord(i, i, b"k", value(i), headers) for i in range(count) if kept(i)]


def cases() -> list[Case]:
    """For each codec the same."""
    zeros = _records(4, lambda i: bytes(500_000))
    some_zeros = _records(4, lambda i: bytes(50_000))
    return [
        Case("one record", 300, 1, _records(1, words)),
        Case("ordinary", 6_000, 100, _records(100, words)),
        Case("many blocks", 80_000, 1500, _records(1500, words)),
        Case("does not compress", 56_000, 100, _records(100, noise)),
        Case("smaller uncompressed than it was", 90_000, 100, _records(100, words)),
        Case("compresses well", 3_000, 4, zeros),
        Case("compresses too well", 100_000, 4, some_zeros),
        Case("compresses too well and is too large as it is", 500_000, 4, zeros),
        Case("most rows deleted", 56_000, 100, _records(100, words, lambda i: i in (3, 70))),
        Case("all rows deleted", 56_000, 100, []),
        Case("all rows deleted of a large one", 4_000_000, 100, []),
        Case("never had a record", 61, 0, []),
    ]


@dataclass(frozen=True)
class Served:
    """What goes in, and what a client has to see."""

    original: Original
    counts: np.ndarray[tuple[int], np.dtype[np.int64]]
    rows: list[Row]


def every_case(copies: int = 1) -> Served:
    """All cases in all codecs, one after the other in one log."""
    chosen = [(codec, case) for codec in Codec for case in cases()] * copies
    headers = _headers(chosen)
    rows = [
        row
        for base, (_, case) in zip(headers.base_offset.tolist(), chosen, strict=True)
        for row in _rows(base, case)
    ]
    payloads = [b"".join(record.encode() for record in case.records) for _, case in chosen]
    counts = np.array([len(case.records) for _, case in chosen], np.int64)
    return Served(Original.of(headers, payloads), counts, rows)


def _headers(chosen: list[tuple[Codec, Case]]) -> BatchHeaders:
    made = made_headers(0, [case.size for _, case in chosen], [case.count for _, case in chosen])
    made.attributes[:] = [codec for codec, _ in chosen]
    made.base_timestamp[:] = T0
    made.max_timestamp[:] = T0 + made.last_offset_delta
    made.producer_id[:] = made.producer_epoch[:] = made.base_sequence[:] = -1
    return made


def _rows(base: int, case: Case) -> list[Row]:
    return [
        (base + r.offset_delta, T0 + r.timestamp_delta, 0, 0, r.key, r.value, r.headers)
        for r in case.records
    ]
