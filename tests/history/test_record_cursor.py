"""Ranges taken from a cursor, against the rows themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from segment_reader import RECORD_SCHEMA
from tiering.history import RecordCursor


def records(offsets: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "offset": offset,
                "timestamp_ms": offset,
                "timestamp_type": 0,
                "leader_epoch": 0,
                "key": None,
                "value": b"%d" % offset,
                "headers": [{"key": "h", "value": b"%d" % offset}] * (offset % 3),
            }
            for offset in offsets
        ],
        schema=RECORD_SCHEMA,
    )


class Source:
    """Chunks of rising offsets, and how often they were asked for."""

    def __init__(self, chunks: Sequence[Sequence[int]]) -> None:
        self.chunks = [records(chunk) for chunk in chunks]
        self.starts: list[int] = []
        self.closed = 0
        self.fail_at: int | None = None

    def open_at(self, start: int) -> Iterator[pa.RecordBatch]:
        self.starts.append(start)
        try:
            for i, chunk in enumerate(self.chunks):
                if i == self.fail_at:
                    raise OSError("gone")
                kept = chunk.filter(pa.array(chunk.column("offset").to_numpy() >= start))
                if kept.num_rows:
                    yield kept
        finally:
            self.closed += 1


def test_random_rising_ranges() -> None:
    chance = random.Random(1)
    for _ in range(300):
        offsets = sorted(chance.choices(range(60), k=chance.randint(0, 50)))
        cuts = sorted(chance.choices(range(len(offsets) + 1), k=4))
        chunks = [offsets[a:b] for a, b in zip([0, *cuts], [*cuts, len(offsets)], strict=True)]
        source = Source(chunks)
        with RecordCursor(source.open_at) as cursor:
            at = chance.randint(0, 10)
            while at < 60:
                end = at + chance.randint(0, 20)
                wanted = [offset for offset in offsets if at <= offset < end]
                taken = cursor.take(at, end)
                assert taken.equals(records(wanted))
                at = end + chance.choice([0, 0, 5])
        assert len(source.starts) == source.closed == 1


def test_what_lies_in_one_chunk_is_not_copied() -> None:
    source = Source([range(50), range(50, 90)])
    values = [chunk.column("value").buffers()[2].address for chunk in source.chunks]
    cursor = RecordCursor(lambda start: iter(source.chunks))
    places = [
        cursor.take(*span).column("value").buffers()[2].address
        for span in ((0, 10), (10, 50), (50, 60))
    ]
    assert places == [values[0], values[0], values[1]]


def test_only_wanted_rows_are_kept() -> None:
    cursor = RecordCursor(Source([range(20), range(20, 40)]).open_at)
    taken = cursor.take(5, 35, lambda offsets: offsets % 5 == np.int64(1))
    assert taken.equals(records([6, 11, 16, 21, 26, 31]))


def test_a_range_before_the_last_one_begins_a_new_pass() -> None:
    source = Source([range(20)])
    cursor = RecordCursor(source.open_at)
    for start, end in ((5, 10), (10, 12), (3, 6), (6, 20), (19, 20)):
        assert cursor.take(start, end).equals(records(range(start, end)))
    assert source.starts == [5, 3, 19]
    assert source.closed == 3


def test_goes_on_after_an_error() -> None:
    source = Source([range(10), range(10, 20)])
    cursor = RecordCursor(source.open_at)
    source.fail_at = 1
    assert cursor.take(0, 5).num_rows == 5
    with pytest.raises(OSError, match="gone"):
        cursor.take(5, 15)
    source.fail_at = None
    assert cursor.take(5, 15).equals(records(range(5, 15)))
    assert source.starts == [0, 5]


def test_nothing_is_opened_before_it_is_needed() -> None:
    source = Source([range(10)])
    with RecordCursor(source.open_at):
        pass
    assert source.starts == []
