"""`onecopy demo`: real topics on a real broker, read back in three ways that must agree."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from tiering.cli.exit_codes import FAILED, OK, ending_on_signals
from tiering.cli.output import WIDTH_IN_PIPES

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy demo --help`."""
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--records", type=int, metavar="N", help="produced in all (over 1,000,000)")
    parser.add_argument("--store", metavar="URL", help="s3:// URL (default: a temporary directory)")


def run(options: argparse.Namespace) -> int:
    """0 only if all readings are equal."""
    from tiering.demo import DemoOptions, run_demo

    given = {name: getattr(options, name) for name in ("report", "records", "store")}
    given = {name: value for name, value in given.items() if value is not None}
    console = Console(width=None if sys.stdout.isatty() else WIDTH_IN_PIPES)
    with ending_on_signals():
        equal = run_demo(DemoOptions(**given), console)
    return OK if equal else FAILED
