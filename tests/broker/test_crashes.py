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

from tiering.ledger import Ledger, LedgerEntry, SegmentState
from tiering.table.schema import table_name

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

STEPS = ("planned", "converted", "committed", "settled")
TOPICS = ("small-segments", "transactions.interleaved")
DONE_S_MAX = 120
RANDOM_KILLS = 2


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


def test_the_engine_dies_at_each_step_and_at_any_moment(
    copy: NativeCopy, first_written: Mapping[str, WrittenTopic]
) -> None:
    rng = random.Random(7)
    groups = iter(parts(copy.entries, len(STEPS) + RANDOM_KILLS + 1))
    engine = copy.tier.engine
    for step in STEPS:
        copy.reveal(next(groups))
        engine.start(crash_at=step, wait=False)
        engine.wait_crashed(90)
        wait_nobody_left(engine)
    for _ in range(RANDOM_KILLS):
        engine.start()
        copy.reveal(next(groups))
        time.sleep(rng.uniform(0, 1.5))  # the moment is the test's input, nothing is awaited
        engine.kill()
        wait_nobody_left(engine)
    copy.reveal(next(groups))
    engine.start()
    check_tables(copy, first_written)
    assert engine.stop() == 0
    wait_nobody_left(engine)


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


def test_parts_of_the_engine_die(
    copy: NativeCopy, first_written: Mapping[str, WrittenTopic]
) -> None:
    """Spark's Python workers, then its JVM: the engine goes on, or ends and is started again."""
    first, second, last = parts(copy.entries, 3)
    engine = copy.tier.engine
    engine.start()
    copy.reveal(first)
    wait_partly(copy, first)
    kill_part(engine, "python")
    copy.reveal(second)
    wait_partly(copy, [*first, *second])
    assert engine.running
    kill_part(engine, "java")
    copy.reveal(last)

    def start_again() -> None:
        if not engine.running:
            engine.start()

    check_tables(copy, first_written, start_again)


def wait_partly(copy: NativeCopy, entries: Sequence[LedgerEntry]) -> None:
    """Until these segments are converted and marked."""
    ledger = Ledger(copy.tier.store)
    eventually(
        lambda: all(ledger.load(e.metadata.id).state is SegmentState.CONVERTED for e in entries),
        60,
        what="these segments are converted",
        details=copy.tier.engine.tail,
    )


def kill_part(engine: TierProcess, program: str) -> None:
    """kill -9 every process of this program that belongs to the engine, but not itself."""
    leader = min(engine.relatives())
    parts = [p for p, c in engine.relatives().items() if program in c.split()[0] and p != leader]
    assert parts, engine.relatives()
    for pid in parts:
        os.kill(pid, signal.SIGKILL)
