"""Every form of a served batch, read by the two client families: Java and librdkafka."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka_oracle import KafkaLog, Oracle, Row
from served_cases import Served, cases, every_case

from segment_reader import Codec
from segment_reader.limits import ServingLimits
from segment_reader.serving import ServedBatches, assemble

if TYPE_CHECKING:
    from broker_starting import StartKafka

LIMITS = {
    "default": ServingLimits(),
    "packed": ServingLimits(growth_unpacked_max=0, growth_small_max=0),
    "stored": ServingLimits(growth_unpacked_max=1e9, growth_small_max=1e9),
}


def served(made: Served, limits: ServingLimits) -> ServedBatches:
    original = made.original
    return assemble(original.headers, made.counts, original.records, original.borders, limits)


@pytest.fixture(scope="module")
def made() -> Served:
    return every_case()


def test_kafkas_classes_read_every_form(made: Served, oracle: Oracle, tmp_path: Path) -> None:
    paths = []
    for name, limits in LIMITS.items():
        paths.append(tmp_path / f"{name}.log")
        paths[-1].write_bytes(served(made, limits).data)
    oracle.run("Served", *map(str, paths))
    for path in paths:
        log = KafkaLog.load(path)
        assert log.rows() == made.rows
        there = [len(batch["records"]) - batch["control"] for batch in log.batches]
        assert there == made.counts.tolist()


def test_each_form_is_there_and_in_its_codec(made: Served) -> None:
    batches = served(made, ServingLimits())
    sizes = np.diff(batches.borders).tolist()
    originals = made.original.headers.size.tolist()
    codecs = [Codec(batches.data[at + 22] & 7) for at in batches.borders[:-1]]
    names = [(codec, case.name) for codec in Codec for case in cases()]
    found = dict(zip(names, zip(codecs, sizes, originals, strict=True), strict=True))
    for (codec, name), (served_as, size, original) in found.items():
        assert -(-original // 4) <= size <= max(2 * original, 1 << 20) or codec == Codec.NONE
        paddable = codec if codec in (Codec.GZIP, Codec.ZSTD) else Codec.GZIP
        expected = {
            "compresses too well": Codec.NONE,
            "compresses too well and is too large as it is": paddable if codec else Codec.NONE,
            "most rows deleted": paddable,
            "all rows deleted": Codec.NONE,
            "all rows deleted of a large one": Codec.NONE,
            "never had a record": Codec.NONE,
        }.get(name, codec)
        assert served_as == expected, (codec, name)
    assert Counter(codecs).keys() == set(Codec)


@pytest.mark.broker
def test_librdkafka_reads_every_form(made: Served, local_kafka: StartKafka) -> None:
    kafka = local_kafka()
    for name in LIMITS:
        kafka.create_topic(name, configs={"retention.ms": "-1"})
    kafka.stop()
    for name, limits in LIMITS.items():
        partition = kafka.directory / "data" / f"{name}-0"
        for index in partition.glob("0*"):
            index.unlink()
        (partition / f"{0:020d}.log").write_bytes(served(made, limits).data)
    kafka.start()
    for name in LIMITS:
        assert consumed(kafka.bootstrap_servers, name, made.rows[-1][0]) == made.rows


def consumed(bootstrap_servers: str, topic: str, last_offset: int) -> list[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    rows: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while not rows or rows[-1][0] < last_offset:
            message = consumer.poll(20)
            assert message is not None, f"nothing after {rows[-1:]}"
            assert message.error() is None, message.error()
            rows.append(
                (
                    message.offset(),
                    message.timestamp()[1],
                    0,
                    message.leader_epoch(),
                    message.key(),
                    message.value(),
                    tuple((key.encode(), value) for key, value in message.headers() or ()),
                )
            )
    finally:
        consumer.close()
    return rows
