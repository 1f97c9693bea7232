"""Data files: from a Parquet footer to an entry, from an entry to Iceberg's manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.truncate import (
    truncate_upper_bound_binary_string,
    truncate_upper_bound_text_string,
)

from tiering.errors import CommitConflict, FatalError
from tiering.table.schema import raw_schema
from tiering.tasks import DataFileEntry, TableTarget

__all__ = ["OFFSET_COLUMN", "PARTITION_COLUMN", "data_files", "entry_from_parquet"]

PARTITION_COLUMN: Final = "kafka_partition"
OFFSET_COLUMN: Final = "kafka_offset"

_WITH_RAW_LIMITS: Final = (DateType, TimeType, TimestampType, TimestamptzType)
_BOUND_LENGTH: Final = 16
"""Characters or bytes of a bound that are kept: Iceberg's default `truncate(16)`."""


def entry_from_parquet(
    metadata: pq.FileMetaData,
    *,
    path: str,
    size_bytes: int,
    target: TableTarget,
    spec_id: int = 0,
    partition: tuple[object, ...] = (),
) -> DataFileEntry:
    """Describe a written file by its own footer, so that nothing is said that isn't in it.

    Sizes and counts are per field id; bounds are kept for top-level columns whose chunks all
    have statistics (as PyIceberg and Spark do: none inside lists and structs). The file must
    hold rows of one Kafka partition only.

    Raises:
        FatalError: no rows, several Kafka partitions, or no statistics for partition and offset.
    """
    columns = _columns(target.schema_json)
    sizes: dict[int, int] = {}
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    ranges: dict[int, tuple[Any, Any] | None] = {}
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        for column in (group.column(i) for i in range(group.num_columns)):
            field_id, field = columns[column.path_in_schema]
            sizes[field_id] = sizes.get(field_id, 0) + column.total_compressed_size
            counts[field_id] = counts.get(field_id, 0) + column.num_values
            statistics = column.statistics if column.is_stats_set else None
            if statistics is not None and statistics.has_null_count:
                nulls[field_id] = nulls.get(field_id, 0) + statistics.null_count
            if field is not None:
                known = ranges.get(field_id, ())
                ranges[field_id] = _widened(known, statistics, column.num_values, field.field_type)
    lower, upper = _bounds(columns.values(), ranges)
    return DataFileEntry(
        path=path,
        size_bytes=size_bytes,
        record_count=metadata.num_rows,
        column_sizes=sizes,
        value_counts=counts,
        null_value_counts=nulls,
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=_split_offsets(metadata),
        spec_id=spec_id,
        partition=partition,
        sort_order_id=target.sort_order_id,
        **_kafka_range(path, target.schema_json, lower, upper),
    )


def data_files(entries: Iterable[DataFileEntry], metadata: TableMetadata) -> list[DataFile]:
    """Turn entries into PyIceberg's manifest records for the table as it is now.

    Raises:
        CommitConflict: the table's partition spec is another than the files were written for.
        FatalError: a file lies outside the table's location.
    """
    below = metadata.location.rstrip("/") + "/"
    spec = metadata.spec()
    files = []
    for entry in entries:
        if not entry.path.startswith(below):
            raise FatalError(f"data file {entry.path} does not lie below the table's {below}")
        if entry.spec_id != spec.spec_id or len(entry.partition) != len(spec.fields):
            raise CommitConflict(
                f"data file {entry.path} was written for partition spec {entry.spec_id}, the "
                f"table now has {spec.spec_id}"
            )
        files.append(_data_file(entry, metadata.format_version))
    return files


def _data_file(entry: DataFileEntry, format_version: Any) -> DataFile:
    file = DataFile.from_args(
        _table_format_version=format_version,
        content=DataFileContent.DATA,
        file_path=entry.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*entry.partition),
        record_count=entry.record_count,
        file_size_in_bytes=entry.size_bytes,
        column_sizes=dict(entry.column_sizes),
        value_counts=dict(entry.value_counts),
        null_value_counts=dict(entry.null_value_counts),
        nan_value_counts=dict(entry.nan_value_counts),
        lower_bounds=dict(entry.lower_bounds),
        upper_bounds=dict(entry.upper_bounds),
        key_metadata=None,
        split_offsets=list(entry.split_offsets) or None,
        equality_ids=None,
        sort_order_id=entry.sort_order_id,
    )
    file.spec_id = entry.spec_id
    return file


@lru_cache(maxsize=256)
def _schema(schema_json: str) -> Schema:
    return Schema.model_validate_json(schema_json)


