"""Reads by librdkafka, as it comes: seeks to given offsets, and whole partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from acknowledged import Found, Record, hashed
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

__all__ = ["read_partition", "seek_each"]

QUIET_S = 30.0
FOLLOWERS = 10
AT_ONCE = 5_000


def read_partition(
    bootstrap_servers: str,
    topic: str,
    partition: int,
    end: int,
    isolation: str,
    *,
    fetch: int,
    start: int = 0,
    ahead: int | None = None,
    errors: list[KafkaError] | None = None,
) -> Iterator[Record]:
    """All records from `start` until the one at `end - 1`, which must be visible.

    `ahead`: about so many records are fetched beyond those that were taken; by default, many.
    `errors`: takes what the client says of fetches that it will try again; raised by default.
    """
    consumer = _consumer(bootstrap_servers, isolation, fetch, ahead)
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        offset = -1
        while offset < end - 1:
            messages = consumer.consume(ahead or AT_ONCE, 0.2)
            since = time.monotonic()
            while not messages:
                assert time.monotonic() - since < QUIET_S, f"{topic}-{partition}: after {offset}"
                messages = consumer.consume(ahead or AT_ONCE, 0.2)
            for message in messages:
                if errors is not None and _is_told(message, errors):
                    continue
                record = _record(message)
                offset = record[0]
                yield record
    finally:
        consumer.close()


def seek_each(
    bootstrap_servers: str,
    topic: str,
    partition: int,
    targets: Sequence[int],
    isolation: str,
    *,
    fetches: Sequence[int],
) -> Iterator[tuple[int, list[Found]]]:
    """For every target the first records after an assign (or a seek) to it.

    One consumer for each of the fetch sizes; they take turns with the targets.
    """

    def part(first: int) -> list[tuple[int, list[Found]]]:
        consumer = _consumer(bootstrap_servers, isolation, fetches[first])
        try:
            return [
                (
                    target,
                    _seek(consumer, TopicPartition(topic, partition, target), again=n % 2 == 1),
                )
                for n, target in enumerate(targets[first :: len(fetches)])
            ]
        finally:
            consumer.close()

    with ThreadPoolExecutor(len(fetches)) as pool:
        for done in pool.map(part, range(len(fetches))):
            yield from done


def _seek(consumer: Consumer, place: TopicPartition, *, again: bool) -> list[Found]:
    if again:
        consumer.seek(place)
    else:
        consumer.assign([place])
    first = consumer.poll(QUIET_S)
    assert first is not None, f"nothing came after a seek to {place}"
    return [hashed(_record(m)) for m in (first, *consumer.consume(FOLLOWERS, 0))]


def _consumer(
    bootstrap_servers: str, isolation: str, fetch: int, ahead: int | None = None
) -> Consumer:
    return Consumer(
        {
            **({} if ahead is None else {"queued.min.messages": ahead}),
            "fetch.queue.backoff.ms": 5,  # with so few ahead it would rest a second each time
            "bootstrap.servers": bootstrap_servers,
            "group.id": "acceptance",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": fetch,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,  # a seek waits for the fetch before it, if that waits for more
        }
    )


def _is_told(message: Message, errors: list[KafkaError]) -> bool:
    error = message.error()
    if error is not None and not error.fatal():
        errors.append(error)
    return error is not None and not error.fatal()


def _record(message: Message) -> Record:
    if message.error() is not None:
        raise KafkaException(message.error())
    return (
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )
