"""`onecopy accept`: rows that were changed through SQL become what Kafka's clients are given."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json
from tiering.cli.tier_options import add_tier_arguments, find_config
from tiering.errors import BadInput, NotFound

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy accept --help`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", type=int, required=True, metavar="P")
    parser.add_argument("--from", dest="start", type=int, required=True, metavar="OFFSET")
    parser.add_argument(
        "--to", dest="end", type=int, required=True, metavar="OFFSET", help="after the last one"
    )
    add_tier_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Write the range down: neither proofs nor reads of retired segments compare it any more.
    Faults of the segments concerned are lifted, so that they are proven again."""
    from tiering.ledger import Ledger
    from tiering.store import open_store
    from tiering.table.pointers import TablePointer

    if not 0 <= options.start < options.end:
        raise BadInput(f"offsets {options.start} to {options.end} are not a range")
    accepted = (options.partition, options.start, options.end)
    store = open_store(find_config(options).store)
    ledger = Ledger(store)
    held = [e.metadata for e in ledger.scan() if e.metadata.topic == options.topic]
    ids = {meta.id.topic_id for meta in held}

    def accept(pointer: TablePointer | None) -> TablePointer:
        if pointer is None:
            raise NotFound(f"no rows of topic {options.topic} have been found changed or retired")
        return replace(pointer, accepted=tuple(dict.fromkeys((*pointer.accepted, accepted))))

    if not ids:
        raise NotFound(f"the tier holds no segments of topic {options.topic}; see `onecopy status`")
    for topic_id in sorted(ids):
        TablePointer.update(store, topic_id, accept)
    for meta in held:
        touched = meta.start_offset < options.end and meta.end_offset >= options.start
        if meta.id.partition == options.partition and touched:
            ledger.update(meta.id, lambda entry: replace(entry, fault=None))
    if options.json:
        print_json({"topic": options.topic, "accepted": accepted})
    else:
        print(
            f"{options.topic}-{options.partition}: offsets {options.start} to {options.end - 1} "
            "are served as the table has them now"
        )
    return OK
