"""A writer's schema as a table keeps it: with the ids of the columns that its values went into.

It lies in the table's properties, so it changes by the same commit as the table's columns, and
whoever can read the table can write its values again without a registry.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

from tiering.errors import FatalError

__all__ = [
    "SCHEMA_PROPERTY_PREFIX",
    "Framing",
    "Part",
    "SchemaFormat",
    "StoredSchema",
    "schema_properties",
    "schema_properties_of",
    "stored_schemas",
]

SCHEMA_PROPERTY_PREFIX: Final = "onecopy.schema."
"""Properties are called `onecopy.schema.<part>.<schema id>`."""

Part = Literal["value", "key"]
"""Which part of a record a schema is of."""

_VERSION: Final = 1


class SchemaFormat(StrEnum):
    """Kinds of schemas, as registries call them."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class Framing(StrEnum):
    """What stands before a payload: nothing, or the prefix of the Confluent wire format (a zero
    byte and the schema id as four bytes, big endian)."""

    NONE = "none"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """One writer's schema and where its values are.

    Attributes:
        schema_id: the registry's.
        definition: the schema's text.
        references: (name, text) of the schemas that it refers to, those first that others need.
        columns: the codec's field ids to the table's. Empty where values are kept as they are.
        kept_raw: why values are kept as they are; empty where they have columns.
        refused: why values can't go into this table (its columns have other types); empty where
            they can. Each is a bad record then.
    """

    part: Part
    schema_id: int
    format: SchemaFormat
    framing: Framing
    definition: str
    references: tuple[tuple[str, str], ...] = ()
    columns: Mapping[int, int] = field(default_factory=dict)
    kept_raw: str = ""
    refused: str = ""

    @property
    def property_name(self) -> str:
        """Of the table's property that holds it."""
        return f"{SCHEMA_PROPERTY_PREFIX}{self.part}.{self.schema_id}"

    def encode(self) -> str:
        """As a property's value: JSON, deflated, base64."""
        raw = {
            "version": _VERSION,
            "format": self.format,
            "framing": self.framing,
            "definition": self.definition,
            "references": self.references,
            "columns": sorted(self.columns.items()),
            "kept_raw": self.kept_raw,
            "refused": self.refused,
        }
        text = json.dumps(raw, separators=(",", ":"), ensure_ascii=False)
        return base64.b64encode(zlib.compress(text.encode(), 9)).decode()

    @staticmethod
    def decode(name: str, value: str) -> StoredSchema:
        """Inverse of `property_name` and `encode`. Raises FatalError for what is none."""
        return _decoded(name, value)


def stored_schemas(properties: Mapping[str, str]) -> dict[tuple[Part, int], StoredSchema]:
    """All that a table's properties hold, by part and schema id. Raises FatalError."""
    found = (
        StoredSchema.decode(name, value)
        for name, value in properties.items()
        if name.startswith(SCHEMA_PROPERTY_PREFIX)
    )
    return {(each.part, each.schema_id): each for each in found}


def schema_properties(schemas: Iterable[StoredSchema]) -> dict[str, str]:
    """The inverse."""
    return {each.property_name: each.encode() for each in schemas}


def schema_properties_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's properties that hold schemas."""
    return {k: v for k, v in properties.items() if k.startswith(SCHEMA_PROPERTY_PREFIX)}


@lru_cache(maxsize=1024)
def _decoded(name: str, value: str) -> StoredSchema:
    try:
        part, _, schema_id = name.removeprefix(SCHEMA_PROPERTY_PREFIX).partition(".")
        if part not in ("value", "key"):
            raise ValueError(f"no part of a record: {part}")
        raw = json.loads(zlib.decompress(base64.b64decode(value)))
        if raw["version"] != _VERSION:
            raise ValueError(f"version {raw['version']}, this one reads {_VERSION}")
        return StoredSchema(
            part="value" if part == "value" else "key",
            schema_id=int(schema_id),
            format=SchemaFormat(raw["format"]),
            framing=Framing(raw["framing"]),
            definition=raw["definition"],
            references=tuple((str(n), str(t)) for n, t in raw["references"]),
            columns={int(own): int(table) for own, table in raw["columns"]},
            kept_raw=raw["kept_raw"],
            refused=raw["refused"],
        )
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise FatalError(f"table property {name}: not a stored schema: {error!r}") from error
