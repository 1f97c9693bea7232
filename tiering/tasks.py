"""What travels between the driver and a conversion worker: plain values, no credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

__all__ = [
    "ConversionFailure",
    "ConversionResult",
    "ConversionTask",
    "Converter",
    "DataFileEntry",
    "Layout",
    "TableTarget",
]

Layout = Literal["onecopy", "local_tiered_storage"]
"""How native segments lie in a store (segment_reader.layouts)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """Where a task's rows go: what a worker must know of the table to write files for it.

    Attributes:
        identifier: (namespace..., table name).
        location: the table's location, a URL or path; data files go below `<location>/data/`.
        schema_json: the Iceberg schema (JSON of the spec, Appendix C), which holds the field ids.
        spec_json: the partition spec, JSON; rows are split by it.
        sort_order_id: id of the sort order that the files are written in, or None.
        io_properties: FileIO properties without secrets; a worker adds credentials from its
            own environment.
    """

    identifier: tuple[str, ...]
    location: str
    schema_json: str
    spec_json: str
    sort_order_id: int | None = None
    io_properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionTask:
    """One range of one segment to turn into Parquet: rows of offsets [from_offset, to_offset).

    Attributes:
        task_id: unique within the cycle; results are matched by it.
        layout: which native layout `store_url` holds ("onecopy" or "local_tiered_storage").
        store_url: the store that the native objects are read from.
        segment_path: the segment's path in that layout (SegmentId.path for "onecopy").
        topic, topic_id, partition: whose segment it is, checked against the bytes.
        segment_start_offset, segment_end_offset: bounds (inclusive) that every batch must keep.
        leader_epochs: (epoch, start offset) ascending: every batch's epoch must agree.
        index_parts: (part name, size) of the indexes object ("onecopy" layout).
        start_position, end_position: byte range of the log to read, on batch borders; None
            as end means the log's end.
    """

    task_id: int
    layout: Layout
    store_url: str
    segment_path: str
    topic: str
    topic_id: str
    partition: int
    segment_start_offset: int
    segment_end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    index_parts: tuple[tuple[str, int], ...]
    from_offset: int
    to_offset: int
    start_position: int
    end_position: int | None
    target: TableTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileEntry:
    """A complete Iceberg data_file entry (spec: Manifests), as plain values.

    Bounds are in Iceberg's single-value serialization (Appendix D); `partition` holds the
    partition tuple in the spec's field order; `first_offset`/`last_offset` are the kafka
    offsets of its first and last row.
    """

    path: str
    size_bytes: int
    record_count: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]
    spec_id: int
    partition: tuple[object, ...]
    sort_order_id: int | None
    kafka_partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionFailure:
    """Why a task gave no files.

    kind "corrupt": the native bytes are wrong or of a format not read (quarantine the segment);
    "missing": the native object is gone (look at the ledger again); "transient": try again.
    """

    kind: Literal["corrupt", "missing", "transient"]
    reason: str
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionResult:
    """What a task did. `converted_to` (exclusive) is below `to_offset` only where a foreign
    tier's segment holds a transaction whose verdict is not known yet."""

    task_id: int
    entries: tuple[DataFileEntry, ...] = ()
    rows: int = 0
    aborted_rows: int = 0
    control_batches: int = 0
    batches: int = 0
    native_bytes: int = 0
    converted_to: int = 0
    failure: ConversionFailure | None = None


class Converter(Protocol):
    """Runs tasks, wherever: on Spark in production, in this process in simulations."""

    def convert(self, tasks: Sequence[ConversionTask]) -> Sequence[ConversionResult]:
        """One result per task, in any order. Raises TransientError when the whole run failed."""

    def close(self) -> None:
        """Give back what it holds (the Spark session)."""
