"""Payloads of a schema with every instruction in it, whole and damaged."""

from __future__ import annotations

import random
from typing import Any

from avro_cases import written

_ENTRY = {
    "type": "record",
    "name": "Entry",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "deep", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
    ],
}


def _schema(entry: Any) -> Any:
    """The schema; `entry` where the record Entry is used again."""
    types: dict[str, Any] = {
        "int": "int",
        "long": ["null", "long"],
        "single": ["long"],
        "float": "float",
        "double": "double",
        "text": "string",
        "bytes": ["bytes", "null"],
        "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "LONGER", "C" * 40]},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "hash": {"type": "fixed", "name": "Hash", "size": 5},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
        "cents": {
            "type": "fixed",
            "name": "Cents",
            "size": 9,
            "logicalType": "decimal",
            "precision": 18,
            "scale": 2,
        },
        "entries": {"type": "array", "items": ["null", _ENTRY]},
        "either": ["null", "long", "string", entry, {"type": "array", "items": "double"}],
        "maybe": ["null", entry],
    }
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "Everything", "fields": fields}


SCHEMA = _schema("Entry")

WITHOUT_NAMES = _schema(_ENTRY)
"""The same where types aren't used by their names, which no parser takes but is easy to follow."""


def whole_payloads(rng: random.Random, count: int) -> list[bytes]:
    """Payloads as fastavro writes them."""
    return [written(SCHEMA, _datum(rng)) for _ in range(count)]


def damaged(rng: random.Random, payload: bytes) -> bytes:
    """A payload with some bytes changed, cut out or put in."""
    changed = bytearray(payload)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(changed) + 1)
        drawn = rng.choice([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)])
        match rng.randrange(4):
            case 0:
                changed[at:] = b""
            case 1:
                changed[at:at] = bytes([drawn]) * rng.randrange(1, 12)
            case _:
                changed[at : at + 1] = bytes([drawn])
    return bytes(changed)


def _datum(rng: random.Random) -> dict[str, Any]:
    return {
        "int": rng.randrange(-(2**31), 2**31),
        "long": rng.choice([None, rng.randrange(-(2**63), 2**63)]),
        "single": rng.randrange(300),
        "float": 1.5,
        "double": rng.random(),
        "text": "tëxt" * rng.randrange(20),
        "bytes": rng.choice([None, rng.randbytes(rng.randrange(50))]),
        "kind": rng.choice(["A", "LONGER", "C" * 40]),
        "at": rng.randrange(2**40),
        "hash": rng.randbytes(5),
        "price": rng.randrange(2**60).to_bytes(8, "big", signed=True),
        "cents": rng.randrange(2**50).to_bytes(9, "big", signed=True),
        "entries": [rng.choice([None, _entry(rng)]) for _ in range(rng.randrange(4))],
        "either": rng.choice([None, 5, "x" * rng.randrange(40), _entry(rng), [0.5, 1.5]]),
        "maybe": rng.choice([None, _entry(rng)]),
    }


def _entry(rng: random.Random) -> dict[str, Any]:
    return {
        "flag": rng.random() < 0.5,
        "note": rng.choice([None, "n" * rng.randrange(40)]),
        "deep": [{"k" * n: n for n in range(rng.randrange(3))} for _ in range(rng.randrange(3))],
    }
