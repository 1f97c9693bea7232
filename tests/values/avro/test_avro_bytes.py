"""Byte by byte: the examples of Avro's specification, and values that columns can't hold."""

from __future__ import annotations

import datetime
import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from avro_cases import written

from tiering.values.avro import AvroCodec
from tiering.values.codec import Fault

FOO = {
    "type": "record",
    "name": "test",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}],
}
LONGS = {"type": "array", "items": "long"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
UUID_TEXT = {"type": "string", "logicalType": "uuid"}
UPPER = "00112233-4455-6677-8899-AABBCCDDEEFF"


def codec_of(schema: Any) -> AvroCodec:
    return AvroCodec(json.dumps(schema))


def binary(*payloads: bytes) -> Any:
    return pa.array(payloads, pa.binary())


def money(precision: int, scale: int) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def record_of(**types: Any) -> Any:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize(
    ("schema", "payload", "value"),
    [
        ("long", "00", 0),
        ("long", "01", -1),
        ("long", "02", 1),
        ("long", "03", -2),
        ("long", "04", 2),
        ("long", "7f", -64),
        ("long", "8001", 64),
        ("long", "feffffffffffffffff01", 2**63 - 1),
        ("long", "ffffffffffffffffff01", -(2**63)),
        ("int", "ffffffff0f", -(2**31)),
        ("string", "06666f6f", "foo"),
        ("bytes", "00", b""),
        ("boolean", "01", True),
        ("float", "0000c03f", 1.5),
        ("double", "000000000000f83f", 1.5),
        (LONGS, "04063600", [3, 27]),
        (LONGS, "00", []),
        (["null", "string"], "00", None),
        (["null", "string"], "020261", "a"),
        (["string", "null"], "000261", "a"),
        ({"type": "map", "values": "long"}, "02026b0600", [("k", 3)]),
        ({"type": "enum", "name": "Foo", "symbols": ["A", "B", "C", "D"]}, "06", "D"),
        ({"type": "fixed", "name": "F", "size": 2}, "abcd", b"\xab\xcd"),
        (money(4, 2), "0400ff", Decimal("2.55")),
        (money(4, 2), "02ff", Decimal("-0.01")),
        (money(4, 2), "0280", Decimal("-1.28")),
        (money(4, 2), "0200", Decimal("0.00")),
        (
            money(38, 0),
            "204b3b4ca85a86c47a098a223fffffffff",  # 10^38 - 1
            Decimal(10**38 - 1),
        ),
        (money(38, 0), "20b4c4b357a5793b85f675ddc000000001", Decimal(1 - 10**38)),
        (
            money(10, 0) | {"type": "fixed", "name": "F", "size": 20},
            "ff" * 20,
            Decimal(-1),
        ),
        ({"type": "int", "logicalType": "date"}, "01", datetime.date(1969, 12, 31)),
        ({"type": "int", "logicalType": "time-millis"}, "02", 1),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            "01",
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
        ),
        (
            UUID_TEXT,
            "48" + b"00112233-4455-6677-8899-aabbccddeeff".hex(),
            "00112233-4455-6677-8899-aabbccddeeff",
        ),
        (UUID_TEXT, "48" + UPPER.encode().hex(), UPPER),
        (UUID_TEXT, "040920", "\t "),
        (UUID_TEXT, "04c3a9", "é"),
        (UUID_TEXT, "00", ""),
        (
            {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            "00112233445566778899aabbccddeeff",
            bytes.fromhex("00112233445566778899aabbccddeeff"),
        ),
    ],
)
def test_a_value_and_its_bytes(schema: Any, payload: str, value: Any) -> None:
    codec, data = codec_of(schema), bytes.fromhex(payload)
    decoded = codec.decode(binary(data, data))
    assert decoded.columns.to_pylist() == [{"value": value}] * 2
    assert not decoded.inexact.any()
    assert codec.encode(decoded.columns).to_pylist() == [data, data]


def test_the_record_of_the_specification() -> None:
    codec = codec_of(FOO)
    decoded = codec.decode(binary(b"\x36\x06foo"))
    assert decoded.columns.to_pylist() == [{"a": 27, "b": "foo"}]
    assert codec.encode(decoded.columns).to_pylist() == [b"\x36\x06foo"]


@pytest.mark.parametrize("payload", ["0206023600", "0304063600", "028600023600", "8400063600"])
def test_other_ways_to_write_it_give_the_same_row(payload: str) -> None:
    """Two blocks, a block with its size, numbers that are longer than they need to be."""
    codec = codec_of(LONGS)
    decoded = codec.decode(binary(bytes.fromhex(payload)))
    assert decoded.columns.to_pylist() == [{"value": [3, 27]}]
    assert codec.encode(decoded.columns).to_pylist() == [bytes.fromhex("04063600")]


def test_a_decimal_with_more_bytes_than_it_needs() -> None:
    codec = codec_of(money(4, 2))
    decoded = codec.decode(binary(b"\x28" + b"\xff" * 20, b"\x00", b"\x28" + bytes(19) + b"\x07"))
    assert [row["value"] for row in decoded.columns.to_pylist()] == [
        Decimal("-0.01"),
        Decimal("0.00"),
        Decimal("0.07"),
    ]
    assert codec.encode(decoded.columns).to_pylist() == [b"\x02\xff", b"\x02\x00", b"\x02\x07"]


def test_a_nan_becomes_the_usual_one() -> None:
    usual, other, negative = 0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000000
    codec = codec_of("double")
    payloads = [struct.pack("<Q", bits) for bits in (usual, other, negative, 0xFFF0000000000000)]
    decoded = codec.decode(binary(*payloads))
    assert decoded.inexact.tolist() == [False, True, True, False]
    encoded = codec.encode(decoded.columns).to_pylist()
    assert encoded == [payloads[0], payloads[0], payloads[0], payloads[3]]
    codec = codec_of("float")
    payloads = [struct.pack("<I", bits) for bits in (0x7FC00000, 0xFFC00001, 0x7F800000)]
    decoded = codec.decode(binary(*payloads))
    assert decoded.inexact.tolist() == [False, True, False]
    assert codec.encode(decoded.columns).to_pylist() == [payloads[0], payloads[0], payloads[2]]


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (MILLIS, "feffffffffffffffff01"),
        (MILLIS, "ffffffffffffffffff01"),
        (MILLIS, written("long", 2**63 // 1000 + 1).hex()),
        (money(4, 2), "042710"),  # 10000
        (money(4, 2), "04d8f0"),  # -10000
        (money(38, 0), "204b3b4ca85a86c47a098a224000000000"),  # 10^38
        (money(38, 0), "2080000000000000000000000000000000"),
        (money(38, 0), "2200ffffffffffffffffffffffffffffffff"),
        (money(38, 0), "2201" + "00" * 16),
    ],
)
def test_what_a_column_cannot_hold(schema: Any, payload: str) -> None:
    codec = codec_of(record_of(x=schema, y=["null", schema], z="int"))
    data = bytes.fromhex(payload)
    decoded = codec.decode(binary(data + b"\x02" + data + b"\x0e"))
    decoded.columns.validate(full=True)
    assert decoded.columns.to_pylist() == [{"x": None, "y": None, "z": 7}]
    assert decoded.inexact.tolist() == [True]
    assert decoded.faults.tolist() == [0]
    assert codec.encode(decoded.columns).to_pylist() == [None]


@pytest.mark.parametrize("micros", ["feffffffffffffffff01", "ffffffffffffffffff01"])
def test_microseconds_of_any_size(micros: str) -> None:
    codec = codec_of({"type": "long", "logicalType": "timestamp-micros"})
    data = bytes.fromhex(micros)
    assert codec.encode(codec.decode(binary(data)).columns).to_pylist() == [data]


def test_the_last_millisecond_that_fits() -> None:
    codec = codec_of(MILLIS)
    payloads = [written("long", 2**63 // 1000), written("long", -(2**63 // 1000))]
    decoded = codec.decode(binary(*payloads))
    assert decoded.columns.field(0).cast(pa.int64()).to_pylist() == [
        (2**63 // 1000) * 1000,
        -(2**63 // 1000) * 1000,
    ]
    assert codec.encode(decoded.columns).to_pylist() == payloads


def test_rows_that_the_schema_has_no_bytes_for() -> None:
    entry = {"type": "record", "name": "E", "fields": [{"name": "k", "type": "string"}]}
    schema = record_of(
        kind={"type": "enum", "name": "K", "symbols": ["A", "B"]},
        maybe=["null", {"type": "enum", "name": "M", "symbols": ["A"]}],
        at=MILLIS,
        entries={"type": "array", "items": entry},
        either=["int", "string"],
    )
    codec = codec_of(schema)
    good = {
        "kind": "B",
        "maybe": None,
        "at": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        "entries": [{"k": "x"}],
        "either": {"tag": 1, "field0": None, "field1": "s"},
    }
    changes: list[dict[str, Any]] = [
        {},
        {"kind": "C"},
        {"kind": None},
        {"maybe": "B"},
        {"at": datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=datetime.UTC)},
        {"entries": [{"k": "x"}, {"k": None}]},
        {"entries": [None]},
        {"entries": None},
        {"either": None},
        {"either": {"tag": 2, "field0": None, "field1": "s"}},
        {"either": {"tag": -1, "field0": None, "field1": "s"}},
        {"either": {"tag": None, "field0": None, "field1": "s"}},
        {"either": {"tag": 0, "field0": None, "field1": "s"}},
        {"maybe": "A"},
    ]
    rows = [good | change for change in changes]
    encoded = codec.encode(pa.array([*rows, None], codec.arrow)).to_pylist()
    start, end = b"\x02", b"\x00\x02\x02x\x00\x02\x02s"
    expected = [None] * (len(rows) + 1)
    expected[0], expected[-2] = start + b"\x00" + end, start + b"\x02\x00" + end
    assert encoded == expected


def test_columns_of_other_arrow_types_that_hold_the_same() -> None:
    fixed = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    codec = codec_of(
        record_of(s="string", u=fixed, e={"type": "enum", "name": "E", "symbols": ["A"]})
    )
    uuids = pa.array([bytes(range(16))], pa.binary(16))
    arrays = [
        pa.array(["foo"], pa.large_string()),
        pa.ExtensionArray.from_storage(pa.uuid(), uuids),
        pa.array(["A"]).dictionary_encode(),
    ]
    columns = pa.StructArray.from_arrays(arrays, ["s", "u", "e"])
    assert codec.encode(columns).to_pylist() == [b"\x06foo" + bytes(range(16)) + b"\x00"]
    with pytest.raises(TypeError):
        codec.encode(pa.StructArray.from_arrays(arrays[:2], ["s", "u"]))
    with pytest.raises(TypeError):
        codec.decode(pa.array(["foo"]))


def test_a_uuid_that_is_no_text_has_the_fault_of_a_string() -> None:
    decoded = codec_of(UUID_TEXT).decode(binary(b"\x02\xff", b"\x02a"))
    assert decoded.faults.tolist() == [Fault.BAD_TEXT, Fault.NONE]
    assert decoded.columns.to_pylist() == [None, {"value": "a"}]


def test_no_rows() -> None:
    codec = codec_of(record_of(a=LONGS, b=["null", FOO], c="string", d="boolean"))
    for empty in (binary(), binary(b"x").slice(1), pa.array([], pa.binary())):
        decoded = codec.decode(empty)
        decoded.columns.validate(full=True)
        assert len(decoded.columns) == len(decoded.faults) == len(decoded.inexact) == 0
        assert len(codec.encode(decoded.columns)) == 0


def test_records_and_unions_without_anything_in_them() -> None:
    nothing = {"type": "record", "name": "N", "fields": []}
    codec = codec_of(record_of(n=nothing, o="null", u=["null", "N"]))
    decoded = codec.decode(binary(b"\x00", b"\x02", b"", b"\x04"))
    assert decoded.columns.to_pylist() == [{"u": None}, {"u": {"tag": 0}}, None, None]
    assert codec.encode(decoded.columns).to_pylist() == [b"\x00", b"\x02", None, None]
    for schema, payload in ((nothing, b""), ("null", b""), (["null"], b"\x00")):
        codec = codec_of(schema)
        decoded = codec.decode(binary(payload, b"\x02\x02"))
        assert decoded.columns.to_pylist() == [{}, None]
        assert codec.encode(decoded.columns).to_pylist() == [payload, None]


def test_a_row_with_a_fault_is_not_inexact() -> None:
    codec = codec_of(record_of(x="double", y="string"))
    odd_nan = struct.pack("<Q", 0x7FF0000000000001)
    decoded = codec.decode(binary(odd_nan + b"\x02", odd_nan + b"\x02a"))
    assert decoded.faults.tolist() == [Fault.TRUNCATED, Fault.NONE]
    assert decoded.inexact.tolist() == [False, True]
