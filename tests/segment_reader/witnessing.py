"""Runs a witness over a log and checks what must hold whatever the log is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
import pyarrow as pa
from plain_batches import PlainBatch, plain_batches

from segment_reader import (
    DEFAULT_LIMITS,
    NO_VERDICTS,
    RECORD_SCHEMA,
    BatchTable,
    BytesSource,
    Kept,
    Limits,
    RecordEncoder,
    SegmentBounds,
    SegmentReader,
    Verdicts,
    Witnessed,
)

ALL = 2**63 - 1
HEADER_FIELDS = (
    *("position", "size", "base_offset", "leader_epoch", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
)


@dataclass(frozen=True)
class Findings:
    """All that a witness gave, put together."""

    rows: pa.RecordBatch
    batches: BatchTable
    kept_bytes: tuple[bytes | None, ...]

    @property
    def kept(self) -> list[Kept]:
        return [Kept(kept) for kept in self.batches.kept.tolist()]


def together(steps: Sequence[Witnessed]) -> Findings:
    rows = [records for step in steps for records in step.records]
    for records in rows:
        records.validate(full=True)
    whole = pa.Table.from_batches(rows, RECORD_SCHEMA).combine_chunks().to_batches()
    empty = pa.RecordBatch.from_pylist([], RECORD_SCHEMA)
    return Findings(
        rows=whole[0] if whole else empty,
        batches=BatchTable.concat([step.batches for step in steps]),
        kept_bytes=tuple(kept for step in steps for kept in step.kept_bytes),
    )


def witnessed(
    log: bytes,
    bounds: SegmentBounds,
    *,
    verdicts: Verdicts = NO_VERDICTS,
    limits: Limits = DEFAULT_LIMITS,
    as_held: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda records: records,
) -> Findings:
    """The whole of `log`, witnessed; what it says is checked against the log."""
    reader = SegmentReader(BytesSource("witnessed", log), bounds, verdicts, limits)
    found = together(list(reader.witnessed(from_offset=0, to_offset=ALL, as_held=as_held)))
    check(found, plain_batches(log), as_held)
    plain = SegmentReader(BytesSource("plain", log), bounds, verdicts, limits)
    read = list(plain.record_batches())
    assert found.rows.to_pylist() == [row for batch in read for row in batch.to_pylist()]
    assert reader.stats == plain.stats
    return found


def check(
    found: Findings,
    batches: Sequence[PlainBatch],
    as_held: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda records: records,
) -> None:
    """Rows and what is kept give the records of each batch back, and headers and digests fit."""
    for field in HEADER_FIELDS:
        ours = getattr(found.batches.headers, field).tolist()
        assert ours == [getattr(batch, field) for batch in batches], field
    sizes, crcs = found.batches.records_size.tolist(), found.batches.records_crc.tolist()
    assert sizes == [len(batch.records) for batch in batches]
    assert crcs == [google_crc32c.value(batch.records) for batch in batches]
    assert [kept is None for kept in found.kept_bytes] == [k is Kept.ROWS for k in found.kept]
    assert regenerated(found, as_held) == [batch.records for batch in batches]


def regenerated(
    found: Findings, as_held: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> list[bytes]:
    """The records of each batch, from what a table and a side file have of them."""
    rows, headers, kept = as_held(found.rows), found.batches.headers, found.kept
    deltas = [b if k is Kept.DELTAS else None for b, k in zip(found.kept_bytes, kept, strict=True)]
    ends = np.append(headers.base_offset, headers.last_offset[-1:] + 1)
    borders = np.searchsorted(rows.column("offset").to_numpy(), ends)
    encoded = RecordEncoder().encode(headers, rows, borders, deltas)
    made = [
        encoded.buffer[start:end].tobytes()
        for start, end in zip(encoded.borders[:-1], encoded.borders[1:], strict=True)
    ]
    return [
        raw if is_kept is Kept.RAW and raw is not None else own
        for own, raw, is_kept in zip(made, found.kept_bytes, kept, strict=True)
    ]
