"""Both kinds of stores, each counting its reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from s3_server import S3Server
from side_samples import CountingStore

from tiering.store import open_store


@pytest.fixture
def local_store(tmp_path: Path) -> CountingStore:
    return CountingStore(open_store(str(tmp_path / "store")))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CountingStore:
    if request.param == "local":
        found: CountingStore = request.getfixturevalue("local_store")
        return found
    server: S3Server = request.getfixturevalue("s3_server")
    return CountingStore(open_store(server.url(f"side/{tmp_path.name}"), server.env))
