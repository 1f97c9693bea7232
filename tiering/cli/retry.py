"""`onecopy retry`: quarantined segments and failed proofs, tried again."""

from __future__ import annotations

import argparse
from dataclasses import replace

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json
from tiering.cli.tier_options import add_tier_arguments, find_config
from tiering.errors import NotFound

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy retry --help`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", type=int, metavar="P", help="only this one (default: all)")
    add_tier_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Lift quarantine and faults; a segment that is still bad comes back into them."""
    from tiering.ledger import Ledger
    from tiering.store import open_store

    ledger = Ledger(open_store(find_config(options).store))
    held = [e.metadata for e in ledger.scan() if e.metadata.topic == options.topic]
    if not held:
        raise NotFound(f"the tier holds no segments of topic {options.topic}; see `onecopy status`")
    lifted = []
    for meta in held:
        if options.partition in (None, meta.id.partition):
            before = ledger.load(meta.id)
            ledger.update(meta.id, lambda entry: replace(entry, quarantine=None, fault=None))
            lifted += [meta.id.path] if before.quarantine or before.fault else []
    if options.json:
        print_json({"lifted": lifted})
    else:
        print(f"{len(lifted)} segments of {options.topic} are tried again", *lifted, sep="\n")
    return OK
