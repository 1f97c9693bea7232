"""What leaves a topic: by time, by size, on request, all of it. Broker, clients, ledger and table
agree on what is left."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import workloads
from acknowledged import ISOLATIONS, READ_COMMITTED, WrittenTopic, hashed
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from librdkafka_reads import read_partition
from polling import eventually
from producers import START_MS
from real_tier import RealTier
from retirement import wait_retired
from table_rows import assert_same, catalog_of, compared, reader_at
from tier_checks import CAUGHT_UP_S_MAX, check_table, topic_until_now

from tiering.config import TopicConfig
from tiering.ledger import Ledger, LedgerEntry
from tiering.table.schema import table_name

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

SEGMENTS = 6
RECORDS = 50
CUTS = {"by-time": 3 * RECORDS, "by-size": 3 * RECORDS, "on-request": 2 * RECORDS + 20}
"""Where each topic's log starts in the end; on request, in the middle of a segment."""
DAY_MS = 86_400_000
KEPT, KEPT_AGAIN = "kept-forever", "kept-again"


@pytest.fixture(scope="module")
def sole_tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealTier]:
    directory = tmp_path_factory.mktemp("lifecycle")
    topics = dict.fromkeys((KEPT, KEPT_AGAIN), TopicConfig(retention="forever"))
    with RealTier(directory, retire_grace_ms=0, topics=topics) as running:
        running.engine.start()
        yield running


