"""One Spark session for all tests of this directory that ask for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from offset_spark import started
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session
