"""Protobuf values against Google's own library: its messages, its bytes, its judgement."""

from __future__ import annotations

import base64
import math
import random
import struct
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from protobuf_oracle import as_dicts, columns, message_class, messages

from tiering.values.codec import Decoded, Fault, UnsupportedSchema
from tiering.values.codecs import codec_for
from tiering.values.protobuf import ProtobufCodec
from tiering.values.stored_schema import Framing, SchemaFormat, StoredSchema

KINDS = [
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes", "Colour"),
]


def numbered(line: str, first: int) -> str:
    return "\n".join(
        f"  {line.format(kind=kind, name=kind.lower())} = {first + i};"
        for i, kind in enumerate(KINDS)
    )


EVERYTHING = f"""
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
import "google/protobuf/empty.proto";
import "common/place.proto";
message Everything {{
{numbered("{kind} a_{name}", 100)}
{numbered("optional {kind} o_{name}", 200)}
{numbered("repeated {kind} r_{name}", 300)}
  Inner inner = 1;
  repeated Inner inners = 2;
  map<string, Inner> by_name = 3;
  map<int32, Colour> colours = 4;
  map<uint64, double> numbers = 5;
  map<bool, bytes> flags = 6;
  oneof choice {{ int32 number = 7; string text = 8; Inner part = 9; Inner other_part = 1000; }}
  google.protobuf.Timestamp at = 10;
  repeated google.protobuf.Timestamp ats = 11;
  google.protobuf.Duration span = 12;
  google.protobuf.StringValue maybe_text = 13;
  google.protobuf.UInt64Value maybe_number = 14;
  repeated google.protobuf.Int32Value maybes = 15;
  google.protobuf.Any any = 16;
  google.protobuf.Empty nothing = 17;
  common.Place place = 19;
  repeated sint64 unpacked = 20 [packed = false];
}}
message Inner {{
  int64 y = 2;
  string x = 1;
  Deep deep = 3;
  message Deep {{ repeated string words = 16; bool yes = 536870911; }}
}}
enum Colour {{
  option allow_alias = true;
  NONE = 0; RED = 1; CRIMSON = 1; BLUE = -5; GREEN = 1000000;
}}
"""
PLACE = 'syntax = "proto3"; package common; message Place { double lat = 1; double lon = 2; }'
OLD = """
syntax = "proto2";
message Old {
  required int32 id = 1;
  optional string name = 2 [default = "nobody"];
  optional int32 count = 3 [default = 7];
  repeated int32 plain = 4;
  repeated int32 packed = 5 [packed = true];
  optional Kind kind = 6 [default = SECOND];
  optional group Part = 7 { optional int32 inside = 1; }
  optional Leaf leaf = 8;
  extensions 100 to 199;
  enum Kind { FIRST = 1; SECOND = 2; }
}
message Leaf { optional bool yes = 1; }
extend Old { optional int32 more = 100; }
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> type[Message]:
    files = {"main.proto": EVERYTHING, "common/place.proto": PLACE}
    return message_class(tmp_path_factory.mktemp("protos"), files, "shop.v1.Everything")


@pytest.fixture(scope="module")
def without_empty(tmp_path_factory: pytest.TempPathFactory) -> type[Message]:
    """The same without the message that has no columns: what is in there isn't looked at."""
    text = EVERYTHING.replace("  google.protobuf.Empty nothing = 17;\n", "")
    assert text != EVERYTHING
    files = {"main.proto": text, "common/place.proto": PLACE}
    return message_class(tmp_path_factory.mktemp("judged"), files, "shop.v1.Everything")


@pytest.fixture(scope="module")
def codec() -> ProtobufCodec:
    return ProtobufCodec(EVERYTHING, (("common/place.proto", PLACE),))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> type[Message]:
    return message_class(tmp_path_factory.mktemp("old"), {"old.proto": OLD}, "Old")


def framed(*payloads: bytes) -> pa.BinaryArray:
    """Behind the index of the first message; in front is one that a slice leaves out."""
    return pa.array([b"\x00left out", *(b"\x00" + each for each in payloads)], pa.binary())[1:]


