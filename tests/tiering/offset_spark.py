"""Spark on a PyIceberg SQLite catalog, for the tests of what other engines see and do."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tiering.jars import iceberg_jars


@contextmanager
def started(directory: Path) -> Iterator[SparkSession]:
    """A local session with Iceberg; one that runs already is used, and kept."""
    running = SparkSession.getActiveSession()
    session = running or (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in iceberg_jars()))
        .config(
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "spark-warehouse"))
        .getOrCreate()
    )
    try:
        yield session
    finally:
        if running is None:
            session.stop()
        with warnings.catch_warnings():
            # Spark's bridge leaves its sockets to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def add_catalog(session: SparkSession, directory: Path, name: str) -> None:
    """Let Spark see the PyIceberg catalog `name` in `<directory>/catalog.db`.

    The name must be the same in both: it stands in the file.
    """
    prefix = f"spark.sql.catalog.{name}"
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        ".uri": f"jdbc:sqlite:{directory}/catalog.db",
        ".jdbc.schema-version": "V1",
        ".warehouse": f"file://{directory}/warehouse",
        ".cache-enabled": "false",
    }.items():
        session.conf.set(prefix + key, value)
