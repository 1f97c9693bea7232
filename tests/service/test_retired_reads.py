"""Pulls and indexes of retired segments, against the logs that they were made of."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from native_segments import Batch, Rec, Segment, aborted_entry, in_batches, some_records
from retired_tier import Reader, bases, check_served, places, reader, retire, small
from service_harness import serving
from sole_copy import SoleCopyTier

from segment_reader.batch_table import Kept
from tiering.ledger import Ledger
from tiering.service.refusals import Refusal
from tiering.side_files import SideFile

CURSOR = "onecopy-next-cursor"


def odd_batches() -> list[Batch]:
    """Aborted and control batches, gaps, log-append time, timestamps no table holds."""
    marker = [Rec(offset=9, key=b"\0\0\0\0", value=b"\0" * 6)]
    late = Rec(offset=31, timestamp_ms=1_700_000_000_777)
    return [
        Batch(records=[Rec(offset=0), Rec(offset=3, value=None)], producer=7),
        Batch(records=[Rec(offset=5, key=b"k"), Rec(offset=6)], producer=8),
        Batch(records=marker, producer=7, control=True),
        Batch(records=[Rec(offset=10), Rec(offset=11, timestamp_ms=-1)], codec="gzip"),
        Batch(records=[Rec(offset=20, timestamp_ms=2**62)], codec="zstd", last_offset=29),
        Batch(records=[Rec(offset=30), late], log_append=True),
        *in_batches(some_records(40, 60), 4, ("gzip", "none")),
    ]


def of_one_size(count: int, value: bytes) -> list[Batch]:
    return [Batch(records=[Rec(offset=i, value=value)]) for i in range(count)]


def large_among_small() -> list[Batch]:
    chance = random.Random(5)
    sizes = [10, 20, 400_000, 5, 5, 5, 150_000, 3]
    records = [Rec(offset=i, value=chance.randbytes(size)) for i, size in enumerate(sizes * 2)]
    return in_batches(records, 1, ("none", "zstd", "gzip"))


SHELF = {
    "all codecs": Segment(batches=in_batches(some_records(0, 400), 5, ("none", "gzip", "zstd"))),
    "odd": Segment(batches=odd_batches(), verdicts=aborted_entry(7, 0, 9)),
    "without index": Segment(
        batches=in_batches(some_records(100, 200), 3, ("none", "zstd")), index_every=10**9
    ),
    "seldom indexed": Segment(batches=in_batches(some_records(0, 300), 4), index_every=17),
    "smallest": Segment(batches=of_one_size(300, b"")),
    "large among small": Segment(batches=large_among_small()),
    "shrinks a lot": Segment(
        batches=in_batches([Rec(offset=i, value=b"same" * 3000) for i in range(60)], 6, ("zstd",))
    ),
    "one batch": Segment(batches=[Batch(records=some_records(7, 50), codec="gzip")]),
}
LIMITS = {
    "in one unit": small(),
    "in small units": small(unit_bytes=2000),
    "a unit for each batch": small(unit_bytes=1),
}


@dataclass(frozen=True)
class Shelf:
    """A tier whose segments are all retired, and a reader of it for each of `LIMITS`."""

    tier: SoleCopyTier
    readers: dict[str, Reader]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    tier = SoleCopyTier(tmp_path_factory.mktemp("shelf"))
    named = [replace(s, topic=name.replace(" ", "-")) for name, s in SHELF.items()]
    retire(tier, *named)
    readers = {name: Reader(tier.store, limits) for name, limits in LIMITS.items()}
    yield Shelf(tier, readers)
    for each in readers.values():
        each.retired.close()


@pytest.fixture(scope="module")
def http(shelf: Shelf) -> Iterator[httpx.Client]:
    with serving(shelf.tier.store, LIMITS["in small units"]) as client:
        yield client


@pytest.fixture
def tier(tmp_path: Path) -> SoleCopyTier:
    return SoleCopyTier(tmp_path)


Cut = pytest.mark.parametrize("cut", LIMITS)
Layout = pytest.mark.parametrize("layout", SHELF)


# Where a pull begins and ends


@Cut
@Layout
def test_from_each_batch_and_from_between(shelf: Shelf, layout: str, cut: str) -> None:
    segment, reads = SHELF[layout], shelf.readers[cut]
    lie = places(segment.log)
    for place in lie[:: max(1, len(lie) // 40)]:
        start, end = place.position // 4, max(place.end // 4, place.position // 4 + 1)
        for position in {start, (start + end) // 2, end - 1}:
            pull = reads.pull(segment.id, max_bytes=1, position=position)
            assert bases(pull.data) == [place.base_offset]
            last = place.end == len(segment.log)
            assert pull.next_position == (None if last else place.end)


@Layout
def test_from_every_entry_of_the_served_index(shelf: Shelf, layout: str) -> None:
    segment, reads = SHELF[layout], shelf.readers["in small units"]
    index = reads.reads.index(segment.id, "offset")
    stored = list(struct.iter_unpack(">ii", segment.offset_index))
    served = list(struct.iter_unpack(">ii", index))
    assert served == [(offset, position // 4) for offset, position in stored]
    starts = {place.position: place.base_offset for place in places(segment.log)}
    for (_, position), (_, original) in zip(served, stored, strict=True):
        pull = reads.pull(segment.id, max_bytes=1, position=position)
        assert bases(pull.data) == [starts[original]]


@Cut
@Layout
@pytest.mark.parametrize("max_bytes", [1, 700, 65_536, 10**9])
def test_cursors_walk_the_whole_log(shelf: Shelf, layout: str, cut: str, max_bytes: int) -> None:
    segment = SHELF[layout]
    log, lie = segment.log, places(segment.log)
    first = max(0, len(lie) - 60) if max_bytes == 1 else 0
    pieces = shelf.readers[cut].walk(segment.id, max_bytes, lie[first].position)
    assert check_served(b"".join(pieces), log[lie[first].position :]) == len(lie) - first
    assert all(len(piece) <= max_bytes or len(places(piece)) == 1 for piece in pieces)


@Layout
def test_as_much_as_was_asked_for(shelf: Shelf, layout: str) -> None:
    """An answer ends where the next batch wouldn't fit, and nowhere before."""
    segment, reads = SHELF[layout], shelf.readers["in one unit"]
    (whole,) = reads.walk(segment.id, 10**9)
    sizes = [place.size for place in places(whole)]
    for count in (1, 2, len(sizes) - 1):
        exactly = sum(sizes[:count])
        for max_bytes, given in ((exactly, count), (exactly - 1, max(1, count - 1))):
            pull = reads.pull(segment.id, max_bytes=max(1, max_bytes), cursor=0)
            assert len(places(bytes(pull.data))) == min(max(given, 1), len(sizes))


