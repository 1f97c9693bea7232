"""SQL engines open only the files, and read only the row groups, that a kafka_offset is in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import duckdb_extensions
import pytest
from offset_spark import add_catalog
from offset_tables import NAMESPACE, TOPIC, append, make_catalog, make_table
from pyiceberg.table import Table
from pyspark.sql import SparkSession

NAME = "pruning"
FILES = 8
FILE_ROWS = 1000
ROW_GROUP_ROWS = 100
FROM, TO = 3_450, 3_460
"""Offsets in one row group of one file."""
WHERE = f"kafka_partition = 0 AND kafka_offset >= {FROM} AND kafka_offset < {TO}"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(NAME)


@pytest.fixture(scope="module")
def table(directory: Path) -> Table:
    """Eight files of ten row groups, sorted by offset, in partition 0; two in partition 1."""
    table = make_table(make_catalog(directory, name=NAME), row_group_rows=ROW_GROUP_ROWS)
    for k in range(FILES):
        append(table, [(0, o) for o in range(k * FILE_ROWS, (k + 1) * FILE_ROWS)])
    for k in range(2):
        append(table, [(1, o) for o in range(3_000 + k * FILE_ROWS, 3_000 + (k + 1) * FILE_ROWS)])
    return table


def test_pyiceberg_plans_one_file(table: Table) -> None:
    scan = table.scan(row_filter=WHERE)
    assert len(list(scan.plan_files())) == 1
    assert scan.to_arrow().column("kafka_offset").to_pylist() == list(range(FROM, TO))
    assert len(list(table.scan().plan_files())) == FILES + 2


class TestDuckDB:
    @pytest.fixture
    def duck(self, table: Table) -> Iterator[duckdb.DuckDBPyConnection]:
        con = duckdb.connect()
        for extension in ("avro", "iceberg"):
            duckdb_extensions.import_extension(extension, con=con)
            con.load_extension(extension)
        yield con
        con.close()

    def analyzed(self, con: duckdb.DuckDBPyConnection, table: Table, where: str) -> str:
        location = table.metadata_location.removeprefix("file://")
        rows = con.execute(
            f"EXPLAIN ANALYZE SELECT kafka_offset, value FROM iceberg_scan('{location}') {where}"
        ).fetchall()
        return str(rows[0][1])

    def test_opens_one_file(self, duck: duckdb.DuckDBPyConnection, table: Table) -> None:
        def files(text: str) -> int:
            found = re.search(r"Total Files Read:\s*(\d+)", text)
            assert found, text
            return int(found[1])

        assert files(self.analyzed(duck, table, "")) == FILES + 2
        assert files(self.analyzed(duck, table, "WHERE " + WHERE)) == 1

    def test_same_rows(self, duck: duckdb.DuckDBPyConnection, table: Table) -> None:
        location = table.metadata_location.removeprefix("file://")
        rows = duck.execute(
            f"SELECT kafka_offset FROM iceberg_scan('{location}') WHERE {WHERE} ORDER BY 1"
        ).fetchall()
        assert rows == [(o,) for o in range(FROM, TO)]


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark_reads_one_row_group_of_one_file(
    spark_session: SparkSession, directory: Path, table: Table
) -> None:
    add_catalog(spark_session, directory, NAME)
    name = f"{NAME}.{NAMESPACE}.{TOPIC}"
    frame = spark_session.sql(f"SELECT kafka_offset, value FROM {name} WHERE {WHERE}")
    assert sorted(r["kafka_offset"] for r in frame.collect()) == list(range(FROM, TO))
    metrics = _scan_metrics(frame._jdf.queryExecution().executedPlan())
    assert metrics["resultDataFiles"] == 1
    assert metrics["skippedDataFiles"] + metrics["skippedDataManifests"] >= FILES + 1
    # Row groups that are read hand on all their rows; the filter comes after.
    assert metrics["numOutputRows"] == ROW_GROUP_ROWS


def _scan_metrics(plan: object) -> dict[str, int]:
    """Metrics of the one table scan in a physical plan (a Java object)."""
    found: dict[str, int] = {}
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        children = node.children()  # type: ignore[attr-defined]
        nodes += [children.apply(i) for i in range(children.size())]
        if node.nodeName().startswith("BatchScan"):  # type: ignore[attr-defined]
            metrics = node.metrics().iterator()  # type: ignore[attr-defined]
            while metrics.hasNext():
                entry = metrics.next()
                found[entry._1()] = entry._2().value()
    return found
