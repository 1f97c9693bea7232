"""JSON events as services log them, and values that nothing can compress.

No two values are equal. Of an event's 512 bytes about 60 are random (identifiers, amounts), the
rest is names, words and what else repeats, so that zstd makes it about a fifth as large.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

__all__ = ["JSON_EVENTS", "RANDOM_VALUES", "JsonEvents", "RandomValues"]

_POOL: Final = 8192
_SEED: Final = 20_260_202
_FIRST_MS: Final = 1_750_000_000_000
_FIRST_NUMBER: Final = 100_000_000  # so that all have as many digits
_HEAD: Final = '{"event_id":"%s","sequence":%d,"occurred_at":%d,'
_HEAD_BYTES: Final = len(_HEAD % ("0" * 32, _FIRST_NUMBER, _FIRST_MS))
_TYPES: Final = ("page_viewed", "cart_updated", "order_placed", "payment_failed", "search_done")
_COUNTRIES: Final = ("DE", "ES", "PT", "AT", "CZ", "PL", "IE", "GB", "NO", "FI", "GR", "IT")
_BROWSERS: Final = ("Firefox 128.0", "Chrome 126.0.6478", "Safari 17.5", "Edge 126.0.2592")
_SYSTEMS: Final = ("Windows 11", "macOS 14.5", "Android 14", "iOS 17.5.1", "Ubuntu 24.04")
_PAGES: Final = ("products", "search", "basket", "checkout", "account", "reviews", "returns")
_NOTE: Final = (
    "delivery before noon please leave with neighbour ring twice gift wrapped invoice to company "
    "second floor fragile handle with care express reduced price returning customer newsletter"
)
_WORDS: Final = tuple(_NOTE.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonEvents:
    """Events whose JSON text is `value_bytes` long."""

    name: str
    value_bytes: int

    def records(self, start: int, count: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of `count` records; the same ones for the same arguments."""
        chance = np.random.default_rng([_SEED, start])
        pool = _pool(self.value_bytes - _HEAD_BYTES)
        for first in range(start, start + count, _POOL):
            numbers = range(first, min(first + _POOL, start + count))
            ids = chance.bytes(16 * len(numbers)).hex()
            shift = first // _POOL * 7
            for i, number in enumerate(numbers):
                customer, tail = pool[(i + shift) % _POOL]
                event_id = ids[32 * i : 32 * i + 32]
                at_ms = _FIRST_MS + number * 3
                head = _HEAD % (event_id, _FIRST_NUMBER + number, at_ms)
                yield customer, head.encode() + tail


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomValues:
    """Random bytes."""

    name: str
    value_bytes: int

    def records(self, start: int, count: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of `count` records; the same ones for the same arguments."""
        chance = np.random.default_rng([_SEED, start])
        for first in range(start, start + count, _POOL):
            n = min(_POOL, start + count - first)
            data = chance.bytes(n * self.value_bytes)
            for i in range(n):
                at = i * self.value_bytes
                yield b"key-%09d" % (first + i), data[at : at + self.value_bytes]


@cache
def _pool(length: int) -> list[tuple[bytes, bytes]]:
    chance = np.random.default_rng(_SEED)
    return [_tail(chance, length) for _ in range(_POOL)]


def _tail(chance: np.random.Generator, length: int) -> tuple[bytes, bytes]:
    """A customer, and the rest of an event's text behind its opening fields."""
    customer = int(chance.integers(0, 200_000))
    page = _one(chance, _PAGES)
    event: dict[str, Any] = {
        "type": _one(chance, _TYPES),
        "customer": {"id": customer, "country": _one(chance, _COUNTRIES)},
        "session": chance.bytes(8).hex(),
        "page": f"https://shop.example/{page}/{int(chance.integers(0, 30_000))}",
        "device": {"os": _one(chance, _SYSTEMS), "browser": _one(chance, _BROWSERS)},
        "items": [
            {
                "sku": f"sku-{int(chance.integers(0, 9_000)):05d}",
                "quantity": int(chance.integers(1, 5)),
                "price": round(float(chance.random()) * 200, 2),
            }
            for _ in range(2)
        ],
        "note": "",
    }
    room = length - (len(_text(event)) - 1)
    assert room >= 0, room
    words = " ".join(_one(chance, _WORDS) for _ in range(room // 3 + 1))
    event["note"] = words[:room]
    return b"customer-%06d" % customer, _text(event)[1:].encode()


def _text(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))


def _one(chance: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(chance.integers(0, len(choices)))]


JSON_EVENTS: Final = JsonEvents(name="JSON events of 512 bytes", value_bytes=512)
RANDOM_VALUES: Final = RandomValues(name="512 random bytes", value_bytes=512)
