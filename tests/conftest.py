"""Real parts for every test: jars, brokers, an S3 server. Nothing starts before it's asked for."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from broker_starting import StartKafka
    from s3_server import S3Server

    from tiering.local.kafka import LocalKafka, RemoteStorage


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell ignores SIGINT for what it starts in the background, and children inherit that:
    the processes under test must be interruptible however the tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def kafka_jars() -> tuple[Path, ...]:
    from tiering import jars

    return jars.kafka_jars()


@pytest.fixture(scope="session")
def iceberg_jars() -> tuple[Path, ...]:
    from tiering import jars

    return jars.iceberg_jars()


@pytest.fixture
def local_kafka(tmp_path: Path) -> Iterator[StartKafka]:
    """A factory of brokers for one test."""
    numbers = iter(range(1000))
    with _brokers(lambda: tmp_path / f"kafka-{next(numbers)}") as start:
        yield start


@pytest.fixture(scope="module")
def module_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartKafka]:
    """A factory of brokers that live as long as the test module."""
    with _brokers(lambda: tmp_path_factory.mktemp("kafka")) as start:
        yield start


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with one empty bucket; use a prefix of your own."""
    from s3_server import run_s3_server

    with run_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@contextmanager
def _brokers(new_directory: Callable[[], Path]) -> Iterator[StartKafka]:
    from tiering.local.kafka import LocalKafka

    with ExitStack() as running:

        def start_kafka(
            *,
            remote: RemoteStorage | None = None,
            properties: Mapping[str, str] | None = None,
            directory: Path | None = None,
            start: bool = True,
        ) -> LocalKafka:
            kafka = LocalKafka(
                directory or new_directory(),
                remote=remote,
                properties=properties,
                jvm_options=["-XX:TieredStopAtLevel=1"],  # half the CPU time of a start
            )
            running.callback(kafka.stop)
            return kafka.start() if start else kafka

        yield start_kafka
