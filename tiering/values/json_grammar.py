"""Whether bytes are a JSON document, and where its parts end (RFC 8259). UTF-8 is not looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from segment_reader.kernels.compiler import (
    BYTES,
    READ_INT64S,
    UINT8S,
    VOID,
    Int,
    compiled,
    inlined,
)
from segment_reader.kernels.memory import address_of, byte_at

__all__ = ["behind_space", "behind_string", "documents_valid"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]

_OBJECT, _ARRAY = np.uint8(1), np.uint8(2)


@inlined
def behind_space(origin: Int, at: Int, end: Int) -> Int:
    """The first place from `at` on that is no white space."""
    while at < end:
        byte = byte_at(origin, at)
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        at += np.int64(1)
    return at


@inlined
def _is_hex(byte: Int) -> bool:
    return bool((0x30 <= byte <= 0x39) or (0x41 <= byte <= 0x46) or (0x61 <= byte <= 0x66))


@inlined
def behind_string(origin: Int, at: Int, end: Int) -> Int:
    """Behind the closing quote of the string whose opening quote is at `at`; -1 if it's none."""
    if at >= end or byte_at(origin, at) != 0x22:
        return np.int64(-1)
    at += np.int64(1)
    while at < end:
        byte = byte_at(origin, at)
        if byte == 0x22:
            return at + np.int64(1)
        if byte < 0x20:
            return np.int64(-1)
        if byte == 0x5C:
            at += np.int64(1)
            if at >= end:
                return np.int64(-1)
            byte = byte_at(origin, at)
            if byte == 0x75:
                if at + 5 > end:
                    return np.int64(-1)
                for i in range(1, 5):
                    if not _is_hex(byte_at(origin, at + i)):
                        return np.int64(-1)
                at += np.int64(4)
            elif not (
                (byte == 0x22 or byte == 0x5C or byte == 0x2F or byte == 0x62)
                or (byte == 0x66 or byte == 0x6E or byte == 0x72 or byte == 0x74)
            ):
                return np.int64(-1)
        at += np.int64(1)
    return np.int64(-1)


@inlined
def _behind_digits(origin: Int, at: Int, end: Int) -> Int:
    start = at
    while at < end and 0x30 <= byte_at(origin, at) <= 0x39:
        at += np.int64(1)
    return at if at > start else np.int64(-1)


@inlined
def _behind_number(origin: Int, at: Int, end: Int) -> Int:
    if byte_at(origin, at) == 0x2D:
        at += np.int64(1)
    start = at
    at = _behind_digits(origin, at, end)
    if at < 0 or (at - start > 1 and byte_at(origin, start) == 0x30):
        return np.int64(-1)
    if at < end and byte_at(origin, at) == 0x2E:
        at = _behind_digits(origin, at + np.int64(1), end)
        if at < 0:
            return at
    if at < end and (byte_at(origin, at) | np.uint64(0x20)) == 0x65:
        at += np.int64(1)
        if at < end and (byte_at(origin, at) == 0x2B or byte_at(origin, at) == 0x2D):
            at += np.int64(1)
        at = _behind_digits(origin, at, end)
    return at


@inlined
def _behind_word(origin: Int, at: Int, end: Int) -> Int:
    """Behind `true`, `false` or `null`."""
    size = np.int64(4)
    word = np.uint64(0)
    first = byte_at(origin, at)
    if first == 0x66:
        at += np.int64(1)  # the rest is `alse`
    if at + size > end:
        return np.int64(-1)
    for i in range(4):
        word = (word << np.uint64(8)) | byte_at(origin, at + i)
    wanted = np.uint64(0x74727565)
    if first == 0x66:
        wanted = np.uint64(0x616C7365)
    elif first == 0x6E:
        wanted = np.uint64(0x6E756C6C)
    return at + size if word == wanted else np.int64(-1)


@inlined
def _behind_scalar(origin: Int, at: Int, end: Int) -> Int:
    byte = byte_at(origin, at)
    if byte == 0x22:
        return behind_string(origin, at, end)
    if byte == 0x2D or 0x30 <= byte <= 0x39:
        return _behind_number(origin, at, end)
    return _behind_word(origin, at, end)


@inlined
def _behind_name(origin: Int, at: Int, end: Int) -> Int:
    """Behind the colon of a property's name."""
    at = behind_string(origin, behind_space(origin, at, end), end)
    if at < 0:
        return at
    at = behind_space(origin, at, end)
    if at >= end or byte_at(origin, at) != 0x3A:
        return np.int64(-1)
    return at + np.int64(1)


@inlined
def _is_document(origin: Int, at: Int, end: Int, stack: _Bytes) -> bool:
    depth = np.int64(0)
    while True:
        at = behind_space(origin, at, end)
        if at >= end:
            return False
        byte = byte_at(origin, at)
        if byte == 0x7B or byte == 0x5B:
            inside = behind_space(origin, at + np.int64(1), end)
            if inside >= end:
                return False
            if byte_at(origin, inside) == byte + np.uint64(2):  # `{}` and `[]`
                at = inside + np.int64(1)
            else:
                stack[depth] = _OBJECT if byte == 0x7B else _ARRAY
                depth += np.int64(1)
                at = _behind_name(origin, inside, end) if byte == 0x7B else inside
                if at < 0:
                    return False
                continue
        else:
            at = _behind_scalar(origin, at, end)
            if at < 0:
                return False
        while True:
            at = behind_space(origin, at, end)
            if depth == 0:
                return bool(at == end)
            if at >= end:
                return False
            byte = byte_at(origin, at)
            at += np.int64(1)
            of_object = stack[depth - 1] == _OBJECT
            if byte == 0x2C:
                if of_object:
                    at = _behind_name(origin, at, end)
                    if at < 0:
                        return False
                break
            if byte != (np.uint64(0x7D) if of_object else np.uint64(0x5D)):
                return False
            depth -= np.int64(1)


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, UINT8S, UINT8S))
def documents_valid(
    data: _Bytes, starts: _Int64s, ends: _Int64s, stack: _Bytes, valid: _Bytes
) -> None:
    """Set `valid` to 1 where a span is one JSON document, else to 0.

    `stack` is room for the nesting: as many bytes as the longest span has.
    """
    origin = address_of(data)
    for i in range(len(starts)):
        found = _is_document(origin, starts[i], ends[i], stack)
        valid[i] = np.uint8(1) if found else np.uint8(0)
