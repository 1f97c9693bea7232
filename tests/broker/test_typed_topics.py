"""Topics whose values have schemas: typed tables for SQL, the very bytes for Kafka's clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import foreign_spark as foreign
import pytest
from acknowledged import Record, WrittenTopic
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.schema_registry import Schema
from polling import eventually
from producers import produce
from pyspark.sql import SparkSession
from retirement import forget_everything
from stock_client import StockClient
from tier_checks import topic_until_now
from typed_readings import READERS, check_rows, expected_rows, rows_in
from typed_tier import TypedTier, check_read, record_of, transaction, typed_tier
from typed_values import (
    AVRO_FIRST,
    AVRO_LONGER,
    AVRO_ORDERS,
    AVRO_REMARKED,
    AvroValues,
    JsonValues,
    ProtobufValues,
    Said,
    order,
)

from tiering.config import TopicConfig
from tiering.demo.readings import duckdb_connection
from tiering.ledger import SegmentState
from tiering.table.schema import table_name

pytestmark = [
    *(pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)),
    # Spark's bridge leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

EXPLICIT = TopicConfig(value="schema_id_prefix")
TOPICS = {"keyed": TopicConfig(key="auto"), "explicit": EXPLICIT, "plain": TopicConfig(value="raw")}
"""All others find out by themselves what their values are made of."""
AVRO_COLUMNS = tuple(order(0))
FIRST_COLUMNS = tuple(name for name in AVRO_COLUMNS if name != "at")
JSON_COLUMNS = ("id", "item", "price", "tags", "buyer", "is_gift", "amount")
PROTOBUF_COLUMNS = ("id", "item", "price", "tags", "buyer", "kind", "counts", "at", "amount")


@dataclass(frozen=True)
class Typed:
    """A topic, and what its values say."""

    topic: WrittenTopic
    said: Said


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedTier]:
    with typed_tier(tmp_path_factory.mktemp("typed"), TOPICS) as running:
        yield running


@pytest.fixture(scope="module")
def java(tier: TypedTier, java_classpath: str) -> Iterator[StockClient]:
    with StockClient(java_classpath, tier.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="module")
def spark(tier: TypedTier) -> Iterator[SparkSession]:
    with foreign.foreign_spark(tier.config) as session:
        yield session


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    connection = duckdb_connection()
    yield connection
    connection.close()


def avro(tier: TypedTier, name: str, partitions: int = 1) -> tuple[Typed, AvroValues]:
    """An empty topic whose first schema is registered."""
    made = Typed(tier.create(name, partitions), Said())
    values = AvroValues(tier.client, name, made.said)
    values.register()
    return made, values


def write_keyed(tier: TypedTier) -> tuple[Typed, AvroValues]:
    """Two partitions: four versions in turn, tombstones, transactions, two codecs, typed keys."""
    made, values = avro(tier, "keyed", partitions=2)

    def some(first: int, count: int) -> list[tuple[int, Record]]:
        return [
            (
                i % 2,
                record_of(
                    i,
                    values.key(i) if i % 9 else None,
                    None if i % 11 == 0 else values.value(AVRO_ORDERS[i // 2 % 4], i),
                ),
            )
            for i in range(first, first + count)
        ]

    for turn, codec in enumerate(("zstd", "none")):
        start = 1000 * turn
        produce(tier, made.topic, codec, some(start, 120))
        for number, aborted in enumerate((False, True, False)):
            records = some(start + 200 + 100 * number, 60)
            transaction(tier, made.topic, f"{codec}{number}", codec, records, aborted=aborted)
    tier.seal(made.topic, record_of(5000, values.key(1), values.value(AVRO_FIRST, 5000)))
    return made, values


def write_protobuf(tier: TypedTier, folder: Path) -> Typed:
    """As `write_keyed`, with two versions and plain keys."""
    made = Typed(tier.create("Proto.Orders"), Said())
    values = ProtobufValues(tier.client, made.topic.name, made.said, folder)

    def some(first: int, count: int) -> list[tuple[int, Record]]:
        return [
            (0, record_of(i, b"%d" % i, None if i % 11 == 0 else values.value(i % 2, i)))
            for i in range(first, first + count)
        ]

    for number, codec in enumerate(("zstd", "none")):
        produce(tier, made.topic, codec, some(1000 * number, 100))
        records = some(1000 * number + 500, 50)
        transaction(tier, made.topic, codec, codec, records, aborted=number == 1)
    tier.seal(made.topic, record_of(5000, b"last", values.value(0, 5001)))
    return made


def write_json(tier: TypedTier) -> Typed:
    """As `write_protobuf`."""
    made = Typed(tier.create("json.orders"), Said())
    values = JsonValues(tier.client, made.topic.name, made.said)
    for number, codec in enumerate(("zstd", "none")):
        some = [
            (0, record_of(i, None, None if i % 11 == 0 else values.value(i % 2, i)))
            for i in range(1000 * number, 1000 * number + 150)
        ]
        produce(tier, made.topic, codec, some[:100])
        transaction(tier, made.topic, codec, codec, some[100:], aborted=number == 1)
    tier.seal(made.topic, record_of(5000, b"last", values.value(0, 5001)))
    return made


def write_bad(tier: TypedTier) -> Typed:
    """Bad records of three kinds, in batches of their own and among good ones."""
    made, values = avro(tier, "with-bad")
    makers = {
        3: lambda i: values.cut(AVRO_FIRST, i),
        14: values.unprefixed,
        15: values.other,
    }
    some = [
        (0, record_of(i, b"%d" % i, makers.get(i, lambda i: values.value(AVRO_FIRST, i))(i)))
        for i in range(60)
    ]
    produce(tier, made.topic, "zstd", some)
    produce(tier, made.topic, "none", [(0, record_of(i, None, makers[14](i))) for i in range(10)])
    tier.seal(made.topic, record_of(99, b"last", values.value(AVRO_FIRST, 99)))
    return made


def more_of(written: Written, name: str, first: int, count: int = 30) -> list[tuple[int, Record]]:
    """Records of the first schema for a topic of one partition."""
    values = written.values[name]
    rows = range(first, first + count)
    return [(0, record_of(i, None, values.value(AVRO_FIRST, i))) for i in rows]


def write_some(tier: TypedTier, name: str, count: int = 60) -> tuple[Typed, AvroValues]:
    """A topic of one schema, in batches of ten."""
    made, values = avro(tier, name)
    rows = [(0, record_of(i, None, values.value(AVRO_FIRST, i))) for i in range(count)]
    produce(tier, made.topic, "zstd", rows)
    tier.seal(made.topic, record_of(count, None, values.value(AVRO_FIRST, count)))
    return made, values


@dataclass(frozen=True)
class Written:
    """All topics, and who writes more of them."""

    topics: Mapping[str, Typed]
    values: Mapping[str, AvroValues]


@pytest.fixture(scope="module")
def written(tier: TypedTier, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Topics whose only copy are their tables."""
    keyed, more = write_keyed(tier)
    made = {"keyed": keyed, "with-bad": write_bad(tier)}
    made["json"] = write_json(tier)
    made["protobuf"] = write_protobuf(tier, tmp_path_factory.mktemp("proto"))
    values = {"keyed": more}
    for name in ("explicit", "waiting", "altered", "edited"):
        made[name], values[name] = write_some(tier, name)
    tier.engine.wait_ready()
    tier.wait_sole_copy(*(each.topic for each in made.values()))
    # Segments of the first schema and of one that widens a column: their files stay apart.
    for start in (6000, 7000, 8000):
        rows = [
            (i % 2, record_of(i, None, more.value((AVRO_FIRST, AVRO_LONGER)[i // 2 % 2], i)))
            for i in range(start, start + 100)
        ]
        produce(tier, keyed.topic, "zstd", rows)
        tier.wait_sole_copy(keyed.topic)
    return Written(made, values)


@pytest.mark.parametrize("reader", READERS)
def test_avro(
    tier: TypedTier, written: Written, spark: SparkSession, duckdb: Any, reader: str
) -> None:
    made = written.topics["keyed"]
    found = rows_in(READERS[reader](tier, table_name("keyed"), spark, duckdb))
    check_rows(found, expected_rows(made.topic, made.said, AVRO_COLUMNS, key="key"), reader)


@pytest.mark.parametrize("reader", READERS)
def test_protobuf(
    tier: TypedTier, written: Written, spark: SparkSession, duckdb: Any, reader: str
) -> None:
    made = written.topics["protobuf"]
    found = rows_in(READERS[reader](tier, table_name(made.topic.name), spark, duckdb))
    check_rows(found, expected_rows(made.topic, made.said, PROTOBUF_COLUMNS), reader)


@pytest.mark.parametrize("reader", READERS)
def test_json(
    tier: TypedTier, written: Written, spark: SparkSession, duckdb: Any, reader: str
) -> None:
    made = written.topics["json"]
    found = rows_in(READERS[reader](tier, table_name(made.topic.name), spark, duckdb))
    check_rows(found, expected_rows(made.topic, made.said, JSON_COLUMNS), reader)


@pytest.mark.parametrize("name", ["keyed", "protobuf", "json", "with-bad"])
def test_kafka_gets_every_byte(
    tier: TypedTier, written: Written, java: StockClient, name: str
) -> None:
    check_read(tier, java, written.topics[name].topic)


@pytest.mark.parametrize("reader", READERS)
def test_bad_records(
    tier: TypedTier, written: Written, spark: SparkSession, duckdb: Any, reader: str
) -> None:
    made = written.topics["with-bad"]
    table = table_name("with-bad")
    found = rows_in(READERS[reader](tier, table, spark, duckdb))
    check_rows(found, expected_rows(made.topic, made.said, FIRST_COLUMNS), reader)
    dead = rows_in(READERS[reader](tier, f"{table}__dlq", spark, duckdb))
    wanted = {
        (0, offset): (key, value, made.said.bad[value])
        for offset, _, key, value, _ in made.topic.partitions[0].committed
        if value in made.said.bad
    }
    got = {k: (r["kafka_key"], r["kafka_value"], r["error_class"]) for k, r in dead.items()}
    assert got == wanted
    assert len(wanted) == 13


def test_a_table_that_somebody_alters(
    tier: TypedTier, written: Written, spark: SparkSession
) -> None:
    """Columns added, renamed, widened and dropped, files rewritten: new segments find theirs."""
    made, table = written.topics["altered"], foreign.spark_name(tier.config, "altered")
    for change in (
        "ADD COLUMN remark string",
        "RENAME COLUMN item TO article",
        "ALTER COLUMN id TYPE bigint",
        "DROP COLUMN kind",
        "ADD COLUMN buyer.vat string FIRST",
        "RENAME COLUMN buyer.name TO called",
        "DROP COLUMN buyer.since",
        "ALTER COLUMN counts.value TYPE bigint",
    ):
        spark.sql(f"ALTER TABLE {table} {change}")
    foreign.rewrite_data_files(spark, table)
    produce(tier, made.topic, "zstd", more_of(written, "altered", 100))
    tier.wait_sole_copy(made.topic)
    check_altered(tier, made, spark)


def check_altered(tier: TypedTier, made: Typed, spark: SparkSession) -> None:
    """What SQL sees. (Values whose columns don't say everything any more are kept, too.)"""
    wanted = expected_rows(made.topic, made.said, FIRST_COLUMNS)
    for row in wanted.values():
        row |= {"article": row.pop("item"), "remark": None}
        if row["buyer"] is not None:
            row["buyer"] = {"vat": None, "called": row["buyer"]["name"]}
        del row["kind"], row["kafka_value"]
    found = rows_in(READERS["spark"](tier, table_name("altered"), spark, None))
    for row in found.values():
        del row["kafka_value"]
    check_rows(found, wanted, "spark")


def test_while_the_registry_is_away(tier: TypedTier, written: Written, java: StockClient) -> None:
    """Topics whose schemas are known go on; an unknown schema makes its topic wait, also when the
    registry is back, until that has it."""
    names = ("explicit", "edited")
    known, waiting = [written.topics[name].topic for name in names], written.topics["waiting"]
    tier.registry.stop()
    unknown = tier.registry.unknown_id
    for name, topic in zip(names, known, strict=True):
        produce(tier, topic, "zstd", more_of(written, name, 100))
    values = written.values["waiting"]
    rows = range(100, 130)
    news = [(0, record_of(i, None, values.unregistered(AVRO_REMARKED, unknown, i))) for i in rows]
    produce(tier, waiting.topic, "zstd", news)
    tier.wait_problem("waiting", "registry")
    tier.wait_sole_copy(*known)
    tier.wait_tiered("waiting", waiting.topic.ends, 60)
    check_read(tier, java, *known, waiting.topic)
    assert SegmentState.UPLOADED in {e.state for e in tier.entries("waiting")}
    tier.registry.start()
    tier.wait_problem("waiting", f"schema {unknown}", "conversion waits")
    tier.registry.register("waiting-value", Schema(AVRO_REMARKED, "AVRO"), unknown)
    tier.wait_sole_copy(waiting.topic)
    check_read(tier, java, waiting.topic)
    found = rows_in(READERS["pyiceberg"](tier, "waiting", None, None))
    check_rows(found, expected_rows(waiting.topic, waiting.said, (*AVRO_COLUMNS, "remark")), "")


def test_a_dropped_column_outlives_its_files(
    tier: TypedTier, written: Written, spark: SparkSession, java: StockClient
) -> None:
    """What the rewritten files lack is saved from those before them. Once the engine says so,
    Kafka's clients get every byte, and the snapshots that had it may go."""
    made = written.topics["altered"]

    def saved() -> bool:
        said = tier.problem("altered")
        return "kind were dropped from" in said and "until then" not in said

    eventually(
        saved,
        90,
        what="the dropped column is saved",
        details=lambda: f"{tier.heartbeat()}\n{tier.engine.tail()}",
    )
    assert "can't be given" not in tier.problem("altered")
    forget_everything(tier)
    check_read(tier, java, made.topic)
    foreign.expire_snapshots(spark, foreign.spark_name(tier.config, "altered"))
    forget_everything(tier)
    check_read(tier, java, made.topic)
    check_altered(tier, made, spark)


def test_rows_that_somebody_changes(
    tier: TypedTier, written: Written, spark: SparkSession, java: StockClient
) -> None:
    """A row that is deleted is a gap. One whose typed column was changed isn't served, until an
    operator accepts it."""
    made, table = written.topics["edited"], foreign.spark_name(tier.config, "edited")
    foreign.delete_rows(spark, table, "kafka_offset BETWEEN 12 AND 13")
    foreign.expire_snapshots(spark, table)
    forget_everything(tier)
    left = without(made.topic, {12, 13})
    check_read(tier, java, left)
    foreign.update_rows(spark, table, "item = 'changed'", "kafka_offset = 35")
    foreign.expire_snapshots(spark, table)
    forget_everything(tier)
    mismatches = tier.metrics().get(("onecopy_history_mismatches_total", ""), 0)
    told = refused(tier, "edited", 35)
    assert told.code() == KafkaError.UNKNOWN, told
    assert tier.metrics()["onecopy_history_mismatches_total", ""] > mismatches
    onecopy("accept", "edited", *["--partition", "0", "--from", "35", "--to", "36"], tier=tier)
    tier.service.stop()  # the pointer, where it is written down, is looked at now and then only
    tier.service.start()
    check_read(tier, java, with_value(left, 35, written.values["edited"].changed(35)))


def refused(tier: TypedTier, topic: str, offset: int) -> KafkaError:
    """The error that a consumer gets there."""
    settings = {"bootstrap.servers": tier.bootstrap_servers, "group.id": "refused"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(30)
        assert message is not None, "neither a record nor an error came"
        error = message.error()
        assert error is not None, message.value()
        return error
    finally:
        consumer.close()


def without(topic: WrittenTopic, offsets: set[int]) -> WrittenTopic:
    """What a reader gets of a topic of one partition with these rows gone."""
    left = topic_until_now(topic)
    partition = left.partitions[0]
    partition.committed = [r for r in partition.committed if r[0] not in offsets]
    return left


def with_value(topic: WrittenTopic, offset: int, value: bytes) -> WrittenTopic:
    """The same with another value at one offset."""
    other = topic_until_now(topic)
    partition = other.partitions[0]
    partition.committed = [
        (*r[:3], value, r[4]) if r[0] == offset else r for r in partition.committed
    ]
    return other


def onecopy(*arguments: str, tier: TypedTier) -> Any:
    """The command as a person runs it; its report."""
    command = [sys.executable, "-m", "tiering.cli", *arguments, "--dir", str(tier.directory)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def test_compaction(
    tier: TypedTier, written: Written, spark: SparkSession, duckdb: Any, java: StockClient
) -> None:
    """Small files of several schemas become one that reads the same."""
    made = written.topics["keyed"]
    report = onecopy("compact", "keyed", "--min-files", "2", "--target-mib", "1", tier=tier)
    assert report["problems"] == {}
    (table,) = report["tables"].values()
    assert table["files_after"] < table["files_before"]
    forget_everything(tier)
    check_read(tier, java, made.topic)
    for reader in ("pyiceberg", "duckdb"):
        found = rows_in(READERS[reader](tier, "keyed", spark, duckdb))
        check_rows(found, expected_rows(made.topic, made.said, AVRO_COLUMNS, key="key"), reader)


def test_kill_minus_nine_while_records_are_saved(
    tier: TypedTier, written: Written, spark: SparkSession, java: StockClient
) -> None:
    """The engine dies around the commit of bad records, then while it saves a dropped column."""
    tier.engine.stop()
    made, values = avro(tier, "crashing")
    cut = (7, 20, 21)
    rows = [
        (0, record_of(i, None, (values.cut if i in cut else values.value)(AVRO_FIRST, i)))
        for i in range(60)
    ]
    produce(tier, made.topic, "zstd", rows)
    tier.seal(made.topic, record_of(60, None, values.value(AVRO_FIRST, 60)))
    tier.wait_tiered("crashing", made.topic.ends, 60)
    for step in ("buried", "committed"):
        killed_at(tier, step)
    tier.engine.start()
    tier.wait_sole_copy(made.topic)
    dead = rows_in(READERS["pyiceberg"](tier, "crashing__dlq", None, None))
    assert sorted(offset for _, offset in dead) == list(cut)
    found = rows_in(READERS["pyiceberg"](tier, "crashing", None, None))
    check_rows(found, expected_rows(made.topic, made.said, FIRST_COLUMNS), "pyiceberg")

    tier.engine.stop()
    table = foreign.spark_name(tier.config, "crashing")
    spark.sql(f"ALTER TABLE {table} DROP COLUMN item")
    for step in ("rescued", "rescue_recorded"):
        killed_at(tier, step)
        check_read(tier, java, made.topic)
    tier.engine.start()
    eventually(
        lambda: "until then" not in (said := tier.problem("crashing")) and "item" in said,
        90,
        what="the dropped column is saved",
        details=lambda: f"{tier.heartbeat()}\n{tier.engine.tail()}",
    )
    foreign.rewrite_data_files(spark, table)
    foreign.expire_snapshots(spark, table)
    forget_everything(tier)
    check_read(tier, java, made.topic)


def killed_at(tier: TypedTier, step: str) -> None:
    """The engine starts, comes to that step and kills itself there."""
    tier.engine.start(crash_at=step, wait=False)
    tier.engine.wait_crashed(180)
