"""One row per batch of a segment: what its rows in a table don't say, as Arrow and as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batches import BatchHeaders
from segment_reader.kernels import batch_scan

__all__ = ["BATCH_SCHEMA", "KEPT_COLUMN", "BatchTable", "Kept"]

KEPT_COLUMN: Final = "kept_bytes"


class Kept(IntEnum):
    """What is kept of a batch's records beside the table's rows.

    ROWS: nothing, rows and header give the record bytes. RAW: the record bytes, decompressed and
    whole; no row is needed. DELTAS: the records' timestamp deltas as varlongs back to back
    (log-append time: the rows have the append time, the records what the producer wrote).
    """

    ROWS = 0
    RAW = 1
    DELTAS = 2


BATCH_SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int32(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("attributes", pa.int16(), nullable=False),
        pa.field("last_offset_delta", pa.int32(), nullable=False),
        pa.field("base_timestamp", pa.int64(), nullable=False),
        pa.field("max_timestamp", pa.int64(), nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int16(), nullable=False),
        pa.field("base_sequence", pa.int32(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("records_size", pa.int64(), nullable=False),
        pa.field("records_crc", pa.uint32(), nullable=False),
        pa.field("kept", pa.int8(), nullable=False),
        pa.field(KEPT_COLUMN, pa.binary()),
    ]
)
"""The first twelve: the batch's header as in the log, but for its CRC and length. `position` and
`size`: where the original lay, bytes. `records_size` and `records_crc`: bytes and CRC-32C of the
decompressed records. `kept`: a `Kept`; `kept_bytes`: what is kept, null for ROWS."""

_Int64s = npt.NDArray[np.int64]
_OWN: Final = ("records_size", "records_crc", "kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTable:
    """Consecutive batches of one segment: headers and digests as int64 arrays, one per batch.

    `headers.crc` is 0 where it was read back: it is not kept, for it covers compressed bytes.
    """

    headers: BatchHeaders
    records_size: _Int64s
    records_crc: _Int64s
    kept: _Int64s

    def __len__(self) -> int:
        return len(self.headers)

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays take."""
        return (len(batch_scan.FIELDS) + len(_OWN)) * 8 * len(self)

    def slice(self, chosen: slice) -> BatchTable:
        """The batches of an index range, without copying."""
        return BatchTable(
            headers=self.headers.slice(chosen),
            **{name: getattr(self, name)[chosen] for name in _OWN},
        )

    def to_arrow(self, kept_bytes: Sequence[bytes | None]) -> pa.RecordBatch:
        """As BATCH_SCHEMA; `kept_bytes` has one element per batch."""
        columns: list[Any] = []
        for field in BATCH_SCHEMA:
            if field.name == KEPT_COLUMN:
                columns.append(pa.array(kept_bytes, pa.binary()))
            else:
                source = self if field.name in _OWN else self.headers
                columns.append(pa.array(getattr(source, field.name)).cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table) -> BatchTable:
        """From BATCH_SCHEMA, with or without `kept_bytes`."""

        def values(name: str) -> _Int64s:
            column = table.column(name).to_numpy()
            return np.ascontiguousarray(column, dtype=np.int64)

        headers = {
            name: np.zeros(table.num_rows, np.int64) if name == "crc" else values(name)
            for name in batch_scan.FIELDS
        }
        return cls(headers=BatchHeaders(**headers), **{name: values(name) for name in _OWN})

    @classmethod
    def concat(cls, parts: Sequence[BatchTable]) -> BatchTable:
        """The batches of `parts` one after the other; at least one part."""
        headers = {
            name: np.concatenate([getattr(part.headers, name) for part in parts])
            for name in batch_scan.FIELDS
        }
        own = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _OWN}
        return cls(headers=BatchHeaders(**headers), **own)
