"""JSON values against Python's json and orjson: what they write is read, and written again."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tiering.values.codec import Decoded, Fault, UnsupportedSchema
from tiering.values.codecs import codec_for
from tiering.values.json_schema import JsonSchemaCodec
from tiering.values.stored_schema import Framing, SchemaFormat, StoredSchema

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"], "format": "date-time"},
        "price": {"type": "number"},
        "paid": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"$ref": "#/definitions/place"},
        "places": {"type": "array", "items": {"$ref": "#/definitions/place"}},
        "by key": {"type": "object", "additionalProperties": {"type": "number"}},
        "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "any": {},
        'ünï"': {"type": "object", "additionalProperties": {"$ref": "#/definitions/place"}},
    },
    "required": ["id"],
    "definitions": {
        "place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "label": {"type": ["string", "null"]}},
            "required": ["label"],
        }
    },
}
TEXTS = st.text(max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
LONGS = st.integers(-(2**63), 2**63 - 1)
PLACES = st.fixed_dictionaries({"label": st.none() | TEXTS}, optional={"lat": NUMBERS}).map(
    lambda found: {k: found[k] for k in ("lat", "label") if k in found}
)
ANY = st.recursive(
    st.booleans() | LONGS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "id": LONGS,
        "name": TEXTS,
        "price": NUMBERS,
        "paid": st.booleans(),
        "tags": st.lists(TEXTS | st.none(), max_size=3),
        "place": PLACES,
        "places": st.lists(PLACES | st.none(), max_size=3),
        "by key": st.dictionaries(TEXTS, NUMBERS | st.none(), max_size=3),
        "matrix": st.lists(st.lists(LONGS, max_size=3), max_size=3),
        "any": ANY,
        'ünï"': st.dictionaries(TEXTS, PLACES, max_size=2),
    },
).map(lambda found: {name: found[name] for name in ORDER["properties"] if name in found})
SLOW = settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def codec() -> JsonSchemaCodec:
    return JsonSchemaCodec(json.dumps(ORDER), ())


def decoded(codec: JsonSchemaCodec, *payloads: bytes) -> Decoded:
    found = codec.decode(pa.array([b"left out", *payloads], pa.binary())[1:])
    found.columns.validate(full=True)
    assert found.columns.type == codec.arrow
    assert [each is None for each in found.columns.to_pylist()] == [f != 0 for f in found.faults]
    return found


def of(schema: Any, *references: tuple[str, Any]) -> JsonSchemaCodec:
    others = tuple((name, json.dumps(each)) for name, each in references)
    return JsonSchemaCodec(json.dumps(schema), others)


class WrongType(Exception):
    pass


def expected(schema: Any, value: Any) -> Any:
    """What a column must be, told by the schema, from what Python's json has read."""
    schema = ORDER["definitions"]["place"] if "$ref" in schema else schema
    if "oneOf" in schema:
        schema = schema["oneOf"][1]
    if value is None:
        return None
    kind = schema.get("type")
    kind = next(each for each in kind if each != "null") if isinstance(kind, list) else kind
    if kind is None:
        return value
    types = {"string": str, "boolean": bool, "array": list, "object": dict}
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WrongType
        if kind == "integer":
            if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
                raise WrongType
            return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None
        number = float(value)
        return number if math.isfinite(number) else None
    if not isinstance(value, types[kind]):
        raise WrongType
    if kind == "array":
        return [expected(schema["items"], each) for each in value]
    if "properties" in schema:
        return {k: expected(s, value.get(k)) for k, s in schema["properties"].items()}
    if kind == "object":
        return {k: expected(schema["additionalProperties"], v) for k, v in value.items()}
    return value


def as_json(schema: Any, value: Any) -> Any:
    """A row of Arrow's in the same form: maps are dicts, JSON is read."""
    schema = ORDER["definitions"]["place"] if "$ref" in schema else schema
    if value is None:
        return None
    if not schema:
        return json.loads(value)
    if schema.get("type") == "array":
        return [as_json(schema["items"], each) for each in value]
    if "properties" in schema:
        return {k: as_json(s, value[k]) for k, s in schema["properties"].items()}
    if schema.get("type") == "object":
        return {k: as_json(schema["additionalProperties"], v) for k, v in value}
    return value


@SLOW
@given(st.lists(ORDERS, max_size=4))
def test_what_orjson_writes_comes_back(codec: JsonSchemaCodec, orders: list[Any]) -> None:
    payloads = [orjson.dumps(each) for each in orders]
    found = decoded(codec, *payloads)
    assert not found.faults.any()
    assert not found.inexact.any()
    read = [as_json(ORDER, each) for each in found.columns.to_pylist()]
    assert read == [expected(ORDER, each) for each in orders]
    back = codec.encode(found.columns)
    back.validate(full=True)
    assert back.to_pylist() == payloads


