"""Settings that change how the broker uses its tier, while it runs: nothing is lost or changed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import workloads
from acknowledged import READ_COMMITTED, WrittenTopic, hashed
from librdkafka_reads import read_partition
from polling import eventually
from real_tier import RealTier
from stock_client import LogOffsets, StockClient
from tier_checks import CAUGHT_UP_S_MAX, check_all_read, check_tiered, topic_until_now

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

COPY_QUOTA = "remote_log_manager_copy_max_bytes_per_second"
FETCH_QUOTA = "remote_log_manager_fetch_max_bytes_per_second"
UNLIMITED = str(2**63 - 1)
NEARLY_NOTHING = "10"
"""Bytes a second: after one small segment, of 1.5 KB or more, the next has to wait for long."""


@pytest.fixture(scope="module")
def tiered(tier: RealTier) -> WrittenTopic:
    """Four small segments and a last record, all of them in the tier only."""
    topic = workloads.small_segments(tier, "knobs", partitions=1)
    workloads.seal(tier, topic)
    check_tiered(tier, topic)
    return topic


@contextmanager
def quota(tier: RealTier, setting: str) -> Iterator[None]:
    """Nearly nothing inside, no limit afterwards."""
    tier.set_broker_config(1, **{setting: NEARLY_NOTHING})
    try:
        yield
    finally:
        tier.set_broker_config(1, **{setting: UNLIMITED})


def local_topic(tier: RealTier, name: str, segments: int) -> WrittenTopic:
    """One partition of small segments that stay on the local disk until it is sealed."""
    return workloads.small_segments(tier, name, partitions=1, segments=segments)


def wait_offsets(java: StockClient, topic: str, expected: LogOffsets) -> None:
    """Until ListOffsets says so; after a start it takes a moment to know the tier's."""
    eventually(
        lambda: java.log_offsets(topic) == expected,
        60,
        what=str(expected),
        details=lambda: str(java.log_offsets(topic)),
    )


def test_list_offsets_tells_disk_and_tier_apart(
    tier: RealTier, java: StockClient, tiered: WrittenTopic
) -> None:
    end = tiered.partitions[0].end_offset
    assert java.log_offsets(tiered.name) == LogOffsets(
        earliest=0, earliest_local=end, latest_tiered=end - 1, latest=end, of_latest_time=-1
    )
    topic = local_topic(tier, "on-disk-too", 3)
    latest = max(topic.partitions[0].committed, key=lambda r: (r[1], -r[0]))[0]
    expected = LogOffsets(
        earliest=0, earliest_local=0, latest_tiered=99, latest=150, of_latest_time=latest
    )
    wait_offsets(java, topic.name, expected)


def test_copying_is_disabled_and_enabled_again(
    tier: RealTier, java: StockClient, tiered: WrittenTopic
) -> None:
    topic = local_topic(tier, "copy-disabled", 3)
    eventually(lambda: len(tier.entries(topic.name)) == 2, 60, what="two copies")
    tier.set_topic_config(topic.name, remote_log_copy_disable="true")
    for number in (3, 4):
        workloads.append_small_segment(tier, topic, number)
    beside = local_topic(tier, "copied-beside", 2)
    eventually(lambda: tier.entries(beside.name), 60, what="a copy of another topic")
    assert len(tier.entries(topic.name)) == 2
    check_all_read(tier, topic_until_now(topic))

    tier.set_topic_config(topic.name, remote_log_copy_disable="false")
    workloads.seal(tier, topic)
    check_tiered(tier, topic)
    check_all_read(tier, topic)


def test_a_copy_quota_delays_and_loses_nothing(tier: RealTier) -> None:
    with quota(tier, COPY_QUOTA):
        topic = local_topic(tier, "copy-quota", 5)
        eventually(lambda: tier.entries(topic.name), 60, what="a first copy")
        check_all_read(tier, topic_until_now(topic))
        assert len(tier.entries(topic.name)) < 4, "the quota isn't at work"
    workloads.seal(tier, topic)
    check_tiered(tier, topic)
    check_all_read(tier, topic)


def test_a_fetch_quota_delays_and_loses_nothing(tier: RealTier, tiered: WrittenTopic) -> None:
    partition = tiered.partitions[0]

    def read() -> list[tuple[int, bytes]]:
        where = (tier.bootstrap_servers, tiered.name, 0, partition.end_offset)
        return [hashed(r) for r in read_partition(*where, READ_COMMITTED, fetch=1 << 20)]

    before = tier.log_fetches()
    with ThreadPoolExecutor(1) as pool:
        with quota(tier, FETCH_QUOTA):
            reading = pool.submit(read)
            eventually(lambda: tier.log_fetches() > before, 60, what="a first fetch")
            assert not reading.done(), "the quota isn't at work"
        partition.expected(READ_COMMITTED).check_all(reading.result(CAUGHT_UP_S_MAX))


def test_a_log_directory_that_was_moved(
    tier: RealTier, java: StockClient, tiered: WrittenTopic
) -> None:
    topic = local_topic(tier, "moved", 3)
    eventually(lambda: len(tier.entries(topic.name)) == 2, 60, what="two copies")
    before = java.log_offsets(tiered.name)
    tier.kafka.stop()
    tier.kafka.move_data(tier.directory / "moved-data")
    tier.kafka.start()
    wait_offsets(java, tiered.name, before)
    check_all_read(tier, tiered)
    check_all_read(tier, topic_until_now(topic))
    workloads.append_small_segment(tier, topic, 3)
    workloads.seal(tier, topic)
    check_tiered(tier, topic)
    check_all_read(tier, topic)
