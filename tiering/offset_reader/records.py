"""Records as a person or a small program wants them: one object each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType

from tiering.errors import BadInput
from tiering.offset_reader.topic_columns import TopicColumns

__all__ = ["Record", "RecordColumns"]

NO_TIMESTAMP_MS = -1


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
    """The columns that a record is made of, in a table's current names."""

    def __init__(self, schema: Schema, columns: TopicColumns, *, topic: str) -> None:
        """Raises BadInput when the table holds no raw value (a typed table, or column dropped)."""
        value = None if columns.value is None else schema.find_field(columns.value)
        if value is None or not isinstance(value.field_type, BinaryType):
            raise BadInput(
                f"table of topic {topic} has no binary column for the record's value: its values "
                "are typed columns; read Arrow batches instead of records"
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

    @property
    def names(self) -> tuple[str, ...]:
        """The table's columns to read."""
        return tuple(self._names.values())

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
            column("key", None),
            column("value", None),
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

    def _headers(
        self, headers: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[str, bytes | None], ...]:
        key, value = self._header_names
        return tuple((header.get(key, ""), header.get(value)) for header in headers)

    def _timestamps(self, batch: pa.RecordBatch) -> list[int]:
        # As integers: Python's own datetime ends with the year 9999, Kafka's does not.
        column = batch.column(self._names["timestamp"]).cast(pa.int64())
        return [NO_TIMESTAMP_MS if us is None else us // 1000 for us in column.to_pylist()]
