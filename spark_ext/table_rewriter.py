"""Rewriting data files with Iceberg's own Spark procedure."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from spark_ext.catalogs import open_sql_session
from spark_ext.session import first_line, stop_spark
from tiering.config import TierConfig
from tiering.errors import TransientError
from tiering.offset_reader.topic_columns import TopicColumns
from tiering.upkeep.compaction import RewrittenFiles
from tiering.upkeep.compaction_plan import CompactionLimits, Rewrite
from tiering.watermarks import COMPACTION_SUMMARY

__all__ = ["SparkRewriter"]

_MEMORY: Final = "2g"


class SparkRewriter:
    """`rewrite_data_files` in a session that starts with the first rewrite."""

    def __init__(self, config: TierConfig) -> None:
        self._config = config
        self._session: SparkSession | None = None

    def rewrite(self, table: Table, rewrite: Rewrite, limits: CompactionLimits) -> RewrittenFiles:
        """Carry out one rewrite; see `Rewriter`. Iceberg tries a lost commit again by itself."""
        session = self._started()
        try:
            (row,) = session.sql(self._statement(table, rewrite, limits)).collect()
        except (PySparkException, Py4JError, OSError, EOFError) as error:
            if not _is_alive(session):
                self.close()
            raise TransientError(f"files not rewritten: {first_line(error)}") from error
        return _counts(row)

    def _started(self) -> SparkSession:
        if self._session is None:
            engine = self._config.engine
            self._session = open_sql_session(
                self._config,
                app_name="onecopy-compaction",
                master=engine.spark_master,
                conf={"spark.driver.memory": _MEMORY, **engine.spark_conf},
            )
            # What this JVM commits says that it is ours: our upkeep may expire it.
            jvm: Any = self._session._jvm
            jvm.org.apache.iceberg.EnvironmentContext.put(COMPACTION_SUMMARY, "true")
        return self._session

    def close(self) -> None:
        """Stop Spark, if it was started."""
        if self._session is not None:
            self._session = None
            stop_spark()

    def _statement(self, table: Table, rewrite: Rewrite, limits: CompactionLimits) -> str:
        columns = TopicColumns.of(table.metadata, table=".".join(table.name()))
        schema = table.schema()
        partition, offset = (
            _quoted(schema.find_field(field_id).name)
            for field_id in (columns.partition, columns.offset)
        )
        # A filter chooses files by their bounds; each is rewritten whole.
        where = (
            f"{partition} >= {rewrite.first_partition} AND {partition} <= {rewrite.last_partition} "
            f"AND {offset} >= {rewrite.first_offset} AND {offset} <= {rewrite.last_offset}"
        )
        options = ", ".join(f"'{k}', '{v}'" for k, v in _options(rewrite, limits).items())
        name = ".".join(_quoted(part) for part in table.name())
        return (
            f"CALL {_quoted(self._config.catalog_name)}.system.rewrite_data_files("
            f"table => {_text(name)}, strategy => 'sort', "
            f"sort_order => {_text(f'{partition} ASC NULLS FIRST, {offset} ASC NULLS FIRST')}, "
            f"where => {_text(where)}, options => map({options}))"
        )


def _options(rewrite: Rewrite, limits: CompactionLimits) -> dict[str, str]:
    chosen = {"rewrite-all": "true"} if rewrite.sort_all else {"min-input-files": "2"}
    return {
        **chosen,
        "target-file-size-bytes": str(limits.target_bytes),
        "min-file-size-bytes": str(limits.small_bytes),
        "max-file-size-bytes": str(limits.target_bytes * 2),
    }


def _counts(row: Row) -> RewrittenFiles:
    return RewrittenFiles(
        removed=row["rewritten_data_files_count"],
        added=row["added_data_files_count"],
        size_bytes=row["rewritten_bytes_count"],
    )


def _is_alive(session: SparkSession) -> bool:
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, EOFError, AttributeError):
        return False


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
