"""Converted and committed: the same rows in Spark SQL, on the same SQLite catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from native_segments import Segment, in_batches, some_records
from pyspark.sql import SparkSession
from spark_places import SPARK_MARKS, collect_sockets, tier_in

from spark_ext.session import SessionOptions, open_session, stop_spark
from tiering.conversion.convert import convert_task
from tiering.table.catalog import table_target
from tiering.table.commit import TableAppend, append, load_state
from tiering.watermarks import Watermark

pytestmark = SPARK_MARKS
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
NAME = "kafka.orders"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Segment]]:
    """A table of two files."""
    directory = tmp_path_factory.mktemp("table")
    tier = tier_in(directory)
    table = tier.table("orders", TOPIC_ID)
    segments = [
        Segment(batches=in_batches(some_records(start, 200), 20), topic_id=TOPIC_ID)
        for start in (0, 200)
    ]
    results = []
    for made in segments:
        made.store(tier.store)
        results.append(convert_task(made.task(tier.store, table_target(table))))
    identifier = ("kafka", "orders")
    append(
        tier.catalog,
        TableAppend(
            identifier=identifier,
            topic="orders",
            topic_id=TOPIC_ID,
            cycle_id="cycle-1",
            base=load_state(tier.catalog, identifier),
            expected={3: None},
            moved={3: Watermark(offset=400)},
            files={3: tuple(e for r in results for e in r.entries)},
        ),
    )
    return directory, segments


@pytest.fixture(scope="module")
def spark(place: tuple[Path, list[Segment]]) -> Iterator[SparkSession]:
    catalog = "spark.sql.catalog.onecopy"
    conf = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{catalog}.uri": f"jdbc:sqlite:{place[0]}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"{place[0]}/store/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
    }
    session = open_session(SessionOptions(master="local[2]", with_iceberg=True, conf=conf))
    try:
        yield session
    finally:
        stop_spark()
        collect_sockets()


def test_rows_are_equal(spark: SparkSession, place: tuple[Path, list[Segment]]) -> None:
    columns = (
        "kafka_partition, kafka_offset, unix_micros(kafka_timestamp) as kafka_timestamp, "
        "kafka_timestamp_type, kafka_leader_epoch, kafka_key, kafka_headers, value"
    )
    found = spark.sql(f"select {columns} from onecopy.{NAME} order by kafka_offset").collect()
    rows = [
        {k: bytes(v) if isinstance(v, bytearray) else v for k, v in row.asDict(True).items()}
        for row in found
    ]
    for row in rows:
        row["kafka_headers"] = [
            {"key": h["key"], "value": None if h["value"] is None else bytes(h["value"])}
            for h in row["kafka_headers"]
        ]
    assert rows == [row for made in place[1] for row in made.rows()]


def test_offsets_prune(spark: SparkSession) -> None:
    """One task for one file: the other was left out by its bounds."""
    frame = spark.sql(f"select kafka_offset from onecopy.{NAME} where kafka_offset = 250")
    assert [row[0] for row in frame.collect()] == [250]
    files = {row[0] for row in frame.selectExpr("input_file_name()").collect()}
    assert len(files) == 1
    assert frame.rdd.getNumPartitions() == 1


def test_bounds_are_readable_to_spark(spark: SparkSession) -> None:
    files = spark.sql(f"select readable_metrics from onecopy.{NAME}.files").collect()
    bounds = sorted(
        (m[0]["kafka_offset"]["lower_bound"], m[0]["kafka_offset"]["upper_bound"]) for m in files
    )
    assert bounds == [(0, 199), (200, 399)]
    for m in files:
        assert m[0]["kafka_partition"]["lower_bound"] == m[0]["kafka_partition"]["upper_bound"] == 3
        assert m[0]["value"]["null_value_count"] is not None


def test_spark_rewrites_what_we_wrote(spark: SparkSession) -> None:
    before = spark.sql(f"select * from onecopy.{NAME} order by kafka_offset").collect()
    spark.sql(
        f"call onecopy.system.rewrite_data_files(table => '{NAME}', strategy => 'sort', "
        "options => map('rewrite-all', 'true'))"
    )
    assert spark.sql(f"select count(*) from onecopy.{NAME}.files").collect()[0][0] == 1
    assert spark.sql(f"select * from onecopy.{NAME} order by kafka_offset").collect() == before
