"""`onecopy plugin-path`: the broker plug-in's jar and the broker settings to use."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tiering.cli.exit_codes import OK
from tiering.cli.output import print_json
from tiering.errors import BadInput, TransientError

__all__ = ["add_arguments", "run"]

_URL: Final = "http://127.0.0.1:8099"
_TOKEN_FILE: Final = Path("/etc/onecopy/token")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy plugin-path --help`."""
    parser.add_argument("--copy-to", type=Path, metavar="DIR", help="copy the jar there first")
    parser.add_argument("--url", default=_URL, help="of the service (default: %(default)s)")
    parser.add_argument(
        "--token-file",
        type=Path,
        default=_TOKEN_FILE,
        help="the service's token, as the broker sees it (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the jar's path, then the properties; builds the jar if it isn't there."""
    from tiering.broker_plugin import PLUGIN_CLASS, jar_path
    from tiering.broker_plugin.build import PluginBuildError
    from tiering.local.kafka import RemoteStorage, onecopy_settings

    if urlsplit(options.url).scheme not in ("http", "https") or not urlsplit(options.url).hostname:
        raise BadInput(f"--url {options.url}: give http://HOST:PORT or https://HOST:PORT")
    try:
        jar = jar_path()
    except PluginBuildError as error:
        raise TransientError(str(error)) from error
    if options.copy_to is not None:
        options.copy_to.mkdir(parents=True, exist_ok=True)
        jar = Path(shutil.copy(jar, options.copy_to))
    storage = RemoteStorage(
        class_name=PLUGIN_CLASS,
        jars=(jar,),
        settings=onecopy_settings(options.url, options.token_file),
    )
    if options.json:
        print_json({"jar": str(jar), "properties": storage.properties()})
        return OK
    print(f"# {jar}")
    for key, value in storage.properties().items():
        print(f"{key}={value}")
    return OK
