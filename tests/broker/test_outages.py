"""What fails beside the broker, and the broker itself: nothing is lost, and it catches up."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import workloads
from acknowledged import READ_COMMITTED, WrittenTopic, hashed
from librdkafka_reads import read_partition
from polling import eventually
from real_tier import RealTier, health
from retirement import forget_everything, retire
from tier_checks import check_all_read, check_tiered, topic_until_now

from tiering.errors import TransientError
from tiering.ledger import Ledger
from tiering.local.kafka import LocalKafka, RemoteStorage, onecopy_storage

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

UPLOAD_STEPS = ("body_received", "indexes_stored", "log_stored", "ledger_stored")


@pytest.fixture(scope="module")
def outage_tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealTier]:
    with RealTier(tmp_path_factory.mktemp("outages")) as running:
        yield running


@pytest.fixture(autouse=True)
def _all_up(outage_tier: RealTier) -> None:
    """Each test finds service and broker at work, whatever the one before it left."""
    if not outage_tier.service.running:
        outage_tier.service.start()
    if outage_tier.kafka.pid is None:
        outage_tier.kafka.start()


WHOLE: dict[str, WrittenTopic] = {}
"""Topics that are in the tier as a whole."""


def check_whole(tier: RealTier, topic: WrittenTopic) -> None:
    """All is in the tier, and all can be read."""
    check_tiered(tier, topic)
    check_all_read(tier, topic)
    WHOLE[topic.name] = topic


def logged(tier: RealTier, since: int) -> str:
    """What the broker has logged after its first `since` bytes."""
    return tier.kafka.log_path.read_bytes()[since:].decode(errors="replace")


def test_a_service_that_is_down_is_waited_for(outage_tier: RealTier) -> None:
    tier = outage_tier
    tier.service.kill()
    since = len(tier.kafka.log_path.read_bytes())
    assert health(tier.url) is None
    topic = workloads.small_segments(tier, "service-down", partitions=2)
    workloads.seal(tier, topic)
    eventually(lambda: "No segment can be copied now" in logged(tier, since), 30, what="it says so")
    eventually(lambda: logged(tier, since).count("retriable error") > 4, 30, what="more tries")
    assert not tier.entries(topic.name)
    assert len(tier.kafka.local_segments(topic.name, 0)) > 3, "local segments were given up"
    check_all_read(tier, topic)

    tier.service.start()
    check_whole(tier, topic)


def test_a_service_that_is_killed_again_and_again(outage_tier: RealTier) -> None:
    tier = outage_tier
    topic = WrittenTopic.empty("service-killed", 2)
    tier.kafka.create_tiered_topic(topic.name, 2, {"segment.ms": "1000"})

    def write() -> None:
        for number in range(24):
            workloads.append_small_segment(tier, topic, number, records=400)
        workloads.seal(tier, topic)

    kills = 0
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        # Here, not in the thread: a child dies with the thread that started it.
        while not writing.done() or kills < 5:
            time.sleep(0.05 * 2 ** (kills % 5))  # at another moment of a copy each time
            tier.service.kill()
            kills += 1
            tier.service.start()
        writing.result()
    check_whole(tier, topic)


@pytest.mark.parametrize("step", UPLOAD_STEPS)
def test_a_service_that_dies_between_two_steps_of_a_copy(outage_tier: RealTier, step: str) -> None:
    tier = outage_tier
    topic = WrittenTopic.empty(f"dies-at-{step}", 1)
    tier.kafka.create_tiered_topic(topic.name, 1, {"segment.ms": "1000"})
    tier.service.stop()
    tier.service.start(crash_at=step)
    for number in range(3):
        workloads.append_small_segment(tier, topic, number)
    workloads.seal(tier, topic)
    tier.service.wait_crashed(60)
    seen = len(tier.entries(topic.name))
    assert seen == (1 if step == "ledger_stored" else 0), "visible before it was whole"

    tier.service.start()
    check_whole(tier, topic)


def test_a_broker_that_is_killed_while_it_copies(outage_tier: RealTier) -> None:
    tier = outage_tier
    topic = WrittenTopic.empty("broker-killed", 2)
    tier.kafka.create_tiered_topic(topic.name, 2, {"segment.ms": "1000"})
    for bounce in range(2):
        for number in range(6):
            workloads.append_small_segment(tier, topic, 6 * bounce + number, records=300)
        eventually(lambda: tier.entries(topic.name), 60, what="a first copy")
        tier.kafka.kill()
        tier.kafka.start()
        check_all_read(tier, topic_until_now(topic))
    workloads.seal(tier, topic)
    check_whole(tier, topic)


def test_a_broker_whose_index_cache_is_gone_reads_the_same(outage_tier: RealTier) -> None:
    tier = outage_tier
    topic = workloads.small_segments(tier, "cache-gone", partitions=2)
    workloads.seal(tier, topic)
    check_whole(tier, topic)

    tier.kafka.restart()  # with what it has kept
    check_all_read(tier, topic)

    tier.kafka.stop()
    cache = tier.kafka.data_directory / "remote-log-index-cache"
    assert any(cache.iterdir())
    shutil.rmtree(cache)
    tier.kafka.start()
    check_all_read(tier, topic)


def test_a_token_that_the_service_does_not_know(outage_tier: RealTier) -> None:
    """Nothing is stored, nothing is lost; the right token is taken up without a restart."""
    tier = outage_tier
    tier.service.stop()
    right = tier.token_file.read_text()
    tier.token_file.write_text(secrets.token_urlsafe(32))
    tier.service.start()
    since = len(tier.kafka.log_path.read_bytes())
    known_to_service = tier.token_file.read_text()
    tier.token_file.write_text(right)  # what the broker reads when it is refused
    topic = workloads.small_segments(tier, "wrong-token", partitions=1)
    workloads.seal(tier, topic)
    eventually(lambda: "another token" in logged(tier, since), 60, what="it says why")
    assert right not in tier.kafka.log_path.read_text()
    assert known_to_service not in tier.service.log_path.read_text()
    assert not tier.entries(topic.name)
    check_all_read(tier, topic)

    tier.token_file.write_text(known_to_service)
    check_whole(tier, topic)


def test_a_deleted_topic_takes_its_segments_with_it(outage_tier: RealTier) -> None:
    tier = outage_tier
    topic = workloads.small_segments(tier, "deleted", partitions=2)
    workloads.seal(tier, topic)
    check_tiered(tier, topic)
    keys = [e.metadata.id.log_key for e in tier.entries(topic.name)]
    tier.kafka.delete_topic(topic.name)
    eventually(lambda: not tier.entries(topic.name), 60, what="every id's delete is marked")
    eventually(
        lambda: not any(tier.path_of(key).exists() for key in keys), 30, what="the objects go"
    )


def test_retention_moves_the_log_start_and_removes_whole_segments(outage_tier: RealTier) -> None:
    tier = outage_tier
    topic = workloads.small_segments(tier, "retention", partitions=1, segments=6)
    workloads.seal(tier, topic)
    check_tiered(tier, topic)
    sizes = [e.metadata.size_bytes for e in tier.entries(topic.name)]
    kept = sum(sizes[-3:])
    tier.set_topic_config(topic.name, retention_bytes=str(kept))
    eventually(lambda: len(tier.entries(topic.name)) < len(sizes), 60, what="segments go")
    start = eventually(lambda: tier.watermarks(topic.name, 0)[0], 30, what="the log start moves")
    eventually(
        lambda: tier.entries(topic.name)[0].metadata.start_offset == start, 30, what="they agree"
    )
    end = topic.partitions[0].end_offset
    records = read_partition(
        *(tier.bootstrap_servers, topic.name, 0, end, READ_COMMITTED), fetch=1 << 20, start=start
    )
    topic.partitions[0].expected(READ_COMMITTED).check_all(
        [hashed(r) for r in records], start=start
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "rsm.config.onecopy.url is missing"),
        ({"onecopy.url": "http://127.0.0.1:1", "onecopy.tokn": "x"}, "rsm.config.onecopy.tokn"),
    ],
)
def test_settings_that_cannot_work_stop_the_broker_with_a_reason(
    outage_tier: RealTier, tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    right = onecopy_storage(outage_tier.url, outage_tier.token_file)
    wrong = RemoteStorage(class_name=right.class_name, jars=right.jars, settings=settings)
    with pytest.raises(TransientError, match="ended") as failed:
        LocalKafka(tmp_path / "kafka", remote=wrong).start()
    log = (tmp_path / "kafka" / "kafka.log").read_text()
    assert said in log
    assert "ended" in str(failed.value)


def test_ledger_has_no_half_entry(outage_tier: RealTier) -> None:
    """After all of this, every ledger object can be read, and none lacks its objects."""
    tier = outage_tier
    for entry in Ledger(tier.store).scan():
        if not entry.delete_requested:
            assert tier.path_of(entry.metadata.id.log_key).exists(), entry.metadata
            assert tier.path_of(entry.metadata.id.indexes_key).exists(), entry.metadata


def test_in_the_end_tables_are_the_only_copy(outage_tier: RealTier) -> None:
    """Whatever has happened to the uploads, every segment can be proven, retired and read."""
    tier = outage_tier
    assert WHOLE
    retire(tier, WHOLE)
    forget_everything(tier)
    for topic in WHOLE.values():
        check_all_read(tier, topic)
