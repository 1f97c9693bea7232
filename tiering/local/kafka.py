"""A real single-node Kafka broker (KRaft) in one directory, on loopback, with tiering set up.

It is what `onecopy up`, the demonstration and the tests run against. The properties are those that
make tiering quick to watch; they aren't advice for a production broker (`onecopy doctor` is).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tiering.errors import TransientError
from tiering.local.broker_properties import (
    QUICK_BROKER,
    QUICK_TIERING,
    RemoteStorage,
    local_tiered_storage,
    onecopy_settings,
    onecopy_storage,
)
from tiering.local.kafka_node import STARTED, TIERING_READY, KafkaNode, free_port, is_listening
from tiering.local.kafka_topics import TIERED, create_topic, delete_topic

__all__ = [
    "LocalKafka",
    "RemoteStorage",
    "free_port",
    "is_listening",
    "local_tiered_storage",
    "onecopy_settings",
    "onecopy_storage",
]


class LocalKafka(KafkaNode):
    """One process that is broker and controller. Usable as a context manager."""

    def __init__(
        self,
        directory: Path,
        *,
        remote: RemoteStorage | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "768m",
        jvm_options: Sequence[str] = (),
        port: int = 0,
        log_path: Path | None = None,
    ) -> None:
        """Nothing starts yet.

        Args:
            directory: made if needed; holds data, logs and properties.
            remote: where segments are tiered to; without it tiering is off.
            properties: broker properties that win over this class's own.
            heap: the JVM's largest heap.
            jvm_options: further ones for the broker's JVM.
            port: of the listener for clients; 0 takes a free one.
            log_path: the broker's own log; `kafka.log` in `directory` by default.
        """
        port = port or free_port()
        clients, controller = f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}"
        own = {
            **QUICK_BROKER,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{clients},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{clients}",
            "log.dirs": str(directory.resolve() / "data"),
            **({**QUICK_TIERING, **remote.properties()} if remote else {}),
        }
        super().__init__(
            directory,
            properties={**own, **(properties or {})},
            port=port,
            ready=(STARTED, TIERING_READY) if remote else (STARTED,),
            heap=heap,
            jvm_options=jvm_options,
            log_path=log_path,
        )

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> None:
        """Create a topic and wait until all its partitions have a leader."""
        create_topic(self.bootstrap_servers, name, partitions, configs, timeout_s=timeout_s)

    def create_tiered_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """A topic that is tiered, its local segments going as soon as they are; 1 MiB segments."""
        self.create_topic(name, partitions, {**TIERED, **(configs or {})})

    def delete_topic(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Delete a topic; its remote segments go in the background."""
        delete_topic(self.bootstrap_servers, name, timeout_s=timeout_s)

    def offset(self, topic: str, partition: int = 0, *, time: str = "earliest-local") -> int | None:
        """Ask the broker for an offset with Kafka's own tool; takes about 2 s (a JVM).

        Args:
            time: earliest, latest, earliest-local, latest-tiered, max-timestamp or epoch ms.

        Returns:
            None where the broker knows none.
        """
        said = self.run_tool(
            "org.apache.kafka.tools.GetOffsetShell",
            *("--bootstrap-server", self.bootstrap_servers, "--time", time),
            *("--topic-partitions", f"{topic}:{partition}"),
        )
        for line in said.splitlines():
            name, _, rest = line.strip().rpartition(f":{partition}:")
            if name == topic:
                return int(rest) if rest not in ("", "unknown") else None
        raise TransientError(f"offset {time} of {topic}-{partition}: {said.strip()}")
