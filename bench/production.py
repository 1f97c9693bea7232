"""Filling topics by librdkafka, and taking the segments that the broker wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from bench.records import RecordForm
from tiering.local.kafka import LocalKafka

__all__ = ["produce", "rolled_segments"]

_FLUSH_S: Final = 120
_POLL_EVERY: Final = 4096


def produce(
    kafka: LocalKafka,
    topic: str,
    form: RecordForm,
    count: int,
    *,
    codec: str,
    partitions: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Produce `count` records, in turn to all partitions; returns bytes of keys and values.

    Raises AssertionError unless the broker acknowledged every one.
    """
    lost: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "message.max.bytes": 4_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: lost.append(error),
            **(settings or {}),
        }
    )
    size = 0
    for number, (key, value) in enumerate(form.records(0, count)):
        _send(producer, topic, key, value, number % partitions)
        size += len(key) + len(value)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    assert producer.flush(_FLUSH_S) == 0, "the broker did not acknowledge every record"
    assert not lost, lost[0]
    return size


def _send(producer: Producer, topic: str, key: bytes, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, key=key, value=value, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def rolled_segments(kafka: LocalKafka, topic: str, partition: int = 0) -> list[tuple[Path, int]]:
    """Log files on the broker's disk that are closed, each with its last offset."""
    bases = kafka.local_segments(topic, partition)
    directory = kafka.data_directory / f"{topic}-{partition}"
    paths = [directory / f"{base:020d}.log" for base in bases]
    return [(path, after - 1) for path, after in zip(paths, bases[1:], strict=False)]
