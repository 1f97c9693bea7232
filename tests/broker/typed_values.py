"""Orders as producers with schemas write them, and what each value says.

Written by Confluent's Avro serializer and by Google's protobuf, never by the code under test.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import grpc_tools
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

__all__ = [
    "AVRO_FIRST",
    "AVRO_KEY",
    "AVRO_LONGER",
    "AVRO_ORDERS",
    "AVRO_OTHER",
    "AVRO_REMARKED",
    "AvroValues",
    "JsonValues",
    "ProtobufValues",
    "Said",
    "order",
]

PREFIX_BYTES = 4


def _avro(*fields: Mapping[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def _logical(kind: Any, logical: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


_BUYER = {
    "type": "record",
    "name": "Buyer",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "since", "type": _logical("int", "date")},
    ],
}
_ID = {"name": "id", "type": "int"}
_LONG_ID = {"name": "id", "type": "long"}
_ITEM = {"name": "item", "type": "string"}
_PRICE = {"name": "price", "type": "double"}
_MAYBE_PRICE = {"name": "price", "type": ["null", "double"], "default": None}
_REST = (
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "buyer", "type": _BUYER},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["RETAIL", "BULK"]}},
    {"name": "total", "type": _logical("bytes", "decimal", precision=9, scale=2)},
    {"name": "ref", "type": _logical("string", "uuid")},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
)
_AT = {"name": "at", "type": _logical("long", "timestamp-millis")}

AVRO_FIRST = _avro(_ID, _ITEM, _PRICE, *_REST)
AVRO_WIDER = _avro(_ID, _ITEM, _PRICE, *_REST, _AT)
AVRO_OPTIONAL = _avro(_ID, _ITEM, _MAYBE_PRICE, *_REST, _AT)
AVRO_REORDERED = _avro(*reversed((_ID, _ITEM, _MAYBE_PRICE, *_REST, _AT)))
AVRO_LONGER = _avro(_LONG_ID, _ITEM, _MAYBE_PRICE, *_REST, _AT)
AVRO_ORDERS: Sequence[str] = (AVRO_FIRST, AVRO_WIDER, AVRO_OPTIONAL, AVRO_REORDERED)
"""Of one table; AVRO_LONGER widens a column of it."""
AVRO_REMARKED = _avro(_ID, _ITEM, _PRICE, *_REST, _AT, {"name": "remark", "type": "string"})
AVRO_OTHER = _avro({"name": "id", "type": "string"})
"""Doesn't fit the others' table."""
AVRO_KEY = json.dumps(
    {"type": "record", "name": "OrderKey", "fields": [{"name": "shop", "type": "int"}]}
)
_LONG = 2**40


def order(i: int) -> dict[str, Any]:
    """All that there is to say of an order."""
    return {
        "id": i,
        "item": f"item {i} \u20ac\U0001f642",
        "price": i / 4,
        "tags": [f"tag {n}" for n in range(i % 3)],
        "buyer": {"name": f"buyer {i % 7}", "since": date(2020, 1, 1) + timedelta(days=i)},
        "kind": ("RETAIL", "BULK")[i % 2],
        "total": Decimal(i * 37 - 999) / 100,
        "ref": uuid.UUID(int=i * 2**90 + i),
        "counts": {"a": i} if i % 4 else {},
        "at": datetime(2024, 2, 29, 12, tzinfo=UTC) + timedelta(milliseconds=i * 1001),
    }


@dataclass
class Said:
    """What values say, by their bytes.

    Attributes:
        rows: columns of a value; those that its schema doesn't have are missing.
        keys: of a key.
        bad: why a value is none.
        kept: values that no serializer would write so: the table keeps their bytes, too.
    """

    rows: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    keys: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    bad: dict[bytes, str] = field(default_factory=dict)
    kept: set[bytes] = field(default_factory=set)


class AvroValues:
    """Values and keys of one topic, their schemas registered as they come."""

    def __init__(self, client: SchemaRegistryClient, topic: str, said: Said) -> None:
        self._client = client
        self._topic = topic
        self._said = said
        self._serializers: dict[str, AvroSerializer] = {}

    def value(self, schema: str, i: int) -> bytes:
        """An order of a version of its schema. Every third without a price, where it may be."""
        said = order(i)
        if schema == AVRO_LONGER:
            said["id"] += _LONG
        if json.dumps(_MAYBE_PRICE) in schema and i % 3 == 0:
            said["price"] = None
        names = [each["name"] for each in json.loads(schema)["fields"]]
        return self.saying(schema, {name: said[name] for name in names})

    def changed(self, i: int) -> bytes:
        """What `value` of the first schema is when somebody has changed its item."""
        names = [each["name"] for each in json.loads(AVRO_FIRST)["fields"]]
        said = {**order(i), "item": "changed"}
        return self.saying(AVRO_FIRST, {name: said[name] for name in names})

    def saying(self, schema: str, said: dict[str, Any]) -> bytes:
        """A value that says this."""
        value = self._serialized(schema, said, MessageField.VALUE)
        self._said.rows[value] = said
        return value

    def other(self, i: int) -> bytes:
        """One whose schema doesn't fit the table."""
        value = self._serialized(AVRO_OTHER, {"id": f"order {i}"}, MessageField.VALUE)
        self._said.bad[value] = "incompatible_schema"
        return value

    def cut(self, schema: str, i: int) -> bytes:
        """One that ends too early."""
        whole = self.value(schema, i)[:-3]
        self._said.bad[whole] = "truncated"
        return whole

    def unprefixed(self, i: int) -> bytes:
        """One without a schema id."""
        value = b"plain text %d" % i
        self._said.bad[value] = "no_schema_id"
        return value

    def unregistered(self, schema: str, schema_id: int, i: int) -> bytes:
        """One of a schema that no registry knows yet, under the id that it will have."""
        said = {**order(i), "remark": f"remark {i}"}
        payload = io.BytesIO()
        fastavro.schemaless_writer(payload, fastavro.parse_schema(json.loads(schema)), said)
        value = framed(schema_id, payload.getvalue())
        self._said.rows[value] = said
        return value

    def key(self, i: int) -> bytes:
        """Which of the shops an order is for."""
        said = {"shop": i % 5}
        key = self._serialized(AVRO_KEY, said, MessageField.KEY)
        self._said.keys[key] = said
        return key

    def register(self) -> None:
        """The first schema, before any value."""
        self.value(AVRO_FIRST, 0)

    def _serialized(self, schema: str, said: dict[str, Any], part: str) -> bytes:
        if schema not in self._serializers:
            self._serializers[schema] = AvroSerializer(self._client, schema)
        done = self._serializers[schema](said, SerializationContext(self._topic, part))
        assert isinstance(done, bytes)
        return done


