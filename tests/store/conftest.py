"""A real S3 server for this directory's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_server import S3Server, run_s3_server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
