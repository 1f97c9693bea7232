"""What travels between the driver and a conversion worker: plain values, no credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from tiering.values.stored_schema import Part

__all__ = [
    "OFFSET_MAX",
    "ConversionFailure",
    "ConversionResult",
    "ConversionTask",
    "Converter",
    "DataFileEntry",
    "Layout",
    "OnError",
    "PartMode",
    "PartPlan",
    "ProofFailure",
    "ProofResult",
    "ProofTask",
    "RescueResult",
    "RescueTask",
    "TableTarget",
    "TypedValues",
]

OFFSET_MAX: Final = 2**63 - 1

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
        schemas: the table's properties that hold writers' schemas.
    """

    identifier: tuple[str, ...]
    location: str
    schema_json: str
    spec_json: str
    sort_order_id: int | None = None
    io_properties: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)


PartMode = Literal["raw", "schema_id_prefix", "schema_latest", "json"]
"""How a topic's values (or keys) are written: without a schema, behind the id of one, with one that
is the same for all, or as JSON text."""

OnError = Literal["dlq", "suspend", "raw"]
"""What becomes of records whose value (or key) can't be read by its schema: they go to the table of
dead letters, stop the topic, or are kept as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """What is to be made of a topic's values (or keys); `schema_id` is the one of all of
    them, where their mode says that there is one."""

    mode: PartMode = "raw"
    schema_id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedValues:
    """What a worker must know of a topic whose values or keys become columns.

    Attributes:
        unknown: (part, schema id) that the registry doesn't know: such records are bad.
        dead_letters: the table for bad records; None while the topic has none.
        dead_letters_from: bad records of offsets below are in that table already.
    """

    value: PartPlan = field(default_factory=PartPlan)
    key: PartPlan = field(default_factory=PartPlan)
    on_error: OnError = "dlq"
    unknown: tuple[tuple[Part, int], ...] = ()
    dead_letters: TableTarget | None = None
    dead_letters_from: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionTask:
    """One range of one segment to turn into Parquet: rows of offsets [from_offset, to_offset).

    Beside the rows it may write the side file of *all* batches whose base offsets lie in
    [batches_from, batches_to), which may be more than there are rows to write.

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
        side_prefix: what the side file's key begins with; None for a segment that isn't ours to
            retire (a foreign tier's): no side file then.
        typed: how values and keys become columns; None where they are kept as they are.
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
    batches_from: int = 0
    batches_to: int = OFFSET_MAX
    side_prefix: str | None = None
    typed: TypedValues | None = None


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
    "missing": the native object is gone (look at the ledger again); "transient": try again;
    "schema": values were written with `schemas` that the table doesn't know yet; "dead_letters":
    there are bad records, and no table for them yet; "suspended": there is a bad record, and the
    topic is to stop there.
    """

    kind: Literal["corrupt", "missing", "transient", "schema", "dead_letters", "suspended"]
    reason: str
    position: int = 0
    schemas: tuple[tuple[Part, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionResult:
    """What a task did. `converted_to` (exclusive) is below `to_offset` only where a foreign
    tier's segment holds a transaction whose verdict is not known yet.

    `side_key` is the side file written (None without `side_prefix`), `side_bytes` its size, and
    `kept_bytes` how many of a batch's bytes it keeps because the table doesn't hold them.

    Of rows with typed columns, `typed_rows` counts all and `raw_rows` those whose bytes are kept
    beside, because they don't come back from the columns. `dead_letters` are the data files of
    the bad records, `bad_records` counts these by cause."""

    task_id: int
    entries: tuple[DataFileEntry, ...] = ()
    rows: int = 0
    aborted_rows: int = 0
    control_batches: int = 0
    batches: int = 0
    native_bytes: int = 0
    converted_to: int = 0
    side_key: str | None = None
    side_bytes: int = 0
    kept_bytes: int = 0
    typed_rows: int = 0
    raw_rows: int = 0
    dead_letters: tuple[DataFileEntry, ...] = ()
    bad_records: Mapping[str, int] = field(default_factory=dict)
    failure: ConversionFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTask:
    """One side file part of a converted segment to prove: table and side file against the log.

    Attributes:
        task_id: unique within the cycle; results are matched by it.
        store_url: of the native objects and side files.
        segment_path: SegmentId.path.
        topic, topic_id, partition, segment_start_offset, segment_end_offset, leader_epochs: as
            in ConversionTask.
        side_keys: all parts of the segment's side file; `part` is the index of the one to prove.
        metadata_location: the table's metadata file, whose current snapshot is read.
        table: identifier, for messages.
        io_properties: FileIO properties without secrets, as in TableTarget.
        rows_may_miss: somebody has deleted or rewritten rows through SQL since they were
            committed: a missing row is then a deletion, not a fault.
        accepted: offset ranges (first, after the last) of the partition whose changed rows an
            operator has accepted: they needn't be the log's.
        dead_letters_location: the metadata file of the table of bad records: a record has its row
            in one of the two. Empty where there is none.
    """

    task_id: int
    store_url: str
    segment_path: str
    topic: str
    topic_id: str
    partition: int
    segment_start_offset: int
    segment_end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    side_keys: tuple[str, ...]
    part: int
    metadata_location: str
    table: tuple[str, ...]
    io_properties: Mapping[str, str] = field(default_factory=dict)
    rows_may_miss: bool = False
    accepted: tuple[tuple[int, int], ...] = ()
    dead_letters_location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFailure:
    """Why a proof doesn't hold.

    kind "mismatch": table or side file don't give the native log's records (withdraw, convert
    again); "corrupt": the native log itself is wrong (quarantine); "missing": a native or side
    object is gone; "transient": try again. `offset` is the base offset of the first batch at
    fault, -1 where there is none.
    """

    kind: Literal["mismatch", "corrupt", "missing", "transient"]
    reason: str
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResult:
    """What a proof task found: `failure` is None when every record of every batch came back.

    `coverage` is the digest of the files that rows of the *whole segment's* range came from
    (`tiering.coverage`), `deleted_rows` how many rows of this part SQL had deleted.
    """

    task_id: int
    batches: int = 0
    native_bytes: int = 0
    coverage: str = ""
    deleted_rows: int = 0
    failure: ProofFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueTask:
    """A converted segment of a table that has lost one of Kafka's columns: batches that can't be
    had from the columns left are to be kept whole in a new side file.

    Attributes:
        task_id: unique within the cycle; results are matched by it.
        store_url: of the side files.
        segment_path: SegmentId.path.
        partition: of the topic.
        side_keys: all parts of the segment's present side file.
        retired: whether the native log is gone, so that the side file may leave out records that
            SQL has deleted; before that such batches stay as they are.
        metadata_location, table, io_properties, accepted: as in ProofTask.
    """

    task_id: int
    store_url: str
    segment_path: str
    partition: int
    side_keys: tuple[str, ...]
    retired: bool
    metadata_location: str
    table: tuple[str, ...]
    io_properties: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueResult:
    """What a rescue task did.

    `side_key` is the new side file, of the whole segment: None where there was nothing to save.
    `saved` and `lost` count batches; `lost_offset` is the first lost one's base offset, -1 without
    any. `failure` ("transient": try again) is None where the segment was looked through.
    """

    task_id: int
    side_key: str | None = None
    side_bytes: int = 0
    saved: int = 0
    lost: int = 0
    lost_offset: int = -1
    failure: ProofFailure | None = None


class Converter(Protocol):
    """Runs tasks, wherever: on Spark in production, in this process in simulations."""

    def convert(self, tasks: Sequence[ConversionTask]) -> Sequence[ConversionResult]:
        """One result per task, in any order. Raises TransientError when the whole run failed."""

    def prove(self, tasks: Sequence[ProofTask]) -> Sequence[ProofResult]:
        """One result per task, in any order. Raises TransientError when the whole run failed."""

    def rescue(self, tasks: Sequence[RescueTask]) -> Sequence[RescueResult]:
        """One result per task, in any order. Raises TransientError when the whole run failed."""

    def close(self) -> None:
        """Give back what it holds (the Spark session)."""
