"""One real tier for the reading tests, its topics written at once; others start their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import workloads
from acknowledged import WrittenTopic
from real_tier import RealTier
from retirement import keep_native
from stock_client import StockClient, compile_client

TIERED_S_MAX = 120
ONE_RECORD_BATCHES = 1_000_000


@pytest.fixture(scope="session")
def java_classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_client(tmp_path_factory.mktemp("stock-client"))


@pytest.fixture(scope="session")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealTier]:
    """Broker and service; the engine is started by the first test that needs tables."""
    with RealTier(tmp_path_factory.mktemp("tier")) as running:
        yield running


@pytest.fixture(scope="session")
def java(tier: RealTier, java_classpath: str) -> Iterator[StockClient]:
    with StockClient(java_classpath, tier.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="session")
def first_written(tier: RealTier) -> Mapping[str, WrittenTopic]:
    """The topics that are quick to make: enough for who converts them again and again."""
    makers: list[Callable[[], WrittenTopic]] = [
        lambda: workloads.interleaved_transactions(tier),
        lambda: workloads.small_segments(tier, "small-segments", partitions=10),
        lambda: workloads.log_append_time(tier),
    ]
    return _write(tier, makers)


@pytest.fixture(scope="session")
def written(
    tier: RealTier,
    java: StockClient,
    java_classpath: str,
    first_written: Mapping[str, WrittenTopic],
) -> Mapping[str, WrittenTopic]:
    """What was acknowledged, by topic; all of it is in the tier and off the broker's disk."""
    with StockClient(java_classpath, tier.bootstrap_servers) as beside:
        makers: list[Callable[[], WrittenTopic]] = [
            lambda: workloads.tiny_transactions(tier, beside),
            lambda: workloads.one_record_batches(tier, ONE_RECORD_BATCHES),
            lambda: workloads.odd_records(tier, java),
            lambda: workloads.compacted(tier),
        ]
        return {**first_written, **_write(tier, makers)}


def _write(
    tier: RealTier, makers: Sequence[Callable[[], WrittenTopic]]
) -> Mapping[str, WrittenTopic]:
    with ThreadPoolExecutor(len(makers)) as pool:
        topics = [job.result() for job in [pool.submit(make) for make in makers]]
    for topic in topics:
        workloads.seal(tier, topic)
    for topic in topics:
        tier.wait_tiered(topic.name, topic.ends, TIERED_S_MAX)
        keep_native(tier, topic.name)
    return {topic.name: topic for topic in topics}
