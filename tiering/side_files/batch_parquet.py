"""Batch headers and kept bytes as Parquet, packed tightly. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from segment_reader.batch_table import BATCH_SCHEMA, KEPT_COLUMN, BatchTable

__all__ = [
    "HEADER_SCHEMA",
    "KEPT_SCHEMA",
    "decode_batches",
    "decode_kept",
    "encode_batches",
    "encode_kept",
    "no_batches",
]

HEADER_SCHEMA: Final = pa.schema([f for f in BATCH_SCHEMA if f.name != KEPT_COLUMN])
"""BATCH_SCHEMA without `kept_bytes`: small, and wanted whole whenever a segment is read."""

KEPT_SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int32(), nullable=False),
        pa.field(KEPT_COLUMN, pa.binary(), nullable=False),
    ]
)
"""What is kept of the batch at `position` of the log. In files of their own, for they may be
large and are wanted for single batches."""

_DELTA: Final = "DELTA_BINARY_PACKED"
_ENCODINGS: Final = {
    "position": _DELTA,
    "size": _DELTA,
    "base_offset": _DELTA,
    "leader_epoch": _DELTA,
    "last_offset_delta": _DELTA,
    "base_timestamp": _DELTA,
    "max_timestamp": _DELTA,
    "base_sequence": _DELTA,
    "count": _DELTA,
    "records_size": _DELTA,
    "records_crc": "PLAIN",
}
"""The others have few values: dictionaries. Byte stream split would make the sizes 1% of a file
smaller, but not every engine reads it for integers."""
_PAGE_BYTES: Final = 1024 * 1024


def encode_batches(batches: BatchTable) -> bytes:
    """A Parquet file of HEADER_SCHEMA, one row group."""
    columns = batches.to_arrow([None] * len(batches)).drop_columns([KEPT_COLUMN])
    return _encode(columns, _ENCODINGS, plain="records_crc")


def decode_batches(data: bytes | memoryview) -> BatchTable:
    """The inverse; raises ValueError or pa.ArrowException for another file."""
    return BatchTable.from_arrow(_decode(data, HEADER_SCHEMA))


def no_batches() -> BatchTable:
    """A table of no batches."""
    return BatchTable.from_arrow(HEADER_SCHEMA.empty_table())


def encode_kept(positions: Sequence[int], kept_bytes: Sequence[bytes]) -> bytes:
    """A Parquet file of KEPT_SCHEMA, one row group."""
    arrays = [pa.array(positions, pa.int32()), pa.array(kept_bytes, pa.binary())]
    columns = pa.RecordBatch.from_arrays(arrays, schema=KEPT_SCHEMA)
    return _encode(columns, {"position": _DELTA, KEPT_COLUMN: "DELTA_LENGTH_BYTE_ARRAY"})


def decode_kept(data: bytes | memoryview) -> pa.Table:
    """The inverse; raises ValueError or pa.ArrowException for another file."""
    return _decode(data, KEPT_SCHEMA)


def _encode(columns: Any, encodings: dict[str, str], plain: str = "") -> bytes:
    """`plain`: a column of noise, which compressing only makes slower."""
    sink = pa.BufferOutputStream()
    names = columns.schema.names
    pq.write_table(
        pa.Table.from_batches([columns]),
        sink,
        row_group_size=max(columns.num_rows, 1),
        compression={name: "NONE" if name == plain else "ZSTD" for name in names},
        use_dictionary=[name for name in names if name not in encodings],
        column_encoding=encodings,
        data_page_size=_PAGE_BYTES,
        write_statistics=False,
        store_schema=False,
    )
    return bytes(sink.getvalue())


def _decode(data: bytes | memoryview, schema: pa.Schema) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        if file.schema_arrow.names != schema.names:
            raise ValueError(f"columns are {file.schema_arrow.names}")
        return file.read(use_threads=False).cast(schema)
