"""kill -9 of the engine at each of its steps, at any moment, of its parts, and of two at once.

The native segments are those that a real broker has uploaded; each test has a copy of its own.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.compute as pc
import pytest
from acknowledged import READ_COMMITTED, WrittenTopic
from native_copies import NativeCopy
from polling import eventually
from real_tier import RealTier, TierProcess
from table_rows import assert_same, catalog_of, compared, reader_at

from tiering.ledger import LedgerEntry, SegmentState
from tiering.table_schema import table_name

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

STEPS = ("planned", "converted", "committed", "settled")
TOPICS = ("small-segments", "transactions.interleaved")
DONE_S_MAX = 120
RANDOM_KILLS = 4


@pytest.fixture
def copy(
    tier: RealTier, first_written: Mapping[str, WrittenTopic], tmp_path: Path
) -> Iterator[NativeCopy]:
    """Segments of two topics, none of them revealed."""
    made = NativeCopy(tier, tmp_path / "copy", TOPICS)
    yield made
    made.tier.close()


def parts(entries: Sequence[LedgerEntry], count: int) -> list[Sequence[LedgerEntry]]:
    """`count` runs of about equal length, in order."""
    size = -(-len(entries) // count)
    return [entries[at : at + size] for at in range(0, len(entries), size)]


def wait_nobody_left(engine: TierProcess) -> None:
    """Spark's JVM and Python workers go with the engine."""
    eventually(
        lambda: not engine.relatives(),
        30,
        what="no process left",
        details=lambda: str(engine.relatives()),
    )


def check_tables(
    copy: NativeCopy,
    topics: Mapping[str, WrittenTopic],
    tend: Callable[[], None] = lambda: None,
) -> None:
    """Every committed record of both topics, each once, and every segment marked as done."""
    catalog = catalog_of(copy.tier)

    def done() -> bool:
        tend()
        return all(reader_at(copy.tier, catalog, name, topics[name].ends) for name in TOPICS)

    eventually(done, DONE_S_MAX, what="all is in the tables", details=copy.tier.engine.tail)
    for name in TOPICS:
        table = catalog.load_table((copy.tier.config.namespace, table_name(name)))
        rows = table.scan().to_arrow().sort_by("kafka_offset")
        for number, partition in enumerate(topics[name].partitions):
            got = rows.filter(pc.field("kafka_partition") == number)
            wanted = partition.expected(READ_COMMITTED).table()
            assert_same(compared(got), wanted, f"{name}-{number}")
    eventually(
        lambda: all(
            entry.state is SegmentState.CONVERTED
            for name in TOPICS
            for entry in copy.tier.entries(name)
        ),
        30,
        what="every segment is marked",
    )


def test_the_engine_dies_at_each_step(
    copy: NativeCopy, first_written: Mapping[str, WrittenTopic]
) -> None:
    *groups, last = parts(copy.entries, len(STEPS) + 1)
    engine = copy.tier.engine
    for step, group in zip(STEPS, groups, strict=True):
        copy.reveal(group)
        engine.start(crash_at=step, wait=False)
        engine.wait_crashed(90)
        wait_nobody_left(engine)
    copy.reveal(last)
    engine.start()
    check_tables(copy, first_written)
    assert engine.stop() == 0
    wait_nobody_left(engine)


def test_the_engine_dies_at_any_moment(
    copy: NativeCopy, first_written: Mapping[str, WrittenTopic]
) -> None:
    rng = random.Random(7)
    *groups, last = parts(copy.entries, RANDOM_KILLS + 1)
    engine = copy.tier.engine
    for group in groups:
        engine.start()
        copy.reveal(group)
        time.sleep(rng.uniform(0, 1.5))  # the moment is the test's input, nothing is awaited
        engine.kill()
        wait_nobody_left(engine)
    copy.reveal(last)
    engine.start()
    check_tables(copy, first_written)


def test_two_engines_side_by_side_of_which_one_dies(
    copy: NativeCopy, first_written: Mapping[str, WrittenTopic]
) -> None:
    """Both plan the same segments; each commit lands once, whoever is first."""
    groups = parts(copy.entries, 8)
    one, other = copy.tier.engine, copy.tier.second_engine
    one.start(wait=False)
    other.start(wait=False)
    one.wait_ready()
    other.wait_ready()
    for number, group in enumerate(groups):
        copy.reveal(group)
        if number == len(groups) // 2:
            other.kill()
        time.sleep(0.3)  # so that there are several cycles to race in
    other.start()
    check_tables(copy, first_written)


@pytest.mark.parametrize("victim", ["java", "python"])
def test_a_part_of_the_engine_dies(
    copy: NativeCopy, first_written: Mapping[str, WrittenTopic], victim: str
) -> None:
    """Spark's JVM or its Python workers: the engine goes on, or ends and is started again."""
    first, last = parts(copy.entries, 2)
    engine = copy.tier.engine
    engine.start()
    copy.reveal(first)
    catalog = catalog_of(copy.tier)
    ends = {
        p: max(e.metadata.end_offset + 1 for e in first if _is(e, "small-segments", p))
        for p in range(len(first_written["small-segments"].partitions))
    }
    eventually(
        lambda: reader_at(copy.tier, catalog, "small-segments", ends),
        60,
        what="the first half",
        details=engine.tail,
    )
    leader = min(engine.relatives())
    killed = [p for p, c in engine.relatives().items() if p != leader and victim in c.split()[0]]
    assert killed, engine.relatives()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    copy.reveal(last)

    def start_again() -> None:
        if not engine.running:
            engine.start()

    check_tables(copy, first_written, start_again)


def _is(entry: LedgerEntry, topic: str, partition: int) -> bool:
    return entry.metadata.topic == topic and entry.metadata.id.partition == partition
