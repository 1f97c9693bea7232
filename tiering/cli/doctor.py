"""`onecopy doctor`: check an existing broker's and its topics' settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tiering.cli.exit_codes import FAILED, OK
from tiering.cli.output import announcing, print_json, print_table
from tiering.errors import BadInput

if TYPE_CHECKING:
    from tiering.doctor.rules import Finding

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy doctor --help`."""
    parser.add_argument("bootstrap", metavar="BOOTSTRAP", help="HOST:PORT[,HOST:PORT...]")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all tiered topics")
    parser.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        help="librdkafka properties, one KEY=VALUE a line, for TLS and SASL",
    )
    parser.add_argument("--all", action="store_true", help="also show what is as it should be")
    parser.add_argument("--json", action="store_true", help="one JSON object with all findings")


def run(options: argparse.Namespace) -> int:
    """1 when something keeps the tier from working."""
    settings = _client_settings(options.client_config) if options.client_config else {}
    from tiering.doctor.broker_facts import examine_cluster
    from tiering.doctor.rules import Level

    with announcing(f"asking {options.bootstrap}"):
        findings = examine_cluster(options.bootstrap, options.topics, client_settings=settings)
    counts: dict[str, int] = {level: sum(f.level is level for f in findings) for level in Level}
    if options.json:
        print_json({"findings": [f.to_dict() for f in findings], **counts})
    else:
        _print([f for f in findings if options.all or f.level is not Level.OK])
        print(", ".join(f"{count} {level}" for level, count in counts.items()))
    return FAILED if counts[Level.ERROR] else OK


def _print(findings: Sequence[Finding]) -> None:
    if not findings:
        return
    rows = [(f.level, f.subject, f.setting, f.value, f.means, f.advice) for f in findings]
    columns = ("", "subject", "setting", "value", "what it means", "set it to")
    print_table(columns, rows, title="Findings")


def _client_settings(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from error
    settings = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"{path}: line {number} is not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings
