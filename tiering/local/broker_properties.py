"""Broker properties: those of a quick local broker, and those that put a tier into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tiering.broker_plugin import PLUGIN_CLASS, jar_path
from tiering.errors import BadInput
from tiering.jars import class_path

__all__ = [
    "QUICK_BROKER",
    "QUICK_TIERING",
    "RemoteStorage",
    "local_tiered_storage",
    "onecopy_settings",
    "onecopy_storage",
    "to_text",
]

QUICK_BROKER: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    # After a kill the broker is let back in only when its old session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
    "message.max.bytes": str(16 * 1024 * 1024),
    "replica.fetch.max.bytes": str(16 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "controlled.shutdown.max.retries": "1",
}
QUICK_TIERING: Final = {
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "200",
    "remote.log.manager.task.interval.ms": "250",
    "remote.log.reader.threads": "4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStorage:
    """A RemoteStorageManager: its class, its jars, and its settings below `rsm.config.`."""

    class_name: str
    jars: tuple[Path, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """As broker properties."""
        properties = {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": self.class_name,
            "remote.log.storage.manager.impl.prefix": "rsm.config.",
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            **{f"rsm.config.{key}": value for key, value in self.settings.items()},
        }
        if self.jars:
            properties["remote.log.storage.manager.class.path"] = class_path(self.jars)
        return properties


def onecopy_storage(url: str, token_file: Path) -> RemoteStorage:
    """Onecopy's own plug-in, talking to the service at `url`."""
    return RemoteStorage(
        class_name=PLUGIN_CLASS, jars=(jar_path(),), settings=onecopy_settings(url, token_file)
    )


def onecopy_settings(url: str, token_file: Path) -> dict[str, str]:
    """The plug-in's own settings, without the prefix that the broker takes off."""
    return {"onecopy.url": url, "onecopy.token.file": str(token_file)}


def local_tiered_storage(directory: Path) -> RemoteStorage:
    """Kafka's own reference implementation, keeping segments below `directory`.

    Its class is on the broker's class path: with a class path of its own it can't be cast.
    """
    return RemoteStorage(
        class_name="org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        settings={"dir": str(directory), "delete.on.close": "false"},
    )


def to_text(properties: Mapping[str, str]) -> str:
    """A Java properties file; BadInput for a value that would start another line."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    """A value for a Java properties file."""
    if "\n" in value or "\r" in value:
        raise BadInput(f"broker property {value!r} spans lines")
    return value.replace("\\", "\\\\")