def decoded(codec: ProtobufCodec, *payloads: bytes) -> Decoded:
    found = codec.decode(framed(*payloads))
    found.columns.validate(full=True)
    assert found.columns.type == codec.arrow
    assert [each is None for each in found.columns.to_pylist()] == [f != 0 for f in found.faults]
    return found


def rows(codec: ProtobufCodec, *payloads: bytes) -> list[Any]:
    found = decoded(codec, *payloads)
    assert not found.faults.any()
    return list(found.columns.to_pylist())


def encoded(codec: ProtobufCodec, found: Decoded) -> list[bytes | None]:
    array = codec.encode(found.columns)
    array.validate(full=True)
    return list(array.to_pylist())


SLOW = settings(
    max_examples=150,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SLOW
@given(st.data())
def test_messages_come_back_as_google_writes_them(
    codec: ProtobufCodec, everything: type[Message], data: st.DataObject
) -> None:
    made = [data.draw(messages(everything)) for _ in range(data.draw(st.integers(0, 3)))]
    payloads = [each.SerializeToString() for each in made]
    found = decoded(codec, *payloads)
    assert not found.faults.any()
    has_empty = [each.HasField("nothing") for each in made]  # a message without columns
    assert list(found.inexact) == has_empty
    wanted = [columns(each) for each in made]
    assert [as_dicts(each, everything.DESCRIPTOR) for each in found.columns.to_pylist()] == wanted
    back = encoded(codec, found)
    for each, payload, empty in zip(back, payloads, has_empty, strict=True):
        assert empty or each == b"\x00" + payload


@SLOW
@given(st.data())
def test_old_messages_come_back_as_google_writes_them(
    old: type[Message], data: st.DataObject
) -> None:
    codec = ProtobufCodec(OLD, ())
    made = data.draw(messages(old))
    payload = made.SerializePartialToString()
    found = decoded(codec, payload)
    assert as_dicts(found.columns.to_pylist()[0], old.DESCRIPTOR) == columns(made)
    assert encoded(codec, found) == [b"\x00" + payload]
    assert not found.inexact.any()


def parsed(cls: type[Message], payload: bytes) -> Message | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an end of a group that isn't there
        message = cls()
        try:
            end = message.MergeFromString(payload)
        except DecodeError:
            return None
        return message if end == len(payload) else None


@settings(parent=SLOW, max_examples=200)
@given(st.data())
def test_damaged_bytes_are_judged_as_by_google(
    codec: ProtobufCodec,
    everything: type[Message],
    without_empty: type[Message],
    data: st.DataObject,
) -> None:
    payload = data.draw(messages(everything)).SerializeToString()
    other = data.draw(messages(everything)).SerializeToString()
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    damaged = [payload + other, payload[: chance.randrange(len(payload) + 1)]]
    for _ in range(30):
        changed = bytearray(payload or b"\x08")
        for _ in range(chance.choice([1, 1, 2, 5])):
            changed[chance.randrange(len(changed))] = chance.choice([chance.randrange(256), 0, 128])
        damaged.append(bytes(changed))
    judge(codec, without_empty, damaged)


@SLOW
@given(st.lists(st.binary(max_size=40), max_size=40))
def test_any_bytes_are_judged_as_by_google(
    codec: ProtobufCodec, without_empty: type[Message], payloads: list[bytes]
) -> None:
    judge(codec, without_empty, payloads)


def judge(codec: ProtobufCodec, cls: type[Message], payloads: list[bytes]) -> None:
    found = decoded(codec, *payloads)
    back = encoded(codec, found)
    for i, (payload, row) in enumerate(zip(payloads, found.columns.to_pylist(), strict=True)):
        message = parsed(cls, payload)
        assert (message is None) == (row is None), payload
        if message is None:
            continue
        read, wanted = as_dicts(row, cls.DESCRIPTOR), columns(message)
        differences = [(k, read[k], wanted[k]) for k in wanted if read[k] != wanted[k]]
        assert same(read, wanted, bool(found.inexact[i])), differences
        if not found.inexact[i]:
            again = parsed(cls, back[i][1:] if back[i] else b"")
            assert again is not None
            plain = message.SerializePartialToString(deterministic=True)
            assert again.SerializePartialToString(deterministic=True) == plain


def same(one: Any, other: Any, inexact: bool) -> bool:
    """Equal, NaN being equal to itself. Google's parser takes the whole entry of a map for unknown
    that has anything unknown in it; those of Java and C++ don't, nor does ours."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        keys = one.keys() >= other.keys() if inexact else one.keys() == other.keys()
        return keys and all(same(one[k], other[k], inexact) for k in other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            same(a, b, inexact) for a, b in zip(one, other, strict=True)
        )
    return bool(one == other)


def test_the_first_message_has_columns_and_others_have_none(codec: ProtobufCodec) -> None:
    message = b"\x0a\x01x"
    payloads = [b"\x00", b"\x02\x00", b"\x02\x02" + message, b"\x04\x00\x00", b"", b"\x01", b"\x80"]
    payloads += [b"\x04\x00", b"\xff" * 11, b"\xfe\xff\xff\xff\x0f"]
    found = codec.decode(pa.array(payloads, pa.binary()))
    found.columns.validate(full=True)
    assert list(found.inexact) == [False, False, True, True, *[False] * 6]
    assert [Fault(each) for each in found.faults] == [
        *[Fault.NONE] * 4,
        *(Fault.TRUNCATED, Fault.BAD_LENGTH, Fault.TRUNCATED),
        *[Fault.BAD_LENGTH] * 3,
    ]
    first = found.columns.to_pylist()
    assert first[0] == first[1]
    assert first[0]["a_string"] == ""
    assert set(first[2].values()) == set(first[3].values()) == {None}
    assert codec.encode(found.columns).to_pylist()[:2] == [b"\x00", b"\x00"]


def test_strange_values_are_marked(codec: ProtobufCodec, everything: type[Message]) -> None:
    unknown = everything()
    unknown.a_colour = 77
    nan = b"\xa1\x06" + struct.pack("<Q", 0x7FF8000000000001)
    usual_nan = b"\xa1\x06" + struct.pack("<Q", 0x7FF8000000000000)
    fine, late = everything(), everything()
    fine.at.nanos, late.at.seconds = 999_999_999, 253402300800
    payloads = [unknown.SerializeToString(), nan, usual_nan, fine.SerializeToString()]
    payloads += [late.SerializeToString(), b"\xf8\x7f\x01", b"\xfa\x7f\x00"]
    found = decoded(codec, *payloads)
    assert list(found.inexact) == [True, True, False, True, True, True, True]
    read = found.columns.to_pylist()
    assert read[0]["a_colour"] is None
    assert math.isnan(read[1]["a_double"])
    assert read[3]["at"].microsecond == 999_999
    assert read[4]["at"] is None
    assert encoded(codec, found)[2] == b"\x00" + usual_nan


def test_text_must_be_utf8(codec: ProtobufCodec) -> None:
    found = decoded(codec, b"\x0a\x03\x0a\x01\xff", b"\x42\x01\xff")
    assert [Fault(each) for each in found.faults] == [Fault.BAD_TEXT, Fault.BAD_TEXT]
    lax = decoded(ProtobufCodec(OLD, ()), b"\x08\x01\x12\x01\xff")
    assert lax.columns.to_pylist()[0]["name"] is None
    assert lax.inexact[0]
    assert not lax.faults[0]


def test_what_old_schemas_have_and_columns_have_not(old: type[Message]) -> None:
    codec = ProtobufCodec(OLD, ())
    made = old(id=1)
    made.part.inside = 3
    found = decoded(codec, made.SerializeToString(), b"\x08\x01\xa0\x06\x05", b"\x08\x01\x30\x09")
    assert found.inexact.all()
    assert not found.faults.any()
    assert {each["id"] for each in found.columns.to_pylist()} == {1}
    absent = rows(codec, b"")[0]
    assert absent == {name: [] if name in ("plain", "packed") else None for name in absent}
    assert [each["plain"] for each in rows(codec, b"\x22\x02\x01\x02", b"\x20\x01\x20\x02")] == [
        [1, 2]
    ] * 2


def test_maps_keep_their_order(codec: ProtobufCodec) -> None:
    entries = [b"\x22\x04\x08%c\x10\x01" % key for key in (9, 1, 5)]
    payload = b"".join(entries)
    found = decoded(codec, payload, entries[0] + b"\x22\x04\x08\x09\x10\x00")
    assert found.columns.to_pylist()[0]["colours"] == [(9, "RED"), (1, "RED"), (5, "RED")]
    assert encoded(codec, found)[0] == b"\x00" + payload
    assert found.columns.to_pylist()[1]["colours"] == [(9, "NONE")]
    assert list(found.inexact) == [False, True]


def test_json_values_are_json() -> None:
    text = """syntax = "proto3"; import "google/protobuf/struct.proto";
    message M { google.protobuf.Struct s = 1; repeated google.protobuf.Value v = 2;
      google.protobuf.ListValue l = 3; int32 i = 4; }"""
    codec = ProtobufCodec(text, ())
    made = struct_pb2.Struct()
    made["only"] = [1, 2.5, "ü", None, True, {"deep": {}}, []]
    inner = made.SerializeToString()
    value = struct_pb2.Value(string_value="x").SerializeToString()
    payload = b"\x0a" + bytes([len(inner)]) + inner + b"\x12" + bytes([len(value)]) + value
    nothing = b"\x12\x00"  # a value of no kind
    found = decoded(codec, payload, b"", nothing, b"\x0a\x02\x0a\x05")
    read = found.columns.to_pylist()
    assert read[0]["s"] == '{"only":[1,2.5,"ü",null,true,{"deep":{}},[]]}'
    assert read[0]["v"] == ['"x"']
    assert encoded(codec, found)[:2] == [b"\x00" + payload, b"\x00"]
    assert list(found.inexact) == [False, False, True, False]
    assert [Fault(each) for each in found.faults] == [0, 0, 0, Fault.BAD_DOCUMENT]


def test_slices_and_nulls_are_written(codec: ProtobufCodec, everything: type[Message]) -> None:
    made = []
    for i in range(7):
        message = everything(r_int32=range(i), text=str(i), unpacked=[i] * i)
        message.by_name[str(i)].y = i
        made.append(message.SerializeToString())
    found = decoded(codec, *made).columns
    assert codec.encode(found[2:5]).to_pylist() == [b"\x00" + each for each in made[2:5]]
    mixed = found.take(pa.array([3, None, 0]))
    assert codec.encode(mixed).to_pylist() == [b"\x00" + made[3], None, b"\x00" + made[0]]
    assert codec.encode(found[:0]).to_pylist() == []
    empty = pa.array([dict.fromkeys(each.name for each in codec.arrow)], codec.arrow)
    assert codec.encode(empty).to_pylist() == [b"\x00"]


@pytest.mark.parametrize(
    "row",
    [
        {"r_int32": [1, None]},
        {"a_colour": "PURPLE"},
        {"a_uint32": -1},
        {"a_uint64": -1},
        {"a_uint64": 2**64},
        {"by_name": [("a", None)]},
        {"inners": [{"y": 1}, None]},
    ],
)
def test_what_protobuf_has_none_of_is_not_written(codec: ProtobufCodec, row: Any) -> None:
    columns = pa.array([row, {"a_int32": 1}], codec.arrow)
    assert codec.encode(columns).to_pylist() == [None, b"\x00\xb0\x06\x01"]


def test_base64_descriptors_are_definitions_too(everything: type[Message]) -> None:
    def as_base64(file: Any) -> str:
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        return base64.b64encode(proto.SerializeToString()).decode()

    file = everything.DESCRIPTOR.file
    place = next(each for each in file.dependencies if each.name == "common/place.proto")
    text = ProtobufCodec(EVERYTHING, (("common/place.proto", PLACE),))
    for definition in (EVERYTHING, as_base64(file)):
        for reference in (PLACE, as_base64(place)):
            codec = ProtobufCodec(definition, (("common/place.proto", reference),))
            assert codec.schema == text.schema
            assert codec.arrow == text.arrow


def test_ids_are_numbered_before_what_is_inside() -> None:
    text = """syntax = "proto3"; message M { B b = 5; repeated B bs = 2; map<string, B> m = 3;
    int32 last = 1; } message B { int32 x = 1; }"""
    schema = ProtobufCodec(text, ()).schema
    names = schema.column_names
    ids = {name: schema.find_field(name).field_id for name in names}
    before = ["b", "b.x", "bs", "bs.element", "bs.element.x"]
    assert [ids[each] for each in before] == [1, 2, 3, 4, 5]
    assert [ids[each] for each in ("m", "m.key", "m.value", "m.value.x", "last")] == [*range(6, 11)]


@pytest.mark.parametrize(
    ("definition", "references", "said"),
    [
        ('syntax = "proto3"; message M { M inner = 1; }', (), "contains itself"),
        ('syntax = "proto3"; message M { int32 x = ; }', (), "protoc"),
        ('syntax = "proto3"; import "other.proto"; message M { int32 x = 1; }', (), "other.proto"),
        ('syntax = "proto3"; enum E { A = 0; }', (), "without a message"),
        ('syntax = "proto3"; message M {}', (), "no fields"),
        ('syntax = "proto3"; message M { int32 x = 1; }', (("../x.proto", "x"),), "import path"),
        ('syntax = "proto3"; message M { int32 x = 1; }', (("/etc/x", "x"),), "import path"),
        ("", (), "without a message"),
    ],
)
def test_what_has_no_columns_says_why(
    definition: str, references: tuple[tuple[str, str], ...], said: str
) -> None:
    with pytest.raises(UnsupportedSchema, match=said):
        ProtobufCodec(definition, references)


def test_schemas_that_multiply_are_refused() -> None:
    levels = "".join(
        f"message L{i} {{ " + "".join(f"L{i + 1} f{n} = {n};" for n in range(1, 11)) + " }"
        for i in range(8)
    )
    with pytest.raises(UnsupportedSchema, match="columns"):
        ProtobufCodec(f'syntax = "proto3"; {levels} message L8 {{ int32 x = 1; }}', ())


def test_files_that_registries_know_need_no_reference() -> None:
    text = """syntax = "proto3";
    import "confluent/meta.proto"; import "confluent/type/decimal.proto";
    message M { confluent.type.Decimal price = 1 [(confluent.field_meta).doc = "net"]; }"""
    assert rows(ProtobufCodec(text, ()), b"\x0a\x04\x0a\x00\x18\x02")[0] == {
        "price": {"value": b"", "precision": 0, "scale": 2}
    }


def test_confluents_serializer_frames_it_like_this(everything: type[Message]) -> None:
    pytest.importorskip("google.type", reason="confluent-kafka[protobuf] isn't installed")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    registry = SchemaRegistryClient.new_client({"url": "mock://orders"})
    serializer = ProtobufSerializer(everything, registry, {"use.deprecated.format": False})
    message = everything(a_string="x", r_sint32=[1, -1])
    value = serializer(message, SerializationContext("orders", MessageField.VALUE))
    stored = registry.get_latest_version("orders-value").schema
    references = tuple(
        (each.name, registry.get_version(each.subject, each.version).schema.schema_str)
        for each in stored.references
    )
    found = codec_for(
        StoredSchema(
            part="value",
            schema_id=1,
            format=SchemaFormat.PROTOBUF,
            framing=Framing.PREFIX,
            definition=stored.schema_str,
            references=references,
        )
    )
    result = found.decode(pa.array([value[5:]], pa.binary()))
    assert result.columns.to_pylist()[0]["r_sint32"] == [1, -1]
    assert found.encode(result.columns).to_pylist() == [value[5:]]


def test_many_payloads_are_read_in_parts(codec: ProtobufCodec, everything: type[Message]) -> None:
    payloads = [everything(a_int32=i).SerializeToString() for i in range(50_000)]
    found = decoded(codec, *payloads)
    assert found.columns.field("a_int32").to_pylist() == [*range(50_000)]
    assert len(found.faults) == len(found.inexact) == 50_000


def test_without_packages_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf.descriptor_pool", None)
    with pytest.raises(ImportError, match=r"onecopy\[schemas\]"):
        ProtobufCodec('syntax = "proto3"; message Unseen { int32 x = 1; }', ())
