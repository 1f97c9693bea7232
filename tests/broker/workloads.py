"""Topics with everything Kafka allows in them; each returns what was acknowledged."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from acknowledged import READ_COMMITTED, Record, WrittenPartition, WrittenTopic
from librdkafka_reads import read_partition
from polling import eventually
from producers import CODECS, START_MS, Transactional, produce
from real_tier import RealTier, Tier
from stock_client import StockClient
from wire_produce import WireProducer, encode_batch

__all__ = [
    "append_small_segment",
    "compacted",
    "interleaved_transactions",
    "log_append_time",
    "odd_records",
    "one_record_batches",
    "seal",
    "small_segments",
    "tiny_transactions",
]

MIB = 1024 * 1024
FOREVER = "-1"
NEVER_MS = str(2**63 - 1)
UNTIL_SEALED = {"segment.ms": NEVER_MS, "local.retention.ms": FOREVER}
"""Nothing rolls by time: the broker rolls an active segment, too, once its records are older."""


def seal(stack: Tier, topic: WrittenTopic) -> None:
    """End every partition with a plain record, then have the broker keep nothing locally.

    It then rolls the active segments, too: all that is left on its disk is an empty one.
    """
    for number, partition in enumerate(topic.partitions):
        _wait_decided(stack, topic.name, number)
        _write_last(stack, topic.name, number, partition)
    stack.set_topic_config(topic.name, local_retention_ms="1")


def odd_records(stack: RealTier, java: StockClient) -> WrittenTopic:
    """Two partitions, every codec of both clients in turn, every odd shape of a record."""
    topic = WrittenTopic.empty("Odd.Records-v1_A", 2)
    configs = {
        "index.interval.bytes": "1",
        "max.message.bytes": str(4 * MIB),
        "segment.bytes": str(MIB + MIB // 4),
    }
    stack.create_tiered_topic(topic.name, 2, {**UNTIL_SEALED, **configs})
    rng = random.Random(3)
    for round_number in range(2):
        for codec in CODECS:
            odd = [(p, _odd_record(rng, n)) for n in range(12) for p in (0, 1)]
            produce(stack, topic, codec, odd)
            odd = [(p, _odd_record(rng, n)) for n in range(12) for p in (0, 1)]
            acknowledged = java.produce(topic.name, codec, odd, batch_bytes=1500)
            _take(topic, odd, acknowledged)
            if round_number == 1:
                large = [(p, _large_record(rng, p)) for p in (0, 1)]
                produce(stack, topic, codec, large)
        _produce_by_hand(stack, topic, rng)
    return topic


def log_append_time(stack: RealTier) -> WrittenTopic:
    """One partition whose timestamps are the broker's."""
    topic = WrittenTopic.empty("log-append-time", 1)
    configs = {"message.timestamp.type": "LogAppendTime"}
    stack.create_tiered_topic(topic.name, 1, {**UNTIL_SEALED, **configs})
    rng = random.Random(4)
    for codec in ("lz4", "none", "zstd"):
        records = [(0, _odd_record(rng, n)) for n in range(80)]
        produce(stack, topic, codec, records)
    return topic


def interleaved_transactions(stack: RealTier) -> WrittenTopic:
    """Six transactional producers and a plain one at once, 30% aborted.

    Two of them, one that aborts and one that commits, stay open while the others write several
    segments: their markers lie segments behind their records.
    """
    topic = WrittenTopic.empty("transactions.interleaved", 2)
    stack.create_tiered_topic(topic.name, 2, {"segment.ms": NEVER_MS})
    outer = [Transactional(stack, topic, f"outer-{n}", CODECS[n]) for n in range(2)]
    for each in outer:
        each.begin(300)
    with ThreadPoolExecutor(5) as pool:
        jobs = [pool.submit(_long_transactions, stack, topic, n) for n in range(4)]
        jobs.append(pool.submit(_beside_transactions, stack, topic))
        for job in jobs:
            job.result()
    for each, aborted in zip(outer, (True, False), strict=True):
        each.write(50)
        each.end(aborted=aborted)
    _long_transactions(stack, topic, 4)
    return topic


def tiny_transactions(
    stack: RealTier, java: StockClient, count: int = 10_640, threads: int = 16
) -> WrittenTopic:
    """Transactions of one record, 95% of them aborted, all in one segment."""
    topic = WrittenTopic.empty("transactions-tiny", 1)
    configs = {"segment.bytes": str(64 * MIB)}
    stack.create_tiered_topic(topic.name, 1, {**UNTIL_SEALED, **configs})
    written = topic.partitions[0]
    for record, is_committed in java.transactions(topic.name, 0, threads=threads, count=count):
        (written.committed if is_committed else written.aborted).append(record)
    return topic


