"""Two brokers over one tier: a replica built from the tier, and changes of leader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
import workloads
from acknowledged import ISOLATIONS, Record, WrittenTopic, hashed
from cluster_tier import ClusterTier
from librdkafka_reads import read_partition
from polling import eventually
from producers import START_MS, Transactional, produce, send_batch
from retirement import native_files, wait_retired
from stock_client import StockClient
from table_rows import catalog_of
from tier_checks import CAUGHT_UP_S_MAX, check_all_read, check_table, topic_until_now
from wire_produce import Sender, WireProducer, encode_batch

from tiering.ledger import SegmentState
from tiering.local.kafka_topics import delete_topic
from tiering.table.schema import table_name

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

OUT_OF_ORDER_SEQUENCE = 45
EMPTY_SNAPSHOT_BYTES = 10
RETIRE_GRACE_MS = 0
CUT = 200
CUT_INSIDE = 1


@pytest.fixture(scope="module")
def cluster_tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterTier]:
    with ClusterTier(
        tmp_path_factory.mktemp("two-brokers"), retire_grace_ms=RETIRE_GRACE_MS
    ) as running:
        running.engine.start()
        yield running


@pytest.fixture(scope="module")
def cluster_java(cluster_tier: ClusterTier, java_classpath: str) -> Iterator[StockClient]:
    with StockClient(java_classpath, cluster_tier.bootstrap_servers) as client:
        yield client


@pytest.fixture(autouse=True)
def _all_up(cluster_tier: ClusterTier) -> None:
    """Each test finds service and brokers at work, whatever the one before it left."""
    if not cluster_tier.service.running:
        cluster_tier.service.start()
    cluster_tier.start_kafka()


def transaction(tier: ClusterTier, topic: WrittenTopic, name: str, *, aborted: bool) -> None:
    """One of 30 records."""
    producer = Transactional(tier, topic, name, "lz4")
    producer.begin(30)
    producer.end(aborted=aborted)


def answer_to(
    tier: ClusterTier, topic: WrittenTopic, sender: Sender, count: int
) -> tuple[int, int]:
    """(error code, base offset) that a batch gets which must not be appended."""
    record: Record = (0, START_MS, None, b"again", [])
    with WireProducer(tier.leader(topic.name).bootstrap_servers, topic.name) as producer:
        producer.send({0: encode_batch([record] * count, sender)})
        error, base, _ = producer.answers()[0]
    return error, base


def check_java(java: StockClient, topic: WrittenTopic) -> None:
    """Kafka's own client reads what was acknowledged."""
    for isolation in ISOLATIONS:
        partition = topic.partitions[0]
        found = java.read(topic.name, 0, partition.end_offset, isolation, fetch=1 << 20)
        partition.expected(isolation).check_all(found)


def seal_and_check(tier: ClusterTier, java: StockClient, topic: WrittenTopic) -> None:
    """Everything goes to the tier and then from it to the table; both clients read all of it."""
    seal(tier, topic)
    check_all_read(tier, topic)
    check_java(java, topic)
    check_table(tier, topic)


def seal(tier: ClusterTier, topic: WrittenTopic) -> None:
    """Until the table is the only copy of everything."""
    workloads.seal(tier, topic)
    tier.wait_tiered(topic.name, topic.ends, CAUGHT_UP_S_MAX)
    wait_retired(tier, [topic.name])


def check_built_from_the_tier(tier: ClusterTier, topic: WrittenTopic) -> None:
    """Broker 2 begins where broker 1's disk does, and got the state of all below from the tier.

    Kafka 4.3.1 fetches the producer snapshot and then deletes it, with any tier: what the tier
    answers is compared with the leader's own file.
    """
    first, second = tier.cluster.brokers.values()
    (start,) = first.local_segments(topic.name)
    assert second.local_segments(topic.name) == [start]
    assert start > 200
    directories = [broker.data_directory / f"{topic.name}-0" for broker in (first, second)]
    epochs = [(each / "leader-epoch-checkpoint").read_bytes() for each in directories]
    assert epochs[0] == epochs[1]
    last = tier.entries(topic.name)[-1]
    assert last.metadata.end_offset == start - 1
    answer = tier.get(f"/v1/segments/{last.metadata.id.path}/indexes/producer_snapshot")
    assert answer == (directories[0] / f"{start:020d}.snapshot").read_bytes()
    assert len(answer) > EMPTY_SNAPSHOT_BYTES


