"""What the registry client resolves, against Confluent's own client on a real registry."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from tiering.config import RegistryConfig
from tiering.errors import NotFound, TransientError
from tiering.local.schema_registry import LocalSchemaRegistry
from tiering.schemas.registry import SchemaRegistry
from tiering.schemas.sources import PartSource, part_source
from tiering.topic_config import TopicConfig
from tiering.values.framing import payloads_of, schema_ids
from tiering.values.stored_schema import SchemaFormat


class Clock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def client(schema_registry: LocalSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    """Confluent's."""
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ours(schema_registry: LocalSchemaRegistry, clock: Clock) -> Iterator[SchemaRegistry]:
    config = RegistryConfig(url=schema_registry.url)
    with closing(SchemaRegistry.from_config(config, environment={}, clock=clock)) as ours:
        yield ours


@pytest.fixture
def prefix() -> str:
    """Of subjects that no other test has."""
    return uuid.uuid4().hex[:8] + "."


def record(name: str, /, **fields: object) -> str:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": listed})


# name in the referring schema -> (text, names of those that it needs)
AVRO = {
    "shop.Country": (record("Country", code="string"), ()),
    "shop.Address": (record("Address", country="shop.Country"), ("shop.Country",)),
    "shop.Person": (
        record("Person", name="string", home="shop.Address", born="shop.Country"),
        ("shop.Address", "shop.Country"),
    ),
    "shop.Order": (
        record("Order", by="shop.Person", to="shop.Address"),
        ("shop.Person", "shop.Address"),
    ),
}
PROTO_HEAD = 'syntax = "proto3";\npackage shop;\n'
PROTOBUF = {
    "country.proto": (f"{PROTO_HEAD}message Country {{\n  string code = 1;\n}}\n", ()),
    "address.proto": (
        f'{PROTO_HEAD}import "country.proto";\nmessage Address {{\n  Country country = 1;\n}}\n',
        ("country.proto",),
    ),
    "order.proto": (
        f'{PROTO_HEAD}import "address.proto";\nimport "country.proto";\n'
        "message Order {\n  Address to = 1;\n  Country of = 2;\n}\n",
        ("country.proto", "address.proto"),
    ),
}
JSON = {
    "country.json": (
        '{"$id": "country.json", "type": "object", "properties": {"code": {"type": "string"}}}',
        (),
    ),
    "address.json": (
        '{"$id": "address.json", "type": "object", "properties": '
        '{"country": {"$ref": "country.json"}}}',
        ("country.json",),
    ),
    "order.json": (
        '{"$id": "order.json", "type": "object", "properties": '
        '{"to": {"$ref": "address.json"}, "of": {"$ref": "country.json"}}}',
        ("address.json", "country.json"),
    ),
}


@pytest.mark.parametrize(
    ("kind", "schemas"), [("AVRO", AVRO), ("PROTOBUF", PROTOBUF), ("JSON", JSON)]
)
def test_references_come_through_others_and_before_those_that_need_them(
    client: SchemaRegistryClient,
    ours: SchemaRegistry,
    prefix: str,
    kind: str,
    schemas: Mapping[str, tuple[str, tuple[str, ...]]],
) -> None:
    for name, (text, needed) in schemas.items():
        references = [SchemaReference(each, prefix + each, 1) for each in needed]
        last = client.register_schema(prefix + name, Schema(text, kind, references))
    found = ours.by_id(last)
    assert found.format == kind
    assert found.schema_id == last
    assert found.definition == client.get_schema(last).schema_str
    *needed_names, _ = schemas
    assert sorted(name for name, _ in found.references) == sorted(needed_names)
    for at, (name, text) in enumerate(found.references):
        assert text == client.get_version(prefix + name, 1).schema.schema_str
        earlier = {before for before, _ in found.references[:at]}
        assert set(schemas[name][1]) <= earlier
    assert ours.latest(prefix + name_of_last(schemas)) == found


def name_of_last(schemas: Mapping[str, object]) -> str:
    return list(schemas)[-1]


def test_avro_s_own_reader_takes_the_references_in_their_order(
    client: SchemaRegistryClient, ours: SchemaRegistry, prefix: str
) -> None:
    for name, (text, needed) in AVRO.items():
        references = [SchemaReference(each, prefix + each, 1) for each in needed]
        last = client.register_schema(prefix + name, Schema(text, "AVRO", references))
    found = ours.by_id(last)
    named: dict[str, object] = {}
    for _, text in found.references:
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(found.definition), named_schemas=named)
    home = {"country": {"code": "at"}}
    order = {"by": {"name": "a", "home": home, "born": {"code": "de"}}, "to": home}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, order)
    out.seek(0)
    assert fastavro.schemaless_reader(out, parsed, None) == order


