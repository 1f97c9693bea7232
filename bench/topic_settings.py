"""Changing a running topic's settings."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

__all__ = ["alter_topic"]


def alter_topic(bootstrap_servers: str, topic: str, settings: Mapping[str, str]) -> None:
    """Set some, leave the others; waits for the broker's answer."""
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
