"""What the demonstration produces, and the record of what the broker acknowledged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Producer

from tiering.demo.digest import Headers, TopicDigest
from tiering.errors import TransientError

__all__ = ["TOPICS", "Acknowledged", "DemoTopic", "produce_topic"]

_FIRST_ORDER_MS: Final = 1_750_000_000_000
_TRANSACTION_RECORDS: Final = 2_000
_ABORTED_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTopic:
    """One topic of the demonstration.

    Attributes:
        share: its part of all records.
        transactional: written in transactions of which 30% are aborted.
    """

    name: str
    partitions: int
    share: float
    codec: str
    transactional: bool = False


TOPICS: Final = (
    DemoTopic(name="payments", partitions=2, share=0.3, codec="lz4", transactional=True),
    DemoTopic(name="page.views", partitions=2, share=0.4, codec="zstd"),
    DemoTopic(name="orders", partitions=2, share=0.3, codec="none"),
)

_Record = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]


class Acknowledged:
    """Every record the broker acknowledged: (offset, timestamp, key, value, headers)."""

    def __init__(self, partitions: int) -> None:
        self.records: list[list[tuple[int, int, bytes | None, bytes | None, Headers]]] = [
            [] for _ in range(partitions)
        ]

    def digest(self, ends: dict[int, int]) -> TopicDigest:
        """Digest of the records below each partition's end offset."""
        total = TopicDigest()
        for partition, records in enumerate(self.records):
            end = ends.get(partition, 0)
            total.add_all(partition, sorted(r for r in records if r[0] < end))
        return total


def produce_topic(
    bootstrap_servers: str,
    topic: DemoTopic,
    count: int,
    *,
    advance: Callable[[int], None],
) -> Acknowledged:
    """Produce `count` records; returns the acknowledged ones of committed transactions."""
    acknowledged = Acknowledged(topic.partitions)
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "compression.type": topic.codec,
        "linger.ms": 20,
        "batch.size": 262_144,
        "queue.buffering.max.messages": 1_000_000,
        "enable.idempotence": True,
    }
    if topic.transactional:
        settings["transactional.id"] = f"onecopy-demo-{topic.name}"
    producer = Producer(settings)
    records = _records(topic, count)
    if topic.transactional:
        _produce_transactions(producer, topic, records, acknowledged, advance)
    else:
        for number, record in enumerate(records):
            _send(producer, topic.name, number % topic.partitions, record, acknowledged.records)
            if number % 10_000 == 9_999:
                advance(10_000)
        _flush(producer)
    return acknowledged


def _produce_transactions(
    producer: Producer,
    topic: DemoTopic,
    records: Iterator[_Record],
    acknowledged: Acknowledged,
    advance: Callable[[int], None],
) -> None:
    rng = random.Random(11)  # noqa: S311 - repeatable choices, no secrets
    producer.init_transactions(30)
    sent = 0
    exhausted = False
    while not exhausted:
        producer.begin_transaction()
        pending: list[list[Any]] = [[] for _ in range(topic.partitions)]
        for _ in range(_TRANSACTION_RECORDS):
            record = next(records, None)
            if record is None:
                exhausted = True
                break
            _send(producer, topic.name, sent % topic.partitions, record, pending)
            sent += 1
        if rng.random() < _ABORTED_SHARE:
            _flush(producer)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            for partition, done in enumerate(pending):
                acknowledged.records[partition] += done
        advance(_TRANSACTION_RECORDS)


def _send(
    producer: Producer,
    topic: str,
    partition: int,
    record: _Record,
    into: list[list[Any]],
) -> None:
    key, value, headers = record

    def delivered(error: object, message: Any) -> None:
        if error is not None:
            raise TransientError(f"topic {topic}: not delivered: {error}")
        into[partition].append((message.offset(), message.timestamp()[1], key, value, headers))

    while True:
        try:
            producer.produce(
                topic,
                key=key,
                value=value,
                headers=headers or None,
                partition=partition,
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(0.1)
            continue
        producer.poll(0)
        return


def _flush(producer: Producer) -> None:
    if producer.flush(60) > 0:
        raise TransientError("the broker did not acknowledge every record within 60 s")


def _records(topic: DemoTopic, count: int) -> Iterator[_Record]:
    make = {"payments": _payment, "page.views": _page_view, "orders": _order}[topic.name]
    rng = random.Random(topic.name)  # noqa: S311 - repeatable data, no secrets
    for number in range(count):
        yield make(rng, number)


def _payment(rng: random.Random, number: int) -> _Record:
    """Headers with duplicates and nulls, null keys and null values."""
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"%016x" % rng.getrandbits(64))]
    if number % 3 == 0:
        headers += [("retry", b"1"), ("retry", None)]
    key = None if number % 10 == 0 else b"account-%d" % rng.randrange(5_000)
    value = None if number % 50 == 0 else b"%d;EUR;%d" % (number, rng.randrange(1_000_000))
    return key, value, headers


def _page_view(rng: random.Random, number: int) -> _Record:
    visitor = rng.randrange(100_000)
    value = b"GET /products/%d?ref=%08x HTTP/1.1 200 %d Mozilla/5.0 (X11; Linux x86_64)" % (
        rng.randrange(20_000),
        rng.getrandbits(32),
        rng.randrange(50_000),
    )
    return b"visitor-%d" % visitor, value, []


def _order(rng: random.Random, number: int) -> _Record:
    value = {
        "order_id": number,
        "customer": f"c{rng.randrange(20_000)}",
        "amount": rng.randrange(1, 100_000),
        "currency": rng.choice(("EUR", "USD", "GBP")),
        "placed_at": _FIRST_ORDER_MS + number,
        "items": [f"sku-{rng.randrange(3_000)}" for _ in range(rng.randrange(1, 4))],
    }
    return b"%d" % number, json.dumps(value).encode(), []
