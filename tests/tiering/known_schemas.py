"""A registry in memory, and values in the Confluent wire format as fastavro writes them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import fastavro

from tiering.errors import NotFound, TransientError
from tiering.schemas.registry import RegisteredSchema
from tiering.values.stored_schema import SchemaFormat

__all__ = ["KnownSchemas", "avro_value"]


@dataclass
class KnownSchemas:
    """Answers as `SchemaRegistry` does."""

    avro: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, int] = field(default_factory=dict)
    is_down: bool = False
    asked: list[int] = field(default_factory=list)

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self._check_up()
        self.asked.append(schema_id)
        if schema_id not in self.avro:
            raise NotFound(f"no schema {schema_id}")
        return RegisteredSchema(
            schema_id=schema_id,
            format=SchemaFormat.AVRO,
            definition=json.dumps(self.avro[schema_id]),
        )

    def latest(self, subject: str) -> RegisteredSchema:
        self._check_up()
        if subject not in self.subjects:
            raise NotFound(f"no subject {subject}")
        return self.by_id(self.subjects[subject])

    def has_subject(self, subject: str) -> bool:
        self._check_up()
        return subject in self.subjects

    def _check_up(self) -> None:
        if self.is_down:
            raise TransientError("the registry doesn't answer")


def avro_value(schema_id: int | None, schema: dict[str, Any], value: Any) -> bytes:
    """A value behind its schema's id, or without one."""
    out = io.BytesIO()
    if schema_id is not None:
        out.write(b"\0" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()