def one_record_batches(stack: RealTier, count: int, partitions: int = 8) -> WrittenTopic:
    """`count` batches of one record each; one segment a partition."""
    topic = WrittenTopic.empty("one-record-batches", partitions)
    configs = {"segment.bytes": str(256 * MIB), "segment.index.bytes": str(16 * MIB)}
    stack.create_tiered_topic(topic.name, partitions, {**UNTIL_SEALED, **configs})
    first: Record = (0, START_MS, None, b"first", [])
    produce(stack, topic, "none", [(p, first) for p in range(partitions)])
    with WireProducer(stack.bootstrap_servers, topic.name) as producer:
        sent: list[Record] = []
        for number in range(count // partitions):
            record: Record = (0, START_MS + number, None, b"%d" % number, [])
            batch = encode_batch([record])
            producer.send(dict.fromkeys(range(partitions), batch))
            sent.append(record)
            if number >= 8:  # a few requests in flight
                _take_answer(topic, producer, sent[number - 8])
        for record in sent[-8:]:
            _take_answer(topic, producer, record)
    return topic


def small_segments(
    stack: Tier, name: str, *, partitions: int = 8, segments: int = 4, records: int = 50
) -> WrittenTopic:
    """Many segments of few records: they roll by time, which is the records' own."""
    topic = WrittenTopic.empty(name, partitions)
    configs = {"segment.ms": "1000", "local.retention.ms": FOREVER}
    stack.create_tiered_topic(topic.name, partitions, configs)
    for number in range(segments):
        append_small_segment(stack, topic, number, records=records)
    return topic


def append_small_segment(
    stack: Tier, topic: WrittenTopic, number: int, *, records: int = 50, start_ms: int = START_MS
) -> None:
    """Append to every partition what the broker puts into a segment of its own."""
    rng = random.Random(number)
    rows = [
        (partition, (0, start_ms + 10_000 * number + n % 10, *_odd_record(rng, n)[2:]))
        for n in range(records)
        for partition in range(len(topic.partitions))
    ]
    produce(stack, topic, CODECS[number % len(CODECS)], rows)


def compacted(stack: RealTier) -> WrittenTopic:
    """A topic that was compacted first: gaps inside batches, empty batches, delete horizons.

    What must be read is what a consumer reads before the topic is tiered; it is checked here
    against what was acknowledged.
    """
    topic = WrittenTopic.empty("compacted-first", 1)
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(MIB),
        "segment.ms": NEVER_MS,
        "retention.ms": "-1",
        "min.cleanable.dirty.ratio": "0.01",
    }
    stack.kafka.create_topic(topic.name, 1, configs)
    sent = WrittenTopic.empty(topic.name, 1)
    rng = random.Random(5)
    for codec, count, keys in (("none", 150, 30), ("zstd", 700, 200), ("lz4", 700, 200)):
        records = [(0, _keyed_record(rng, keys)) for _ in range(count)]
        produce(stack, sent, codec, records, idempotent=True)
    _roll_by_time(stack, sent)
    acknowledged = {r[0]: r for r in sent.partitions[0].committed}
    latest = {r[2]: r[0] for r in acknowledged.values()}
    end = sent.partitions[0].end_offset
    survivors: list[Record] = []

    def cleaned() -> bool:
        read = read_partition(
            stack.bootstrap_servers, topic.name, 0, end, READ_COMMITTED, fetch=MIB
        )
        survivors[:] = read
        return len(survivors) == len(latest)

    eventually(cleaned, 60, what=f"{len(latest)} keys", details=lambda: f"{len(survivors)}")
    assert {r[0] for r in survivors} == set(latest.values())
    assert all(_same(acknowledged[r[0]], r) for r in survivors)
    topic.partitions[0].committed += survivors
    stack.set_topic_config(
        topic.name,
        cleanup_policy="delete",
        remote_storage_enable="true",
        local_retention_ms=FOREVER,
    )
    return topic


def _same(one: Record, other: Record) -> bool:
    return (*one[:4], list(one[4])) == (*other[:4], list(other[4]))