@SLOW
@given(ORDERS, st.booleans(), st.sampled_from([None, 1]))
def test_other_styles_are_read_alike(
    codec: JsonSchemaCodec, order: Any, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(order, ensure_ascii=ascii_only, indent=indent)
    found = decoded(codec, f"\n {text}\t".encode())
    assert as_json(ORDER, found.columns.to_pylist()[0]) == expected(ORDER, order)
    assert not found.inexact[0]


@SLOW
@given(ORDERS, st.integers(0, 2**32))
def test_damaged_documents_are_judged_as_by_python(
    codec: JsonSchemaCodec, order: Any, seed: int
) -> None:
    chance = random.Random(seed)
    text = orjson.dumps(order)
    payloads = []
    for _ in range(30):
        changed = bytearray(text)
        for _ in range(chance.choice([1, 1, 3])):
            changed[chance.randrange(len(changed))] = chance.choice(b'{}[]",:\\0-.eEtfn/ 1u5\xc3')
        payloads.append(bytes(changed))
    found = decoded(codec, *payloads)
    rows = found.columns.to_pylist()
    for row, payload, fault, inexact in zip(
        rows, payloads, found.faults, found.inexact, strict=True
    ):
        judge(payload, row, Fault(fault), bool(inexact))


def judge(payload: bytes, row: Any, fault: Fault, inexact: bool) -> None:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        document = json.loads(payload.decode(), parse_constant=refuse)
    except UnicodeDecodeError:
        assert fault is Fault.BAD_TEXT
        return
    except ValueError:
        assert fault is Fault.BAD_DOCUMENT
        return
    try:
        wanted = expected(ORDER, document)
    except WrongType:
        assert fault is Fault.BAD_TYPE, payload
        return
    if not inexact:  # a property twice, half a surrogate pair, a name that isn't known
        assert fault is Fault.NONE, payload
        assert as_json(ORDER, row) == wanted, payload


@pytest.mark.parametrize(
    ("payload", "fault", "inexact"),
    [
        (b"{}", Fault.NONE, False),
        (b"[]", Fault.BAD_TYPE, False),
        (b"null", Fault.NONE, True),
        (b'{"id":"1"}', Fault.BAD_TYPE, False),
        (b'{"id":1.5}', Fault.BAD_TYPE, False),
        (b'{"id":1.0}', Fault.NONE, True),
        (b'{"id":9223372036854775808}', Fault.NONE, True),
        (b'{"id":-9223372036854775808}', Fault.NONE, False),
        (b'{"id":-9223372036854775809}', Fault.NONE, True),
        (b'{"id":99999999999999999999999999}', Fault.NONE, True),
        (b'{"price":1e400}', Fault.NONE, True),
        (b'{"id":1,"id":2}', Fault.NONE, True),
        (b'{"more":1}', Fault.NONE, True),
        (b'{"place":{"lat":1,"more":{}}}', Fault.NONE, True),
        (b'{"name":"\\ud800"}', Fault.NONE, True),
        (b'{"by key":{"a":1,"a":2}}', Fault.NONE, True),
        (b'{"tags":{}}', Fault.BAD_TYPE, False),
        (b'{"tags":["a",1]}', Fault.BAD_TYPE, False),
        (b'{"paid":1}', Fault.BAD_TYPE, False),
        (b'{"id":1', Fault.BAD_DOCUMENT, False),
        (b"", Fault.BAD_DOCUMENT, False),
        (b'{"name":"\xff"}', Fault.BAD_TEXT, False),
    ],
)
def test_values_that_columns_do_not_hold(
    codec: JsonSchemaCodec, payload: bytes, fault: Fault, inexact: bool
) -> None:
    found = decoded(codec, b'{"id":7}', payload, b'{"id":8}')
    assert [Fault(each) for each in found.faults] == [Fault.NONE, fault, Fault.NONE]
    assert list(found.inexact) == [False, inexact, False]
    rows = found.columns.to_pylist()
    assert (rows[0]["id"], rows[2]["id"]) == (7, 8)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["r", "e", ".30f"]))
def test_numbers_are_read_exactly(number: float, style: str) -> None:
    text = repr(number) if style == "r" else format(number, style)
    found = decoded(of({"type": "number"}), text.encode())
    assert found.columns.to_pylist() == [{"value": float(text)}]


def test_absent_and_null() -> None:
    codec = of(ORDER["definitions"]["place"])
    found = decoded(codec, b"{}", b'{"label":null}', b'{"lat":null,"label":null}')
    assert found.columns.to_pylist() == [{"lat": None, "label": None}] * 3
    assert codec.encode(found.columns).to_pylist() == [b'{"label":null}'] * 3