@Cut
@Layout
def test_up_to_an_end(shelf: Shelf, layout: str, cut: str) -> None:
    segment, reads = SHELF[layout], shelf.readers[cut]
    lie, chance = places(segment.log), random.Random(layout)
    for _ in range(12):
        first, last = sorted(chance.choices(range(len(lie)), k=2))
        start, end = lie[last].position // 4, lie[last].end // 4
        end_position = chance.randrange(start, max(end, start + 1))
        found: list[int] = []
        where: dict[str, int | None] = {"position": lie[first].position // 4}
        while where:
            pull = reads.pull(segment.id, 100_000, end_position=end_position, **where)
            found += bases(pull.data)
            more = pull.next_position
            where = {} if more is None else {"cursor": more}
        assert found == [place.base_offset for place in lie[first : last + 1]]


@Layout
def test_ends_far_behind_and_before(shelf: Shelf, layout: str) -> None:
    segment, reads = SHELF[layout], shelf.readers["in one unit"]
    lie = places(segment.log)
    pull = reads.pull(segment.id, 10**9, cursor=0, end_position=10**19 - 1)
    assert bases(pull.data) == [place.base_offset for place in lie]
    pull = reads.pull(segment.id, 10**9, cursor=lie[-1].position, end_position=0)
    assert bases(pull.data) == [lie[-1].base_offset]
    assert pull.next_position is None


@Cut
@Layout
def test_behind_the_end(shelf: Shelf, layout: str, cut: str) -> None:
    segment = SHELF[layout]
    size = len(segment.log)
    for where in ({"position": -(-size // 4)}, {"cursor": size}, {"position": 10**18},
                  {"cursor": 10**19 - 1}, {"position": 10**19 - 1}):  # fmt: skip
        with pytest.raises(Refusal) as caught:
            shelf.readers[cut].pull(segment.id, **where)
        assert (caught.value.status, caught.value.code) == (416, "position_out_of_range")


def test_the_shelf_holds_what_it_should(shelf: Shelf) -> None:
    """Batches of every kind, and segments of several units."""
    kinds = set()
    for segment in SHELF.values():
        entry = Ledger(shelf.tier.store).load(segment.id)
        side = SideFile.open(shelf.tier.store, segment.id, entry.side)
        kinds |= {Kept(kind) for kind in side.batches.kept.tolist()}
    assert kinds == set(Kept)
    counts = shelf.readers["in small units"].made, shelf.readers["in one unit"].made
    assert counts[0] > 5 * counts[1]


# Indexes


@Layout
def test_indexes_are_what_was_uploaded(shelf: Shelf, layout: str) -> None:
    segment, reads = SHELF[layout], shelf.readers["in one unit"].reads
    assert len(reads.index(segment.id, "offset")) == len(segment.offset_index)
    with pytest.raises(Refusal) as caught:
        reads.index(segment.id, "timestamp")
    assert (caught.value.status, caught.value.code) == (404, "index_not_found")


# Through HTTP


def path(segment: Segment) -> str:
    return f"/v1/segments/{segment.id.path}"


@Layout
@pytest.mark.parametrize("max_bytes", [1, 5000, 1 << 22])
def test_a_broker_walks_the_log(http: httpx.Client, layout: str, max_bytes: int) -> None:
    segment = SHELF[layout]
    lie = places(segment.log)
    first = max(0, len(lie) - 30) if max_bytes == 1 else 0
    query = {"position": lie[first].position // 4, "max_bytes": max_bytes}
    served = b""
    while query:
        answer = http.get(f"{path(segment)}/log", params=query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/octet-stream"
        served += answer.content
        cursor = answer.headers.get(CURSOR)
        query = {} if cursor is None else {"cursor": int(cursor), "max_bytes": max_bytes}
    assert check_served(served, segment.log[lie[first].position :]) == len(lie) - first


@Layout
@pytest.mark.parametrize("max_bytes", [1, 2000, 1 << 22])
def test_marks_are_places_in_the_original_log(
    http: httpx.Client, layout: str, max_bytes: int
) -> None:
    """Who has kept an answer finds in it what a pull from there would bring."""
    segment = SHELF[layout]
    lie = {place.position: place.base_offset for place in places(segment.log)}
    for cursor in sorted(lie)[:: max(1, len(lie) // 10)]:
        query = {"cursor": cursor, "max_bytes": max_bytes}
        answer = http.get(f"{path(segment)}/log", params=query)
        served = {place.position: place.base_offset for place in places(answer.content)}
        marks = [mark.split(":") for mark in answer.headers["onecopy-batch-marks"].split(",")]
        begun = [(int(start), int(place)) for start, place in marks]
        assert begun[0] == (cursor, 0)
        assert len(begun) <= 64
        assert all(lie[start] == served[place] for start, place in begun)
        start, place = begun[-1]
        rest = len(answer.content) - place
        again = http.get(f"{path(segment)}/log", params={"cursor": start, "max_bytes": rest})
        assert again.content == answer.content[place:]


@Layout
def test_units_that_are_there_come_in_one_answer(http: httpx.Client, layout: str) -> None:
    """At most as much as was asked for, up to the end that was asked for."""
    segment = SHELF[layout]
    served, query = b"", {"cursor": 0}
    while query:
        answer = http.get(f"{path(segment)}/log", params=query)
        served += answer.content
        cursor = answer.headers.get(CURSOR)
        query = {} if cursor is None else {"cursor": int(cursor)}
    lie, ends = places(segment.log), [place.end for place in places(served)]
    for first in range(0, len(lie), max(1, len(lie) // 6)):
        begin = ends[first - 1] if first else 0
        for size in (len(served), ends[-1] // 3, ends[first] - begin):
            most = {"cursor": lie[first].position, "max_bytes": size}
            answer = http.get(f"{path(segment)}/log", params=most)
            end = max(end for end in ends if end <= max(begin + size, ends[first]))
            assert answer.content == served[begin:end]
            assert int(answer.headers["content-length"]) == end - begin
            answer = http.get(
                f"{path(segment)}/log", params={**most, "end_position": lie[-2:][0].position // 4}
            )
            last = max(first, len(lie) - 2)
            assert answer.content == served[begin : min(end, ends[last])]


def test_a_broker_gets_indexes_and_416(http: httpx.Client) -> None:
    segment = SHELF["all codecs"]
    index = http.get(f"{path(segment)}/indexes/offset")
    assert len(index.content) == len(segment.offset_index)
    assert http.get(f"{path(segment)}/indexes/transaction").status_code == 404
    answer = http.get(f"{path(segment)}/log", params={"cursor": len(segment.log)})
    assert (answer.status_code, answer.json()["error"]) == (416, "position_out_of_range")


# What fills and bounds memory


def test_a_batch_larger_than_a_unit_and_than_the_cap(tier: SoleCopyTier) -> None:
    chance = random.Random(1)
    records = [Rec(offset=i, value=chance.randbytes(3_000_000)) for i in range(3)]
    segment = Segment(batches=in_batches(records, 2))
    retire(tier, segment)
    limits = small(unit_bytes=1_000_000, pull_bytes_max=500_000)
    with reader(tier.store, limits) as reads:
        pieces = reads.walk(segment.id, 500_000)
    assert [len(places(piece)) for piece in pieces] == [1, 1]
    assert check_served(b"".join(pieces), segment.log) == 2


def test_caches_stay_within_their_bounds(tier: SoleCopyTier) -> None:
    first = Segment(batches=in_batches(some_records(0, 400), 5, ("none", "zstd")))
    more = [
        replace(first, batches=in_batches(some_records(400 * i, 400), 5), segment_id=f"{i:022d}")
        for i in range(1, 4)
    ]
    retire(tier, first, *more)
    limits = small(
        unit_bytes=2500, unit_cache_bytes_max=30_000, side_cache_bytes_max=30_000, cursors_max=2
    )
    with reader(tier.store, limits) as reads:
        chance = random.Random(3)
        for _ in range(200):
            segment = chance.choice([first, *more])
            reads.pull(segment.id, cursor=chance.randrange(len(segment.log)))
            units, sides = reads.retired.cached_bytes
            assert units <= 30_000
            assert sides <= 30_000
        assert units > 15_000
        assert sides > 10_000
        for segment in (first, *more):
            served = b"".join(reads.walk(segment.id))
            assert check_served(served, segment.log) == len(segment.batches)
