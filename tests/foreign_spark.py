"""Somebody else's Spark on the tier's tables: the changes that other engines make to them.

Each change is a function of the session and the table's name in Spark (`spark_name`), so that any
test can apply it to a tier of its own.
"""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_ext.catalogs import catalog_settings
from spark_ext.session import SessionOptions, open_session, stop_spark
from tiering.config import TierConfig
from tiering.jars import iceberg_jars
from tiering.table.schema import table_name

DAY_S = 24 * 3600
KEEP_NOTHING = "TIMESTAMP '2100-01-01 00:00:00'"


@contextmanager
def foreign_spark(config: TierConfig) -> Iterator[SparkSession]:
    """A session with the tier's catalog, as another team would open it.

    A Spark that this process runs already (with Iceberg on its class path) is used, and kept.
    """
    running = SparkContext._active_spark_context
    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with_aws = config.warehouse.startswith("s3://")
    options = SessionOptions(
        master="local[2]",
        app_name="somebody-else",
        conf=conf,
        with_iceberg=not with_aws,
        jars=iceberg_jars(with_aws=True) if with_aws else (),
    )
    base = open_session(options) if running is None else SparkSession(running)
    session = base.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for key, value in catalog_settings(config).items():
        session.conf.set(key, value)
    session.conf.set(f"spark.sql.catalog.{config.catalog_name}.cache-enabled", "false")
    try:
        yield session
    finally:
        if running is None:
            stop_spark()
        with warnings.catch_warnings():
            # Spark's bridge leaves its sockets to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def spark_name(config: TierConfig, topic: str) -> str:
    """The table of a topic as `foreign_spark` knows it."""
    return f"{config.catalog_name}.{config.namespace}.{table_name(topic)}"


def rewrite_data_files(
    session: SparkSession, table: str, *, sort_order: str = "", target_bytes: int | None = None
) -> None:
    """Rewrite every file: packed, or sorted by anything (`value DESC`, `zorder(a, b)` ...)."""
    sorting = f"strategy => 'sort', sort_order => '{sort_order}', " if sort_order else ""
    options = ["'rewrite-all', 'true'", "'min-input-files', '1'"]
    if target_bytes is not None:
        options.append(f"'target-file-size-bytes', '{target_bytes}'")
    _call(session, table, "rewrite_data_files", f"{sorting}options => map({', '.join(options)})")


def rewrite_manifests(session: SparkSession, table: str) -> None:
    """All manifests into as few as possible."""
    _call(session, table, "rewrite_manifests", "use_caching => false")


def expire_snapshots(session: SparkSession, table: str) -> None:
    """Everything but the newest snapshot, and the files that only older ones had."""
    _call(session, table, "expire_snapshots", f"older_than => {KEEP_NOTHING}, retain_last => 1")


def remove_orphan_files(session: SparkSession, table: str, store: Path) -> list[str]:
    """Whatever no snapshot refers to; returns what went.

    Spark refuses to look at files younger than a day: all files of `store` are made old first.
    """
    long_ago = time.time() - 9 * DAY_S
    for path in store.rglob("*"):
        if path.is_file():
            os.utime(path, (long_ago, long_ago))
    return [row[0] for row in _call(session, table, "remove_orphan_files", "")]


def roll_back(session: SparkSession, table: str, snapshot_id: int) -> None:
    """main back to one of its ancestors."""
    _call(session, table, "rollback_to_snapshot", f"snapshot_id => {snapshot_id}")


def delete_rows(
    session: SparkSession, table: str, where: str, *, merge_on_read: bool = False
) -> None:
    """SQL DELETE: the files are written anew, or delete files hide the rows."""
    _mode(session, table, "delete", merge_on_read)
    session.sql(f"DELETE FROM {table} WHERE {where}")


def update_rows(
    session: SparkSession, table: str, assignments: str, where: str, *, merge_on_read: bool = False
) -> None:
    """SQL UPDATE, such as `value = X'00'`."""
    _mode(session, table, "update", merge_on_read)
    session.sql(f"UPDATE {table} SET {assignments} WHERE {where}")


def insert_again(session: SparkSession, table: str, where: str, value: str = "value") -> None:
    """SQL INSERT of rows that are there already, with `value` (an expression) as their value."""
    columns = [field.name for field in session.table(table).schema.fields]
    listed = ", ".join(f"{value} AS value" if name == "value" else name for name in columns)
    session.sql(f"INSERT INTO {table} SELECT {listed} FROM {table} WHERE {where}")


def insert_at(session: SparkSession, table: str, partition: int, offset: int) -> None:
    """SQL INSERT of one row of its own at an offset that Kafka may never have written."""
    session.sql(
        f"INSERT INTO {table} (kafka_partition, kafka_offset, value) "
        f"VALUES ({partition}, {offset}, X'666F726569676E')"
    )


def drop_column(session: SparkSession, table: str, column: str) -> None:
    """ALTER TABLE ... DROP COLUMN."""
    session.sql(f"ALTER TABLE {table} DROP COLUMN {column}")


def rename_column(session: SparkSession, table: str, column: str, name: str) -> None:
    """ALTER TABLE ... RENAME COLUMN."""
    session.sql(f"ALTER TABLE {table} RENAME COLUMN {column} TO {name}")


def _mode(session: SparkSession, table: str, change: str, merge_on_read: bool) -> None:
    mode = "merge-on-read" if merge_on_read else "copy-on-write"
    session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.{change}.mode' = '{mode}')")


def _call(session: SparkSession, table: str, procedure: str, arguments: str) -> list[tuple[str]]:
    catalog, _, name = table.partition(".")
    given = ", ".join(filter(None, (f"table => '{name}'", arguments)))
    return [
        tuple(row) for row in session.sql(f"CALL {catalog}.system.{procedure}({given})").collect()
    ]
