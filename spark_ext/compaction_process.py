"""Compaction on Spark in a process of its own; `onecopy compact` starts it.

`python -m spark_ext.compaction_process --config FILE [TOPIC ...]`; the last line of standard
output is the report as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path

from spark_ext.table_rewriter import SparkRewriter
from tiering.config import TierConfig
from tiering.crash_points import crash_points
from tiering.errors import BadInput, TieringError
from tiering.store import open_store
from tiering.table.topic_tables import CatalogTables
from tiering.upkeep.compaction import CompactionReport, compact
from tiering.upkeep.compaction_plan import CompactionLimits
from tiering.upkeep.side_bundles import BundleLimits

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one pass; 0 done, 1 something stopped a table, 2 bad input, 3 unavailable."""
    defaults = CompactionLimits()
    parser = argparse.ArgumentParser(prog="python -m spark_ext.compaction_process")
    parser.add_argument("--config", type=Path, required=True, help="TierConfig as JSON")
    parser.add_argument("--target-bytes", type=int, default=defaults.target_bytes)
    parser.add_argument("--min-files", type=int, default=defaults.files_min)
    parser.add_argument("topics", nargs="*")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        report = _compact(arguments)
    except TieringError as error:
        sys.stderr.write(f"onecopy: {error}\n")
        return 2 if isinstance(error, BadInput) else 3
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.problems else 0


def _compact(arguments: argparse.Namespace) -> CompactionReport:
    config = TierConfig.from_json(arguments.config.read_text())
    rewriter = SparkRewriter(config)
    try:
        return compact(
            CatalogTables(config).catalog,
            config.namespace,
            open_store(config.store),
            arguments.topics,
            rewriter=rewriter,
            limits=CompactionLimits(
                target_bytes=arguments.target_bytes, files_min=arguments.min_files
            ),
            bundle_limits=BundleLimits(objects_min=arguments.min_files),
            progress=_told,
            reached=crash_points(os.environ),
        )
    finally:
        rewriter.close()


def _told(table: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"compacting {table}\n")


if __name__ == "__main__":
    raise SystemExit(main())
