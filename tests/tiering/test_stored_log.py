"""Native logs that are read block by block against the checksums of their upload."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from native_segments import Batch, Segment, in_batches, offsets, rows_of, some_records

from segment_reader import CorruptSegment
from tiering.block_checksums import BLOCK_BYTES
from tiering.conversion.convert import convert_task
from tiering.conversion.stored_log import MissingSegment, StoredLog
from tiering.ledger import Ledger
from tiering.store import ObjectStore, open_store
from tiering.table.schema import raw_schema
from tiering.tasks import TableTarget


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    return TableTarget(
        identifier=("kafka", "orders"),
        location=str(tmp_path / "table"),
        schema_json=raw_schema().model_dump_json(),
        spec_json='{"spec-id":0,"fields":[]}',
        sort_order_id=1,
    )


def with_gaps() -> Segment:
    """Offsets 0-9, 20-29, 40-49: between them is room for a batch to be moved in."""
    return Segment(batches=[Batch(records=some_records(at, 10)) for at in (0, 20, 40)])


def long_segment(seed: int = 1, **more: int) -> Segment:
    """About four and a half blocks."""
    records = some_records(0, 400, seed, value_bytes=2000)
    return Segment(batches=in_batches(records, 7), **more)  # type: ignore[arg-type]


def moved(made: Segment) -> bytes:
    """The log with its second batch's base offset raised by three; every batch CRC still fits."""
    log = bytearray(made.log)
    at = len(made.batches[0].encode())
    assert log[at : at + 8] == (20).to_bytes(8, "big")
    log[at : at + 8] = (23).to_bytes(8, "big")
    return bytes(log)


class TestConversion:
    def test_a_base_offset_changed_inside_a_gap_is_refused(
        self, store: ObjectStore, target: TableTarget
    ) -> None:
        made = with_gaps()
        made.store(store)
        store.put(made.id.log_key, moved(made))
        result = convert_task(made.task(store, target))
        assert result.failure is not None
        assert (result.failure.kind, result.entries) == ("corrupt", ())
        assert "block 0 of the log" in result.failure.reason

    def test_nothing_else_would_have_seen_it(self, store: ObjectStore, target: TableTarget) -> None:
        made = with_gaps()
        made.store(store, checksums=False)
        store.put(made.id.log_key, moved(made))
        result = convert_task(made.task(store, target))
        assert result.failure is None
        (entry,) = result.entries
        wrong = [*range(10), *range(23, 33), *range(40, 50)]
        assert offsets(rows_of(pq.read_table(entry.path))) == wrong

    @pytest.mark.parametrize("checksums", [True, False])
    def test_another_partitions_log_of_the_same_size(
        self, store: ObjectStore, target: TableTarget, checksums: bool
    ) -> None:
        batches = in_batches([replace(r, key=None) for r in some_records(0, 20)], 5)
        own = Segment(batches=batches, partition=3)
        other = replace(
            own,
            partition=4,
            batches=[
                replace(b, records=[replace(r, timestamp_ms=r.timestamp_ms ^ 1) for r in b.records])
                for b in batches
            ],
        )
        assert len(own.log) == len(other.log)
        own.store(store, checksums=checksums)
        store.put(own.id.log_key, other.log)
        failure = convert_task(own.task(store, target)).failure
        assert (failure is not None) is checksums
        assert failure is None or "is not what was uploaded" in failure.reason

    def test_a_damage_elsewhere_does_not_stop_a_range(
        self, store: ObjectStore, target: TableTarget
    ) -> None:
        made = long_segment()
        made.store(store)
        log = bytearray(made.log)
        log[-5] ^= 1
        store.put(made.id.log_key, bytes(log))
        sizes = [len(batch.encode()) for batch in made.batches]
        task = replace(
            made.task(store, target), to_offset=70, end_position=sum(sizes[:10]), from_offset=0
        )
        result = convert_task(task)
        assert (result.failure, result.rows) == (None, 70)


class TestReads:
    def test_as_slices_are(self, store: ObjectStore) -> None:
        made = long_segment()
        log = StoredLog(store, made.store(store))
        assert log.size_bytes == len(made.log) > 4 * BLOCK_BYTES
        chance = random.Random(5)
        ends = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, len(made.log)]
        for _ in range(200):
            low, high = sorted(
                chance.choice([*ends, chance.randrange(len(made.log))]) for _ in range(2)
            )
            assert log.read(low, high - low) == made.log[low:high]

    def test_each_flipped_bit_is_refused_and_its_block_named(self, store: ObjectStore) -> None:
        made = long_segment()
        log = StoredLog(store, made.store(store))
        chance = random.Random(6)
        for _ in range(60):
            at = chance.randrange(len(made.log))
            damaged = bytearray(made.log)
            damaged[at] ^= 1 << chance.randrange(8)
            store.put(log.name, bytes(damaged))
            block = at // BLOCK_BYTES
            with pytest.raises(CorruptSegment, match=f"block {block} of the log") as refusal:
                log.read(0, log.size_bytes)
            assert refusal.value.position == block * BLOCK_BYTES
            if block:
                assert log.read(0, BLOCK_BYTES * block) == made.log[: BLOCK_BYTES * block]

    def test_without_checksums_bytes_come_as_they_are(self, store: ObjectStore) -> None:
        made = long_segment()
        log = StoredLog(store, made.store(store, checksums=False))
        store.put(log.name, bytes(len(made.log)))
        assert log.read(10, 100) == bytes(100)

    def test_a_log_of_another_size(self, store: ObjectStore) -> None:
        made = long_segment()
        entry = made.store(store)
        log = StoredLog(store, entry)
        store.put(log.name, made.log[:-1])
        with pytest.raises(CorruptSegment, match="were uploaded"):
            StoredLog(store, entry)
        with pytest.raises(CorruptSegment, match="asked for here"):
            log.read(0, log.size_bytes)

    def test_checksums_that_are_not_those_of_the_log(self, store: ObjectStore) -> None:
        made = long_segment()
        entry = made.store(store)
        short = tuple((n, s - 4 if n == "log_checksums" else s) for n, s in entry.parts)
        with pytest.raises(CorruptSegment, match="bytes of checksums"):
            StoredLog(store, replace(entry, parts=short))
        store.put(made.id.indexes_key, store.get(made.id.indexes_key).data[:-1])
        with pytest.raises(CorruptSegment, match="log_checksums has"):
            StoredLog(store, entry)

    def test_what_is_gone_is_missing(self, store: ObjectStore) -> None:
        made = long_segment()
        entry = made.store(store)
        log = StoredLog(store, Ledger(store).load(made.id))
        store.delete(made.id.indexes_key)
        with pytest.raises(MissingSegment):
            StoredLog(store, entry)
        store.delete(log.name)
        for read in (lambda: log.read(0, 1), lambda: StoredLog(store, entry)):
            with pytest.raises(MissingSegment):
                read()
