"""JSON without a schema, against Python's json: what it takes is kept, byte for byte."""

from __future__ import annotations

import json
import random

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.values.codec import Fault
from tiering.values.codecs import codec_for
from tiering.values.json_text import JsonText
from tiering.values.stored_schema import Framing, SchemaFormat, StoredSchema

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def no_constant(name: str) -> float:
    raise ValueError(name)


def expected(payload: bytes) -> Fault:
    """As Python's parser sees it; it is stricter than its default about NaN and Infinity."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return Fault.BAD_TEXT
    try:
        json.loads(text, parse_constant=no_constant)
    except ValueError:
        return Fault.BAD_DOCUMENT
    return Fault.NONE


def check(payloads: list[bytes]) -> list[Fault]:
    array = pa.array([b"in front", *payloads], pa.binary())[1:]
    decoded = JsonText().decode(array)
    decoded.columns.validate(full=True)
    faults = [Fault(each) for each in decoded.faults]
    assert faults == [expected(each) for each in payloads]
    kept = [None if fault else each for each, fault in zip(payloads, faults, strict=True)]
    assert JsonText().encode(decoded.columns).to_pylist() == kept
    assert [each and each["value"] for each in decoded.columns.to_pylist()] == [
        None if each is None else each.decode() for each in kept
    ]
    assert not decoded.inexact.any()
    return faults


@given(st.lists(DOCUMENTS), st.sampled_from([None, 2]), st.booleans())
def test_every_document_is_kept(documents: list[object], indent: int | None, ascii: bool) -> None:
    texts = [json.dumps(each, indent=indent, ensure_ascii=ascii).encode() for each in documents]
    assert set(check(texts)) <= {Fault.NONE}


@settings(max_examples=300)
@given(DOCUMENTS, st.randoms(use_true_random=False))
def test_damaged_documents_are_judged_as_by_python(document: object, chance: random.Random) -> None:
    text = bytearray(json.dumps(document, ensure_ascii=False).encode())
    damaged = []
    for _ in range(40):
        changed = bytearray(text)
        at = chance.randrange(len(changed))
        changed[at] = chance.choice(b'{}[]",:\\0-.eEtfn/\x00\x80\xc3\xff 1u')
        damaged += [bytes(changed), bytes(text[:at])]
    check(damaged)


def test_what_json_has_none_of() -> None:
    bad = [
        b"",
        b" ",
        b"nul",
        b"nulll",
        b"NaN",
        b"Infinity",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"-",
        b"1e",
    ]
    bad += [b"[1,]", b'{"a":1,}', b"{a:1}", b"'a'", b'"\\x"', b'"\\u12g4"', b'"\n"', b"1 2", b"]"]
    bad += [b"\xef\xbb\xbf1", b'{"a" 1}', b'{"a":}', b"[1 2]", b"[1}", b'{"a":1]', b"tru", b"1e"]
    assert set(check(bad)) == {Fault.BAD_DOCUMENT}
    assert set(check([b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf5\x80\x80\x80"'])) == {
        Fault.BAD_TEXT
    }
    assert set(check([b'"\\ud800"', b" [1 ,\t2 ]\r\n", b"-0", b"1E+400", b'{"a":1,"a":2}'])) == {
        Fault.NONE
    }


def test_nesting_is_bounded_only_by_the_size() -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    decoded = JsonText().decode(pa.array([deep, deep + b"]", deep[1:]], pa.binary()))
    assert list(decoded.faults) == [Fault.NONE, Fault.BAD_DOCUMENT, Fault.BAD_DOCUMENT]


def test_json_without_a_definition_is_text() -> None:
    stored = StoredSchema(
        part="value", schema_id=1, format=SchemaFormat.JSON, framing=Framing.NONE, definition=""
    )
    assert isinstance(codec_for(stored), JsonText)
    assert codec_for(stored) is codec_for(stored)


def test_a_null_element_has_no_payload() -> None:
    columns = pa.array([{"value": "1"}, None, {"value": None}], JsonText().arrow)
    assert JsonText().encode(columns).to_pylist() == [b"1", None, None]
