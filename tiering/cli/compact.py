"""`onecopy compact`: many small files of the topics' tables into few large ones."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tiering.cli.output import print_json, print_table, readable_bytes
from tiering.cli.tier_options import add_tier_arguments, find_config
from tiering.errors import BadInput
from tiering.local.child_process import guarded
from tiering.upkeep.compaction_plan import CompactionLimits

__all__ = ["add_arguments", "run"]

_MIB: Final = 1024 * 1024
_COLUMNS: Final = ("table", "files before", "files after", "before", "after", "side files merged")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy compact --help`."""
    limits = CompactionLimits()
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="only these (default: all)")
    parser.add_argument(
        "--target-mib",
        type=int,
        default=limits.target_bytes // _MIB,
        metavar="MIB",
        help="size of the files that come out; those below a quarter of it are small "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--min-files",
        type=int,
        default=limits.files_min,
        metavar="N",
        help="leave fewer small ones side by side alone (default: %(default)s)",
    )
    add_tier_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """0 when done, 1 when something stopped a table, 2 bad input, 3 a part is unavailable."""
    if options.target_mib < 1 or options.min_files < 2:
        raise BadInput("--target-mib must be 1 or more, --min-files 2 or more")
    config = find_config(options)
    with tempfile.TemporaryDirectory(prefix="onecopy-compact-") as name:
        config_file = Path(name) / "config.json"
        config_file.write_text(config.to_json())
        module = ["-m", "spark_ext.compaction_process", "--config", str(config_file)]
        limits = ["--target-bytes", str(options.target_mib * _MIB)]
        limits += ["--min-files", str(options.min_files)]
        command = [sys.executable, *module, *limits, "--", *options.topics]
        done = subprocess.run(guarded(command), stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        return done.returncode
    report = json.loads(lines[-1])
    if options.json:
        print_json(report)
    else:
        _print(report)
    return done.returncode


def _print(report: dict[str, Any]) -> None:
    rows = [
        (
            name,
            table["files_before"],
            table["files_after"],
            readable_bytes(table["bytes_before"]),
            readable_bytes(table["bytes_after"]),
            table["bundled_segments"],
        )
        for name, table in sorted(report["tables"].items())
    ]
    print_table(_COLUMNS, rows, title="Compaction")
    for name, problem in sorted(report["problems"].items()):
        print(f"{name}: {problem}")
