"""A tier without native copies: readers who were there when these went, and what fails later."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest
import workloads
from acknowledged import ISOLATIONS, Found, Record, WrittenTopic, hashed
from confluent_kafka import KafkaError
from librdkafka_reads import read_partition
from polling import eventually
from real_tier import RealTier
from retirement import check_sole_copy, forget_everything, regenerations, wait_retired
from stock_client import StockClient
from tier_checks import CAUGHT_UP_S_MAX, check_all_read, check_table

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

KIB = 1024
FETCHES = (4 * KIB, 64 * KIB, 1024 * KIB)
AHEAD = 20
PAUSE_S = 0.1
UNKNOWN = -1


@pytest.fixture(scope="module")
def sole_tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealTier]:
    """Retires at once, when its engine runs."""
    with RealTier(tmp_path_factory.mktemp("sole-copy"), retire_grace_ms=0) as running:
        yield running


@pytest.fixture(scope="module")
def sole_java(sole_tier: RealTier, java_classpath: str) -> Iterator[StockClient]:
    with StockClient(java_classpath, sole_tier.bootstrap_servers) as client:
        yield client


@dataclass(kw_only=True)
class Paused:
    """A librdkafka consumer that stands in the middle of a segment."""

    topic: WrittenTopic
    number: int
    isolation: str
    records: Iterator[Record]
    errors: list[KafkaError]
    taken: list[Found] = field(default_factory=list)

    def check_rest(self) -> None:
        """Read to the end: what was read before and behind the pause must be everything."""
        self.taken += [hashed(r) for r in self.records]
        self.topic.partitions[self.number].expected(self.isolation).check_all(self.taken)


def paused(tier: RealTier, topic: WrittenTopic, number: int, isolation: str, fetch: int) -> Paused:
    """One that has read up to the middle of a segment in the middle."""
    mine = [e.metadata for e in tier.entries(topic.name) if e.metadata.id.partition == number]
    segment = mine[len(mine) // 2]
    end = topic.partitions[number].end_offset
    errors: list[KafkaError] = []
    records = read_partition(
        *(tier.bootstrap_servers, topic.name, number, end, isolation),
        fetch=fetch,
        ahead=AHEAD,
        errors=errors,
    )
    made = Paused(topic=topic, number=number, isolation=isolation, records=records, errors=errors)
    middle = (segment.start_offset + segment.end_offset) // 2
    for record in records:
        made.taken.append(hashed(record))
        if record[0] >= middle:
            return made
    raise AssertionError(f"{topic.name}-{number} ends below {middle}")


@contextmanager
def looping(*reads: Callable[[int], None]) -> Iterator[None]:
    """Meanwhile each of them is called again and again, with the number of the call; at the end
    once more."""
    stop = Event()

    def loop(read: Callable[[int], None]) -> int:
        number = 0
        while not stop.wait(PAUSE_S):
            read(number)
            number += 1
        read(number)
        return number

    with ThreadPoolExecutor(len(reads)) as pool:
        jobs: list[Future[int]] = [pool.submit(loop, read) for read in reads]
        try:
            yield
        finally:
            stop.set()
        assert min(job.result() for job in jobs) > 1


@pytest.fixture(scope="module")
def handed_over(sole_tier: RealTier, sole_java: StockClient) -> Mapping[str, WrittenTopic]:
    """Topics whose native copies went under the eyes of readers."""
    tier = sole_tier
    tier.engine.start()
    engine = min(tier.engine.relatives())
    os.kill(engine, signal.SIGSTOP)  # its start would take long beside the readers
    topics = [
        workloads.interleaved_transactions(tier),
        workloads.small_segments(tier, "many-segments", partitions=2, segments=6, records=200),
    ]
    for topic in topics:
        workloads.seal(tier, topic)
        tier.wait_tiered(topic.name, topic.ends, CAUGHT_UP_S_MAX)
    waiting = [
        paused(tier, topic, number, isolation, fetch)
        for topic, fetch in zip(topics, (64 * KIB, 1), strict=True)
        for number in topic.ends
        for isolation in ISOLATIONS
    ]
    names = [topic.name for topic in topics]
    with looping(
        lambda n: read_by_librdkafka(tier, topics[n % 2], n // 2),
        lambda n: read_by_java(sole_java, topics[n % 2], n // 2),
    ):
        os.kill(engine, signal.SIGCONT)
        wait_retired(tier, names)
    assert regenerations(tier) > 0
    for reader in waiting:
        reader.check_rest()
        assert reader.errors == []
    return {topic.name: topic for topic in topics}


def read_by_librdkafka(tier: RealTier, topic: WrittenTopic, turn: int) -> None:
    """All of a partition, in another way at each turn."""
    number, isolation, fetch = _way(topic, turn)
    partition = topic.partitions[number]
    found = read_partition(
        tier.bootstrap_servers, topic.name, number, partition.end_offset, isolation, fetch=fetch
    )
    partition.expected(isolation).check_all([hashed(r) for r in found])


def read_by_java(java: StockClient, topic: WrittenTopic, turn: int) -> None:
    """As `read_by_librdkafka`."""
    number, isolation, fetch = _way(topic, turn)
    partition = topic.partitions[number]
    found = java.read(topic.name, number, partition.end_offset, isolation, fetch=fetch)
    partition.expected(isolation).check_all(found)


def _way(topic: WrittenTopic, turn: int) -> tuple[int, str, int]:
    number, turn = turn % len(topic.partitions), turn // len(topic.partitions)
    return number, ISOLATIONS[turn % 2], FETCHES[turn // 2 % len(FETCHES)]


def test_readers_across_the_hand_over_see_no_error_no_gap_and_no_repeat(
    sole_tier: RealTier, handed_over: Mapping[str, WrittenTopic]
) -> None:
    """The fixture's readers have; and everything is where it should be."""
    check_sole_copy(sole_tier, handed_over)
    for topic in handed_over.values():
        check_table(sole_tier, topic)


