"""The real tier with a cluster of two brokers, each with the plug-in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from polling import eventually
from real_tier import BROKER, Tier

from tiering.local.cluster import LocalCluster
from tiering.local.kafka_node import KafkaNode

__all__ = ["ROLL_MS", "ClusterTier"]

ROLL_MS = {1: 15_000, 2: 25_000}
"""By broker: how much of the records' time one segment holds, for topics without `segment.ms`.

Records of `append_small_segment` are 10 s apart: broker 1 rolls at every second, broker 2 at every
third.
"""


class ClusterTier(Tier):
    """With two brokers; topics have a replica on each and are led by broker 1 at first."""

    def __init__(self, directory: Path, *, retire_grace_ms: int) -> None:
        super().__init__(directory, retire_grace_ms=retire_grace_ms)
        self.cluster = LocalCluster(
            directory / "kafka",
            remote=self.remote,
            properties=BROKER,
            broker_properties={n: {"log.roll.ms": str(ms)} for n, ms in ROLL_MS.items()},
            jvm_options=["-XX:TieredStopAtLevel=1"],  # half the CPU time of a start
        )

    @property
    def bootstrap_servers(self) -> str:
        """For clients: the brokers that run."""
        return self.cluster.bootstrap_servers

    def leader(self, topic: str, partition: int = 0) -> KafkaNode:
        """The broker that leads a partition."""
        return self.cluster.brokers[self.leader_id(topic, partition)]

    def leader_id(self, topic: str, partition: int = 0) -> int:
        """Its id, once there is one."""
        return eventually(
            lambda: max(self.cluster.leader(topic, partition), 0),
            60,
            what=f"{topic}-{partition} has a leader",
        )

    def wait_led_by(self, broker: int, topic: str, partition: int = 0) -> None:
        """Until a broker leads a partition."""
        eventually(
            lambda: self.cluster.leader(topic, partition) == broker,
            60,
            what=f"broker {broker} leads {topic}-{partition}",
            details=self.cluster.brokers[broker].tail,
        )

    def create_tiered_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """With a replica on both brokers, led by broker 1."""
        self.cluster.create_tiered_topic(name, partitions, configs, leader=1)

    def start_kafka(self) -> None:
        """Start whatever is down."""
        self.cluster.start()

    def stop_kafka(self) -> None:
        """Stop controller and brokers."""
        self.cluster.stop()