def test_a_wiped_replica_is_built_from_the_tier(
    cluster_tier: ClusterTier, cluster_java: StockClient
) -> None:
    tier = cluster_tier
    first, second = tier.cluster.brokers.values()
    topic = workloads.small_segments(tier, "wiped-replica", partitions=1, segments=3)
    with WireProducer(first.bootstrap_servers, topic.name) as producer:
        here, there = producer.new_sender(), producer.new_sender()
    here = send_batch(tier, topic, here, 5)
    there = send_batch(tier, topic, there, 7)  # the other has a batch on the disks, too
    transaction(tier, topic, "aborted", aborted=True)
    transaction(tier, topic, "committed", aborted=False)
    seal(tier, topic)
    tier.set_topic_config(topic.name, local_retention_ms=workloads.FOREVER)
    repeated, repeated_at = here, topic.partitions[0].end_offset
    here = send_batch(tier, topic, here, 3)

    second.stop()
    second.wipe()
    before = tier.requests("get_index")
    second.start()
    tier.cluster.wait_in_sync(topic.name)
    assert tier.requests("get_index") >= before + 2, "leader epochs and producer snapshot"
    check_built_from_the_tier(tier, topic)
    first.stop()
    tier.wait_led_by(2, topic.name)

    now = topic_until_now(topic)
    check_all_read(tier, now)
    check_java(cluster_java, now)
    assert answer_to(tier, topic, repeated, 3) == (0, repeated_at)
    gap = replace(here, sequence=here.sequence + 1)
    assert answer_to(tier, topic, gap, 3)[0] == OUT_OF_ORDER_SEQUENCE
    for sender in (here, there):
        send_batch(tier, topic, sender, 2)
    transaction(tier, topic, "aborted", aborted=False)
    first.start()
    seal_and_check(tier, cluster_java, topic)


def test_a_new_leader_copies_again_with_other_boundaries(
    cluster_tier: ClusterTier, cluster_java: StockClient
) -> None:
    """The first leader dies between a copy and its being told; the second one's segments begin
    and end elsewhere."""
    tier = cluster_tier
    first, second = tier.cluster.brokers.values()
    topic = WrittenTopic.empty("two-boundaries", 1)
    tier.create_tiered_topic(topic.name, 1, {"local.retention.ms": workloads.FOREVER})
    for number in range(5):
        workloads.append_small_segment(tier, topic, number)
    eventually(
        lambda: cluster_java.log_offsets(topic.name).latest_tiered == 199,
        60,
        what="two segments are copied",
    )
    tier.service.stop()
    tier.service.start(crash_at="ledger_stored")
    for number in (5, 6):
        workloads.append_small_segment(tier, topic, number)
    tier.service.wait_crashed(60)
    first.kill()
    assert first.local_segments(topic.name) == [0, 100, 200, 300]
    assert second.local_segments(topic.name) == [0, 150, 300]
    tier.service.start()
    tier.wait_led_by(2, topic.name)
    workloads.append_small_segment(tier, topic, 7)
    seal_and_check(tier, cluster_java, topic)
    first.start()
    tier.cluster.wait_in_sync(topic.name)
    copies = [e.metadata for e in tier.entries(topic.name)]
    assert [(c.broker_id, c.start_offset, c.end_offset) for c in copies[:4]] == [
        (1, 0, 99),
        (1, 100, 199),
        (2, 150, 299),
        (1, 200, 299),  # the broker doesn't know that it was stored
    ]
    check_deleted(tier, topic)


def check_deleted(tier: ClusterTier, topic: WrittenTopic) -> None:
    """A deleted topic takes every copy with it, and every row."""
    topic_id = tier.entries(topic.name)[0].metadata.id.topic_id
    delete_topic(tier.bootstrap_servers, topic.name)
    eventually(lambda: not tier.entries(topic.name), 60, what="every copy's delete is asked")
    eventually(lambda: not native_files(tier, topic_id), 30, what="the objects go")
    eventually(lambda: row_keys(tier, topic.name).num_rows == 0, 60, what="the rows go")


def row_keys(tier: ClusterTier, topic: str) -> pa.Table:
    """(partition, offset) of each row of a topic's table."""
    table = catalog_of(tier).load_table((tier.config.namespace, table_name(topic)))
    return table.scan(selected_fields=("kafka_partition", "kafka_offset")).to_arrow()