def test_history_is_read_while_the_catalog_is_away(
    sole_tier: RealTier, sole_java: StockClient, handed_over: Mapping[str, WrittenTopic]
) -> None:
    """By a service that was started meanwhile, for a broker that knows no index any more."""
    tier = sole_tier
    tier.engine.stop()
    catalog = Path(tier.config.catalog["uri"].removeprefix("sqlite:///"))
    away = catalog.rename(catalog.with_suffix(".away"))
    try:
        forget_everything(tier)
        for topic in handed_over.values():
            check_all_read(tier, topic)
            for turn in range(2):
                read_by_java(sole_java, topic, turn)
        assert regenerations(tier) > 0
        assert not catalog.exists()
    finally:
        away.rename(catalog)


def test_a_store_that_is_away_delays_readers(
    sole_tier: RealTier, sole_java: StockClient, handed_over: Mapping[str, WrittenTopic]
) -> None:
    """They get nothing that is wrong, no end, and go on when it's back.

    Kafka has no error code for it: whatever fails in the tier is UNKNOWN_SERVER_ERROR to clients,
    and they try again.
    """
    tier = sole_tier
    tier.engine.stop()
    forget_everything(tier)
    store = Path(tier.config.store)
    waiting = [
        paused(tier, handed_over["many-segments"], number, isolation, 1)
        for number in (0, 1)
        for isolation in ISOLATIONS
    ]
    away = store.rename(store.with_name("store-away"))
    refused = store_errors(tier)
    with ThreadPoolExecutor(len(waiting) + 1) as pool:
        jobs = [pool.submit(reader.check_rest) for reader in waiting]
        jobs.append(pool.submit(read_by_java, sole_java, handed_over["many-segments"], 1))
        try:
            eventually(lambda: store_errors(tier) >= refused + 20, 20, what="reads fail")
            for job in jobs:
                assert not job.done(), job.result()
        finally:
            away.rename(store)
        for job in jobs:
            job.result()
    told = {error.code() for reader in waiting for error in reader.errors}
    assert told == {UNKNOWN}, told


def store_errors(tier: RealTier) -> int:
    """Reads that failed because the store did."""
    counts = tier.metrics()
    routes = ('route="get_log"', 'route="get_index"')
    return int(sum(counts.get(("onecopy_store_errors_total", route), 0) for route in routes))
