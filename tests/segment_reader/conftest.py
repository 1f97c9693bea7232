"""Logs written by Kafka's own classes, once for the whole run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_oracle import KafkaLog, Oracle


@pytest.fixture(scope="session")
def oracle(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Kafka's own reader, compiled."""
    classes = tmp_path_factory.mktemp("oracle-classes")
    return Oracle.compile(kafka_jars, classes)


@pytest.fixture(scope="session")
def kafka_logs(
    oracle: Oracle, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], KafkaLog]:
    """`kafka_logs(name)`: a log written by `Segments.java`, and what Kafka reads from it."""
    directory = tmp_path_factory.mktemp("kafka-logs")
    oracle.run("Segments", str(directory))
    return lambda name: KafkaLog.load(directory / f"{name}.log")


@pytest.fixture(scope="session")
def tiered_storage(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as LocalTieredStorage leaves it, its indexes written by the broker's classes."""
    directory = tmp_path_factory.mktemp("tiered")
    oracle.run("TieredStorage", str(directory))
    return directory
