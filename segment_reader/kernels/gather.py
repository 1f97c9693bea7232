"""Copies the fields that the parser has found into Arrow's buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from segment_reader.kernels.compiler import (
    BYTES,
    INT32_MATRIX,
    INT32S,
    INT64,
    INT64S,
    UINT8S,
    VOID,
    compiled,
)
from segment_reader.kernels.memory import address_of, copy_bytes
from segment_reader.kernels.varints import varint

__all__ = ["gather_records"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int32s = np.ndarray[Any, np.dtype[np.int32]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]


@compiled(
    VOID(
        *(BYTES, INT32_MATRIX, INT64),
        *(INT32S, UINT8S, UINT8S, INT32S, UINT8S, UINT8S),
        *(INT32S, INT32S, UINT8S, INT32S, UINT8S, UINT8S, INT64S),
    )
)
def gather_records(
    buffer: _Bytes,
    spans: _Int32s,
    rows: int,
    key_offsets: _Int32s,
    key_valid: _Bytes,
    keys: _Bytes,
    value_offsets: _Int32s,
    value_valid: _Bytes,
    values: _Bytes,
    list_offsets: _Int32s,
    header_key_offsets: _Int32s,
    header_keys: _Bytes,
    header_value_offsets: _Int32s,
    header_value_valid: _Bytes,
    header_values: _Bytes,
    nulls: _Int64s,
) -> None:
    """Copy the fields that `parse_records` found into Arrow's buffers.

    The offset arrays have one element more than rows (or headers); the validity bitmaps come in
    with all bits set; `nulls` becomes the number of null keys, values and header values.
    """
    key_end, value_end = np.int64(0), np.int64(0)
    header, header_key_end, header_value_end = np.int64(0), np.int64(0), np.int64(0)
    origin = address_of(buffer)
    key_offsets[0], value_offsets[0], list_offsets[0] = 0, 0, 0
    header_key_offsets[0], header_value_offsets[0] = 0, 0
    for row in range(rows):
        length = np.int64(spans[1, row])
        if length > 0:
            copy_bytes(keys, key_end, buffer, np.int64(spans[0, row]), length)
            key_end += length
        elif length < 0:
            key_valid[row >> 3] &= np.uint8(~(1 << (row & 7)) & 0xFF)
            nulls[0] += 1
        key_offsets[row + 1] = key_end
        length = np.int64(spans[3, row])
        if length > 0:
            copy_bytes(values, value_end, buffer, np.int64(spans[2, row]), length)
            value_end += length
        elif length < 0:
            value_valid[row >> 3] &= np.uint8(~(1 << (row & 7)) & 0xFF)
            nulls[1] += 1
        value_offsets[row + 1] = value_end
        at = np.int64(spans[4, row])
        for _ in range(spans[5, row]):
            length, at = varint(origin, at, len(buffer))
            copy_bytes(header_keys, header_key_end, buffer, at, length)
            header_key_end += length
            header_key_offsets[header + 1] = header_key_end
            length, at = varint(origin, at + length, len(buffer))
            if length > 0:
                copy_bytes(header_values, header_value_end, buffer, at, length)
                header_value_end += length
                at += length
            elif length < 0:
                header_value_valid[header >> 3] &= np.uint8(~(1 << (header & 7)) & 0xFF)
                nulls[2] += 1
            header_value_offsets[header + 1] = header_value_end
            header += 1
        list_offsets[row + 1] = header
