"""The same conversion from other places: S3, and a topic tiered before Onecopy was there."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from native_segments import (
    Batch,
    Rec,
    Segment,
    aborted_entry,
    in_batches,
    offsets,
    rows_of,
    some_records,
)
from s3_server import S3Server

from tiering.conversion.convert import convert_task
from tiering.conversion.splitting import split_by_index
from tiering.conversion.task_files import warehouse_url
from tiering.store import open_store
from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.table.commit import TableAppend, append, load_state
from tiering.table.schema import raw_schema
from tiering.tasks import ConversionTask, TableTarget
from tiering.watermarks import Watermark

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.s3
def test_everything_on_s3(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    url = s3_server.url("conversion")
    store = open_store(url)
    catalog = open_catalog(
        CatalogConfig(
            properties={
                "uri": f"sqlite:///{tmp_path}/catalog.db",
                "warehouse": f"s3://{s3_server.bucket}/conversion/warehouse",
                "s3.endpoint": s3_server.endpoint,
                "s3.region": s3_server.region,
            }
        )
    )
    identifier = ("kafka", "orders")
    warehouse = f"s3://{s3_server.bucket}/conversion/warehouse"
    table = ensure_table(catalog, identifier, "orders", TOPIC_ID, warehouse)
    noise = bytes(range(251)) * 4000
    records = [Rec(offset=i, value=noise[i:] + b"%d" % i) for i in range(30)]
    made = Segment(batches=in_batches(records, 1), topic_id=TOPIC_ID)
    entry = made.store(store)
    tasks = split_by_index(store, len(made.log) // 3)(made.task(store, table_target(table)), entry)
    results = [convert_task(task) for task in tasks]
    assert [r.failure for r in results] == [None] * len(tasks)
    assert s3_server.secret_key not in repr((tasks, results))
    append(
        catalog,
        TableAppend(
            identifier=identifier,
            topic="orders",
            topic_id=TOPIC_ID,
            cycle_id="c",
            base=load_state(catalog, identifier),
            expected={3: None},
            moved={3: Watermark(offset=30)},
            files={3: tuple(e for r in results for e in r.entries)},
        ),
    )
    assert rows_of(catalog.load_table(identifier).scan().to_arrow()) == made.rows()


def test_table_on_s3_is_opened_where_its_properties_or_the_store_say() -> None:
    target = TableTarget(
        identifier=("k", "t"),
        location="s3://lake/warehouse/t",
        schema_json="",
        spec_json="",
        io_properties={"s3.endpoint": "http://127.0.0.1:9000", "s3.region": "r1"},
    )
    own = "s3://lake/warehouse/t?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=r1"
    assert warehouse_url(target, "s3://other/x?endpoint=http://e") == own
    plain = replace(target, io_properties={})
    query = "endpoint=http://e&region=r"
    assert warehouse_url(plain, f"s3://b/p?{query}") == f"s3://lake/warehouse/t?{query}"
    assert warehouse_url(plain, "/a/directory") == "s3://lake/warehouse/t"
    assert warehouse_url(replace(target, location="/wh/t"), "s3://b") == "/wh/t"


# A topic that Kafka's own LocalTieredStorage has kept: only read, never changed.


class OldTier:
    """A LocalTieredStorage directory with segments of one partition."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, segment: Segment, verdicts: bytes = b"", open_from: int | None = None) -> None:
        directory = self.root / f"{segment.topic}-{segment.partition}-{segment.topic_id}"
        directory.mkdir(parents=True, exist_ok=True)
        files = {
            ".log": segment.log,
            ".index": segment.offset_index,
            ".timeindex": b"",
            ".leader_epoch_checkpoint": b"0\n1\n0 0\n",
            ".snapshot": producer_snapshot(open_from),
        }
        if verdicts:
            files[".txnindex"] = verdicts
        for suffix, data in files.items():
            (directory / (segment.id.name + suffix)).write_bytes(data)

    def task(self, segment: Segment, target: TableTarget) -> ConversionTask:
        directory = f"{segment.topic}-{segment.partition}-{segment.topic_id}"
        return replace(
            segment.task(open_store(str(self.root.parent / "x")), target),
            layout="local_tiered_storage",
            store_url=str(self.root),
            segment_path=f"{directory}/{segment.id.name}",
            index_parts=(),
        )


def producer_snapshot(open_from: int | None) -> bytes:
    """A snapshot file with one producer, whose transaction is open from that offset on."""
    first = -1 if open_from is None else open_from
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 5, 0, 0, 0, 0, 0, 0, first)
    return struct.pack(">hI", 1, google_crc32c.value(body)) + body


@pytest.fixture
def old(tmp_path: Path) -> OldTier:
    return OldTier(tmp_path / "kafka-tiered-storage")


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    return TableTarget(
        identifier=("kafka", "orders"),
        location=str(tmp_path / "table"),
        schema_json=raw_schema().model_dump_json(),
        spec_json='{"spec-id":0,"fields":[]}',
        sort_order_id=1,
    )


def transactional(start: int, count: int, producer: int) -> Batch:
    return Batch(records=some_records(start, count), producer=producer)


def test_segments_of_kafkas_own_tier(old: OldTier, target: TableTarget) -> None:
    made = Segment(batches=in_batches(some_records(0, 90), 9, ("none", "gzip")))
    old.put(made)
    before = tree(old.root)
    result = convert_task(old.task(made, target))
    assert result.failure is None
    assert rows_of(pa.concat_tables(pq.read_table(e.path) for e in result.entries)) == made.rows()
    assert tree(old.root) == before


def test_verdict_lies_in_a_later_segment(old: OldTier, target: TableTarget) -> None:
    first = Segment(batches=[transactional(0, 10, 5), Batch(records=some_records(10, 10))])
    marker = Rec(offset=20, key=b"\0\0\0\0", value=b"\0\0\0\0\0\0")
    second = replace(
        first,
        batches=[Batch(records=[marker], producer=5, control=True)],
        segment_id="B" * 22,
    )
    old.put(first)
    old.put(second, verdicts=aborted_entry(5, 0, 20))
    result = convert_task(old.task(first, target))
    (entry,) = result.entries
    assert offsets(rows_of(pq.read_table(entry.path))) == list(range(10, 20))
    assert result.converted_to == 20


def test_undecided_transaction_stops_the_conversion_before_it(
    old: OldTier, target: TableTarget
) -> None:
    made = Segment(batches=[Batch(records=some_records(0, 30)), transactional(30, 10, 5)])
    old.put(made, open_from=30)
    result = convert_task(old.task(made, target))
    assert (result.failure, result.rows, result.converted_to) == (None, 30, 30)
    none = convert_task(replace(old.task(made, target), from_offset=30))
    assert (none.failure, none.entries, none.converted_to) == (None, (), 30)


def test_missing_segment_and_foreign_path(old: OldTier, target: TableTarget) -> None:
    made = Segment(batches=in_batches(some_records(0, 10), 5))
    old.put(made)
    task = old.task(made, target)
    gone = convert_task(replace(task, segment_path=task.segment_path[:-1] + "z")).failure
    foreign = convert_task(replace(task, topic="payments")).failure
    assert gone is not None
    assert foreign is not None
    assert gone.kind == "missing"
    assert "not that of a segment of topic payments" in foreign.reason


def tree(root: Path) -> dict[str, int]:
    return {str(p): zlib.crc32(p.read_bytes()) for p in root.rglob("*") if p.is_file()}
