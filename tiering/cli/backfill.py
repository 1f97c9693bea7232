"""`onecopy backfill`: segments tiered before Onecopy, into the tables."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tiering.cli.output import print_json
from tiering.cli.tier_options import add_tier_arguments, find_config
from tiering.local.child_process import guarded

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy backfill --help`."""
    parser.add_argument(
        "directory",
        type=Path,
        help="LocalTieredStorage's directory (kafka-tiered-storage); it is only read",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="only these (default: all)")
    add_tier_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """0 when everything came in, 1 when something stopped a topic or partition."""
    config = find_config(options)
    with tempfile.TemporaryDirectory(prefix="onecopy-backfill-") as name:
        config_file = Path(name) / "config.json"
        config_file.write_text(config.to_json())
        module = ["-m", "spark_ext.backfill_process", "--config", str(config_file)]
        command = [sys.executable, *module, "--", str(options.directory), *options.topics]
        done = subprocess.run(guarded(command), stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        return done.returncode
    report = json.loads(lines[-1])
    if options.json:
        print_json(report)
        return done.returncode
    print(f"{report['segments']} segments, {report['rows']:,} rows, {report['commits']} commits")
    if report["already"]:
        print(
            f"{report['already']} segments lie below the tables' watermarks: an earlier run has "
            "brought them, or the tier began behind them (backfill first, then tier)"
        )
    for where, problem in sorted(report["problems"].items()):
        print(f"{where}: {problem}")
    return done.returncode
