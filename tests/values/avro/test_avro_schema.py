"""Schemas: their columns, ids, names and units, and texts that give none."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from avro_cases import Schema, schemas
from hypothesis import HealthCheck, given, settings
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import NestedField, StructType

from tiering.values.avro import AvroCodec
from tiering.values.codec import UnsupportedSchema
from tiering.values.units import MICROS_OF_DAY, MILLIS_OF_DAY, NANOS_LOCAL, NANOS_UTC


def codec_of(schema: Any, *references: tuple[str, Any]) -> AvroCodec:
    return AvroCodec(json.dumps(schema), [(name, json.dumps(text)) for name, text in references])


def record(name: str, **types: Any) -> dict[str, Any]:
    fields = [{"name": field, "type": kind} for field, kind in types.items()]
    return {"type": "record", "name": name, "fields": fields}


def logical(kind: str, logical_type: Any, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def types_of(codec: AvroCodec) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in codec.schema.fields}


def test_each_type_has_its_column() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 12}
    kinds = {
        "boolean": "boolean",
        "int": "int",
        "long": "long",
        "float": "float",
        "double": "double",
        "binary": "bytes",
        "string": "string",
        "fixed[12]": fixed | {"logicalType": "duration"},
        "date": logical("int", "date"),
        "timestamptz": logical("long", "timestamp-millis"),
        "timestamp": logical("long", "local-timestamp-micros"),
        "decimal(9, 2)": logical("bytes", "decimal", precision=9, scale=2),
        "list<int>": {"type": "array", "items": "int"},
        "map<string, long>": {"type": "map", "values": "long"},
    }
    codec = codec_of(record("R", **{f"f{i}": kind for i, kind in enumerate(kinds.values())}))
    assert list(types_of(codec).values()) == list(kinds)
    assert not any(field.required for field in codec.schema.fields)


def test_times_without_a_type_are_numbers_whose_unit_the_doc_says() -> None:
    numbers = {
        "a": (logical("int", "time-millis"), "int", MILLIS_OF_DAY),
        "b": (["null", logical("long", "time-micros")], "long", MICROS_OF_DAY),
        "c": (logical("long", "timestamp-nanos"), "long", NANOS_UTC),
        "d": (logical("long", "local-timestamp-nanos"), "long", NANOS_LOCAL),
        "e": ("long", "long", None),
    }
    codec = codec_of(record("R", **{name: kind for name, (kind, _, _) in numbers.items()}))
    found = {f.name: (str(f.field_type), f.doc) for f in codec.schema.fields}
    assert found == {name: (kind, doc) for name, (_, kind, doc) in numbers.items()}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (logical("bytes", "decimal", precision=39, scale=2), "binary"),
        (logical("bytes", "decimal", precision=4, scale=5), "binary"),
        (logical("bytes", "decimal", precision=0), "binary"),
        (logical("bytes", "decimal", precision="4"), "binary"),
        (logical("bytes", "decimal"), "binary"),
        (logical("bytes", "decimal", precision=4), "decimal(4, 0)"),
        (logical("fixed", "decimal", name="F", size=2, precision=4), "decimal(4, 0)"),
        (logical("fixed", "decimal", name="F", size=2, precision=5), "fixed[2]"),
        (logical("string", "uuid"), "string"),
        (logical("fixed", "uuid", name="F", size=16), "fixed[16]"),
        (logical("fixed", "uuid", name="F", size=15), "fixed[15]"),
        (logical("int", "timestamp-millis"), "int"),
        (logical("string", "date"), "string"),
        (logical("long", "something"), "long"),
        (logical("long", 7), "long"),
        ({"type": {"type": "int", "logicalType": "date"}}, "date"),
    ],
)
def test_logical_types_that_count_and_that_do_not(schema: Any, column: str) -> None:
    assert types_of(codec_of(schema)) == {"value": column}


def test_ids_are_numbered_in_pre_order() -> None:
    inner = record("Inner", x="int", y={"type": "map", "values": "Leaf"})
    leaf = record("Leaf", n="null", z="string")
    schema = record(
        "R",
        a="int",
        skipped="null",
        b={"type": "array", "items": ["null", inner]},
        c=["null", "int", {"type": "array", "items": "string"}, leaf],
        d="long",
    )
    codec = codec_of(schema)
    assert str(codec.schema) == (
        "table {\n"
        "  1: a: optional int\n"
        "  2: b: optional list<struct<4: x: optional int, "
        "5: y: optional map<string, struct<8: z: optional string>>>>\n"
        "  9: c: optional struct<10: tag: optional int, 11: field0: optional int, "
        "12: field1: optional list<string>, 14: field2: optional struct<15: z: optional string>>\n"
        "  16: d: optional long\n"
        "}"
    )
    b, c = codec.schema.find_field(2).field_type, codec.schema.find_field(12).field_type
    assert (b.element_id, b.element_required, c.element_id) == (3, False, 13)  # type: ignore[union-attr]
    y = codec.schema.find_field(5).field_type
    assert (y.key_id, y.value_id, y.value_required) == (6, 7, False)  # type: ignore[union-attr]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas())
def test_arrow_is_what_pyiceberg_makes_of_the_schema(schema: Schema) -> None:
    codec = codec_of(schema)
    assert _plain(codec.arrow) == _plain(
        pa.struct(list(schema_to_pyarrow(codec.schema, include_field_ids=False)))
    )
    ids = sorted(_ids(codec.schema.as_struct()))
    assert ids == list(range(1, len(ids) + 1))


def _plain(kind: Any) -> str:
    return str(kind).replace("large_", "").replace(" not null", "")


def _ids(kind: Any) -> list[int]:
    if isinstance(kind, StructType):
        return [i for field in kind.fields for i in _ids(field)]
    if isinstance(kind, NestedField):
        return [kind.field_id, *_ids(kind.field_type)]
    inner = [getattr(kind, name, None) for name in ("element_field", "key_field", "value_field")]
    return [i for field in inner if field is not None for i in _ids(field)]


def test_aliases_are_kept_by_field_id() -> None:
    schema = record("R", a="int", b=record("S", c="int"), d="null")
    schema["fields"][0]["aliases"] = ["was_a", "and_before"]
    schema["fields"][1]["type"]["fields"][0]["aliases"] = ["was_c"]
    schema["fields"][2]["aliases"] = ["was_d"]
    assert dict(codec_of(schema).aliases) == {1: ("was_a", "and_before"), 3: ("was_c",)}


def test_names_are_looked_up_in_their_namespace() -> None:
    schema = {
        "type": "record",
        "name": "com.acme.Order",
        "fields": [
            {"name": "a", "type": {"type": "fixed", "name": "Id", "size": 4}},
            {"name": "b", "type": "Id"},
            {"name": "c", "type": "com.acme.Id"},
            {
                "name": "d",
                "type": record("Other", e={"type": "fixed", "name": "Id", "size": 5}, f="Id")
                | {"namespace": "org.other"},
            },
            {"name": "g", "type": "org.other.Id"},
            {"name": "h", "type": ["null", {"type": "Id"}]},
        ],
    }
    assert types_of(codec_of(schema)) == {
        "a": "fixed[4]",
        "b": "fixed[4]",
        "c": "fixed[4]",
        "d": "struct<5: e: optional fixed[5], 6: f: optional fixed[5]>",
        "g": "fixed[5]",
        "h": "fixed[4]",
    }


def test_references_define_types() -> None:
    address = record("Address", street="string") | {"namespace": "com.acme"}
    person = record("Person", home=["null", "Address"]) | {"namespace": "com.acme"}
    order = record("Order", buyer="com.acme.Person", to="com.acme.Address")
    references = [("com.acme.Person", person), ("com.acme.Address", address)]
    for given_so in (references, references[::-1], [*references, references[0]]):
        assert types_of(codec_of(order, *given_so)) == {
            "buyer": "struct<2: home: optional struct<3: street: optional string>>",
            "to": "struct<5: street: optional string>",
        }


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record("Node", next=["null", "Node"]), "recursive: Node"),
        (record("A", b={"type": "array", "items": record("B", a="A")}), "recursive: A"),
        ({"type": "map", "values": "null"}, "hold nothing"),
        ({"type": "array", "items": record("Empty")}, "hold nothing"),
        ({"type": "fixed", "name": "F", "size": 2**30}, "bytes"),
        (record("R", **{"a.b": "int"}), "dot"),
    ],
)
def test_schemas_that_no_table_holds(schema: Any, why: str) -> None:
    with pytest.raises(UnsupportedSchema, match=why):
        codec_of(schema)


def test_schemas_that_are_too_large() -> None:
    doubling = record("T0", x="int")
    for i in range(1, 40):
        doubling = record(f"T{i}", a=doubling, b=f"T{i - 1}")
    with pytest.raises(UnsupportedSchema, match="columns"):
        codec_of(doubling)
    nested: Any = "int"
    for _ in range(200):
        nested = {"type": "array", "items": nested}
    with pytest.raises(UnsupportedSchema, match="nested"):
        codec_of(nested)
    chain = [("", record("T0", x="int"))]
    chain += [("", record(f"T{i}", x=["null", f"T{i - 1}"])) for i in range(1, 60)]
    for references in (chain, chain[::-1]):
        with pytest.raises(UnsupportedSchema, match="nested"):
            codec_of(record("R", **{f"f{i}": f"T{i}" for i in range(60)}), *references)
    with pytest.raises(ValueError, match="JSON"):
        AvroCodec("[" * 100_000)


@pytest.mark.parametrize(
    "schema",
    [
        "unknown",
        {"type": "unknown"},
        {},
        7,
        None,
        [],
        [["int"], "null"],
        ["null", "null"],
        {"type": "array"},
        {"type": "record", "name": "R"},
        {"type": "record", "fields": []},
        {"type": "record", "name": "R", "fields": [7]},
        {"type": "record", "name": "R", "fields": [{"type": "int"}]},
        {"type": "record", "name": "R", "fields": [{"name": "a"}]},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2},
        {"type": "record", "name": "R", "namespace": 7, "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "aliases": [1]}]},
        {"type": "enum", "name": "E"},
        {"type": "enum", "name": "E", "symbols": ["A", "A"]},
        {"type": "enum", "name": "E", "symbols": [1]},
        {"type": "fixed", "name": "F"},
        {"type": "fixed", "name": "F", "size": -1},
        {"type": "fixed", "name": "F", "size": True},
        [{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}],
    ],
)
def test_texts_that_are_no_avro_schema(schema: Any) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        codec_of(schema)
    assert not isinstance(raised.value, UnsupportedSchema)