PROTO_HEAD = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
"""
PROTO_ORDER = """
message Order {{
  int64 id = 1;
  string item = 2;
  optional double price = 3;
  repeated string tags = 4;
  Buyer buyer = 5;
  Kind kind = 6;
  map<string, int32> counts = 7;
  google.protobuf.Timestamp at = 8;
{more}}}
message Buyer {{
  string name = 1;
}}
enum Kind {{
  RETAIL = 0;
  BULK = 1;
}}
"""
PROTO_FIRST = PROTO_HEAD + PROTO_ORDER.format(more="")
PROTO_WIDER = PROTO_HEAD + PROTO_ORDER.format(more="  uint32 amount = 9;\n")
PROTO_NAMES = ("id", "item", "tags", "counts", "at")


class ProtobufValues:
    """Values of one topic. Confluent's serializer needs packages that aren't there: its framing is
    a zero byte, the schema's id and 0x00 for the file's first message type."""

    def __init__(self, client: SchemaRegistryClient, topic: str, said: Said, folder: Path) -> None:
        self._said = said
        self._kinds = [
            (
                client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF")),
                message_class(folder / str(number), text, "shop.Order"),
            )
            for number, text in enumerate((PROTO_FIRST, PROTO_WIDER))
        ]

    def value(self, version: int, i: int) -> bytes:
        """An order of one of two versions. Every fifth says nothing but what is by default."""
        schema_id, kind = self._kinds[version]
        said = {name: order(i)[name] for name in PROTO_NAMES}
        said |= {"price": None, "buyer": None, "kind": order(i)["kind"]}
        if i % 5 == 0:
            said |= {"id": 0, "item": "", "tags": [], "counts": {}, "at": None, "kind": "RETAIL"}
        else:
            said |= {"price": None if i % 3 else i / 4, "buyer": {"name": f"buyer {i}"}}
        message: Any = kind(**{k: v for k, v in said.items() if v is not None})
        if version:
            said["amount"] = message.amount = i * 1_000_003 % 2**32
        payload = message.SerializeToString(deterministic=True)
        value = framed(schema_id, b"\0" + payload)
        self._said.rows[value] = said
        return value


JSON_ORDER: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "item": {"type": "string"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "buyer": {"type": "object", "properties": {"name": {"type": "string"}}},
        "is_gift": {"type": "boolean"},
    },
    "required": ["id", "price"],
}
JSON_WIDER = {
    **JSON_ORDER,
    "properties": {**JSON_ORDER["properties"], "amount": {"type": "integer"}},
}


class JsonValues:
    """Values of one topic in two styles: as most serializers write JSON, and with white space."""

    def __init__(self, client: SchemaRegistryClient, topic: str, said: Said) -> None:
        self._said = said
        self._ids = [
            client.register_schema(f"{topic}-value", Schema(json.dumps(schema), "JSON"))
            for schema in (JSON_ORDER, JSON_WIDER)
        ]

    def value(self, version: int, i: int) -> bytes:
        """An order of one of two versions; every seventh with white space."""
        full = order(i)
        said: dict[str, Any] = {name: full[name] for name in ("id", "item", "price", "tags")}
        said["price"] = None if i % 3 == 0 else full["price"]
        if i % 4:
            said |= {"buyer": {"name": full["buyer"]["name"]}, "is_gift": i % 2 == 0}
        if version:
            said["amount"] = i * 10**12
        separators = (", ", ": ") if i % 7 == 0 else (",", ":")
        text = json.dumps(said, separators=separators, ensure_ascii=False)
        value = framed(self._ids[version], text.encode())
        self._said.rows[value] = said
        if i % 7 == 0:
            self._said.kept.add(value)
        return value


def message_class(folder: Path, text: str, name: str) -> type[Message]:
    """Google's class for a message type of one file."""
    folder.mkdir(parents=True)
    (folder / "order.proto").write_text(text)
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    out = folder / "out.bin"
    arguments = ["protoc", f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={out}"]
    assert protoc.main([*arguments, "--include_imports", "order.proto"]) == 0
    pool = DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(each)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(name))
    return found


def framed(schema_id: int, payload: bytes) -> bytes:
    """A value in the wire format."""
    return b"\0" + schema_id.to_bytes(PREFIX_BYTES, "big") + payload
