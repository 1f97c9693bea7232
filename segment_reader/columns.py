"""The Arrow schema of decoded records, and the buffers it is filled from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.kernels.gather import gather_records

__all__ = ["RECORD_SCHEMA", "ParsedRecords"]

_HEADER: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
)

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("header", _HEADER, nullable=False)), nullable=False),
    ]
)
"""`timestamp_ms` is -1 where Kafka has none; `timestamp_type` 0 is create time, 1 append time."""

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRecords:
    """What one call of the parse kernel found: columns that are ready, and where the others lie.

    `timestamp_deltas` are as in the records, which for log-append time `timestamps` are not.
    """

    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    timestamp_deltas: npt.NDArray[np.int64]
    timestamp_types: npt.NDArray[np.int8]
    epochs: npt.NDArray[np.int32]
    spans: npt.NDArray[np.int32]
    totals: list[int]
    """Rows, key bytes, value bytes, headers, bytes of header keys, bytes of header values."""

    def gather(self, buffer: _Bytes) -> pa.RecordBatch:
        """Copy keys, values and headers out of `buffer` (which may be used again afterwards)."""
        rows, key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes = self.totals
        keys, values = _Binary(rows, key_bytes), _Binary(rows, value_bytes)
        header_keys = _Binary(headers, header_key_bytes)
        header_values = _Binary(headers, header_value_bytes)
        list_offsets, nulls = np.empty(rows + 1, np.int32), np.zeros(3, np.int64)
        gather_records(
            buffer,
            self.spans,
            rows,
            keys.offsets,
            keys.valid,
            keys.data,
            values.offsets,
            values.valid,
            values.data,
            list_offsets,
            header_keys.offsets,
            header_keys.data,
            header_values.offsets,
            header_values.valid,
            header_values.data,
            nulls,
        )
        key_nulls, value_nulls, header_nulls = nulls.tolist()
        headers_array = _lists(list_offsets, _text(header_keys), header_values.array(header_nulls))
        return pa.RecordBatch.from_arrays(
            [
                _fixed(self.offsets, pa.int64()),
                _fixed(self.timestamps, pa.int64()),
                _fixed(self.timestamp_types, pa.int8()),
                _fixed(self.epochs, pa.int32()),
                keys.array(key_nulls),
                values.array(value_nulls),
                headers_array,
            ],
            schema=RECORD_SCHEMA,
        )


def _lists(offsets: npt.NDArray[np.int32], keys: Any, values: Any) -> Any:
    headers = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    kind, buffers = RECORD_SCHEMA.field("headers").type, [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, 0, children=[headers])


class _Binary:
    """The buffers of a variable-length column of known size."""

    def __init__(self, rows: int, data_bytes: int) -> None:
        self.rows = rows
        self.offsets = np.empty(rows + 1, np.int32)
        self.valid = np.full((rows + 7) // 8, 0xFF, np.uint8)
        self.data = np.empty(data_bytes, np.uint8)

    def array(self, nulls: int) -> Any:
        valid = pa.py_buffer(self.valid) if nulls else None
        buffers = [valid, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), self.rows, buffers, nulls)


def _fixed(values: npt.NDArray[Any], kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def _text(column: _Binary) -> Any:
    """Header keys as strings. What is not UTF-8 is replaced by U+FFFD, as Kafka's clients do."""
    array = column.array(0)
    if not len(column.data) or column.data.max() < 0x80:
        return array.view(pa.string())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        coded = array.dictionary_encode()
        texts = [key.decode("utf-8", "replace") for key in coded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(coded.indices)
