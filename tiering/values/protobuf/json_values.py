"""google.protobuf.Struct, Value and ListValue, which hold themselves: as JSON text.

Their columns are strings with JSON, properties in the order of the bytes. They are rare, and read
one by one.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["json_payload", "json_texts"]

_DEPTH_MAX: Final = 100
_Int64s = npt.NDArray[np.int64]


class _NotJson(ValueError):
    """Bytes that aren't the wire format, or a value that JSON has none of."""


def json_texts(
    name: str, data: npt.NDArray[np.uint8], starts: _Int64s, ends: _Int64s
) -> tuple[pa.Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Strings, and the places of those that aren't messages, and of those that aren't exact."""
    texts: list[str | None] = []
    bad, inexact = [], []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        payload = data[start:end].tobytes()
        try:
            text = json.dumps(
                _read(name, payload, _DEPTH_MAX), ensure_ascii=False, separators=(",", ":")
            )
            texts.append(text)
            if json_payload(name, text) != payload:
                inexact.append(i)
        except _NotJson:
            texts.append(None)
            inexact.append(i)
        except (IndexError, struct.error, UnicodeDecodeError):
            texts.append(None)
            bad.append(i)
    return (
        pa.array(texts, pa.string()),
        np.array(bad, dtype=np.int64),
        np.array(inexact, dtype=np.int64),
    )


def json_payload(name: str, text: str) -> bytes | None:
    """The message of a JSON text; None where it has none."""
    try:
        found = json.loads(text)
        if name.endswith(".Struct"):
            return _put_struct(found) if isinstance(found, dict) else None
        if name.endswith(".ListValue"):
            return _put_list(found) if isinstance(found, list) else None
        return _put_value(found)
    except (ValueError, RecursionError, OverflowError):
        return None


def _read(name: str, data: bytes, depth: int) -> object:
    if name.endswith(".Struct"):
        return _struct(data, depth)
    if name.endswith(".ListValue"):
        return _list(data, depth)
    return _value(data, depth)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = 0
    for i in range(10):
        byte = data[at + i]
        result |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return result, at + i + 1
    raise IndexError


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """(tag, varint or bytes) of all fields."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            number, at = _varint(data, at)
            found.append((tag, number))
            continue
        if tag & 7 == 2:
            length, at = _varint(data, at)
        elif tag & 7 in (1, 5):
            length = 8 if tag & 7 == 1 else 4
        else:
            raise _NotJson("a group")
        if length > len(data) - at:
            raise IndexError
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _struct(data: bytes, depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for tag, entry in _fields(data):
        if tag != 0x0A or not isinstance(entry, bytes):
            raise _NotJson("an unknown field")
        parts = dict(_fields(entry))
        key, value = parts.pop(0x0A, b""), parts.pop(0x12, b"")
        if parts or not isinstance(key, bytes) or not isinstance(value, bytes):
            raise _NotJson("an unknown field")
        found[key.decode()] = _value(value, depth - 1)
    return found


def _list(data: bytes, depth: int) -> list[object]:
    found = []
    for tag, item in _fields(data):
        if tag != 0x0A or not isinstance(item, bytes):
            raise _NotJson("an unknown field")
        found.append(_value(item, depth - 1))
    return found


def _value(data: bytes, depth: int) -> object:
    fields = _fields(data)
    if depth <= 0 or len(fields) != 1:
        raise _NotJson("a value of no kind, or nested too deeply")
    tag, found = fields[0]
    if isinstance(found, int):
        if tag == 0x08 and found == 0:
            return None
        if tag == 0x20:
            return found != 0
    elif tag == 0x11:
        number = float(struct.unpack("<d", found)[0])
        if not math.isfinite(number):
            raise _NotJson("no JSON number")
        whole = number.is_integer() and abs(number) < 2**53 and not _is_negative_zero(number)
        return int(number) if whole else number
    elif tag == 0x1A:
        return found.decode()
    elif tag == 0x2A:
        return _struct(found, depth)
    elif tag == 0x32:
        return _list(found, depth)
    raise _NotJson("an unknown field")


def _is_negative_zero(number: float) -> bool:
    return number == 0 and math.copysign(1, number) < 0


def _sized(tag: int, data: bytes) -> bytes:
    length, rest = b"", len(data)
    while rest >= 0x80:
        length += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return bytes([tag]) + length + bytes([rest]) + data


def _put_struct(found: dict[str, object]) -> bytes:
    entries = (
        _sized(0x0A, key.encode()) + _sized(0x12, _put_value(value)) for key, value in found.items()
    )
    return b"".join(_sized(0x0A, each) for each in entries)


def _put_list(found: list[object]) -> bytes:
    return b"".join(_sized(0x0A, _put_value(each)) for each in found)


def _put_value(found: object) -> bytes:
    if found is None:
        return b"\x08\x00"
    if isinstance(found, bool):
        return b"\x20\x01" if found else b"\x20\x00"
    if isinstance(found, (int, float)):
        return b"\x11" + struct.pack("<d", float(found))
    if isinstance(found, str):
        return _sized(0x1A, found.encode())
    if isinstance(found, dict):
        return _sized(0x2A, _put_struct(found))
    return _sized(0x32, _put_list(found if isinstance(found, list) else []))
