"""The Confluent wire format: a zero byte and a schema's id (four bytes, big endian) before each
payload.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from segment_reader.kernels.compiler import BYTES, INT32S, INT64, UINT8S, VOID, compiled
from segment_reader.kernels.memory import copy_bytes

__all__ = ["NO_SCHEMA", "PREFIX_BYTES", "framed", "payloads_of", "schema_ids"]

PREFIX_BYTES: Final = 5
NO_SCHEMA: Final = -1
"""Where a value has no prefix, or is null."""

_READ_INT32S: Final = types.Array(types.int32, 1, "C", readonly=True)
_READ_INT64S: Final = types.Array(types.int64, 1, "C", readonly=True)
_OFFSET_MAX: Final = 2**31 - 1

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int32s = np.ndarray[Any, np.dtype[np.int32]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


def schema_ids(values: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """The schema id of each value.

    `NO_SCHEMA` where there is no prefix: a null, fewer than five bytes, another first byte than
    zero, or four bytes that are no id (registries count from 1, within 31 bits).
    """
    data, offsets = _buffers(values)
    ids = np.empty(len(values), np.int32)
    _read_ids(data, offsets, ids)
    if values.null_count:
        ids[_nulls(values)] = NO_SCHEMA
    return ids


def payloads_of(
    values: pa.BinaryArray, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]
) -> pa.BinaryArray:
    """What is behind the prefix in some rows, which all have one.

    Args:
        values: as `schema_ids` takes them.
        rows: a mask over all values, or row numbers in the order wanted.

    Raises ValueError for a row that is null or too short to have a prefix.
    """
    chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.ascontiguousarray(rows)
    data, offsets = _buffers(values)
    starts = offsets[chosen].astype(np.int64) + PREFIX_BYTES
    sizes = offsets[chosen + 1] - starts
    if len(chosen) and (sizes.min() < 0 or (values.null_count and _nulls(values)[chosen].any())):
        raise ValueError("a chosen row has no prefix")
    borders = _borders(sizes)
    payloads = np.empty(int(borders[-1]), np.uint8)
    _take(data, starts, borders, payloads)
    return _array(borders, payloads, None)


def framed(payloads: pa.BinaryArray, schema_id: int) -> pa.BinaryArray:
    """The inverse: each payload behind the prefix of one schema id. Null stays null.

    Raises ValueError for what is no schema id, OverflowError where the values take 2 GiB.
    """
    if not 0 < schema_id <= _OFFSET_MAX:
        raise ValueError(f"{schema_id} is no schema id")
    data, offsets = _buffers(payloads)
    nulls = _nulls(payloads) if payloads.null_count else None
    sizes = np.diff(offsets).astype(np.int64) + PREFIX_BYTES
    if nulls is not None:
        sizes[nulls] = 0
    borders = _borders(sizes)
    values = np.empty(int(borders[-1]), np.uint8)
    _put_behind_prefix(data, offsets, schema_id, borders, values)
    return _array(borders, values, nulls)


def _buffers(values: pa.BinaryArray) -> tuple[_Bytes, _Int32s]:
    """The bytes that an array and its slices share, and this one's borders in them."""
    if len(values) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int32)
    _, offsets, data = values.buffers()
    borders = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    shared = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return shared, borders


def _nulls(values: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _borders(sizes: npt.NDArray[np.int64]) -> _Int32s:
    ends = np.cumsum(sizes)
    if len(ends) and ends[-1] > _OFFSET_MAX:
        raise OverflowError(f"{ends[-1]} bytes are more than one array of values holds")
    borders = np.zeros(len(sizes) + 1, np.int32)
    borders[1:] = ends
    return borders


def _array(borders: _Int32s, data: _Bytes, nulls: npt.NDArray[np.bool_] | None) -> pa.BinaryArray:
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    buffers = [valid, pa.py_buffer(borders), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(borders) - 1, buffers)


@compiled(VOID(BYTES, _READ_INT32S, INT32S))
def _read_ids(data: _Bytes, offsets: _Int32s, ids: _Int32s) -> None:
    for row in range(len(ids)):
        at = np.int64(offsets[row])
        schema_id = np.int64(0)
        if offsets[row + 1] - at >= 5 and data[at] == 0:
            for i in range(1, 5):
                schema_id = (schema_id << 8) | np.int64(data[at + i])
        ids[row] = schema_id if 0 < schema_id <= 0x7FFFFFFF else -1


@compiled(VOID(BYTES, _READ_INT64S, _READ_INT32S, UINT8S))
def _take(data: _Bytes, starts: _Int64s, borders: _Int32s, payloads: _Bytes) -> None:
    """Payload i starts at starts[i] and goes to borders[i]."""
    for i in range(len(starts)):
        size = np.int64(borders[i + 1] - borders[i])
        copy_bytes(payloads, np.int64(borders[i]), data, starts[i], size)


@compiled(VOID(BYTES, _READ_INT32S, INT64, _READ_INT32S, UINT8S))
def _put_behind_prefix(
    data: _Bytes, offsets: _Int32s, schema_id: int, borders: _Int32s, values: _Bytes
) -> None:
    """Value i goes to borders[i]; one without any bytes is a null."""
    for i in range(len(borders) - 1):
        put = np.int64(borders[i])
        size = np.int64(borders[i + 1]) - put - 5
        if size >= 0:
            values[put] = 0
            for k in range(4):
                values[put + 1 + k] = np.uint8((schema_id >> (24 - 8 * k)) & 0xFF)
            copy_bytes(values, put + 5, data, np.int64(offsets[i]), size)
