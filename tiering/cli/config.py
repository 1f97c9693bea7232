"""`onecopy config check`: read the configuration as the tier does, and show what it means."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json, print_table
from tiering.cli.tier_options import add_tier_arguments, find_config

if TYPE_CHECKING:
    from tiering.config import TierConfig, TopicConfig

__all__ = ["add_arguments", "run"]

_OTHERS = "(all others)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy config --help`."""
    parser.add_argument("action", choices=["check"], help="check: read it, show what it means")
    add_tier_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object with all settings")


def run(options: argparse.Namespace) -> int:
    """Asks nothing outside; a fault is a BadInput that names its place."""
    config = find_config(options)
    credentials = _credentials(config)
    if options.json:
        print_json(
            {
                "store": config.store,
                "warehouse": config.warehouse,
                "namespace": config.namespace,
                "registry": {**asdict(config.registry), "credentials": credentials},
                "defaults": asdict(config.defaults),
                "topics": {
                    topic: {**asdict(own), "table": _table(topic, own)}
                    for topic, own in config.topics.items()
                },
            }
        )
        return OK
    registry = config.registry
    print(f"store     {config.store}")
    print(f"warehouse {config.warehouse}")
    print(f"registry  {f'{registry.url} (credentials: {credentials})' if registry.url else 'none'}")
    _print_topics(config)
    return OK


def _print_topics(config: TierConfig) -> None:
    named = [(topic, _table(topic, own), own) for topic, own in config.topics.items()]
    rows = [
        (
            *(topic, table, own.value, own.key, own.on_error, own.on_unknown_schema),
            *(own.retention, ", ".join(map(str, own.partition_terms)) or "none"),
            ", ".join(own.metadata_columns) or "none",
        )
        for topic, table, own in [*named, (_OTHERS, "", config.defaults)]
    ]
    columns = (
        *("topic", "table", "value", "key", "bad records", "unknown schema"),
        *("retention", "partitioned by", "further Kafka columns"),
    )
    print_table(columns, rows, title="Topics")


def _table(topic: str, own: TopicConfig) -> str:
    if own.table:
        return own.table
    from tiering.table.schema import table_name  # comes with all of Iceberg

    return table_name(topic)


def _credentials(config: TierConfig) -> str:
    """What the environment has for the registry. BadInput for half a login."""
    if not config.registry.url:
        return "none"
    from tiering.schemas.answers import Credentials

    found = Credentials.from_environment(config.registry, os.environ)
    return found.kind
