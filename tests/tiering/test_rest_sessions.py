"""A REST catalog that accepts and never answers."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from appends import NO_WAIT

from tiering.errors import TransientError
from tiering.table import rest_sessions
from tiering.table.catalog import CatalogConfig, open_catalog


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_sessions, "_READ_TIMEOUT_S", 0.05)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TransientError, match="timed out"):
            open_catalog(CatalogConfig(properties={"uri": uri, "token": "t"}), pacing=NO_WAIT)
