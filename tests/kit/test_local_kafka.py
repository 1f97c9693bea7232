"""The local broker: serves, tiers, comes back after a stop and a crash, and leaves nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from broker_starting import StartKafka
from confluent_kafka import Consumer, Producer
from kit_processes import alive
from polling import eventually

from tiering.errors import BadInput, FatalError, TransientError
from tiering.local.kafka import LocalKafka, is_listening, local_tiered_storage

pytestmark = pytest.mark.broker

QUIET = {"log_level": 0}  # brokers come and go here


@pytest.fixture(scope="module")
def tier_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tier")


@pytest.fixture(scope="module")
def kafka(module_kafka: StartKafka, tier_directory: Path) -> LocalKafka:
    return module_kafka(remote=local_tiered_storage(tier_directory))


def produce(kafka: LocalKafka, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    for value in values:
        producer.produce(topic, value, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def consume(kafka: LocalKafka, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "kit",
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    try:
        while len(values) < count:
            messages = consumer.consume(count - len(values), 20)
            assert messages, f"nothing after {len(values)} records"
            values += [m.value() for m in messages]
    finally:
        consumer.close()
    return values


def test_tiers_and_reads_back(kafka: LocalKafka, tier_directory: Path) -> None:
    kafka.create_tiered_topic("tiered")
    values = [b"%06d" % i + b"x" * 1000 for i in range(3000)]
    produce(kafka, "tiered", values)
    eventually(lambda: kafka.local_segments("tiered")[0] > 0, 30, details=kafka.tail)
    assert list(tier_directory.rglob("*.log"))
    assert consume(kafka, "tiered", len(values)) == values
    assert kafka.offset("tiered", time="earliest") == 0
    assert (kafka.offset("tiered") or 0) > 0


def test_comes_back_on_the_same_port_after_a_stop_and_a_kill(kafka: LocalKafka) -> None:
    kafka.create_topic("kept")
    produce(kafka, "kept", [b"a"])
    port, before = kafka.port, kafka.pid
    kafka.restart()
    produce(kafka, "kept", [b"b"])
    kafka.kill()
    assert kafka.pid is None
    kafka.start()
    assert (kafka.port, kafka.pid != before) == (port, True)
    produce(kafka, "kept", [b"c"])
    assert consume(kafka, "kept", 3) == [b"a", b"b", b"c"]


def test_refuses_a_second_start(kafka: LocalKafka) -> None:
    with pytest.raises(FatalError, match="runs already"):
        kafka.start()


def test_a_deleted_topic_can_be_made_again(kafka: LocalKafka) -> None:
    kafka.create_topic("again", 2)
    kafka.delete_topic("again")
    kafka.create_topic("again", 3)


def test_stopping_leaves_no_process_and_no_port(kafka: LocalKafka) -> None:
    pid = kafka.pid
    assert pid is not None
    kafka.stop()
    assert not alive(pid)
    assert not is_listening(kafka.port)
    kafka.stop()  # a second time does nothing


def test_a_broker_that_can_t_start_says_why(tmp_path: Path) -> None:
    kafka = LocalKafka(tmp_path, properties={"log.retention.check.interval.ms": "soon"})
    with pytest.raises(TransientError, match=r"log\.retention\.check\.interval\.ms"):
        kafka.start()
    assert kafka.pid is None


def test_a_property_can_t_smuggle_in_another(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="spans lines"):
        LocalKafka(tmp_path, properties={"a": "b\nauto.create.topics.enable=true"}).start()


def test_a_taken_port_is_bad_input(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"port {port} is in use"):
            LocalKafka(tmp_path, port=port).start()
