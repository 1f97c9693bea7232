"""`onecopy demo`: real topics on a real broker, read back in three ways that must agree."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from tiering.cli.exit_codes import FAILED, OK, ending_on_signals
from tiering.cli.output import WIDTH_IN_PIPES
from tiering.errors import BadInput

__all__ = ["add_arguments", "run"]

_RECORDS_MIN: Final = 1_000  # so that every partition of every topic gets some


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy demo --help`."""
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--records",
        type=_records,
        metavar="N",
        help=f"produced in all, {_RECORDS_MIN:,} or more (default: over 1,000,000)",
    )
    parser.add_argument("--store", metavar="URL", help="s3:// URL (default: a temporary directory)")


def run(options: argparse.Namespace) -> int:
    """0 only if all readings are equal."""
    from tiering.demo import DemoOptions, run_demo

    if options.report is not None:
        _make_parent(options.report)
    given = {name: getattr(options, name) for name in ("report", "records", "store")}
    given = {name: value for name, value in given.items() if value is not None}
    console = Console(width=None if sys.stdout.isatty() else WIDTH_IN_PIPES)
    with ending_on_signals():
        equal = run_demo(DemoOptions(**given), console)
    return OK if equal else FAILED


def _make_parent(report: Path) -> None:
    """Before minutes of work, not after them."""
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--report {report}: {error.strerror}: {error.filename}") from error


def _records(text: str) -> int:
    if not text.isdecimal() or int(text) < _RECORDS_MIN:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of {_RECORDS_MIN:,} or more"
        )
    return int(text)
