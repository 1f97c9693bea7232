"""A Kafka cluster on loopback: several brokers and a keeper, each a process of its own.

The keeper is the controller and a broker that only holds replicas of Kafka's own topics: so any
broker can be stopped, killed or wiped, or all of them, and cluster and tier know what they knew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tiering.local.broker_properties import QUICK_BROKER, QUICK_TIERING, RemoteStorage
from tiering.local.kafka_node import (
    STARTED,
    TIERING_READY,
    KafkaNode,
    free_port,
    new_cluster_id,
    wait_until,
)
from tiering.local.kafka_topics import TIERED, create_topic, partition_state

__all__ = ["LocalCluster"]

_KEEPER_ID: Final = 0
_REPLICATED: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
_METADATA_REPLICATED: Final = "rlmm.config.remote.log.metadata.topic.replication.factor"
_START_S_MAX: Final = 120.0


class LocalCluster:
    """Brokers 1 to N. Usable as a context manager: starts on entering, stops on leaving.

    Attributes:
        keeper: the controller, and the broker of Kafka's own topics; leave it alone.
        brokers: {broker id: its process}; stop, kill, wipe and start them as you like.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 2,
        remote: RemoteStorage | None = None,
        properties: Mapping[str, str] | None = None,
        broker_properties: Mapping[int, Mapping[str, str]] | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = (),
    ) -> None:
        """Nothing starts yet.

        Args:
            directory: made if needed; holds a directory for each process.
            remote: where segments are tiered to; without it tiering is off.
            properties: of every process; they win over this class's own.
            broker_properties: {broker id: further ones}, which win over all others.
            heap: the largest heap of a broker's JVM.
            jvm_options: further ones for each JVM.
        """
        replicas = str(brokers + 1)
        controller_port = free_port()
        self._common = {
            **QUICK_BROKER,
            **dict.fromkeys(_REPLICATED, replicas),
            "controller.quorum.voters": f"{_KEEPER_ID}@127.0.0.1:{controller_port}",
        }
        if remote:
            self._common |= {**QUICK_TIERING, **remote.properties(), _METADATA_REPLICATED: replicas}
        self._common |= properties or {}
        self._directory = directory.resolve()
        self._cluster_id = new_cluster_id()
        self._ready = (STARTED, TIERING_READY) if remote else (STARTED,)
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self.keeper = self._node(
            _KEEPER_ID, f",CONTROLLER://127.0.0.1:{controller_port}", {}, "broker,controller"
        )
        own = broker_properties or {}
        self.brokers: Mapping[int, KafkaNode] = {
            number: self._node(number, "", own.get(number, {}), "broker")
            for number in range(1, brokers + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """For clients' configuration: the keeper names the others."""
        return self.keeper.bootstrap_servers

    def start(self, timeout_s: float = _START_S_MAX) -> Self:
        """Start whatever is down and wait until all are at work. Errors as `KafkaNode.start`."""
        nodes = [self.keeper, *self.brokers.values()]
        down = [node for node in nodes if node.pid is None]
        with ThreadPoolExecutor(len(nodes)) as pool:
            for done in [pool.submit(node.format) for node in down]:
                done.result()
        try:
            # All before the first is waited for: brokers need each other for what is replicated.
            for node in down:
                node.launch()
            for node in down:
                node.await_ready(timeout_s)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop the brokers in order, then the keeper."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaNode.stop, self.brokers.values()))
        self.keeper.stop()

    def kill(self) -> None:
        """Kill all at once."""
        for node in (self.keeper, *self.brokers.values()):
            node.kill()

    def create_tiered_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        leader: int = 1,
    ) -> None:
        """A tiered topic with a replica on every broker but the keeper, led by `leader`."""
        create_topic(
            self.bootstrap_servers,
            name,
            partitions,
            {**TIERED, **(configs or {})},
            on=[leader, *(number for number in self.brokers if number != leader)],
        )

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads it, -1 if none does."""
        return partition_state(self.bootstrap_servers, topic, partition)[0]

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The brokers whose replicas are in sync."""
        return partition_state(self.bootstrap_servers, topic, partition)[1]

    def wait_in_sync(self, topic: str, partition: int = 0, timeout_s: float = 60.0) -> None:
        """Until every broker's replica is in sync."""
        wait_until(
            lambda: self.in_sync(topic, partition) == tuple(self.brokers),
            timeout_s,
            lambda: f"{topic}-{partition}: only {self.in_sync(topic, partition)} are in sync",
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    def _node(
        self, number: int, more_listeners: str, own: Mapping[str, str], roles: str
    ) -> KafkaNode:
        directory, port = self._directory / f"broker-{number}", free_port()
        return KafkaNode(
            directory,
            properties={
                **self._common,
                "process.roles": roles,
                "node.id": str(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}{more_listeners}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": str(directory / "data"),
                **own,
            },
            port=port,
            ready=self._ready,
            cluster_id=self._cluster_id,
            heap=self._heap,
            jvm_options=self._jvm_options,
        )