def test_slices_nulls_and_what_json_has_none_of(codec: JsonSchemaCodec) -> None:
    made = [{"id": i, "tags": ["x"] * i, "by key": {"k": i + 0.5}} for i in range(6)]
    payloads = [orjson.dumps(each) for each in made]
    columns = decoded(codec, *payloads).columns
    assert codec.encode(columns[2:4]).to_pylist() == payloads[2:4]
    assert codec.encode(columns.take(pa.array([5, None, 0]))).to_pylist() == [
        *(payloads[5], None, payloads[0])
    ]
    assert codec.encode(columns[:0]).to_pylist() == []
    bad = pa.array([{"price": math.nan}, {"any": "{"}, {"id": 1}, {"places": [None]}], codec.arrow)
    assert codec.encode(bad).to_pylist() == [None, None, b'{"id":1}', b'{"places":[null]}']


def test_other_values_are_one_column() -> None:
    flags = {"type": "object", "additionalProperties": {"type": "boolean"}}
    for schema, payload, value in (
        ({"type": "string"}, b'"a\\u0001\\n\\"\xc3\xbc"', 'a\x01\n"ü'),
        ({"type": "array", "items": {"type": "integer"}}, b"[1,2,null]", [1, 2, None]),
        (flags, b'{"a":true}', [("a", True)]),
        (True, b'{"a":[1, 2]}', '{"a":[1, 2]}'),
        ({"type": ["integer", "string"]}, b'"x"', '"x"'),
    ):
        codec = of(schema)
        found = decoded(codec, payload)
        assert found.columns.to_pylist() == [{"value": value}]
        assert codec.encode(found.columns).to_pylist() == [payload]


def kind(schema: Any, *references: tuple[str, Any]) -> str:
    codec = of({"type": "object", "properties": {"x": schema}}, *references)
    return str(codec.arrow.field("x").type)


def test_references_and_combinations() -> None:
    other = {"$id": "https://a.example/b.json", "$defs": {"n": {"$anchor": "N", "type": "number"}}}
    for reference in ("b#/$defs/n", "b#N", "https://a.example/b.json#N"):
        assert kind({"$ref": reference}, ("b", other)) == "double"
    inner = {"$ref": "#/$defs/n"}
    nested = {"$defs": {"m": inner, "n": {"type": "boolean"}}}
    assert kind({"$ref": "b#/$defs/m"}, ("b", nested)) == "bool"
    assert kind({"anyOf": [{"type": "integer"}, {"type": "null"}]}) == "int64"
    assert kind({"allOf": [{"type": "boolean"}]}) == "bool"
    assert kind({"oneOf": [{"type": "integer"}, {"type": "string"}]}) == "string"
    assert kind({"enum": ["a", "b", None]}) == "string"
    assert kind({"const": 5}) == "int64"
    parts = [{"properties": {name: {"type": "integer"}}} for name in "ab"]
    assert kind({"type": "object", "allOf": parts}) == "struct<a: int64, b: int64>"
    assert kind({"type": ["integer", "number", "null"]}) == "double"


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("{", "no JSON Schema"),
        ("[]", "neither"),
        ('{"type":"object","properties":{"x":{"$ref":"#"}}}', "contains itself"),
        ('{"type":"object","properties":{"x":{"$ref":"#/$defs/x"}}}', "to nothing"),
        ('{"type":"object","properties":{"x":{"$ref":"other"}}}', "isn't given"),
        ('{"type":"object","properties":{"":{"type":"string"}}}', "no name"),
    ],
)
def test_what_has_no_columns_says_why(definition: str, said: str) -> None:
    with pytest.raises(UnsupportedSchema, match=said):
        JsonSchemaCodec(definition, ())


def test_ids_and_the_codec_of_a_stored_schema() -> None:
    stored = StoredSchema(
        part="value",
        schema_id=1,
        format=SchemaFormat.JSON,
        framing=Framing.PREFIX,
        definition=json.dumps(ORDER),
    )
    schema = codec_for(stored).schema
    names = ["id", "tags", "tags.element", "place", "place.lat", "by key", "by key.value", "any"]
    assert [schema.find_field(each).field_id for each in names] == [1, 5, 6, 7, 8, 14, 16, 20]


def test_white_space_is_not_slow(codec: JsonSchemaCodec) -> None:
    found = decoded(codec, b" " * 5_000_000 + b'{"id" : 1}' + b"\n" * 5_000_000)
    assert found.columns.to_pylist()[0]["id"] == 1
