"""Orders as Avro: 16 fields, about 512 bytes."""

from __future__ import annotations

import io
import random
import string
from typing import Any, Final

import fastavro

__all__ = ["ORDER_SCHEMA", "avro_orders", "orders"]

_STATES: Final = ["NEW", "PAID", "PACKED", "SHIPPED", "RETURNED"]
_STATE: Final = {"type": "enum", "name": "State", "symbols": _STATES}
_TYPES: Final[dict[str, Any]] = {
    "id": "long",
    "account": "long",
    "quantity": "int",
    "line": "int",
    "price": "double",
    "discount": "double",
    "paid": "boolean",
    "gift": "boolean",
    "state": _STATE,
    "created": {"type": "long", "logicalType": "timestamp-millis"},
    "customer": "string",
    "street": "string",
    "comment": "string",
    "referrer": ["null", "string"],
    "coupon": ["null", "string"],
    "agent": ["null", "string"],
}

ORDER_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": kind} for name, kind in _TYPES.items()],
}


def orders(count: int) -> list[dict[str, Any]]:
    """Orders as Python values, `created` as milliseconds."""
    rng = random.Random(7)
    return [_order(rng, number) for number in range(count)]


def avro_orders(rows: list[dict[str, Any]]) -> list[bytes]:
    """Their payloads, written by fastavro."""
    schema, target = fastavro.parse_schema(ORDER_SCHEMA), io.BytesIO()
    payloads = []
    for row in rows:
        target.seek(0)
        target.truncate()
        fastavro.schemaless_writer(target, schema, row)
        payloads.append(target.getvalue())
    return payloads


def _order(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": 10**12 + number,
        "account": rng.randrange(2**40),
        "quantity": rng.randrange(1, 9),
        "line": rng.randrange(2**20),
        "price": rng.random() * 100,
        "discount": rng.random(),
        "paid": rng.random() < 0.5,
        "gift": rng.random() < 0.1,
        "state": rng.choice(_STATES),
        "created": 1_700_000_000_000 + number * 37,
        "customer": _text(rng, 24),
        "street": _text(rng, 40),
        "comment": _text(rng, rng.randrange(170, 230)),
        "referrer": _text(rng, 120) if rng.random() < 0.7 else None,
        "coupon": _text(rng, 10) if rng.random() < 0.2 else None,
        "agent": _text(rng, 110),
    }


def _text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(string.ascii_letters, k=length))
