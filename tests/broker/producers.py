"""Producers that keep what they were acknowledged."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from acknowledged import Record, WrittenTopic
from confluent_kafka import Message, Producer
from real_tier import Tier
from wire_produce import Sender, WireProducer, encode_batch

__all__ = ["CODECS", "START_MS", "Transactional", "produce", "send", "send_batch"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_750_000_000_000
MIB = 1024 * 1024


def produce(
    stack: Tier,
    topic: WrittenTopic,
    codec: str,
    records: Iterable[tuple[int, Record]],
    *,
    idempotent: bool = False,
) -> None:
    """Send (partition, record) pairs by librdkafka; their offsets go to what is committed."""
    producer = Producer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 10,
            "message.max.bytes": 4 * MIB,
            "enable.idempotence": idempotent,
        }
    )
    for number, record in records:
        send(producer, topic.name, number, record, topic.partitions[number].committed)
    assert producer.flush(60) == 0, f"{topic.name}: not all was acknowledged"


class Transactional:
    """One transactional producer, its records spread over the partitions of a topic."""

    def __init__(self, stack: Tier, topic: WrittenTopic, name: str, codec: str) -> None:
        self._topic = topic
        self._name = name.encode()
        self._rng = random.Random(name)
        self._pending: list[list[Record]] = [[] for _ in topic.partitions]
        self._producer = Producer(
            {
                "bootstrap.servers": stack.bootstrap_servers,
                "transactional.id": name,
                "compression.type": codec,
                "linger.ms": 2,
                "batch.num.messages": 25,
            }
        )
        self._producer.init_transactions(30)

    def begin(self, records: int) -> None:
        """Open a transaction and write."""
        self._producer.begin_transaction()
        self.write(records)

    def write(self, records: int) -> None:
        """Write into the open transaction; some at a time, so that others come between."""
        for n in range(records):
            record: Record = (0, START_MS + n, self._name, self._rng.randbytes(600), [])
            number = n % len(self._pending)
            send(self._producer, self._topic.name, number, record, self._pending[number])
            if n % 100 == 99:
                self._producer.flush(30)
        assert self._producer.flush(30) == 0

    def end(self, *, aborted: bool) -> None:
        """Commit or abort."""
        if aborted:
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)
        for partition, records in zip(self._topic.partitions, self._pending, strict=True):
            (partition.aborted if aborted else partition.committed).extend(records)
        self._pending = [[] for _ in self._pending]


def send_batch(
    stack: Tier, topic: WrittenTopic, sender: Sender, count: int, partition: int = 0
) -> Sender:
    """One batch of an idempotent producer; returns what it goes on with.

    Timestamps are of now: a broker forgets producers whose last record is a day old.
    """
    now = int(time.time() * 1000)
    records: list[Record] = [
        (0, now, None, b"%d/%d" % (sender.producer_id, sender.sequence + n), [])
        for n in range(count)
    ]
    with WireProducer(stack.leader(topic.name, partition).bootstrap_servers, topic.name) as wire:
        wire.send({partition: encode_batch(records, sender)})
        base, _ = wire.acknowledged()[partition]
    topic.partitions[partition].committed += [(base + n, *r[1:]) for n, r in enumerate(records)]
    return replace(sender, sequence=sender.sequence + count)


def send(
    producer: Producer, topic: str, partition: int, record: Record, into: list[Record]
) -> None:
    """Send one record; when it is acknowledged it goes, with its offset, into the list."""
    _, timestamp, key, value, headers = record

    def delivered(error: Any, message: Message) -> None:
        assert error is None, f"{topic}-{partition}: {error}"
        into.append((message.offset(), message.timestamp()[1], key, value, headers))

    while True:
        try:
            producer.produce(
                topic,
                key=key,
                value=value,
                headers=list(headers) or None,
                partition=partition,
                timestamp=timestamp,
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(0.05)
            continue
        producer.poll(0)
        return
