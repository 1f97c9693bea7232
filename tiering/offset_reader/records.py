"""Records as a person or a small program wants them: one object each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType

from tiering.errors import BadInput
from tiering.offset_reader.topic_columns import TopicColumns
from tiering.table.schema import KEY_SCHEMA_ID_FIELD, SCHEMA_ID_FIELD
from tiering.values.arrow_fields import arrow_field
from tiering.values.stored_schema import Part, stored_schemas
from tiering.values.written_values import written_values

__all__ = ["Record", "RecordColumns"]

NO_TIMESTAMP_MS = -1
_SCHEMA_IDS: Final = {"schema_id": SCHEMA_ID_FIELD, "key_schema_id": KEY_SCHEMA_ID_FIELD}
_ID_OF: Final[Mapping[Part, str]] = {"value": "schema_id", "key": "key_schema_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One committed record.

    Attributes:
        timestamp_ms: milliseconds since the epoch; -1 where Kafka has none (or none that the
            table's type can hold).
        timestamp_type: 0 create time, 1 log append time.
        leader_epoch: of the batch it came in; -1 if the table does not say.
        key, value: None is Kafka's null, which is not the empty byte string.
        headers: in order, with duplicates; a header's value may be None.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordColumns:
    """The columns that a record is made of, in a table's current names.

    Keys and values that were written with a schema are written again from their typed columns.
    """

    def __init__(
        self, schema: Schema, properties: Mapping[str, str], columns: TopicColumns, *, topic: str
    ) -> None:
        """`properties` are the table's. Raises BadInput when a column was dropped that records
        can't be made without."""
        value = None if columns.value is None else schema.find_field(columns.value)
        if value is None or not isinstance(value.field_type, BinaryType):
            raise BadInput(
                f"table of topic {topic} has no binary column for the record's value: it was "
                "dropped; read Arrow batches instead of records"
            )
        if columns.timestamp not in schema.field_ids:
            raise BadInput(
                f"table of topic {topic}: column kafka_timestamp was dropped; read Arrow batches "
                "instead of records"
            )
        self._topic = topic
        ids = {
            "timestamp": columns.timestamp,
            "timestamp_type": columns.timestamp_type,
            "leader_epoch": columns.leader_epoch,
            "key": columns.key,
            "headers": columns.headers,
            "value": columns.value,
            **{part: i for part, i in _SCHEMA_IDS.items() if i in schema.field_ids},
        }
        self._names = {
            part: schema.find_field(field_id).name
            for part, field_id in ids.items()
            if field_id is not None
        }

        # Renamed ones stay what they are; a dropped one finds nothing.
        self._header_names = tuple(
            "" if field_id is None else schema.find_field(field_id).name
            for field_id in (columns.header_key, columns.header_value)
        )

        self._schemas = stored_schemas(properties)
        bound = {i for stored in self._schemas.values() for i in stored.columns.values()}
        self._typed = [arrow_field(field) for field in schema.fields if field.field_id in bound]

    @property
    def names(self) -> tuple[str, ...]:
        """The table's columns to read."""
        return (*self._names.values(), *(field.name for field in self._typed))

    def records(
        self, partition: int, batch: pa.RecordBatch, offsets: np.ndarray[Any, np.dtype[np.int64]]
    ) -> Iterator[Record]:
        """The rows of `batch` (columns `names`) as records; `offsets` holds one for each."""
        count = batch.num_rows

        def column(part: str, default: object) -> list[Any]:
            name = self._names.get(part)
            return [default] * count if name is None else batch.column(name).to_pylist()

        rows = zip(
            offsets.tolist(),
            self._timestamps(batch),
            column("timestamp_type", 0),
            column("leader_epoch", -1),
            self._written("key", batch),
            self._written("value", batch),
            column("headers", None),
            strict=True,
        )
        for offset, timestamp_ms, timestamp_type, epoch, key, value, headers in rows:
            yield Record(
                topic=self._topic,
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                timestamp_type=0 if timestamp_type is None else timestamp_type,
                leader_epoch=-1 if epoch is None else epoch,
                key=key,
                value=value,
                headers=self._headers(headers or ()),
            )

    def _written(self, part: Part, batch: pa.RecordBatch) -> list[bytes | None]:
        """Keys or values: as they were kept, or from their typed columns."""
        name, ids = self._names.get(part), self._names.get(_ID_OF[part])
        raw = pa.nulls(batch.num_rows, pa.binary()) if name is None else batch.column(name)
        if ids is not None and self._typed:
            typed = [batch.column(field.name) for field in self._typed]
            schema_ids = batch.column(ids)
            raw = written_values(raw, schema_ids, typed, self._typed, self._schemas, part)
        values: list[bytes | None] = raw.to_pylist()
        return values

    def _headers(
        self, headers: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[str, bytes | None], ...]:
        key, value = self._header_names
        return tuple((header.get(key, ""), header.get(value)) for header in headers)

    def _timestamps(self, batch: pa.RecordBatch) -> list[int]:
        # As integers: Python's own datetime ends with the year 9999, Kafka's does not.
        column = batch.column(self._names["timestamp"]).cast(pa.int64())
        return [NO_TIMESTAMP_MS if us is None else us // 1000 for us in column.to_pylist()]
