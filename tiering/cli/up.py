"""`onecopy up`: a local Kafka, the service and the engine, until Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json
from tiering.cli.tier_options import DEFAULT_DIRECTORY, run_stack
from tiering.config import RegistryConfig, default_config
from tiering.local.schema_registry import LocalSchemaRegistry
from tiering.local.tier_stack import TierStack

__all__ = ["add_arguments", "run"]

_PORT_MAX: Final = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy up --help`."""
    parser.add_argument(
        "--dir",
        type=Path,
        default=DEFAULT_DIRECTORY,
        help="everything is kept here, and used again by the next run (default: %(default)s)",
    )
    parser.add_argument(
        "--store", metavar="URL", help="directory or s3:// URL (default: DIR/store)"
    )
    parser.add_argument("--namespace", default="kafka", help="of the tables (default: %(default)s)")
    parser.add_argument(
        "--kafka-port", type=_port, default=0, metavar="PORT", help="0 takes a free one"
    )
    parser.add_argument(
        "--kafka-property",
        action="append",
        default=[],
        type=_property,
        metavar="KEY=VALUE",
        help="a broker property; may be given several times",
    )
    registry = parser.add_mutually_exclusive_group()
    registry.add_argument(
        "--registry", metavar="URL", help="a schema registry: topics that it knows get typed tables"
    )
    registry.add_argument(
        "--with-registry", action="store_true", help="start a schema registry, in memory, too"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="the first line on standard output is one JSON object that says where everything is",
    )


def run(options: argparse.Namespace) -> int:
    """Until Ctrl-C (130) or SIGTERM (0)."""
    directory: Path = options.dir.resolve()
    with ExitStack() as running:
        url: str = options.registry or ""
        if options.with_registry:
            url = running.enter_context(LocalSchemaRegistry()).url
        config = default_config(
            directory,
            store=options.store,
            namespace=options.namespace,
            registry=RegistryConfig(url=url),
        )
        stack = TierStack(
            config,
            directory,
            with_kafka=True,
            kafka_port=options.kafka_port,
            kafka_properties=dict(options.kafka_property),
        )
        show = _print_json if options.json else _print
        run_stack(stack, lambda started: show({**started.describe(), "registry": url}))
    return OK


def _print_json(where: Mapping[str, Any]) -> None:
    print_json(where)


def _print(where: Mapping[str, Any]) -> None:
    catalog = ", ".join(f"{key}={value}" for key, value in where["catalog"].items())
    print(f"Kafka       {where['bootstrap_servers']}")
    print(f"catalog     {catalog}")
    print(f"namespace   {where['namespace']}")
    print(f"store       {where['store']}")
    if where["registry"]:
        print(f"registry    {where['registry']}")
    print(f"logs        {Path(where['dir']) / 'logs'}")
    print("Topics with remote.storage.enable=true are tiered, segment by segment as they roll")
    print("(local.retention.ms=1000 on a topic makes that quick). Ctrl-C stops it.", flush=True)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to {_PORT_MAX})")
    return int(text)


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
