"""`onecopy status`: how far each topic and partition has come."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json, print_table, readable_bytes
from tiering.cli.tier_options import add_tier_arguments, find_config
from tiering.config import TierConfig

if TYPE_CHECKING:
    from tiering.status import TierStatus, TopicStatus

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy status --help`."""
    add_tier_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Look at ledger and tables; the tier needn't be running."""
    config = find_config(options)
    status = _collect(config)
    if options.json:
        print_json(status.to_dict())
    else:
        _print(status)
    return OK


def _collect(config: TierConfig) -> TierStatus:
    # Imported late: opening a catalog costs a second that a usage error shouldn't wait for.
    from tiering.heartbeat import read_heartbeat
    from tiering.ledger import Ledger
    from tiering.status import collect_status
    from tiering.store import open_store
    from tiering.table.topic_tables import CatalogTables

    store, tables = open_store(config.store), CatalogTables(config)
    return collect_status(
        Ledger(store).scan(),
        state_of=tables.state,
        files_of=tables.files,
        heartbeat=read_heartbeat(store),
    )


def _print(status: TierStatus) -> None:
    print(f"engine: {_seen(status.engine_seen_at_ms)}")
    if not status.topics:
        print("The tier holds no segments yet.")
        return
    rows = [
        (topic.topic, p.partition, p.log_start, p.tier_end, p.watermark, p.lag, p.pending_segments)
        for topic in status.topics
        for p in topic.partitions
    ]
    columns = ("topic", "partition", "log start", "tier end", "watermark", "lag", "pending")
    print_table(columns, rows, title="Offsets (watermark: next one to come into the table)")
    print_table(
        ("topic", "partition", "proven", "retired", "native bytes left", "rows deleted by SQL"),
        [
            (
                *(t.topic, p.partition, p.proven_segments, p.retired_segments),
                *(readable_bytes(p.native_bytes), p.deleted_rows),
            )
            for t in status.topics
            for p in t.partitions
        ],
        title="Segments (retired: table and side file are the only copy in the tier)",
    )
    print_table(
        ("topic", "table", "files", "size", "problem"),
        [
            (t.topic, t.table, t.files, readable_bytes(t.file_bytes), t.problem)
            for t in status.topics
        ],
        title="Tables",
    )
    typed = [(t.topic, t.values) for t in status.topics if t.values is not None]
    if typed:
        print_table(
            ("topic", "typed rows", "also kept raw", "bad records"),
            [
                (topic, v.typed_rows, f"{v.raw_rows} ({v.raw_share:.1%})", _causes(v.bad_records))
                for topic, v in typed
            ],
            title="Values since the engine's start (bad records there are: `onecopy dlq list`)",
        )
    for topic in status.topics:
        for reason in topic.untyped:
            print(f"without columns: {topic.topic}: {reason}")
        for line in (*_told(topic, "quarantined"), *_told(topic, "faults")):
            print(line)


def _causes(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in sorted(counts.items())) or "none"


def _told(topic: TopicStatus, what: Literal["quarantined", "faults"]) -> list[str]:
    label = {"quarantined": "quarantined", "faults": "proof failed"}[what]
    return [
        f"{label}: {topic.topic}-{partition.partition}: {reason}"
        for partition in topic.partitions
        for reason in getattr(partition, what)
    ]


def _seen(at_ms: int | None) -> str:
    if at_ms is None:
        return "never seen"
    return f"last seen {max(0.0, time.time() - at_ms / 1000):.0f} s ago"
