"""The 512-byte records as values in the Confluent wire format, with their schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench.records import DISTINCT

__all__ = ["EVENT_COLUMNS", "EVENT_SCHEMA", "AvroEvents", "register"]

_WORDS: Final = ("country", "device", "browser", "system", "city", "title", "path")
_NOISE: Final = ("session", "trace", "visitor", "signature")

_TEXTS: Final = (*_WORDS, *_NOISE)
_FIELDS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("id", "long", "BIGINT"),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
    ("amount", "double", "DOUBLE"),
    ("duration", "int", "INT"),
    ("mobile", "boolean", "BOOLEAN"),
    *((name, "string", "STRING") for name in _TEXTS),
)
EVENT_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "fields": [{"name": name, "type": kind} for name, kind, _ in _FIELDS],
    }
)
"""What `bench.records.DISTINCT` is encoded with."""
EVENT_COLUMNS: Final = {name: column for name, _, column in _FIELDS}
"""The same as Spark's columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroEvents:
    """`DISTINCT` behind a schema's id."""

    schema_id: int
    name: str = "512 bytes of Avro, 16 fields"
    value_bytes: int = DISTINCT.value_bytes + 5

    def records(self, start: int, count: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of `count` records; the same ones for the same arguments."""
        prefix = b"\0" + self.schema_id.to_bytes(4, "big")
        for key, value in DISTINCT.records(start, count):
            yield key, prefix + value


def register(registry_url: str, topic: str) -> AvroEvents:
    """Register the schema for a topic's values; the records that name it."""
    import requests

    answer = requests.post(
        f"{registry_url}/subjects/{topic}-value/versions", json={"schema": EVENT_SCHEMA}, timeout=30
    )
    answer.raise_for_status()
    return AvroEvents(schema_id=int(answer.json()["id"]))
