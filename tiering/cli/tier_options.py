"""Finding the tier that a command is about, and running one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tiering.cli.exit_codes import ending_on_signals, impatient
from tiering.cli.output import announcing
from tiering.config import TierConfig, load_config
from tiering.errors import BadInput
from tiering.local.tier_stack import CONFIG_FILE, TierStack

__all__ = ["DEFAULT_DIRECTORY", "add_tier_arguments", "find_config", "run_stack"]

DEFAULT_DIRECTORY: Final = Path(".onecopy")


def add_tier_arguments(parser: argparse.ArgumentParser) -> None:
    """`--dir` and `--config`: which tier."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--dir",
        type=Path,
        default=DEFAULT_DIRECTORY,
        help="directory of a tier that `up` or `serve` runs or ran (default: %(default)s)",
    )
    group.add_argument("--config", type=Path, help="configuration file of the tier (TOML)")


def find_config(options: argparse.Namespace) -> TierConfig:
    """The configuration that `--config` or `--dir` names; raises BadInput."""
    if options.config is not None:
        return load_config(options.config)
    path: Path = options.dir / CONFIG_FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise BadInput(
            f"no tier in {options.dir}: start one with `onecopy up --dir {options.dir}`, or name "
            "another with --dir or --config"
        ) from None
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from error
    try:
        return TierConfig.from_json(text)
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from error


def run_stack(stack: TierStack, started: Callable[[TierStack], None]) -> None:
    """Start a tier, say so, and keep it running until a signal; then stop it in order."""
    with ending_on_signals():
        try:
            with announcing("starting") as announce:
                stack.start(announce)
            started(stack)
            stack.run()
        finally:
            with impatient(stack.kill), announcing("stopping") as announce:
                stack.stop(announce)
