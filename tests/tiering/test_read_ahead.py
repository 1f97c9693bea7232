"""Reading ahead gives the same bytes, whatever is asked for, and fetches while others work."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_reader import BytesSource, CorruptSegment
from tiering.conversion.read_ahead import ReadAhead
from tiering.errors import TransientError

DATA = random.Random(1).randbytes(10_000)


class Watched(BytesSource):
    """Counts and may fail."""

    def __init__(self, fail_from: int = 1 << 60) -> None:
        super().__init__("log", DATA)
        self.reads: list[tuple[int, int, str]] = []
        self.fail_from = fail_from

    def read(self, start: int, length: int) -> bytes:
        self.reads.append((start, length, threading.current_thread().name))
        if start + length > self.fail_from:
            raise TransientError("store is out")
        return super().read(start, length)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    step=st.integers(1, 4000),
    end=st.one_of(st.none(), st.integers(1, 10_000)),
)
def test_bytes_are_the_sources(seed: int, step: int, end: int | None) -> None:
    chance, position, stop = random.Random(seed), 0, end or len(DATA)
    with ReadAhead(BytesSource("log", DATA), end, step) as source:
        while position < stop:
            length = min(chance.randint(1, 3000), stop - position)
            assert source.read(position, length) == DATA[position : position + length]
            position += chance.randint(1, length)
            if chance.random() < 0.05:
                position = chance.randint(0, stop)
    assert (source.name, source.size_bytes) == ("log", len(DATA))


def test_next_step_comes_from_another_thread() -> None:
    watched = Watched()
    with ReadAhead(watched, None, 1000) as source:
        assert source.read(0, 1000) == DATA[:1000]
        assert source.read(990, 1000) == DATA[990:1990]
        assert source.read(1990, 500) == DATA[1990:2490]
    main = threading.current_thread().name
    assert [r[:2] for r in watched.reads if r[2] == main] == [(0, 1000)]
    assert (1000, 1000) in [r[:2] for r in watched.reads if r[2] != main]


def test_nothing_behind_the_end_is_fetched() -> None:
    watched = Watched()
    with ReadAhead(watched, 1500, 1000) as source:
        assert source.read(0, 1000) + source.read(1000, 500) == DATA[:1500]
    assert max(start + length for start, length, _ in watched.reads) == 1500


def test_failures_of_the_source_come_through() -> None:
    with ReadAhead(Watched(fail_from=1500), None, 1000) as source:
        source.read(0, 1000)
        with pytest.raises(TransientError):
            source.read(1000, 1000)
    with ReadAhead(Watched(), None, 1000) as source, pytest.raises(CorruptSegment):
        source.read(9_990, 11)
