"""Segments that Kafka's own classes wrote, converted, against what Kafka's own reader finds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from native_segments import Batch, Rec, Segment, aborted_entry, rows_of

from tiering.conversion.convert import convert_task
from tiering.store import ObjectStore, open_store
from tiering.table.schema import raw_schema
from tiering.tasks import ConversionResult, TableTarget

sys.path.append(str(Path(__file__).parents[1] / "segment_reader"))

from kafka_oracle import KafkaLog, Oracle

Logs = Callable[[str], KafkaLog]
NAMES = [
    *(f"codec-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    "mixed-codecs",
    "append-time",
    "empty-batches",
    "compacted",
    "tiny-batches",
    "odd-timestamps",
    "large-records",
]


@pytest.fixture(scope="module")
def logs(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Logs:
    classes, directory = tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("logs")
    Oracle.compile(kafka_jars, classes).run("Segments", str(directory))
    return lambda name: KafkaLog.load(directory / f"{name}.log")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


def converted(
    log: KafkaLog, store: ObjectStore, table: Path, verdicts: bytes = b""
) -> ConversionResult:
    """Put Kafka's bytes there as the service would, and convert them."""
    bounds = log.bounds
    stand_in = Segment(
        batches=[Batch(records=[Rec(offset=bounds.start_offset)], last_offset=bounds.end_offset)],
        leader_epochs=bounds.leader_epochs,
        verdicts=verdicts,
    )
    stand_in.store(store, log.data)
    target = TableTarget(
        identifier=("kafka", "orders"),
        location=str(table),
        schema_json=raw_schema().model_dump_json(),
        spec_json='{"spec-id":0,"fields":[]}',
    )
    return convert_task(stand_in.task(store, target))


def expected(log: KafkaLog) -> list[dict[str, object]]:
    far = (2**63 - 1) // 1000
    return [
        {
            "kafka_partition": 3,
            "kafka_offset": offset,
            "kafka_timestamp": None if time == -1 or abs(time) > far else time * 1000,
            "kafka_timestamp_type": kind,
            "kafka_leader_epoch": epoch,
            "kafka_key": key,
            "kafka_headers": [{"key": k.decode(), "value": v} for k, v in headers],
            "value": value,
        }
        for offset, time, kind, epoch, key, value, headers in log.rows()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_what_kafka_reads(
    logs: Logs, store: ObjectStore, tmp_path: Path, name: str
) -> None:
    log = logs(name)
    result = converted(log, store, tmp_path / "table")
    assert result.failure is None
    tables = [pq.read_table(entry.path) for entry in result.entries]
    assert rows_of(pa.concat_tables(tables)) == expected(log)
    assert result.native_bytes == len(log.data)


def test_one_producers_transactions_aborted(logs: Logs, store: ObjectStore, tmp_path: Path) -> None:
    log = logs("transactions")
    batch = next(b for b in log.batches if b["transactional"] and not b["control"])
    entry = aborted_entry(batch["producer_id"], batch["base_offset"], batch["last_offset"])
    result = converted(log, store, tmp_path / "table", entry)
    gone = range(batch["base_offset"], batch["last_offset"] + 1)
    tables = [pq.read_table(e.path) for e in result.entries]
    rows = [row for row in expected(log) if row["kafka_offset"] not in gone]
    assert rows_of(pa.concat_tables(tables)) == rows
    assert result.aborted_rows == len(log.rows()) - len(rows) > 0
    assert result.control_batches == sum(b["control"] for b in log.batches)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_quarantined(
    logs: Logs, store: ObjectStore, tmp_path: Path, magic: int
) -> None:
    log = logs(f"magic-{magic}")
    plain = replace(log, batches=[{"leader_epoch": 0, "base_offset": 0, "last_offset": 10**6}])
    failure = converted(plain, store, tmp_path / "table").failure
    assert failure is not None
    assert (failure.kind, failure.position) == ("corrupt", 0)
    assert f"format v{magic}" in failure.reason
