"""The offset reader after Spark changed the table: deletes of every kind, other sort orders."""

from __future__ import annotations

from pathlib import Path

import pytest
from offset_spark import add_catalog
from offset_tables import NAMESPACE, append, make_catalog, make_table, offsets_of, record
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from tiering.offset_reader import OffsetReader, ReadLimits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NAME = "reader"
ROWS = 120
GONE = {*range(7, 95, 3), 118, 119}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(NAME)


@pytest.fixture(scope="module")
def catalog(directory: Path) -> Catalog:
    return make_catalog(directory, name=NAME)


@pytest.fixture(scope="module")
def spark(spark_session: SparkSession, catalog: Catalog, directory: Path) -> SparkSession:
    add_catalog(spark_session, directory, NAME)
    return spark_session


def filled(catalog: Catalog, topic: str, **properties: str) -> str:
    """Two partitions in two files, several row groups each; returns the name in Spark."""
    table = make_table(catalog, topic, **properties)
    for partition in (0, 1):
        append(table, [(partition, o) for o in range(ROWS)], {0: ROWS, 1: ROWS})
    return f"{NAME}.{NAMESPACE}.{topic}"


def delete(spark: SparkSession, table: str) -> None:
    """Delete GONE in partition 0, in two commits."""
    spark.sql(
        f"DELETE FROM {table} WHERE kafka_partition = 0 AND kafka_offset BETWEEN 7 AND 94 "
        "AND (kafka_offset - 7) % 3 = 0"
    )
    spark.sql(f"DELETE FROM {table} WHERE kafka_partition = 0 AND kafka_offset IN (118, 119)")


def check(catalog: Catalog, spark: SparkSession, topic: str, limits: ReadLimits | None) -> None:
    reader = OffsetReader.open(catalog, NAMESPACE, topic, limits=limits or ReadLimits())
    for partition, gone in ((0, GONE), (1, set[int]())):
        rows = spark.sql(
            f"SELECT kafka_offset FROM {NAME}.{NAMESPACE}.{topic} "
            f"WHERE kafka_partition = {partition} ORDER BY 1"
        ).collect()
        expected = [o for o in range(ROWS) if o not in gone]
        assert [r[0] for r in rows] == expected
        assert [r.value for r in reader.records(partition)] == [
            record(partition, o).value for o in expected
        ]
        for start in range(ROWS + 1):
            got = offsets_of(reader.batches(partition, offset=start))
            assert got == [o for o in expected if o >= start], start


@pytest.mark.parametrize("version", ["2", "3"], ids=["positional", "deletion-vectors"])
def test_merge_on_read_deletes(catalog: Catalog, spark: SparkSession, version: str) -> None:
    topic = f"deletes{version}"
    table = filled(catalog, topic, **{"write.delete.mode": "merge-on-read"})
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '{version}')")
    delete(spark, table)
    summary = catalog.load_table((NAMESPACE, topic)).current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    kind = "total-position-deletes"
    assert summary.summary.additional_properties[kind] == str(len(GONE))
    check(catalog, spark, topic, None)


@pytest.mark.parametrize("order", ["zorder(kafka_offset, kafka_timestamp_type)", "value DESC"])
def test_rewritten_in_another_order(catalog: Catalog, spark: SparkSession, order: str) -> None:
    topic = "zorder" if order.startswith("z") else "byvalue"
    table = filled(catalog, topic)
    delete(spark, table)
    spark.sql(
        f"CALL {NAME}.system.rewrite_data_files(table => '{NAMESPACE}.{topic}', "
        f"strategy => 'sort', sort_order => '{order}', "
        "options => map('rewrite-all', 'true', 'min-input-files', '1'))"
    )
    check(catalog, spark, topic, None)
    check(catalog, spark, topic, ReadLimits(gather_bytes=3000, batch_bytes=500))
