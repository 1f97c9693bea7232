"""Logs as a real broker leaves them, written by librdkafka, need no more than their rows."""

from __future__ import annotations

import random

import pytest
from broker_starting import StartKafka
from confluent_kafka import Producer
from plain_batches import plain_batches
from witnessing import Findings, witnessed

from segment_reader import Kept, SegmentBounds
from tiering.local.kafka import LocalKafka

pytestmark = pytest.mark.broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 400
START_MS = 1_750_000_000_000


@pytest.fixture(scope="module")
def kafka(module_kafka: StartKafka) -> LocalKafka:
    return module_kafka()


def produced(kafka: LocalKafka, codec: str, timestamp_type: str) -> bytes:
    """The log of a topic that librdkafka has written."""
    topic, rng = f"{codec}-{timestamp_type}", random.Random(codec)
    configs = {"message.timestamp.type": timestamp_type, "retention.ms": "-1"}
    kafka.create_topic(topic, configs=configs)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.type": codec,
            "batch.num.messages": 30,
            "linger.ms": 50,
        }
    )
    for _ in range(RECORDS):
        producer.produce(
            topic,
            rng.choice([None, b"", b"v" * rng.randrange(900), rng.randbytes(200)]),
            rng.choice([None, b"", rng.randbytes(10)]),
            timestamp=START_MS + rng.randrange(100_000),
            headers=rng.choice([[], [("a", b"1"), ("a", None)], [("ü", b"")]]),
        )
    assert producer.flush(30) == 0
    (log,) = (kafka.data_directory / f"{topic}-0").glob("*.log")
    return log.read_bytes()


def of_broker(log: bytes) -> Findings:
    batches = plain_batches(log)
    assert sum(batch.count for batch in batches) == RECORDS
    last = batches[-1].base_offset + batches[-1].last_offset_delta
    return witnessed(log, SegmentBounds(start_offset=0, end_offset=last))


@pytest.mark.parametrize("codec", CODECS)
def test_create_time(kafka: LocalKafka, codec: str) -> None:
    found = of_broker(produced(kafka, codec, "CreateTime"))
    assert set(found.kept) == {Kept.ROWS}
    assert set(found.batches.headers.codec.tolist()) >= {CODECS.index(codec)}


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(kafka: LocalKafka, codec: str) -> None:
    """The broker stamps the batch's header and leaves the producer's deltas in the records."""
    found = of_broker(produced(kafka, codec, "LogAppendTime"))
    assert found.batches.headers.log_append_time.all()
    assert set(found.kept) <= {Kept.ROWS, Kept.DELTAS}
    assert Kept.DELTAS in found.kept
