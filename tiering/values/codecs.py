"""Which codec reads and writes the values of a schema."""

from __future__ import annotations

from functools import lru_cache

from tiering.values.codec import ValueCodec
from tiering.values.json_text import JsonText
from tiering.values.stored_schema import SchemaFormat, StoredSchema

__all__ = ["codec_for"]


def codec_for(stored: StoredSchema) -> ValueCodec:
    """The codec of a schema; the same one as long as it is used. JSON with an empty definition is
    JSON without a schema.

    Raises UnsupportedSchema for a schema without columns, and ImportError where the optional
    packages that its format needs aren't installed.
    """
    return _codec(stored.format, stored.definition, stored.references)


# Codecs are imported when a schema of their format is there: what they need is optional.
@lru_cache(maxsize=256)
def _codec(
    of: SchemaFormat, definition: str, references: tuple[tuple[str, str], ...]
) -> ValueCodec:
    if of is SchemaFormat.AVRO:
        from tiering.values.avro import AvroCodec

        return AvroCodec(definition, references)
    if of is SchemaFormat.PROTOBUF:
        from tiering.values.protobuf import ProtobufCodec

        return ProtobufCodec(definition, references)
    if not definition:
        return JsonText()
    from tiering.values.json_schema import JsonSchemaCodec

    return JsonSchemaCodec(definition, references)
