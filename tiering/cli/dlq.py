"""`onecopy dlq`: bad records, listed and tried again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json, print_table
from tiering.cli.tier_options import add_tier_arguments, find_config
from tiering.errors import BadInput, NotFound

if TYPE_CHECKING:
    from tiering.config import TierConfig
    from tiering.table.topic_tables import CatalogTables
    from tiering.upkeep.dead_letter_counts import DeadLetterCounts, OffsetRange

__all__ = ["add_arguments", "run"]

_RANGES_SHOWN: Final = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy dlq --help`."""
    parser.add_argument(
        "action",
        choices=["list", "replay"],
        help="list: count them by error class and schema; replay: try a topic's again, after what "
        "was wrong has been set right",
    )
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="only this one (list: all)")
    parser.add_argument(
        "--class", dest="error_class", metavar="CLASS", help="replay: only those of an error class"
    )
    add_tier_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """The tier needn't be running, and may be."""
    if options.action == "list":
        if options.error_class is not None:
            raise BadInput("--class goes with replay")
        return _list(options)
    if options.topic is None:
        raise BadInput("dlq replay: name the topic")
    return _replay(options)


def _list(options: argparse.Namespace) -> int:
    from tiering.table.topic_tables import CatalogTables
    from tiering.upkeep.dead_letter_counts import count_dead_letters, tables
    from tiering.watermarks import TOPIC_PROPERTY

    config = find_config(options)
    known = CatalogTables(config)
    if options.topic is not None:
        _topic_id(known, options.topic)
    found = [
        count_dead_letters(table)
        for table in tables(known.catalog, config.namespace)
        if options.topic in (None, table.properties[TOPIC_PROPERTY])
    ]
    if options.json:
        print_json({"topics": [asdict(counts) for counts in found]})
    else:
        _print_counts([counts for counts in found if counts.records], options.topic)
    return OK


def _print_counts(found: Sequence[DeadLetterCounts], topic: str | None) -> None:
    if not found:
        print(f"{topic or 'The tier'} has no bad records.")
        return
    rows = [
        (
            *(counts.topic, counts.table),
            *(group.error_class, group.schema_id, group.records),
            *(_ranges(group.partitions), group.reason),
        )
        for counts in found
        for group in counts.groups
    ]
    columns = (
        *("topic", "table", "error class", "schema", "records"),
        *("partition: offsets", "for example"),
    )
    print_table(columns, rows, title="Bad records")


def _ranges(ranges: Sequence[OffsetRange]) -> str:
    shown = [f"{r.partition}: {r.first_offset} to {r.last_offset}" for r in ranges]
    more = len(shown) - _RANGES_SHOWN
    return ", ".join(shown[:_RANGES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _replay(options: argparse.Namespace) -> int:
    from tiering.schemas.registry import SchemaRegistry
    from tiering.schemas.topic_schemas import TopicSchemas
    from tiering.table.topic_tables import CatalogTables
    from tiering.upkeep.replay import Replay

    config = _bearing_unknown(find_config(options), options.topic)
    tables = CatalogTables(config)
    registry = SchemaRegistry.from_config(config.registry) if config.registry.url else None
    report = Replay(
        tables,
        TopicSchemas(config, tables, registry, clock=lambda: 0.0),
        topic=options.topic,
        topic_id=_topic_id(tables, options.topic),
        store_url=config.store,
        error_class=options.error_class,
    ).run()
    if options.json:
        print_json({"topic": options.topic, **asdict(report)})
        return OK
    left = ", ".join(f"{n} {cause}" for cause, n in sorted(report.left.items())) or "none"
    print(f"{options.topic}: {report.replayed} bad records have become rows; left: {left}")
    if report.already:
        print(f"{report.already} were rows already, and have left the table of bad records")
    return OK


def _bearing_unknown(config: TierConfig, topic: str) -> TierConfig:
    """A record whose schema is still unknown stays where it is; the others needn't wait for it.

    Where bad records are kept as rows it wouldn't stay: there the topic's own setting holds.
    """
    own = config.topic(topic)
    if own.on_error == "raw":
        return config
    patient = replace(own, on_unknown_schema="error")
    return replace(config, topics={**config.topics, topic: patient})


def _topic_id(tables: CatalogTables, topic: str) -> str:
    """The id of the topic that has the name now. Raises NotFound where it has no table."""
    from tiering.table.loading import load_table
    from tiering.watermarks import TOPIC_ID_PROPERTY, TOPIC_PROPERTY

    name = tables.identifier(topic)
    try:
        properties = load_table(tables.catalog, name).properties
    except NotFound:
        properties = {}
    if properties.get(TOPIC_PROPERTY) != topic or TOPIC_ID_PROPERTY not in properties:
        raise NotFound(
            f"topic {topic} has no table {'.'.join(name)}; see `onecopy status` for those there are"
        )
    return properties[TOPIC_ID_PROPERTY]
