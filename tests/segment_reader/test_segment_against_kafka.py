"""Every log that Kafka's classes write is read as Kafka's classes read it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise

import pytest
from kafka_oracle import KafkaLog, rows_of

from segment_reader import (
    DEFAULT_LIMITS,
    RECORD_SCHEMA,
    Limits,
    RecordFilter,
    SegmentReader,
    UnsupportedFormat,
    Verdicts,
    whole_batches,
)

Logs = Callable[[str], KafkaLog]

NAMES = [
    "codec-none",
    "codec-gzip",
    "codec-snappy",
    "codec-lz4",
    "codec-zstd",
    "mixed-codecs",
    "append-time",
    "transactions",
    "empty-batches",
    "compacted",
    "tiny-batches",
    "odd-timestamps",
    "large-records",
]
SMALL = Limits(
    chunk_bytes=1 << 12,
    arrow_batch_bytes=1 << 11,
    arrow_batch_rows_max=7,
    large_record_ratio_max=10_000,
)
SMALL_WINDOW = Limits(chunk_bytes=1 << 14, arrow_batch_bytes=1 << 14)


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, SMALL], ids=["default", "small"])
@pytest.mark.parametrize("name", NAMES)
def test_records_equal_kafkas(kafka_logs: Logs, name: str, limits: Limits) -> None:
    log = kafka_logs(name)
    reader = SegmentReader(log.source, log.bounds, limits=limits)
    batches = list(reader.record_batches(include=RecordFilter.ALL_DATA))
    assert rows_of(batches) == log.rows()
    assert all(batch.schema == RECORD_SCHEMA for batch in batches)
    assert reader.stats.rows == len(log.rows())
    assert reader.stats.batches == len(log.batches)
    assert reader.stats.bytes_read == len(log.data)
    assert reader.stats.control_batches == sum(batch["control"] for batch in log.batches)
    assert reader.stats.next_offset == log.bounds.end_offset + 1


@pytest.mark.parametrize("name", NAMES)
def test_headers_equal_kafkas(kafka_logs: Logs, name: str) -> None:
    log = kafka_logs(name)
    columns = [
        *("position", "size", "base_offset", "last_offset", "leader_epoch", "codec", "count"),
        *("max_timestamp", "producer_id", "producer_epoch", "base_sequence"),
        *("transactional", "control"),
    ]
    ours: dict[str, list[int]] = {column: [] for column in [*columns, "timestamp_type", "horizon"]}
    for chunk in SegmentReader(log.source, log.bounds, limits=SMALL).headers():
        for column in columns:
            ours[column] += getattr(chunk, column).tolist()
        ours["timestamp_type"] += chunk.log_append_time.tolist()
        horizons = zip(chunk.delete_horizon, chunk.base_timestamp.tolist(), strict=True)
        ours["horizon"] += [time if is_set else -1 for is_set, time in horizons]
    for column in [*columns, "timestamp_type"]:
        assert ours[column] == [batch[column] for batch in log.batches], column
    assert ours["horizon"] == [int(batch["delete_horizon"]) for batch in log.batches]


@pytest.mark.parametrize("name", ["codec-none", "codec-zstd", "mixed-codecs", "compacted"])
def test_any_offset_range_is_a_slice_of_the_whole(kafka_logs: Logs, name: str) -> None:
    log = kafka_logs(name)
    rows, bounds = log.rows(), log.bounds
    step = max((bounds.end_offset - bounds.start_offset) // 13, 1)
    for start in range(max(bounds.start_offset - step, 0), bounds.end_offset + step, step):
        for stop in (start, start + 1, start + step // 2, start + 4 * step):
            reader = SegmentReader(log.source, bounds, limits=SMALL_WINDOW)
            read = reader.record_batches(
                from_offset=start, to_offset=stop, include=RecordFilter.ALL_DATA
            )
            assert rows_of(list(read)) == [row for row in rows if start <= row[0] < stop]
            assert reader.stats.next_offset >= min(stop, bounds.end_offset + 1)


def test_byte_ranges_between_batches_give_their_batches(kafka_logs: Logs) -> None:
    log = kafka_logs("mixed-codecs")
    starts = whole_batches(log.data, 0, name=log.name)
    assert starts.starts.tolist() == [batch["position"] for batch in log.batches]
    assert starts.sizes.tolist() == [batch["size"] for batch in log.batches]
    rows = []
    borders = [*starts.starts.tolist()[::7], len(log.data)]
    for start, end in pairwise(borders):
        reader = SegmentReader(log.source, log.bounds)
        rows += rows_of(list(reader.record_batches(start_position=start, end_position=end)))
    assert rows == log.rows()


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(kafka_logs: Logs, magic: int) -> None:
    log = kafka_logs(f"magic-{magic}")
    reader = SegmentReader(log.source, log.bounds)
    with pytest.raises(UnsupportedFormat, match=f"v{magic}") as caught:
        list(reader.record_batches())
    assert (caught.value.segment, caught.value.position) == (log.name, 0)
    # The service hands out batches of any magic.
    assert whole_batches(log.data, 0, name="x").sizes.tolist() == [len(log.data)]


def test_only_batches_of_aborted_transactions_are_left_out(kafka_logs: Logs) -> None:
    log = kafka_logs("transactions")
    entries, aborted = b"", set()
    open_from: dict[int, int] = {}
    running: dict[int, list[int]] = {}
    for batch in log.batches:
        producer = batch["producer_id"]
        if batch["control"]:
            first, offsets = open_from.pop(producer), running.pop(producer)
            is_abort = int.from_bytes(batch_key(batch)[2:4], "big") == 0
            if is_abort:
                aborted.update(offsets)
                facts = (producer, first, batch["last_offset"], first)
                entries += b"\0\0" + b"".join(fact.to_bytes(8, "big") for fact in facts)
        elif batch["transactional"]:
            open_from.setdefault(producer, batch["base_offset"])
            offsets = running.setdefault(producer, [])
            offsets += [record[0] for record in batch["records"]]
    assert len(aborted) > 50
    reader = SegmentReader(log.source, log.bounds, Verdicts.from_entries(entries))
    committed = rows_of(list(reader.record_batches()))
    assert committed == [row for row in log.rows() if row[0] not in aborted]
    assert reader.stats.aborted_rows == len(aborted)
    whole = rows_of(list(reader.record_batches(include=RecordFilter.ALL_DATA)))
    assert whole == log.rows()


def batch_key(batch: dict[str, object]) -> bytes:
    records = batch["records"]
    assert isinstance(records, list)
    return base64.b64decode(records[0][2])