@lru_cache(maxsize=256)
def _columns(schema_json: str) -> Mapping[str, tuple[int, NestedField | None]]:
    """{Parquet path: (field id, the field if it is a primitive top-level one)}."""
    schema = _schema(schema_json)
    top = {f.field_id: f for f in schema.fields if isinstance(f.field_type, PrimitiveType)}
    return {p: (i, top.get(i)) for p, i in parquet_path_to_id_mapping(schema).items()}


@lru_cache(maxsize=1)
def _kafka_ids() -> tuple[int, int]:
    """Field ids as the table was made with them: users may rename the columns."""
    schema = raw_schema()
    return (
        schema.find_field(PARTITION_COLUMN).field_id,
        schema.find_field(OFFSET_COLUMN).field_id,
    )


def _widened(
    known: tuple[Any, ...] | None, statistics: Any, value_count: int, kind: IcebergType
) -> tuple[Any, ...] | None:
    """(min, max) including one more chunk; () while there were only nulls, None if unknown.

    Of numbers only: Parquet's writers leave NaN out, as bounds must (Iceberg spec, "Manifests"),
    and a chunk that has nothing else has no statistics.
    """
    if known is None or statistics is None or isinstance(kind, UUIDType):
        # Java's order of uuids isn't that of their bytes: engines would leave out rows.
        return None
    if not statistics.has_min_max:
        all_null = statistics.has_null_count and statistics.null_count == value_count
        return known if all_null else None
    low, high = _limits(statistics, kind)
    return (min(known[0], low), max(known[1], high)) if known else (low, high)


def _limits(statistics: Any, kind: IcebergType) -> tuple[Any, Any]:
    if isinstance(kind, _WITH_RAW_LIMITS):
        # As the numbers they are: Python's dates end with the year 9999, Kafka's don't.
        return statistics.min_raw, statistics.max_raw
    if isinstance(kind, DecimalType):
        return _unscaled(statistics.min_raw), _unscaled(statistics.max_raw)
    return statistics.min, statistics.max


def _unscaled(raw: bytes | int) -> int:
    return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)


def _bounds(
    columns: Iterable[tuple[int, NestedField | None]], ranges: Mapping[int, tuple[Any, ...] | None]
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field_id, field in columns:
        known = ranges.get(field_id)
        if field is None or not known:
            continue
        kind = field.field_type
        assert isinstance(kind, PrimitiveType)  # noqa: S101 - `_columns` keeps no other
        low, high = known
        if isinstance(kind, BinaryType | FixedType):
            low, high = low[:_BOUND_LENGTH], truncate_upper_bound_binary_string(high, _BOUND_LENGTH)
        elif isinstance(kind, StringType):
            low, high = low[:_BOUND_LENGTH], truncate_upper_bound_text_string(high, _BOUND_LENGTH)
        lower[field_id] = _bound(kind, low)
        if high is not None:
            upper[field_id] = _bound(kind, high)
    return lower, upper


def _bound(kind: PrimitiveType, value: Any) -> bytes:
    """A single value (Iceberg spec, appendix D)."""
    if isinstance(kind, DecimalType):
        # The shortest two's complement of the unscaled number, which is at hand.
        size = (value if value >= 0 else ~value).bit_length() // 8 + 1
        return int(value).to_bytes(size, "big", signed=True)
    return to_bytes(kind, value)


def _split_offsets(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """Where each row group starts: its first column's dictionary page, else its data page."""
    starts = []
    for i in range(metadata.num_row_groups):
        column = metadata.row_group(i).column(0)
        start = column.data_page_offset
        if column.has_dictionary_page:
            start = min(start, column.dictionary_page_offset)
        starts.append(start)
    return tuple(sorted(starts))


def _kafka_range(
    path: str, schema_json: str, lower: Mapping[int, bytes], upper: Mapping[int, bytes]
) -> dict[str, int]:
    partition_id, offset_id = _kafka_ids()
    if not {partition_id, offset_id} <= lower.keys() & upper.keys():
        raise FatalError(f"data file {path} has no rows, or no statistics of {OFFSET_COLUMN}")
    schema = _schema(schema_json)

    def value(bounds: Mapping[int, bytes], field_id: int) -> int:
        kind = schema.find_type(field_id)
        assert isinstance(kind, PrimitiveType)  # noqa: S101 - it has a bound
        return int(from_bytes(kind, bounds[field_id]))

    partition = value(lower, partition_id)
    if partition != value(upper, partition_id):
        raise FatalError(f"data file {path} holds rows of several Kafka partitions")
    return {
        "kafka_partition": partition,
        "first_offset": value(lower, offset_id),
        "last_offset": value(upper, offset_id),
    }
