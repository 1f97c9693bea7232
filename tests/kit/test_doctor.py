"""The doctor's rules one by one, and on a real broker with wrong settings."""

from __future__ import annotations

import json

import pytest
from broker_starting import StartKafka
from confluent_kafka import Producer

from tiering.broker_plugin import PLUGIN_CLASS
from tiering.cli import main
from tiering.doctor import broker_facts as doctor_kafka
from tiering.doctor.rules import Finding, Level, PartitionOffsets, examine_broker, examine_topic

GOOD_BROKER = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": PLUGIN_CLASS,
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": "1000",
    "remote.fetch.max.wait.ms": "500",
    "remote.log.manager.copier.thread.pool.size": "10",
    "remote.log.reader.threads": "10",
    "remote.log.index.file.cache.total.size.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "transaction.max.timeout.ms": "900000",
    "remote.log.manager.copy.max.bytes.per.second": str(2**63 - 1),
    "remote.log.manager.fetch.max.bytes.per.second": str(2**63 - 1),
}
GOOD_TOPIC = {
    "remote.storage.enable": "true",
    "remote.log.copy.disable": "false",
    "cleanup.policy": "delete",
    "segment.ms": "30000",
    "segment.bytes": "1073741824",
    "local.retention.ms": "3600000",
    "local.retention.bytes": "-2",
    "max.message.bytes": "1048588",
}


def bad(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(f.level.value, f.setting) for f in findings if f.level is not Level.OK]


def test_good_settings_are_all_right() -> None:
    assert bad(examine_broker(1, GOOD_BROKER)) == []
    assert bad(examine_topic("t", GOOD_TOPIC)) == []
    assert len(examine_broker(1, GOOD_BROKER)) >= 5


@pytest.mark.parametrize(
    ("setting", "value", "level"),
    [
        ("remote.log.storage.system.enable", "false", "error"),
        ("remote.log.storage.manager.class.name", "org.example.Other", "error"),
        ("remote.log.metadata.manager.listener.name", None, "warn"),
        ("remote.log.manager.task.interval.ms", "30000", "warn"),
        ("remote.fetch.max.wait.ms", "100", "warn"),
        ("remote.log.manager.copier.thread.pool.size", "1", "warn"),
        ("remote.log.reader.threads", "1", "warn"),
        ("remote.log.index.file.cache.total.size.bytes", "1048576", "warn"),
        ("log.retention.check.interval.ms", "3600000", "warn"),
        ("transaction.max.timeout.ms", "86400000", "warn"),
        ("remote.log.manager.copy.max.bytes.per.second", "1000000", "warn"),
        ("remote.log.manager.fetch.max.bytes.per.second", "1000000", "warn"),
    ],
)
def test_each_broker_setting(setting: str, value: str | None, level: str) -> None:
    findings = examine_broker(7, {**GOOD_BROKER, setting: value})
    assert bad(findings) == [(level, setting)]
    (found,) = (f for f in findings if f.level is not Level.OK)
    assert (found.subject, found.value) == ("broker 7", value)
    assert found.means
    assert found.advice


@pytest.mark.parametrize(
    ("setting", "value", "level"),
    [
        ("remote.storage.enable", "false", "error"),
        ("remote.log.copy.disable", "true", "error"),
        ("cleanup.policy", "compact", "error"),
        ("cleanup.policy", "compact,delete", "error"),
        ("segment.ms", "604800000", "warn"),
        ("segment.ms", "1000", "warn"),
        ("segment.bytes", "1048576", "warn"),
        ("local.retention.ms", "-2", "warn"),
        ("max.message.bytes", str(2**31 - 1), "warn"),
    ],
)
def test_each_topic_setting(setting: str, value: str, level: str) -> None:
    assert bad(examine_topic("t", {**GOOD_TOPIC, setting: value})) == [(level, setting)]


def test_local_retention_by_bytes_alone_is_all_right() -> None:
    settings = {**GOOD_TOPIC, "local.retention.ms": "-2", "local.retention.bytes": "1073741824"}
    assert bad(examine_topic("t", settings)) == []


def test_an_open_transaction_is_told_with_its_offset() -> None:
    offsets = [
        PartitionOffsets(partition=0, stable=9, end=9),
        PartitionOffsets(partition=1, stable=5, end=9),
    ]
    (found,) = (f for f in examine_topic("t", GOOD_TOPIC, offsets) if f.level is not Level.OK)
    assert found.setting == "partition 1"
    assert "since offset 5: 4 offsets" in found.means


def test_what_the_broker_doesn_t_report_is_left_out() -> None:
    assert bad(examine_topic("t", {"remote.storage.enable": "true"})) == []


@pytest.mark.broker
def test_on_a_broker_with_wrong_settings(
    local_kafka: StartKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = local_kafka()
    kafka.create_topic("plain")
    kafka.create_topic("compacted", configs={"cleanup.policy": "compact"})
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "open", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("plain", b"x")
    producer.flush(30)

    code = main(["doctor", kafka.bootstrap_servers, "--json", "plain", "compacted", "missing"])
    told = json.loads(capsys.readouterr().out)
    producer.abort_transaction(30)

    assert code == 1
    found = {(f["level"], f["subject"], f["setting"]) for f in told["findings"]}
    assert {
        ("error", "broker 1", "remote.log.storage.system.enable"),
        ("error", "topic plain", "remote.storage.enable"),
        ("warn", "topic plain", "local.retention.ms"),
        ("warn", "topic plain", "partition 0"),
        ("error", "topic compacted", "cleanup.policy"),
        ("error", "topic missing", ""),
    } <= found
    assert told["error"] == sum(f["level"] == "error" for f in told["findings"])


def test_no_broker_is_an_outage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_kafka, "_TIMEOUT_S", 1.0)
    assert main(["doctor", "127.0.0.1:1"]) == 3
    assert "Kafka at 127.0.0.1:1" in capsys.readouterr().err
