"""Asks an existing Kafka for the settings that `tiering.doctor.rules` judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from tiering.doctor.rules import (
    Finding,
    Level,
    PartitionOffsets,
    Settings,
    examine_broker,
    examine_topic,
    is_tiered,
)
from tiering.errors import BadInput, TransientError

__all__ = ["examine_cluster"]

_TIMEOUT_S: Final = 10.0
_UNREACHED: Final = (
    "; is HOST:PORT a Kafka listener that this machine reaches, and does it need TLS or SASL "
    "settings (--client-config)?"
)


def examine_cluster(
    bootstrap_servers: str,
    topics: Sequence[str] = (),
    *,
    client_settings: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Judge all brokers, and the named topics (all tiered ones without names).

    Args:
        client_settings: librdkafka properties, for TLS and SASL.

    Raises TransientError when Kafka can't be reached or refuses to tell.
    """
    with _kafka_errors(bootstrap_servers):
        admin = _client(bootstrap_servers, client_settings or {})
        metadata = admin.list_topics(timeout=_TIMEOUT_S)
        findings = []
        for broker in sorted(metadata.brokers):
            settings = _settings(admin, ConfigResource.Type.BROKER, [str(broker)])[str(broker)]
            findings += examine_broker(broker, settings)
        names = [t for t in topics if t in metadata.topics] if topics else sorted(metadata.topics)
        settings_of = _settings(admin, ConfigResource.Type.TOPIC, names)
        for name in names:
            if topics or is_tiered(settings_of[name]):
                partitions = sorted(metadata.topics[name].partitions)
                offsets = _offsets(admin, name, partitions)
                findings += examine_topic(name, settings_of[name], offsets)
    findings += [_missing(name) for name in topics if name not in metadata.topics]
    return findings


def _client(bootstrap_servers: str, settings: Mapping[str, str]) -> AdminClient:
    try:
        return AdminClient(
            {
                "bootstrap.servers": bootstrap_servers,
                "socket.connection.setup.timeout.ms": 5000,
                "log_level": 2,  # what goes wrong is told once, by us
                **settings,
            }
        )
    except KafkaException as error:
        raise BadInput(f"client settings: {error.args[0].str()}") from error


def _settings(admin: AdminClient, kind: Any, names: Sequence[str]) -> dict[str, Settings]:
    if not names:
        return {}
    asked = admin.describe_configs(
        [ConfigResource(kind, name) for name in names], request_timeout=_TIMEOUT_S
    )
    return {
        resource.name: {name: entry.value for name, entry in future.result().items()}
        for resource, future in asked.items()
    }


def _offsets(admin: AdminClient, topic: str, partitions: Sequence[int]) -> list[PartitionOffsets]:
    latest_offset = OffsetSpec.latest()  # type: ignore[no-untyped-call]

    def latest(isolation: IsolationLevel) -> dict[int, int]:
        asked = admin.list_offsets(
            {TopicPartition(topic, p): latest_offset for p in partitions},
            isolation_level=isolation,
            request_timeout=_TIMEOUT_S,
        )
        return {p.partition: future.result().offset for p, future in asked.items()}

    stable = latest(IsolationLevel.READ_COMMITTED)
    end = latest(IsolationLevel.READ_UNCOMMITTED)  # asked later, so never below `stable`
    return [PartitionOffsets(partition=p, stable=stable[p], end=end[p]) for p in partitions]


def _missing(topic: str) -> Finding:
    return Finding(
        level=Level.ERROR,
        subject=f"topic {topic}",
        setting="",
        value=None,
        means="there is no such topic",
        advice="check the name",
    )


@contextmanager
def _kafka_errors(bootstrap_servers: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        what = error.args[0]
        hint = _UNREACHED if what.code() == KafkaError._TRANSPORT else ""
        raise TransientError(f"Kafka at {bootstrap_servers}: {what.str()}{hint}") from error