@pytest.fixture(scope="module")
def survived(cluster_tier: ClusterTier, cluster_java: StockClient) -> WrittenTopic:
    """What survived an unclean election of a replica that wasn't in sync: all of it tiered.

    What was lost was in the table, and nowhere else, before. In partition 0 the lost part begins
    with a segment of the tier, in partition 1 (`CUT_INSIDE`) in the middle of one.
    """
    tier = cluster_tier
    tier.start_kafka()
    first, second = tier.cluster.brokers.values()
    topic = WrittenTopic.empty("unclean", 2)
    configs = {"segment.ms": "1000", "local.retention.ms": workloads.FOREVER}
    tier.create_tiered_topic(topic.name, 2, configs)
    for number in range(4):
        workloads.append_small_segment(tier, topic, number)
    second.stop()
    common = topic_until_now(topic)
    assert common.ends == {0: CUT, 1: CUT}
    more: Record = (0, START_MS + 30_000, b"lost", b"lost", [])  # of the time of the fourth
    produce(tier, topic, "lz4", [(CUT_INSIDE, more)] * 30)
    for number in range(4, 7):
        workloads.append_small_segment(tier, topic, number)
    eventually(lambda: lost_copies(tier) == 2 + 3, 60, what="the lost part is in the table only")

    first.stop()
    tier.set_topic_config(topic.name, unclean_leader_election_enable="true")
    second.start()
    for number in topic.ends:
        tier.wait_led_by(2, topic.name, number)
    for number in range(7, 10):
        workloads.append_small_segment(tier, common, number, records=60)
    seal(tier, common)
    first.start()
    tier.cluster.wait_in_sync(topic.name)
    return common


def lost_copies(tier: ClusterTier) -> int:
    """How many copies of what the election then loses have only the table."""
    return sum(
        e.metadata.end_offset >= CUT and e.state is SegmentState.RETIRED
        for e in tier.entries("unclean")
    )


def test_clients_read_what_survived_an_unclean_election(
    cluster_tier: ClusterTier, cluster_java: StockClient, survived: WrittenTopic
) -> None:
    """But for one gap of Kafka 4.3.1, with any tier: a reader that comes from below the cut gets
    the rest of the segment in which it lies, lost records and all. So partition 1 is read from
    the cut on."""
    where = (cluster_tier.bootstrap_servers, survived.name)
    for isolation in ISOLATIONS:
        for number, start in ((0, 0), (CUT_INSIDE, CUT)):
            partition = survived.partitions[number]
            rest = (number, partition.end_offset, isolation)
            records = read_partition(*where, *rest, fetch=1 << 20, start=start)
            partition.expected(isolation).check_all([hashed(r) for r in records], start=start)
            found = cluster_java.read(survived.name, *rest, start=start, fetch=1 << 20)
            partition.expected(isolation).check_all(found, start=start)


def test_no_offset_is_twice_in_the_table_after_an_unclean_election(
    cluster_tier: ClusterTier, survived: WrittenTopic
) -> None:
    rows = row_keys(cluster_tier, survived.name)
    assert rows.group_by(rows.column_names).aggregate([]).num_rows == rows.num_rows >= 2 * CUT


def test_the_table_follows_an_unclean_election(
    cluster_tier: ClusterTier, survived: WrittenTopic
) -> None:
    """Rows of the lost part are gone, those that survived are there, each offset once."""
    tier = cluster_tier
    check_table(tier, survived)
    eventually(
        lambda: not tier.heartbeat().get("problems"),
        30,
        what="no problems",
        details=lambda: str(tier.heartbeat()),
    )


def test_clients_read_on_through_a_cut_inside_a_segment(
    cluster_tier: ClusterTier, cluster_java: StockClient, survived: WrittenTopic
) -> None:
    """What lies in that segment below the cut is served, what lies above it is not."""
    partition, where = survived.partitions[CUT_INSIDE], cluster_tier.bootstrap_servers
    for isolation in ISOLATIONS:
        rest = (survived.name, CUT_INSIDE, partition.end_offset, isolation)
        partition.expected(isolation).check_all(cluster_java.read(*rest, fetch=1 << 20))
        records = read_partition(where, *rest, fetch=1 << 20)
        partition.expected(isolation).check_all([hashed(r) for r in records])
