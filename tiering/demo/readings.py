"""Three ways to read the same history: a stock consumer, the offset reader, SQL engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tiering.demo.digest import Headers, TopicDigest
from tiering.errors import TransientError
from tiering.offset_reader import OffsetReader

__all__ = [
    "duckdb_connection",
    "log_ends",
    "metadata_path",
    "read_by_offset",
    "read_by_sql",
    "read_with_consumer",
]

_QUIET_S: Final = 30.0
_LINGER_S: Final = 0.2  # consume() waits so long for a full list
_Row = tuple[int, int, bytes | None, bytes | None, Headers]


def read_with_consumer(
    bootstrap_servers: str,
    topic: str,
    ends: Mapping[int, int],
    *,
    advance: Callable[[int], None],
    settings: Mapping[str, Any] | None = None,
) -> TopicDigest:
    """Read each partition from its beginning to `ends` with librdkafka, read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "onecopy-demo",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 4 * 1024 * 1024,
            **(settings or {}),
        }
    )
    digest = TopicDigest()
    try:
        for partition, end in sorted(ends.items()):
            consumer.assign([TopicPartition(topic, partition, 0)])
            rows = _consumed(consumer, topic, partition, end, advance)
            digest.add_all(partition, rows)
    finally:
        consumer.close()
    return digest


def _consumed(
    consumer: Consumer, topic: str, partition: int, end: int, advance: Callable[[int], None]
) -> Iterator[_Row]:
    quiet_since = time.monotonic()
    while True:
        messages = consumer.consume(10_000, _LINGER_S)
        if messages:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > _QUIET_S:
            raise TransientError(f"{topic}-{partition}: the consumer got nothing for {_QUIET_S} s")
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            if error is not None or offset is None:
                raise KafkaException(error)
            if offset >= end:
                return
            headers = message.headers() or []
            pairs = list(headers.items()) if isinstance(headers, dict) else headers
            yield offset, message.timestamp()[1], message.key(), message.value(), pairs
        advance(len(messages))


def read_by_offset(
    reader: OffsetReader, ends: Mapping[int, int], *, advance: Callable[[int], None]
) -> TopicDigest:
    """Read each partition from its beginning to `ends` with the offset reader."""
    digest = TopicDigest()
    for partition, end in sorted(ends.items()):
        batches = reader.batches(partition, offset=0, end_offset=end)
        digest.add_all(partition, _rows(batches, advance))
    return digest


def duckdb_connection() -> Any:
    """A DuckDB connection that can scan Iceberg tables."""
    import duckdb  # optional: only the demonstration and tests use a second engine
    import duckdb_extensions

    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        duckdb_extensions.import_extension(name, con=connection)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def read_by_sql(
    connection: Any,
    metadata_location: str,
    partitions: Mapping[int, int],
    *,
    advance: Callable[[int], None],
) -> TopicDigest:
    """Read a topic's whole table through DuckDB, in offset order."""
    digest = TopicDigest()
    source = f"iceberg_scan('{metadata_location}')"
    for partition in sorted(partitions):
        query = (
            "SELECT kafka_offset, epoch_ms(kafka_timestamp) AS timestamp_ms, "  # noqa: S608
            f"kafka_key, value, kafka_headers FROM {source} "
            f"WHERE kafka_partition = {partition} ORDER BY kafka_offset"
        )
        batches = connection.execute(query).to_arrow_reader(50_000)
        digest.add_all(partition, _sql_rows(batches, advance))
    return digest


def _sql_rows(batches: Any, advance: Callable[[int], None]) -> Iterator[_Row]:
    for batch in batches:
        yield from _columns(batch, batch.column("timestamp_ms"))
        advance(batch.num_rows)


def _rows(batches: Iterator[pa.RecordBatch], advance: Callable[[int], None]) -> Iterator[_Row]:
    for batch in batches:
        micros = batch.column("kafka_timestamp").cast(pa.int64())
        yield from _columns(batch, pc.divide(micros, 1000))
        advance(batch.num_rows)


def _columns(batch: pa.RecordBatch, timestamps_ms: pa.Array) -> Iterator[_Row]:
    columns = [batch.column(n) for n in ("kafka_offset", "kafka_key", "value", "kafka_headers")]
    offsets, keys, values, headers = (c.to_pylist() for c in columns)
    rows = zip(offsets, timestamps_ms.to_pylist(), keys, values, headers, strict=True)
    for offset, timestamp_ms, key, value, pairs in rows:
        at = -1 if timestamp_ms is None else timestamp_ms
        yield offset, at, key, value, [(h["key"], h["value"]) for h in pairs or ()]


def log_ends(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, int]:
    """Each partition's log end offset, as the broker says."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "onecopy-demo"})
    try:
        marks = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_QUIET_S)
            for p in range(partitions)
        }
    finally:
        consumer.close()
    silent = [p for p, mark in marks.items() if mark is None]
    if silent:
        raise TransientError(f"{topic}: the broker did not say where partitions {silent} end")
    return {p: int(mark[1]) for p, mark in marks.items() if mark is not None}


def metadata_path(location: str) -> str:
    """A table's metadata location as DuckDB takes it: a plain path for a local file."""
    return location.removeprefix("file://")
