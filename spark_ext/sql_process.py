"""SQL on the tier's tables: `python -m spark_ext.sql_process --config FILE`, a process of its own.

Reads one JSON object {name: query} from standard input; the last line of standard output is one
JSON object {name: [row as an object, ...]}.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from spark_ext.catalogs import open_sql_session
from spark_ext.session import stop_spark
from tiering.config import TierConfig

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run the queries."""
    parser = argparse.ArgumentParser(prog="python -m spark_ext.sql_process")
    parser.add_argument("--config", type=Path, required=True, help="TierConfig as JSON")
    arguments = parser.parse_args(argv)
    config = TierConfig.from_json(arguments.config.read_text())
    queries: dict[str, str] = json.load(sys.stdin)
    session = open_sql_session(config, app_name="onecopy-sql", conf={"spark.driver.memory": "1g"})
    try:
        answers = {
            name: [row.asDict() for row in session.sql(query).collect()]
            for name, query in queries.items()
        }
    finally:
        stop_spark()
    sys.stdout.write(json.dumps(answers) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