def _wait_decided(stack: Tier, topic: str, partition: int) -> None:
    """A commit is acknowledged before its markers are written: wait for the last of them."""

    def decided() -> bool:
        stable = stack.watermarks(topic, partition, READ_COMMITTED)
        return stable == stack.watermarks(topic, partition)

    eventually(decided, 30, what=f"no open transaction in {topic}-{partition}")


def _write_last(stack: Tier, topic: str, number: int, partition: WrittenPartition) -> None:
    record: Record = (0, int(time.time() * 1000) - 60_000, b"last", b"last", [])
    with WireProducer(stack.leader(topic, number).bootstrap_servers, topic) as producer:
        producer.send({number: encode_batch([record])})
        offset, appended_at = producer.acknowledged()[number]
    timestamp = record[1] if appended_at < 0 else appended_at
    partition.committed.append((offset, timestamp, *record[2:]))


def _roll_by_time(stack: RealTier, topic: WrittenTopic) -> None:
    """Append until the broker has rolled partition 0."""
    partition = topic.partitions[0]
    stack.set_topic_config(topic.name, segment_ms="1")

    def rolled() -> bool:  # the new setting takes a moment to be seen
        _write_last(stack, topic.name, 0, partition)
        return stack.kafka.local_segments(topic.name)[-1] == partition.end_offset - 1

    eventually(rolled, 20, what=f"{topic.name} rolls")
    stack.set_topic_config(topic.name, segment_ms=NEVER_MS)


def _take_answer(topic: WrittenTopic, producer: WireProducer, record: Record) -> None:
    for number, (offset, _) in producer.acknowledged().items():
        topic.partitions[number].committed.append((offset, *record[1:]))


def _take(
    topic: WrittenTopic,
    records: Iterable[tuple[int, Record]],
    acknowledged: Iterable[tuple[int, int]],
) -> None:
    for (number, record), (offset, at) in zip(records, acknowledged, strict=True):
        topic.partitions[number].committed.append((offset, at, *record[2:]))


def _odd_record(rng: random.Random, number: int) -> Record:
    """Nulls and empties in every place, headers repeated, unordered, null and empty."""
    key = (None, b"", b"k%d" % number, rng.randbytes(9))[number % 4]
    value = (b"v" * rng.randrange(300), None, b"", rng.randbytes(40), b"\x00\xff")[number % 5]
    headers: list[tuple[str, bytes | None]] = [
        [],
        [("h", None)],
        [("h", b""), ("h", b"2"), ("h", b""), ("", None)],
        [("z", rng.randbytes(5)), ("a", None), ("\u00fcber-\U0001f642", "\u20ac".encode())],
    ][number % 4 if number % 3 else 0]
    timestamp = START_MS + rng.randrange(-10_000_000, 10_000_000)
    return 0, timestamp, key, value, headers


def _large_record(rng: random.Random, partition: int) -> Record:
    value = rng.randbytes(MIB) if partition else b"0123456789abcdef" * (MIB // 16)
    return 0, START_MS, b"large", value, []


def _keyed_record(rng: random.Random, keys: int) -> Record:
    value = None if rng.random() < 0.1 else rng.randbytes(150).hex().encode()
    return 0, START_MS + rng.randrange(10_000), b"key-%d" % rng.randrange(keys), value, []


def _produce_by_hand(stack: RealTier, topic: WrittenTopic, rng: random.Random) -> None:
    """Timestamps that no client library sends: none at all, negative, zero, falling."""
    with WireProducer(stack.bootstrap_servers, topic.name) as producer:
        for timestamps in ((-1,), (-1, -1), (0, 1), (START_MS, START_MS - 5), (-7, 3)):
            for number, partition in enumerate(topic.partitions):
                records = [(0, t, *_odd_record(rng, t % 60)[2:]) for t in timestamps]
                producer.send({number: encode_batch(records)})
                base, _ = producer.acknowledged()[number]
                partition.committed += [(base + i, *r[1:]) for i, r in enumerate(records)]


def _long_transactions(stack: RealTier, topic: WrittenTopic, number: int) -> None:
    producer = Transactional(stack, topic, f"long-{number}", CODECS[number])
    for transaction in range(7):
        producer.begin(700)
        producer.end(aborted=(number + 4 * transaction) % 10 < 3)


def _beside_transactions(stack: RealTier, topic: WrittenTopic) -> None:
    rng = random.Random(99)
    for _ in range(20):
        records = [(n % 2, _odd_record(rng, n)) for n in range(50)]
        produce(stack, topic, "gzip", records)