@pytest.fixture(scope="module")
def cut(sole_tier: RealTier) -> Mapping[str, WrittenTopic]:
    """Topics that were in tier and table as a whole, and then lost their first segments."""
    tier = sole_tier
    with ThreadPoolExecutor(2) as pool:
        topics = list(pool.map(lambda name: write(tier, name), [*CUTS, KEPT, "emptied"]))
    by_name = {topic.name: topic for topic in topics}
    for topic in topics:
        tier.wait_tiered(topic.name, topic.ends, CAUGHT_UP_S_MAX)
        check_table(tier, topic)
    wait_retired(tier, by_name)
    tier.set_topic_config("by-time", retention_ms=str(DAY_MS))
    sizes = [e.metadata.size_bytes for e in tier.entries("by-size")]
    tier.set_topic_config("by-size", retention_bytes=str(sum(sizes[SEGMENTS // 2 :])))
    tier.set_topic_config(KEPT, retention_ms=str(DAY_MS))
    delete_records(tier, "on-request", CUTS["on-request"])
    delete_records(tier, "emptied", OFFSET_END)
    return by_name


def write(tier: RealTier, name: str) -> WrittenTopic:
    """Old segments and as many new ones, and a last record; all of it leaves the local disk."""
    topic = WrittenTopic.empty(name, 1)
    configs = {"segment.ms": "1000", "local.retention.ms": workloads.FOREVER}
    tier.create_tiered_topic(name, 1, configs)
    now_ms = int(time.time() * 1000) - 10_000 * SEGMENTS
    for number in range(SEGMENTS):
        start_ms = START_MS if number < SEGMENTS // 2 else now_ms
        workloads.append_small_segment(tier, topic, number, records=RECORDS, start_ms=start_ms)
    workloads.seal(tier, topic)
    return topic


def delete_records(tier: RealTier, topic: str, before: int) -> None:
    """As kafka-delete-records does."""
    admin = AdminClient({"bootstrap.servers": tier.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(30)


def all_entries(tier: RealTier, topic: str) -> list[LedgerEntry]:
    """Also those whose delete was asked, in offset order."""
    found = [e for e in Ledger(tier.store).scan() if e.metadata.topic == topic]
    return sorted(found, key=lambda e: e.metadata.start_offset)


def table_of(tier: RealTier, topic: str) -> pa.Table:
    """The rows of the topic's table in offset order."""
    table = catalog_of(tier).load_table((tier.config.namespace, table_name(topic)))
    return compared(table.scan().to_arrow().sort_by("kafka_offset"))


def wait_converted(tier: RealTier, topic: WrittenTopic) -> None:
    """Until the table has come to the topic's end."""
    eventually(
        lambda: reader_at(tier, catalog_of(tier), topic.name, topic.ends),
        CAUGHT_UP_S_MAX,
        what=f"{topic.name} is in its table",
        details=lambda: f"{tier.heartbeat()}\n{tier.engine.tail()}",
    )


def check_rows(tier: RealTier, topic: WrittenTopic, start: int) -> None:
    """The table holds the committed records from `start` on, each once."""
    wanted = topic.partitions[0].expected(READ_COMMITTED).table()
    kept = wanted.filter(pc.field("offset") >= start)
    assert_same(table_of(tier, topic.name), kept, topic.name)


def check_read_from(tier: RealTier, topic: WrittenTopic, start: int) -> None:
    """Consumers read what was acknowledged from `start` on, and nothing before it."""
    partition = topic.partitions[0]
    where = (tier.bootstrap_servers, topic.name, 0, partition.end_offset)
    for isolation in ISOLATIONS:
        records = read_partition(*where, isolation, fetch=1 << 20, start=start)
        partition.expected(isolation).check_all([hashed(r) for r in records], start=start)
    if start == 0:
        return
    with pytest.raises(KafkaException, match="out of range"):
        list(read_partition(*where, READ_COMMITTED, fetch=1 << 20, start=start - 1))


def wait_cut(tier: RealTier, topic: str, start: int) -> None:
    """Until broker and ledger have nothing that lies wholly below `start`."""
    eventually(lambda: tier.watermarks(topic, 0)[0] == start, 60, what=f"{topic} starts at {start}")
    eventually(
        lambda: all(e.metadata.end_offset >= start for e in tier.entries(topic)),
        60,
        what="segments below it are deleted",
        details=lambda: str([e.metadata for e in tier.entries(topic)]),
    )


def check_gone(tier: RealTier, entries: Iterable[LedgerEntry]) -> None:
    """Until the native objects of these segments don't exist any more."""
    keys = [k for e in entries for k in (e.metadata.id.log_key, e.metadata.id.indexes_key)]
    eventually(
        lambda: not any(tier.path_of(key).exists() for key in keys), 30, what="the objects go"
    )


@pytest.mark.parametrize("name", CUTS)
def test_broker_clients_and_ledger_agree(
    sole_tier: RealTier, cut: Mapping[str, WrittenTopic], name: str
) -> None:
    tier, topic, start = sole_tier, cut[name], CUTS[name]
    wait_cut(tier, name, start)
    check_read_from(tier, topic, start)
    left = [e.metadata for e in tier.entries(name)]
    assert left[0].start_offset == start // RECORDS * RECORDS
    assert [e.start_offset for e in left[1:]] == [e.end_offset + 1 for e in left[:-1]]
    assert left[-1].end_offset == topic.partitions[0].end_offset - 1
    gone = [e for e in all_entries(tier, name) if e.metadata.end_offset < start]
    assert len(gone) == start // RECORDS
    check_gone(tier, gone)


@pytest.mark.parametrize("name", CUTS)
def test_rows_below_the_log_start_leave_file_by_file(
    sole_tier: RealTier, cut: Mapping[str, WrittenTopic], name: str
) -> None:
    """A file in which the log starts may stay as it is, or be written again without them."""
    tier, topic, start = sole_tier, cut[name], CUTS[name]
    wait_cut(tier, name, start)
    first = eventually(
        lambda: first_row(tier, name) if first_row(tier, name) > 0 else None, 60, what="rows leave"
    )
    assert start // RECORDS * RECORDS <= first <= start
    check_rows(tier, topic, first)


def first_row(tier: RealTier, topic: str) -> int:
    """The lowest offset in the topic's table."""
    return int(pc.min(table_of(tier, topic).column("offset")).as_py())


def test_a_topic_that_is_kept_forever_keeps_its_rows(
    sole_tier: RealTier, cut: Mapping[str, WrittenTopic]
) -> None:
    tier, topic, start = sole_tier, cut[KEPT], CUTS["by-time"]
    wait_cut(tier, KEPT, start)
    check_read_from(tier, topic, start)
    check_gone(tier, [e for e in all_entries(tier, KEPT) if e.metadata.end_offset < start])
    check_rows(tier, topic, 0)


@pytest.fixture(scope="module")
def refilled(sole_tier: RealTier, cut: Mapping[str, WrittenTopic]) -> tuple[WrittenTopic, int]:
    """A topic that was emptied and written again, and where it began again."""
    tier, topic = sole_tier, cut["emptied"]
    start = topic.partitions[0].end_offset
    wait_cut(tier, topic.name, start)
    assert not tier.entries(topic.name)
    more = topic_until_now(topic)
    workloads.append_small_segment(tier, more, SEGMENTS)
    workloads.seal(tier, more)
    tier.wait_tiered(more.name, more.ends, CAUGHT_UP_S_MAX)
    wait_converted(tier, more)
    return more, start


def test_a_topic_that_was_emptied_goes_on(
    sole_tier: RealTier, refilled: tuple[WrittenTopic, int]
) -> None:
    topic, start = refilled
    check_read_from(sole_tier, topic, start)
    rows = table_of(sole_tier, topic.name)
    wanted = topic.partitions[0].expected(READ_COMMITTED).table()
    assert_same(
        rows.filter(pc.field("offset") >= start),
        wanted.filter(pc.field("offset") >= start),
        topic.name,
    )


def test_nothing_stays_of_what_was_emptied(
    sole_tier: RealTier, refilled: tuple[WrittenTopic, int]
) -> None:
    topic, start = refilled
    eventually(lambda: first_row(sole_tier, topic.name) == start, 60, what="rows leave")
    check_rows(sole_tier, topic, start)


@pytest.mark.parametrize("name", ["again", KEPT_AGAIN])
def test_a_topic_that_is_made_again(sole_tier: RealTier, name: str) -> None:
    """Nothing of the former one is in its log or table; that one's own table goes with it, unless
    it is kept forever."""
    tier = sole_tier
    former, topic = (write_again(tier, name, segments) for segments in (3, 2))
    check_read_from(tier, topic, 0)
    check_rows(tier, topic, 0)
    prefix = f"{table_name(name)}__"
    if name == KEPT_AGAIN:
        (kept,) = tables_called(tier, prefix)
        rows = compared(catalog_of(tier).load_table(kept).scan().to_arrow())
        wanted = former.partitions[0].expected(READ_COMMITTED).table()
        assert_same(rows.sort_by("offset"), wanted, name)
    else:
        eventually(lambda: not tables_called(tier, prefix), 60, what="the former table goes")


def write_again(tier: RealTier, name: str, segments: int) -> WrittenTopic:
    """A topic that is in its table, after the one of the same name is gone."""
    if tier.entries(name):
        tier.kafka.delete_topic(name)
        eventually(lambda: not tier.entries(name), 60, what="the former topic is gone")
    topic = workloads.small_segments(tier, name, partitions=1, segments=segments)
    workloads.seal(tier, topic)
    tier.wait_tiered(name, topic.ends, CAUGHT_UP_S_MAX)
    wait_converted(tier, topic)
    return topic


def tables_called(tier: RealTier, prefix: str) -> list[tuple[str, ...]]:
    """Tables whose names begin so."""
    names = catalog_of(tier).list_tables(tier.config.namespace)
    return [name for name in names if name[-1].startswith(prefix)]


def test_retention_races_conversion(sole_tier: RealTier) -> None:
    """Segments are deleted while, and before, they are converted: what is left is exact."""
    tier = sole_tier
    topic = WrittenTopic.empty("racing", 1)
    configs = {"segment.ms": "1000", "local.retention.ms": "1", "retention.bytes": "15000"}
    tier.create_tiered_topic(topic.name, 1, configs)
    for number in range(24):
        workloads.append_small_segment(tier, topic, number)
    workloads.seal(tier, topic)
    tier.wait_tiered(topic.name, topic.ends, CAUGHT_UP_S_MAX)
    eventually(lambda: len(tier.entries(topic.name)) < 12, 60, what="most of them are deleted")
    wait_converted(tier, topic)
    start = tier.watermarks(topic.name, 0)[0]
    check_read_from(tier, topic, start)
    rows = table_of(tier, topic.name)
    offsets = rows.column("offset").to_pylist()
    assert len(set(offsets)) == len(offsets)
    wanted = topic.partitions[0].expected(READ_COMMITTED).table()
    in_table = wanted.filter(pc.is_in(wanted.column("offset"), pa.array(offsets)))
    assert_same(rows, in_table, "what is in the table")
    assert set(offsets) >= {o for o in wanted.column("offset").to_pylist() if o >= start}


@pytest.fixture(scope="module")
def untiered(sole_tier: RealTier) -> tuple[WrittenTopic, int]:
    """A topic whose tier was emptied by remote.log.delete.on.disable and filled again, and where
    its log has started since."""
    tier = sole_tier
    topic = write(tier, "untiered")
    tier.wait_tiered(topic.name, topic.ends, CAUGHT_UP_S_MAX)
    wait_converted(tier, topic)
    start = topic.partitions[0].end_offset
    tier.set_topic_config(topic.name, local_retention_ms=workloads.FOREVER)
    more = topic_until_now(topic)
    for number in range(2):
        workloads.append_small_segment(tier, more, number)
    copied = [e for e in all_entries(tier, topic.name) if not e.delete_requested]
    tier.set_topic_config(
        topic.name, remote_storage_enable="false", remote_log_delete_on_disable="true"
    )
    eventually(lambda: not tier.entries(topic.name), 60, what="the tier is emptied")
    check_gone(tier, copied)
    assert tier.watermarks(topic.name, 0)[0] == start
    check_read_from(tier, topic_until_now(more), start)
    tier.set_topic_config(
        topic.name, remote_storage_enable="true", remote_log_delete_on_disable="false"
    )
    workloads.append_small_segment(tier, more, 2)
    workloads.seal(tier, more)
    tier.wait_tiered(topic.name, more.ends, CAUGHT_UP_S_MAX)
    wait_converted(tier, more)
    return more, start


def test_a_tier_that_was_emptied_is_filled_again(
    sole_tier: RealTier, untiered: tuple[WrittenTopic, int]
) -> None:
    topic, start = untiered
    check_read_from(sole_tier, topic, start)
    assert tier_starts(sole_tier, topic.name) == start
    rows = table_of(sole_tier, topic.name)
    wanted = topic.partitions[0].expected(READ_COMMITTED).table()
    assert_same(
        rows.filter(pc.field("offset") >= start),
        wanted.filter(pc.field("offset") >= start),
        topic.name,
    )


def tier_starts(tier: RealTier, topic: str) -> int:
    """The lowest offset in the tier."""
    return tier.entries(topic)[0].metadata.start_offset


def test_an_emptied_tier_takes_its_rows_with_it(
    sole_tier: RealTier, untiered: tuple[WrittenTopic, int]
) -> None:
    topic, start = untiered
    eventually(lambda: first_row(sole_tier, topic.name) == start, 60, what="rows leave")
    check_rows(sole_tier, topic, start)
