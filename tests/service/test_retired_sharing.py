"""Reads of retired segments side by side: what is made once, and who waits for whom."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from native_segments import Rec, Segment, in_batches, kafka_uuid, some_records
from polling import eventually
from retired_tier import (
    Decodes,
    Reader,
    announce,
    check_served,
    in_thread,
    places,
    reader,
    retire,
    rewrite,
    small,
    watched,
)
from service_harness import serving
from sole_copy import SoleCopyTier

from tiering.errors import TransientError
from tiering.service.limits import ServiceLimits
from tiering.service.readers import Readers, units_ahead

# PyIceberg says so of a table property that is meant for Spark.
pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
BOUND_S = 20.0


@pytest.fixture
def tier(tmp_path: Path) -> SoleCopyTier:
    return SoleCopyTier(tmp_path)


def plain(topic: str = "orders", start: int = 0, count: int = 120) -> Segment:
    return Segment(batches=in_batches(some_records(start, count), 5, ("none", "zstd")), topic=topic)


def following(first: Segment, start: int, count: int) -> Segment:
    batches = in_batches(some_records(start, count), 5, ("zstd", "none"))
    return replace(first, batches=batches, segment_id=kafka_uuid())


def metric(client: httpx.Client, name: str) -> float:
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(f"onecopy_{name} "):
            return float(line.split()[1])
    raise AssertionError(name)


# Made once


def test_a_fetch_given_up_is_answered_from_the_cache(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = plain()
    retire(tier, segment)
    log = f"/v1/segments/{segment.id.path}/log"
    with watched(monkeypatch) as decodes, serving(tier.store, small()) as client:
        decodes.hold("orders")
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                client.get(log, params={"position": 0}, timeout=0.2)
        decodes.gate.set()
        eventually(lambda: metric(client, "regeneration_seconds_count") == 1)
        once = decodes.total
        answer = client.get(log, params={"position": 0})
        assert check_served(answer.content, segment.log) == len(segment.batches)
        assert metric(client, "regeneration_seconds_count") == 1
        assert decodes.total == once


def test_a_unit_that_takes_too_long_is_503_and_made_all_the_same(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = plain()
    retire(tier, segment)
    with (
        watched(monkeypatch) as decodes,
        reader(tier.store, small(regeneration_wait_s=0.05)) as reads,
    ):
        decodes.hold("orders")
        with pytest.raises(TransientError, match="still being regenerated"):
            reads.pull(segment.id, cursor=0)
        decodes.gate.set()
        eventually(lambda: reads.made == 1)
        assert check_served(bytes(reads.pull(segment.id, cursor=0).data), segment.log)
        assert reads.made == 1


def test_concurrent_readers_share_one_decode(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = plain()
    retire(tier, segment)
    rewrite(tier, segment, files=1, row_group_rows=10_000)
    announce(tier, segment)
    start = threading.Barrier(10)

    def pull(reads: Reader) -> bytes:
        start.wait(BOUND_S)
        return bytes(reads.pull(segment.id, cursor=0).data)

    with watched(monkeypatch) as decodes, reader(tier.store) as reads:
        answers = [in_thread(lambda: pull(reads)) for _ in range(10)]
        served = {answer.result(BOUND_S) for answer in answers}
        assert reads.made == decodes.total == 1
    assert len(served) == 1
    assert check_served(served.pop(), segment.log) == len(segment.batches)


@pytest.mark.parametrize("max_bytes", [300, 2500, 1 << 20])
def test_a_sequential_read_decodes_each_row_group_once(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """Across units, row groups and files, and across segments that share them."""
    first = plain(count=150)
    made = [first, following(first, 150, 85), following(first, 235, 120)]
    retire(tier, *made)
    rewrite(tier, first, files=2, row_group_rows=40)
    announce(tier, first)
    with (
        watched(monkeypatch) as decodes,
        reader(tier.store, small(unit_bytes=1000)) as reads,
    ):
        for segment in made:
            served = b"".join(reads.walk(segment.id, max_bytes))
            assert check_served(served, segment.log) == len(segment.batches)
        assert reads.made > 3 * len(made)
    assert len(decodes.counts) > 8
    assert set(decodes.counts.values()) == {1}


def test_a_seek_decodes_no_more_than_its_row_groups(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = plain(count=200)
    retire(tier, segment)
    rewrite(tier, segment, files=1, row_group_rows=20)
    announce(tier, segment)
    with watched(monkeypatch) as decodes, reader(tier.store, small(unit_bytes=1500)) as reads:
        reads.pull(segment.id, 100, cursor=places(segment.log)[20].position)
        opened = reads.retired._segments.get(segment.id)
        assert opened is not None
        first, end = opened.offsets(opened.unit_of(20))
    assert first <= 100 < end < 200
    assert {n for _, n in decodes.counts} == set(range(first // 20, (end - 1) // 20 + 1))


def test_reading_on_begins_the_next_unit_and_a_seek_only_its_own(
    tier: SoleCopyTier,
) -> None:
    segment = plain(count=300)
    retire(tier, segment)
    with reader(tier.store, small(unit_bytes=3000)) as reads:
        first = reads.pull(segment.id, 100, cursor=0)
        assert reads.made == 1
        reads.pull(segment.id, 100, cursor=first.next_position)
        eventually(lambda: reads.made == 2)
        reads.pull(segment.id, 100, cursor=places(segment.log)[-1].position)
        reads.pull(segment.id, 100, cursor=0)
    assert reads.made == 3


def test_who_reads_on_and_on_has_more_and_more_units_begun(tier: SoleCopyTier) -> None:
    segment = plain(count=1500)
    retire(tier, segment)
    with reader(tier.store, small(unit_bytes=3000, units_ahead_max=4)) as reads:
        opened = reads.pull(segment.id, 1, position=0).next_position
        side = reads.retired._segments.get(segment.id)
        assert side is not None
        units = len(side.borders) - 1
        for begun in (0, 1, 2, 4, 4):
            opened = reads.pull(segment.id, 1, cursor=opened).next_position
            eventually(lambda begun=begun: reads.made >= 1 + begun)
            time.sleep(0.05)
            assert reads.made == 1 + begun
        # Another one who looks at the same place is not taken for the first.
        last = places(segment.log)[-1].position
        reads.pull(segment.id, 1, cursor=last)
        assert reads.made == 1 + begun + 1 < units
        served = b"".join(reads.walk(segment.id, 700))
        assert check_served(served, segment.log) == len(segment.batches)
        assert reads.made == units


def test_those_who_read_on_are_told_apart_up_to_a_number() -> None:
    readers = Readers(2)
    one, other = plain("one").id, plain("other").id
    assert [readers.run(one, None), readers.run(one, 0), readers.run(one, 7)] == [0, 1, 1]
    readers.answered(one, 7, 1)
    assert [readers.run(one, 7), readers.run(other, 7), readers.run(one, 8)] == [2, 1, 1]
    readers.answered(one, 8, 2)
    readers.answered(one, 9, 3)
    assert [readers.run(one, at) for at in (7, 8, 9)] == [1, 3, 4]
    readers.answered(one, None, 4)
    assert [units_ahead(run, 4) for run in (0, 1, 2, 3, 4, 5, 10**9)] == [0, 0, 1, 2, 4, 4, 4]
    assert units_ahead(10**9, 0) == 0


# Nobody waits for a topic that hangs


def hang(reads: Reader, decodes: Decodes, segment: Segment, count: int) -> None:
    """Let some reads of different units of a topic wait for its files."""
    decodes.hold("sleepy")
    lie = places(segment.log)
    already = decodes.waiting
    for place in lie[:: len(lie) // count][:count]:
        in_thread(lambda at=place.position: reads.pull(segment.id, 100, cursor=at))
    eventually(lambda: decodes.waiting > already)


@pytest.mark.parametrize("threads", [2, 4, 5])
def test_a_slow_topic_keeps_no_other_waiting(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    slow, quick = plain("verysleepy", count=200), plain("quick")
    retire(tier, slow, quick)
    limits = small(regeneration_threads=threads, unit_bytes=1500)
    with watched(monkeypatch) as decodes, reader(tier.store, limits) as reads:
        hang(reads, decodes, slow, 10)
        for _ in range(2):
            walked = in_thread(lambda: reads.walk(quick.id, 500)).result(BOUND_S)
            assert check_served(b"".join(walked), quick.log) == len(quick.batches)
        assert decodes.waiting
        decodes.gate.set()
        assert check_served(b"".join(reads.walk(slow.id)), slow.log) == len(slow.batches)


def test_nor_do_several_slow_topics(tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [plain(f"{name}sleepy", count=100) for name in ("a", "b")]
    quick = plain("quick")
    retire(tier, *slow, quick)
    limits = small(regeneration_threads=4, unit_bytes=1500)
    with watched(monkeypatch) as decodes, reader(tier.store, limits) as reads:
        for each in slow:
            hang(reads, decodes, each, 6)
        walked = in_thread(lambda: reads.walk(quick.id, 500)).result(BOUND_S)
        assert check_served(b"".join(walked), quick.log) == len(quick.batches)


def test_a_cursor_that_hangs_is_given_up_without_waiting(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it reads ahead hangs; another topic's read, which pushes it out, doesn't."""
    records = [Rec(offset=i, value=b"v" * 50) for i in range(200)]
    slow, quick = Segment(batches=in_batches(records, 5), topic="sleepy"), plain("quick")
    retire(tier, slow, quick)
    rewrite(tier, slow, files=1, row_group_rows=20)
    announce(tier, slow)
    limits = small(cursors_max=1, unit_bytes=3000)
    with watched(monkeypatch) as decodes, reader(tier.store, limits) as reads:
        decodes.hold("sleepy", row_group=5)
        for batch in (0, 12):  # which is in the second unit, made of row groups 2, 3 and 4
            assert reads.pull(slow.id, 100, cursor=places(slow.log)[batch].position).data
        eventually(lambda: decodes.waiting)
        walked = in_thread(lambda: reads.walk(quick.id, 500)).result(BOUND_S)
        assert check_served(b"".join(walked), quick.log) == len(quick.batches)
        assert not decodes.gate.is_set()


def test_a_service_that_stops_answers_those_who_wait(
    tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = plain()
    retire(tier, segment)
    limits: ServiceLimits = small(regeneration_threads=1, unit_bytes=1500)
    with watched(monkeypatch) as decodes, reader(tier.store, limits) as reads:
        decodes.hold("orders")
        running = in_thread(lambda: reads.pull(segment.id, 100, cursor=0))
        eventually(lambda: decodes.waiting)
        waiting = in_thread(
            lambda: reads.pull(segment.id, 100, cursor=places(segment.log)[-1].position)
        )
        eventually(lambda: reads.retired._units._pool._queues)
        reads.retired.close()
        with pytest.raises(TransientError, match="stopping"):
            waiting.result(BOUND_S)
        decodes.gate.set()
        assert running.result(BOUND_S).data