def test_values_of_confluent_s_serializers_name_the_schemas_that_are_found(
    client: SchemaRegistryClient, ours: SchemaRegistry, prefix: str
) -> None:
    avro_text = record("Reading", at="long", by="string")
    json_text = '{"title": "Reading", "type": "object", "properties": {"at": {"type": "integer"}}}'
    to_avro = AvroSerializer(client, avro_text)
    json_id = client.register_schema(prefix + "json-value", Schema(json_text, "JSON"))
    json_prefix = SchemaId("JSON", json_id).id_to_bytes()
    protobuf_text = 'syntax = "proto3";\nmessage Stamp {\n  int64 seconds = 1;\n}\n'
    protobuf_id = client.register_schema(prefix + "pb-value", Schema(protobuf_text, "PROTOBUF"))
    protobuf_prefix = SchemaId("PROTOBUF", protobuf_id).id_to_bytes()

    def context(topic: str) -> SerializationContext:
        return SerializationContext(prefix + topic, MessageField.VALUE)

    readings = [{"at": i, "by": "x" * i} for i in range(5)]
    values: list[bytes | None] = [to_avro(each, context("avro")) for each in readings]
    values += [None, b"raw", json_prefix + b'{"at": 7}']
    stamp = b"\0" + Timestamp(seconds=5).SerializeToString()  # its message is number [0]
    values += [protobuf_prefix + stamp]
    column = pa.array([b"sliced off", *values], pa.binary()).slice(1)
    ids = schema_ids(column)
    in_avro, in_json, in_protobuf = int(ids[0]), int(ids[7]), int(ids[8])
    assert ids.tolist() == [in_avro] * 5 + [-1, -1, json_id, protobuf_id]

    assert ours.by_id(in_avro).format is SchemaFormat.AVRO
    writer = fastavro.parse_schema(json.loads(ours.by_id(in_avro).definition))
    payloads = payloads_of(column, ids == in_avro).to_pylist()
    assert [fastavro.schemaless_reader(io.BytesIO(p), writer, None) for p in payloads] == readings

    assert ours.by_id(in_json).format is SchemaFormat.JSON
    assert json.loads(ours.by_id(in_json).definition) == json.loads(json_text)
    (payload,) = payloads_of(column, ids == in_json).to_pylist()
    assert json.loads(payload) == {"at": 7}

    assert ours.by_id(in_protobuf).format is SchemaFormat.PROTOBUF
    assert ours.by_id(in_protobuf).definition == protobuf_text
    assert payloads_of(column, np.array([8])).to_pylist() == [stamp]


def test_an_id_that_nobody_registered_is_known_to_be_unknown(ours: SchemaRegistry) -> None:
    with pytest.raises(NotFound, match="schema id 2000000000"):
        ours.by_id(2_000_000_000)
    with pytest.raises(NotFound):
        ours.latest("no-such-subject")


def test_subjects_appear_and_get_new_versions_after_a_while(
    client: SchemaRegistryClient, ours: SchemaRegistry, clock: Clock, prefix: str
) -> None:
    topic = prefix + "orders"
    auto = TopicConfig()
    raw, framed = PartSource(mode="raw"), PartSource(mode="schema_id_prefix")
    assert part_source(topic, "value", auto, ours) == raw
    first = client.register_schema(f"{topic}-value", Schema(record("A", x="int"), "AVRO"))
    assert part_source(topic, "value", auto, ours) == raw  # as of some seconds ago
    clock.now += 20
    assert part_source(topic, "value", auto, ours) == framed
    assert part_source(topic, "key", auto, ours) == raw
    assert ours.latest(f"{topic}-value").schema_id == first
    wider = '{"type": "record", "name": "A", "namespace": "shop", "fields": []}'
    second = client.register_schema(f"{topic}-value", Schema(wider, "AVRO"))
    assert second != first
    clock.now += 20
    assert ours.latest(f"{topic}-value").schema_id == second


def test_names_that_urls_must_quote(
    client: SchemaRegistryClient, ours: SchemaRegistry, prefix: str
) -> None:
    subject = prefix + "a b%2Fc?d#é"
    own = client.register_schema(subject, Schema('"string"', "AVRO"))
    assert ours.has_subject(subject)
    assert ours.latest(subject).schema_id == own


def test_a_registry_that_goes_down_is_waited_for_and_what_is_known_stays(clock: Clock) -> None:
    with LocalSchemaRegistry() as registry:
        with SchemaRegistryClient({"url": registry.url}) as client:
            known = client.register_schema("x-value", Schema('"string"', "AVRO"))
        config = RegistryConfig(url=registry.url)
        with closing(SchemaRegistry.from_config(config, environment={}, clock=clock)) as ours:
            schema = ours.by_id(known)
            registry.stop()
            assert registry.pid is None
            clock.now += 100
            assert ours.by_id(known) == schema
            with pytest.raises(TransientError, match="can't be reached: ConnectionRefusedError"):
                ours.by_id(known + 1)
            with pytest.raises(TransientError, match="can't be reached"):
                part_source("x", "value", TopicConfig(), ours)
            registry.start()
            clock.now += 100
            with pytest.raises(NotFound):
                ours.by_id(known + 1)
            assert part_source("x", "value", TopicConfig(), ours) == PartSource(mode="raw")
