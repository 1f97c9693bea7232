"""Values written as JSON that a JSON Schema describes."""

from __future__ import annotations

from tiering.values.json_schema.codec import JsonSchemaCodec

__all__ = ["JsonSchemaCodec"]
