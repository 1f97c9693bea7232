"""The `onecopy` command. Each command is a module of this package, listed in one table.

Exit codes: 0 success; 1 a check failed or differences were found; 2 bad input or usage; 3 a part
outside (broker, store, catalog, network) is unavailable; 130 Ctrl-C. Errors are one line on
standard error; ONECOPY_DEBUG=1 shows where they come from.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

from tiering.cli.exit_codes import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    OK,
    UNAVAILABLE,
    Terminated,
)
from tiering.errors import BadInput, NotFound, TieringError, TransientError

__all__ = ["COMMANDS", "DEBUG_VARIABLE", "main"]

DEBUG_VARIABLE: Final = "ONECOPY_DEBUG"

COMMANDS: Final = {
    "up": "run a local Kafka with the tier until Ctrl-C",
    "serve": "run the tier (service and engine) beside an existing Kafka",
    "config": "check a configuration file and show what it means for each topic",
    "doctor": "check the settings of an existing broker and its topics",
    "status": "show how far each topic and partition has come",
    "read": "read records of a topic by offset or timestamp",
    "retry": "lift the quarantine of segments and failed proofs, so that they are tried again",
    "accept": "serve rows that were changed through SQL as they are now",
    "dlq": "list bad records, and try them again once what was wrong is set right",
    "backfill": "bring segments that Kafka's LocalTieredStorage holds into the tables",
    "compact": "merge small files of the tables, and their side files, into large ones",
    "demo": "tier real topics on a real broker and read them back in three ways",
    "plugin-path": "print the broker plug-in's jar and the broker settings to use",
}
"""Command -> what it does; its module is `tiering.cli.<command>`, `-` written as `_`.

Only the module of the command in use is imported.
"""

_CODES: Final = (
    "Exit codes: 0 ok, 1 a check failed or differences were found, 2 bad input, 3 a part outside "
    "is unavailable, 130 Ctrl-C."
)


class CommandModule(Protocol):
    """What each command's module has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run one command; returns its exit code."""
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except Terminated:
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:  # noqa: BLE001  # the edge of the program: one line, never a trace
        return _told(error)
    return code


def _run(arguments: Sequence[str]) -> int:
    if not arguments:
        _top_parser().print_help(sys.stderr)
        return BAD_INPUT
    if arguments[0] not in COMMANDS:
        _top_parser().parse_args(arguments)  # --help, --version, or a usage error: it exits
    command, *rest = arguments
    module = _module(command)
    return module.run(_command_parser(command, module).parse_intermixed_args(rest))


def _top_parser() -> argparse.ArgumentParser:
    from importlib.metadata import version  # takes longer than all else here

    listed = "\n".join(f"  {name:<12} {purpose}" for name, purpose in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="onecopy",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="One copy of a Kafka topic: a stream and a table.",
        epilog=f"commands:\n{listed}\n\n`onecopy COMMAND --help` says more.\n\n{_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"onecopy {version('onecopy')}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="see below")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER)
    return parser


def _command_parser(command: str, module: CommandModule) -> argparse.ArgumentParser:
    purpose = COMMANDS[command]
    parser = argparse.ArgumentParser(
        prog=f"onecopy {command}", description=f"{purpose[0].upper()}{purpose[1:]}.", epilog=_CODES
    )
    module.add_arguments(parser)
    return parser


def _module(command: str) -> CommandModule:
    name = f"tiering.cli.{command.replace('-', '_')}"
    return cast(CommandModule, importlib.import_module(name))


def _told(error: Exception) -> int:
    """Say what went wrong; returns the exit code that goes with it."""
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(error)
    else:
        print(f"onecopy: {_line(error)}", file=sys.stderr)
    if isinstance(error, BadInput | NotFound):
        return BAD_INPUT
    if isinstance(error, TransientError | OSError | ModuleNotFoundError):
        return UNAVAILABLE
    return FAILED


def _line(error: Exception) -> str:
    if isinstance(error, TieringError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{error}: install onecopy[kafka,duckdb] for all that the commands can use"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror} (set {DEBUG_VARIABLE}=1 for more)"
    return f"{type(error).__name__}: {error} (set {DEBUG_VARIABLE}=1 for more)"
