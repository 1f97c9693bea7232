"""`onecopy serve`: the service and the engine beside an existing Kafka."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json
from tiering.cli.tier_options import DEFAULT_DIRECTORY, run_stack
from tiering.config import ServiceConfig, TierConfig, default_config, load_config
from tiering.errors import BadInput
from tiering.local.tier_stack import TierStack

__all__ = ["add_arguments", "run"]

_FLAGS: Final = ("store", "catalog_uri", "warehouse", "namespace", "host", "port", "token_file")
_FLAGS_TLS: Final = ("tls_cert", "tls_key", "allow_plain")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy serve --help`."""
    parser.add_argument("--config", type=Path, help="configuration file (TOML); no flags then")
    parser.add_argument(
        "--dir",
        type=Path,
        default=DEFAULT_DIRECTORY,
        help="for logs and, unless told otherwise, token, catalog and store (default: %(default)s)",
    )
    parser.add_argument(
        "--store", metavar="URL", help="directory or s3:// URL (default: DIR/store)"
    )
    parser.add_argument(
        "--catalog-uri", metavar="URI", help="sqlite:///FILE or a REST catalog's URL"
    )
    parser.add_argument(
        "--warehouse", metavar="URL", help="where tables are (default: STORE/warehouse)"
    )
    parser.add_argument("--namespace", help="of the tables (default: kafka)")
    parser.add_argument("--host", help="address that the service listens on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="of the service; 0 takes a free one")
    parser.add_argument("--token-file", metavar="FILE", help="made if missing (default: DIR/token)")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="private key, PEM")
    parser.add_argument(
        "--allow-plain", action="store_true", default=None, help="no TLS although not on loopback"
    )
    parser.add_argument(
        "--json", action="store_true", help="first line on standard output: where everything is"
    )


def run(options: argparse.Namespace) -> int:
    """Until Ctrl-C (130) or SIGTERM (0)."""
    directory: Path = options.dir.resolve()
    stack = TierStack(_config(options, directory), directory)
    run_stack(stack, _print_json if options.json else _print)
    return OK


def _config(options: argparse.Namespace, directory: Path) -> TierConfig:
    given = {name: getattr(options, name) for name in (*_FLAGS, *_FLAGS_TLS)}
    given = {name: value for name, value in given.items() if value is not None}
    if options.config is not None:
        if given:
            flag = next(iter(given)).replace("_", "-")
            raise BadInput(f"--{flag}: give either --config or flags, not both")
        return load_config(options.config)
    service = {name: given.pop(name) for name in ("host", "port", *_FLAGS_TLS) if name in given}
    token_file = Path(given.pop("token_file", directory / "token")).resolve()
    return default_config(
        directory, service=ServiceConfig(token_file=str(token_file), **service), **given
    )


def _print_json(stack: TierStack) -> None:
    print_json(stack.describe())


def _print(stack: TierStack) -> None:
    print(f"service     {stack.service_url}")
    print(f"token file  {stack.token_file}")
    print(f"store       {stack.config.store}")
    print(f"logs        {stack.directory / 'logs'}")
    print("`onecopy plugin-path` says what to set in the broker. Ctrl-C stops it.", flush=True)
