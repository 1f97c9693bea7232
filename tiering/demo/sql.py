"""The same questions to two SQL engines over the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tiering.config import TierConfig
from tiering.demo.readings import metadata_path
from tiering.errors import TransientError
from tiering.table.schema import table_name

__all__ = ["duckdb_figures", "spark_figures"]

_FIGURES: Final = (
    "count(*) AS records",
    "min(kafka_offset) AS first_offset",
    "max(kafka_offset) AS last_offset",
    "count(DISTINCT kafka_key) AS keys",
    "count(value) AS values",
    "sum(octet_length(value)) AS value_bytes",
)
_SPARK_S_MAX: Final = 300


def _query(source: str) -> str:
    return f"SELECT {', '.join(_FIGURES)} FROM {source}"  # noqa: S608 - our own table names


def duckdb_figures(connection: Any, tables: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Figures per topic from DuckDB, over the tables' metadata files."""
    figures = {}
    for topic, location in tables.items():
        result = connection.execute(_query(f"iceberg_scan('{metadata_path(location)}')"))
        names = [column[0] for column in result.description]
        figures[topic] = {n: int(v) for n, v in zip(names, result.fetchone(), strict=True)}
    return figures


def spark_figures(config: TierConfig, tables: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """The same from Spark through the catalog, in a process of its own."""
    queries = {
        topic: _query(f"{config.catalog_name}.{config.namespace}.{table_name(topic)}")
        for topic in tables
    }
    with tempfile.TemporaryDirectory(prefix="onecopy-sql-") as name:
        config_file = Path(name) / "config.json"
        config_file.write_text(config.to_json())
        done = subprocess.run(
            [sys.executable, "-m", "spark_ext.sql_process", "--config", str(config_file)],
            input=json.dumps(queries),
            capture_output=True,
            text=True,
            timeout=_SPARK_S_MAX,
            env=os.environ.copy(),
            check=False,
        )
    if done.returncode != 0:
        raise TransientError(f"Spark SQL failed:\n{done.stderr[-2000:]}")
    answers: dict[str, list[dict[str, int]]] = json.loads(done.stdout.splitlines()[-1])
    return {topic: rows[0] for topic, rows in answers.items()}
