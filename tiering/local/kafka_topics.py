"""Making, deleting and watching topics on a running Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tiering.local.kafka_node import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

__all__ = ["TIERED", "create_topic", "delete_topic", "partition_state"]

TIERED: Final = {
    "remote.storage.enable": "true",
    "local.retention.ms": "1000",
    "retention.ms": "-1",
    "segment.bytes": str(1024 * 1024),
}
"""A topic that is tiered, its local segments going as soon as they are; 1 MiB segments."""


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    on: Sequence[int] = (),
    timeout_s: float = 30.0,
) -> None:
    """Create a topic and wait until all its partitions have a leader and all replicas in sync.

    Args:
        on: the brokers that have a replica of every partition, the first of them leads; by
            default one replica somewhere.
    """
    # Its types don't list NewTopic as exported.
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    admin = _admin(bootstrap_servers)
    placed: dict[str, Any] = {"num_partitions": partitions, "replication_factor": 1}
    if on:
        placed = {"num_partitions": partitions, "replica_assignment": [list(on)] * partitions}
    topic = NewTopic(name, config=dict(configs or {}), **placed)
    admin.create_topics([topic], operation_timeout=timeout_s)[name].result(timeout_s)

    def is_whole() -> bool:
        found = admin.list_topics(name, timeout=timeout_s).topics[name].partitions
        return len(found) == partitions and all(
            p.leader >= 0 and len(p.isrs) == max(1, len(on)) for p in found.values()
        )

    wait_until(is_whole, timeout_s, f"topic {name} has no leaders after {timeout_s} s")


def delete_topic(bootstrap_servers: str, name: str, *, timeout_s: float = 30.0) -> None:
    """Delete a topic; its remote segments go in the background."""
    admin = _admin(bootstrap_servers)
    admin.delete_topics([name], operation_timeout=timeout_s)[name].result(timeout_s)


def partition_state(
    bootstrap_servers: str, topic: str, partition: int = 0, *, timeout_s: float = 30.0
) -> tuple[int, tuple[int, ...]]:
    """(leader or -1, in-sync replicas ascending) as the broker that is asked knows them."""
    found = _admin(bootstrap_servers).list_topics(topic, timeout=timeout_s)
    state = found.topics[topic].partitions[partition]
    return state.leader, tuple(sorted(state.isrs))


def _admin(bootstrap_servers: str) -> AdminClient:
    # An extra: only those who call this need it.
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap_servers})
