"""What the fixtures `local_kafka` and `module_kafka` give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tiering.local.kafka import LocalKafka, RemoteStorage


class StartKafka(Protocol):
    """Starts a broker of its own; it is stopped when the fixture's scope ends."""

    def __call__(
        self,
        *,
        remote: RemoteStorage | None = None,
        properties: Mapping[str, str] | None = None,
        directory: Path | None = None,
        start: bool = True,
    ) -> LocalKafka: ...
