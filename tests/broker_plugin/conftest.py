"""One JVM for a test module; a segment of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_harness import Harness, Segment, compile_harness
from plugin_segments import write_segment

from tiering.broker_plugin import build, jar_path


@pytest.fixture(scope="session")
def kafka_jars() -> tuple[Path, ...]:
    return build.kafka_jars()


@pytest.fixture(scope="session")
def plugin_classpath(
    kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ...]:
    classes = tmp_path_factory.mktemp("harness")
    needed = ("kafka-clients-", "kafka-storage-api-", "slf4j-api-")
    libraries = [jar for jar in kafka_jars if jar.name.startswith(needed)]
    classpath = (classes, jar_path(), *libraries)
    compile_harness(classpath, classes)
    return classpath


@pytest.fixture(scope="module")
def jvm(
    plugin_classpath: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    running = Harness(plugin_classpath, tmp_path_factory.mktemp("jvm") / "stderr")
    yield running
    assert running.close() == 0, running.stderr()


@pytest.fixture
def segment(tmp_path: Path, jvm: Harness) -> Segment:
    written = write_segment(tmp_path / "orders.eu_1-7")
    jvm.use(written)
    return written
