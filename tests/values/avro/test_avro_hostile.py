"""Payloads that nobody should write: cut, changed, with absurd counts. Neither crashes nor reads
past an end, and the rows beside them are whole."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from avro_cases import alike, expected, read, written
from hostile_payloads import SCHEMA, WITHOUT_NAMES, damaged, whole_payloads

from tiering.values.avro import AvroCodec
from tiering.values.codec import Fault

LONGS = {"type": "array", "items": "long"}
MANY = b"\xfe\xff\xff\xff\x0f"  # 2^31 - 1
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2^63 - 1
LEAST = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # -2^63


def binary(payloads: list[bytes]) -> Any:
    return pa.array(payloads, pa.binary())


@pytest.fixture(scope="module")
def everything() -> AvroCodec:
    return AvroCodec(json.dumps(SCHEMA))


def run_guarded(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("guarded_avro.py")
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_nothing_outside_its_memory_is_touched() -> None:
    result = run_guarded()
    assert (result.returncode, result.stdout) == (0, "ok"), result.stderr


def test_the_guard_works() -> None:
    assert run_guarded("--overrun").returncode < 0


def test_every_truncation_is_a_fault(everything: AvroCodec) -> None:
    for payload in whole_payloads(random.Random(1), 12):
        cuts = [payload[:length] for length in range(len(payload) + 1)]
        decoded = everything.decode(binary(cuts))
        decoded.columns.validate(full=True)
        assert all(decoded.faults[:-1])
        assert decoded.faults[-1] == Fault.NONE
        assert decoded.columns.null_count == len(payload)
        assert alike(decoded.columns[-1].as_py()) == _row(payload)


def test_damaged_rows_leave_their_neighbours_whole(everything: AvroCodec) -> None:
    rng = random.Random(2)
    whole = whole_payloads(rng, 30)
    rows = [_row(payload) for payload in whole]
    for _ in range(40):
        mixed = [payload for good in whole for payload in (good, damaged(rng, good))]
        decoded = everything.decode(binary(mixed))
        decoded.columns.validate(full=True)
        assert alike(decoded.columns.to_pylist()[::2]) == rows
        assert not decoded.faults[::2].any()
        assert not decoded.inexact[::2].any()
        valid = decoded.columns.is_valid().to_pylist()
        assert valid == (decoded.faults == Fault.NONE).tolist()
        back = everything.encode(decoded.columns)
        assert back.to_pylist()[::2] == whole
        children = [decoded.columns.field(i) for i in range(decoded.columns.type.num_fields)]
        for i in decoded.faults.nonzero()[0].tolist():
            assert all(child[i].as_py() is None for child in children)


def test_what_decodes_decodes_to_what_fastavro_reads(everything: AvroCodec) -> None:
    rng = random.Random(3)
    payloads = [damaged(rng, payload) for payload in whole_payloads(rng, 400)]
    decoded = everything.decode(binary(payloads))
    back = everything.encode(decoded.columns).to_pylist()
    same = [i for i, payload in enumerate(payloads) if back[i] == payload]
    assert len(same) > 100
    assert len(same) < 400
    rows = decoded.columns.to_pylist()
    for i in same:
        assert not decoded.faults[i]
        assert repr(alike(rows[i])) == repr(_row(payloads[i]))


@pytest.mark.parametrize(
    ("schema", "payload", "fault"),
    [
        ("long", b"", Fault.TRUNCATED),
        ("long", b"\x80" * 9, Fault.TRUNCATED),
        ("long", b"\x80" * 10 + b"\x01", Fault.BAD_LENGTH),
        ("long", b"\x80" * 400, Fault.BAD_LENGTH),
        ("int", b"\x80\x80\x80\x80\x10", Fault.BAD_LENGTH),  # 2^31
        ("int", b"\x02\x02", Fault.TRAILING_BYTES),
        ("null", b"\x00", Fault.TRAILING_BYTES),
        ("boolean", b"\x02", Fault.BAD_LENGTH),
        ("float", b"\x00" * 3, Fault.TRUNCATED),
        ("double", b"\x00" * 7, Fault.TRUNCATED),
        ("bytes", b"\x01", Fault.BAD_LENGTH),  # -1
        ("bytes", b"\x04x", Fault.TRUNCATED),
        ("bytes", MANY, Fault.TRUNCATED),
        ("bytes", HUGE, Fault.BAD_LENGTH),
        ("bytes", LEAST, Fault.BAD_LENGTH),
        ("string", b"\x02\xff", Fault.BAD_TEXT),
        ("string", b"\x06\xed\xa0\x80", Fault.BAD_TEXT),  # a surrogate
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", Fault.BAD_INDEX),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", Fault.BAD_INDEX),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", Fault.TRUNCATED),
        (["null", "int"], b"\x04", Fault.BAD_INDEX),
        (["null", "int"], b"\x01", Fault.BAD_INDEX),
        (["null", "int", "string"], b"\x06", Fault.BAD_INDEX),
        (["null", "int", "string"], LEAST, Fault.BAD_INDEX),
        (["int"], b"\x02\x02", Fault.BAD_INDEX),
        (LONGS, b"\x04\x02\x02", Fault.TRUNCATED),
        (LONGS, MANY, Fault.TRUNCATED),
        (LONGS, HUGE, Fault.BAD_LENGTH),
        (LONGS, LEAST + b"\x00", Fault.BAD_LENGTH),
        (LONGS, b"\x03\x01\x02\x04\x00", Fault.BAD_LENGTH),  # a block of -1 bytes
        ({"type": "map", "values": "null"}, None, None),
        ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\x00", Fault.BAD_TEXT),
    ],
)
def test_the_fault_says_why(schema: Any, payload: bytes | None, fault: Fault | None) -> None:
    if payload is None or fault is None:
        with pytest.raises(ValueError, match="hold nothing"):
            AvroCodec(json.dumps(schema))
        return
    decoded = AvroCodec(json.dumps(schema)).decode(binary([payload, payload]))
    assert decoded.faults.tolist() == [fault, fault]
    assert decoded.columns.to_pylist() == [None, None]


def test_counts_take_no_memory_for_what_is_not_there() -> None:
    codec = AvroCodec(json.dumps({"type": "array", "items": {"type": "map", "values": "string"}}))
    counts = [MANY, b"\xd0\x0f", b"\xa0\x06"]  # 2^31 - 1, 1000, 400
    payloads = binary([count + b"\x00" * 500 for count in counts] * 2000)
    tracemalloc.start()
    decoded = codec.decode(payloads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert decoded.faults.all()
    assert peak < 3 * payloads.nbytes


def test_a_few_bytes_do_not_become_gigabytes() -> None:
    wide = {
        "type": "record",
        "name": "Wide",
        "fields": [{"name": f"f{i}", "type": ["null", "long"]} for i in range(500)],
    }
    codec = AvroCodec(json.dumps({"type": "array", "items": ["null", wide]}))
    small, large = written(LONGS, [0] * 1000), written(LONGS, [0] * 4_000_000)
    decoded = codec.decode(binary([small, large, small]))
    assert decoded.faults.tolist() == [0, Fault.BAD_LENGTH, 0]
    assert codec.encode(decoded.columns).to_pylist() == [small, None, small]
    codec = AvroCodec(json.dumps({"type": "array", "items": _kinds("K" * 50_000)}))
    decoded = codec.decode(binary([small, large, small]))
    assert decoded.faults.tolist() == [0, Fault.BAD_LENGTH, 0]
    assert codec.encode(decoded.columns).to_pylist() == [small, None, small]


def test_a_bad_string_is_found_wherever_it_is() -> None:
    schema = {"type": "array", "items": ["null", "string"]}
    codec = AvroCodec(json.dumps(schema))
    good = [written(schema, ["ä" * 50, None, "z"]) for _ in range(50)]
    bad = [payload.replace(b"z", b"\xc3") for payload in good]  # would go on in the next string
    decoded = codec.decode(binary([p for pair in zip(good, bad, strict=True) for p in pair]))
    assert decoded.faults.tolist() == [Fault.NONE, Fault.BAD_TEXT] * 50
    decoded.columns.validate(full=True)
    assert codec.encode(decoded.columns).to_pylist()[::2] == good


def test_columns_grow_while_rows_are_read() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "rest", "type": "bytes"},
            {"name": "kinds", "type": {"type": "array", "items": _kinds("K" * 200)}},
            {"name": "lists", "type": {"type": "array", "items": LONGS}},
        ],
    }
    rows = [
        {
            "rest": b"r" * (5000 if n % 3 == 0 else 0),
            "kinds": ["K" * 200] * (n % 500),
            "lists": [list(range(n * 5))] * (3 if n == 200 else 1),
        }
        for n in range(300)
    ]
    codec, payloads = AvroCodec(json.dumps(schema)), [written(schema, row) for row in rows]
    decoded = codec.decode(binary(payloads))
    decoded.columns.validate(full=True)
    assert decoded.columns.to_pylist() == rows
    assert codec.encode(decoded.columns).to_pylist() == payloads


def test_one_list_of_a_million() -> None:
    codec = AvroCodec(json.dumps(LONGS))
    payload = written(LONGS, list(range(1_000_000)))
    decoded = codec.decode(binary([b"\x00", payload, b"\x01", payload[:-1], b"\x00"]))
    assert decoded.faults.tolist() == [0, 0, Fault.TRUNCATED, Fault.TRUNCATED, 0]
    assert codec.encode(decoded.columns).to_pylist() == [b"\x00", payload, None, None, b"\x00"]


def _kinds(symbol: str) -> Any:
    return {"type": "enum", "name": "Kind", "symbols": [symbol]}


def _row(payload: bytes) -> Any:
    return expected(WITHOUT_NAMES, read(SCHEMA, payload))
