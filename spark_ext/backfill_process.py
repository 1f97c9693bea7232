"""Backfill on Spark in a process of its own; `onecopy backfill` starts it.

`python -m spark_ext.backfill_process --config FILE DIRECTORY [TOPIC ...]`; the last line of
standard output is the report as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from spark_ext.conversion_job import open_converter
from tiering.backfill import backfill
from tiering.config import TierConfig
from tiering.engine import CycleReport
from tiering.errors import BadInput, TieringError
from tiering.table.topic_tables import CatalogTables

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run the backfill; 0 done, 1 something stopped a topic, 2 bad input, 3 unavailable."""
    parser = argparse.ArgumentParser(prog="python -m spark_ext.backfill_process")
    parser.add_argument("--config", type=Path, required=True, help="TierConfig as JSON")
    parser.add_argument("directory", type=Path)
    parser.add_argument("topics", nargs="*")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    config = TierConfig.from_json(arguments.config.read_text())
    converter = open_converter(
        {"spark.master": config.engine.spark_master, **config.engine.spark_conf}
    )
    try:
        report = backfill(
            arguments.directory,
            arguments.topics,
            tables=CatalogTables(config),
            converter=converter,
            bytes_max=config.engine.cycle_bytes_max,
            progress=_told,
        )
    except TieringError as error:
        sys.stderr.write(f"onecopy: {error}\n")
        return 2 if isinstance(error, BadInput) else 3
    finally:
        converter.close()
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.problems else 0


def _told(report: CycleReport) -> None:
    if report.segments and sys.stderr.isatty():
        sys.stderr.write(f"{report.segments} segments, {report.rows:,} rows\n")


if __name__ == "__main__":
    raise SystemExit(main())
