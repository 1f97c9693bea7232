"""Topics whose segments grow as large as they may, and then leave the broker's disk all at once."""

from __future__ import annotations

from typing import Final

from bench.topic_settings import alter_topic
from tiering.local.kafka import LocalKafka

__all__ = ["create_open", "seal"]

_FOREVER: Final = "-1"
_AS_LONG_AS_REMOTE: Final = "-2"
_LOCAL_MS: Final = "1000"


def create_open(kafka: LocalKafka, name: str, *, segment_bytes: int) -> None:
    """A tiered topic that also stays on the broker's disk, and rolls by size alone."""
    configs = {
        "remote.storage.enable": "true",
        "retention.ms": _FOREVER,
        "local.retention.ms": _AS_LONG_AS_REMOTE,
        "segment.bytes": str(segment_bytes),
    }
    kafka.create_topic(name, configs=configs)


def seal(kafka: LocalKafka, name: str) -> None:
    """Have the broker tier and drop all of it, the active segment too, which it rolls for that."""
    alter_topic(kafka.bootstrap_servers, name, {"local.retention.ms": _LOCAL_MS})
