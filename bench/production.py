"""Filling topics by librdkafka, and taking the segments that the broker wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from bench.records import Records
from tiering.local.kafka import LocalKafka

__all__ = ["produce", "produce_transactions", "rolled_segments"]

_FLUSH_S: Final = 120
_POLL_EVERY: Final = 4096
_TRANSACTION_RECORDS: Final = 4000
_ABORT_EVERY: Final = 5


def produce(
    kafka: LocalKafka,
    topic: str,
    form: Records,
    count: int,
    *,
    codec: str,
    partitions: int = 1,
    first_ms: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Produce `count` records, in turn to all partitions; returns bytes of keys and values.

    Timestamps begin at `first_ms` and rise by one; 0 takes the clock's. Raises AssertionError
    unless the broker acknowledged every one.
    """
    lost: list[object] = []
    producer = _producer(kafka, codec, lost, settings or {})
    size = 0
    for number, (key, value) in enumerate(form.records(0, count)):
        _send(producer, topic, key, value, number % partitions, first_ms and first_ms + number)
        size += len(key) + len(value)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    assert producer.flush(_FLUSH_S) == 0, "the broker did not acknowledge every record"
    assert not lost, lost[0]
    return size


def produce_transactions(
    kafka: LocalKafka, topic: str, form: Records, count: int, *, codec: str, first_ms: int
) -> int:
    """As `produce`, to one partition, in transactions of which every fifth is aborted.

    Returns how many records were committed; the last transaction always is.
    """
    lost: list[object] = []
    producer = _producer(kafka, codec, lost, {"transactional.id": f"bench-{topic}"})
    producer.init_transactions(_FLUSH_S)
    committed = 0
    records = form.records(0, count)
    for start in range(0, count, _TRANSACTION_RECORDS):
        size = min(_TRANSACTION_RECORDS, count - start)
        producer.begin_transaction()
        for number in range(start, start + size):
            key, value = next(records)
            _send(producer, topic, key, value, 0, first_ms + number)
        assert producer.flush(_FLUSH_S) == 0, "the broker did not acknowledge every record"
        if start // _TRANSACTION_RECORDS % _ABORT_EVERY == 1 and start + size < count:
            producer.abort_transaction(_FLUSH_S)
        else:
            producer.commit_transaction(_FLUSH_S)
            committed += size
    assert not lost, lost[0]
    return committed


def _producer(
    kafka: LocalKafka, codec: str, lost: list[object], settings: Mapping[str, Any]
) -> Producer:
    return Producer(
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
            **settings,
        }
    )


def _send(
    producer: Producer, topic: str, key: bytes, value: bytes, partition: int, timestamp_ms: int
) -> None:
    while True:
        try:
            producer.produce(
                topic, key=key, value=value, partition=partition, timestamp=timestamp_ms
            )
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
