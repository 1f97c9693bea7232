"""The tables hold what producers were acknowledged: committed records, each once, through three
readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from acknowledged import READ_COMMITTED, WrittenTopic, hashed
from librdkafka_reads import read_partition
from polling import eventually
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from real_tier import RealTier
from table_rows import NAMES, assert_same, catalog_of, compared, reader_at

from tiering.demo.readings import duckdb_connection, metadata_path
from tiering.ledger import SegmentState
from tiering.offset_reader import OffsetReader
from tiering.table.schema import table_name

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

TOPICS = (
    "Odd.Records-v1_A",
    "log-append-time",
    "compacted-first",
    "transactions.interleaved",
    "transactions-tiny",
    "one-record-batches",
)
CONVERTED_S_MAX = 180
PROVEN_S_MAX = 120


@pytest.fixture(scope="module")
def catalog(tier: RealTier) -> Catalog:
    return catalog_of(tier)


@pytest.fixture(scope="module")
def readers(
    tier: RealTier, written: Mapping[str, WrittenTopic], catalog: Catalog
) -> Mapping[str, OffsetReader]:
    """One for each topic, all of whose offsets are in its table."""
    if not tier.engine.running:
        tier.engine.start()
    return {
        topic.name: eventually(
            lambda topic=topic: reader_at(tier, catalog, topic.name, topic.ends),
            CONVERTED_S_MAX,
            what=f"{topic.name} is in its table",
            details=lambda: f"{tier.heartbeat()}\n{tier.engine.tail()}",
        )
        for topic in written.values()
    }


def expected(topic: WrittenTopic, partition: int) -> pa.Table:
    return topic.partitions[partition].expected(READ_COMMITTED).table()


@pytest.mark.parametrize("name", TOPICS)
def test_offset_reader(
    readers: Mapping[str, OffsetReader], written: Mapping[str, WrittenTopic], name: str
) -> None:
    reader = readers[name]
    topic = written[name]
    assert reader.partitions() == tuple(topic.ends)
    for number in topic.ends:
        batches = list(reader.batches(number, columns=NAMES))
        got = pa.Table.from_batches(batches)
        assert_same(compared(got), expected(topic, number), f"{name}-{number}")


@pytest.mark.parametrize("name", TOPICS)
def test_pyiceberg(
    tier: RealTier,
    readers: Mapping[str, OffsetReader],
    catalog: Catalog,
    written: Mapping[str, WrittenTopic],
    name: str,
) -> None:
    table = catalog.load_table((tier.config.namespace, table_name(name)))
    rows = table.scan().to_arrow().sort_by("kafka_offset")
    topic = written[name]
    for number in topic.ends:
        got = rows.filter(pc.field("kafka_partition") == number)
        assert_same(compared(got), expected(topic, number), f"{name}-{number}")
    assert rows.num_rows == sum(len(p.committed) for p in topic.partitions)
    kinds = set(rows.column("kafka_timestamp_type").to_pylist())
    assert kinds == ({1} if name == "log-append-time" else {0})
    assert set(rows.column("kafka_leader_epoch").to_pylist()) == {0}


@pytest.fixture(scope="module")
def duckdb() -> Any:
    connection = duckdb_connection()
    yield connection
    connection.close()


@pytest.mark.parametrize("name", TOPICS)
def test_duckdb(
    tier: RealTier,
    readers: Mapping[str, OffsetReader],
    catalog: Catalog,
    duckdb: Any,
    written: Mapping[str, WrittenTopic],
    name: str,
) -> None:
    table = catalog.load_table((tier.config.namespace, table_name(name)))
    source = f"iceberg_scan('{metadata_path(table.metadata_location)}')"
    for number in written[name].ends:
        query = (
            f"SELECT {', '.join(NAMES)} FROM {source} "
            f"WHERE kafka_partition = {number} ORDER BY kafka_offset"
        )
        got = duckdb.execute(query).to_arrow_table()
        assert_same(compared(got), expected(written[name], number), f"{name}-{number}")


def test_one_offset_is_planned_from_statistics(
    tier: RealTier, readers: Mapping[str, OffsetReader], catalog: Catalog
) -> None:
    """Of the many files of a topic only those are opened whose bounds hold the offset."""
    name = "transactions.interleaved"
    table = catalog.load_table((tier.config.namespace, table_name(name)))
    planned = list(table.scan(row_filter=EqualTo("kafka_offset", 5_000)).plan_files())
    everything = list(table.scan().plan_files())
    assert 1 <= len(planned) <= len(readers[name].partitions()) < len(everything)


def test_offset_reader_seeks_like_a_consumer(
    readers: Mapping[str, OffsetReader], written: Mapping[str, WrittenTopic]
) -> None:
    for name in ("Odd.Records-v1_A", "transactions.interleaved"):
        wanted = written[name].partitions[0].expected(READ_COMMITTED)
        end = written[name].partitions[0].end_offset
        for target in range(0, end, max(1, end // 40)):
            record = next(readers[name].records(0, offset=target))
            due = next(r for r in wanted.records if r[0] >= target)
            got = (record.offset, record.timestamp_ms, record.key, record.value)
            assert got == due[:4]
            assert list(record.headers) == list(due[4])


def test_ledger_and_heartbeat_say_that_all_is_done(
    tier: RealTier, readers: Mapping[str, OffsetReader]
) -> None:
    done = {SegmentState.PROVEN, SegmentState.RETIRED}
    eventually(
        lambda: {e.state for name in TOPICS for e in tier.entries(name)} <= done,
        PROVEN_S_MAX,
        what="every segment is marked as proven",
        details=lambda: f"{tier.heartbeat()}\n{tier.engine.tail()}",
    )
    beat = eventually(
        lambda: tier.heartbeat() if not tier.heartbeat().get("problems") else None,
        30,
        what="no problems",
        details=lambda: str(tier.heartbeat()),
    )
    assert set(TOPICS) <= set(beat["topics"])


def test_kafka_reads_on_after_conversion(
    tier: RealTier, readers: Mapping[str, OffsetReader], written: Mapping[str, WrittenTopic]
) -> None:
    """Also while the native copies are still there, for their grace."""
    topic = written["transactions.interleaved"]
    for number, partition in enumerate(topic.partitions):
        records = read_partition(
            *(tier.bootstrap_servers, topic.name, number, partition.end_offset, READ_COMMITTED),
            fetch=1 << 20,
        )
        partition.expected(READ_COMMITTED).check_all([hashed(r) for r in records])
