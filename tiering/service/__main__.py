"""`python -m tiering.service`: the tier service alone, as supervisors start it."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from tiering.config import TierConfig
from tiering.conversion.worker_memory import keep_freed_memory
from tiering.errors import BadInput, TieringError
from tiering.service.server import read_token, run
from tiering.service.table_views import LoadTable
from tiering.store import open_store
from tiering.table.topic_tables import CatalogTables

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and serve; 2 for a setup that can't be served, 1 for a store."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    keep_freed_memory()  # units are some megabytes each, made and dropped all the time
    try:
        run(
            open_store(options.store),
            read_token(options.token_file),
            host=options.host,
            port=options.port,
            ready_file=options.ready_file,
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            allow_plain=options.allow_plain,
            load_table=_load_table(options.config),
        )
    except BadInput as error:
        sys.stderr.write(f"onecopy service: {error}\n")
        return 2
    except TieringError as error:
        sys.stderr.write(f"onecopy service: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _load_table(config: Path | None) -> LoadTable | None:
    """Asks the catalog; it is opened at the first use, which most services never come to."""
    if config is None:
        return None
    return CatalogTables(TierConfig.from_json(config.read_text())).table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tiering.service", description=__doc__)
    parser.add_argument("--store", required=True, metavar="URL", help="directory or s3:// URL")
    parser.add_argument("--token-file", required=True, type=Path, help="file with the token")
    parser.add_argument(
        "--config", type=Path, help="TierConfig as JSON: where tables are when all else fails"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", default=0, type=int, help="0 takes a free one")
    parser.add_argument("--ready-file", type=Path, help="gets {url, pid} when requests are taken")
    parser.add_argument("--tls-cert", type=Path, help="certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, help="private key, PEM")
    parser.add_argument(
        "--allow-plain", action="store_true", help="no TLS although not on loopback"
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"]
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
