"""Cutting large segments: every row in exactly one part, and only batch borders used."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_segments import Batch, Rec, Segment, in_batches, some_records

from segment_reader import OffsetIndex, parse_offset_index
from tiering.conversion.convert import convert_task
from tiering.conversion.splitting import split_by_index, split_task
from tiering.ledger import LedgerEntry
from tiering.store import ObjectStore, open_store
from tiering.table.schema import raw_schema
from tiering.tasks import OFFSET_MAX, ConversionTask, TableTarget


def target(location: str = "/nowhere") -> TableTarget:
    return TableTarget(
        identifier=("kafka", "t"),
        location=location,
        schema_json=raw_schema().model_dump_json(),
        spec_json='{"spec-id":0,"fields":[]}',
    )


class _NoStore:
    url = "/nowhere"


NO_STORE = cast(ObjectStore, _NoStore())


def index_of(segment: Segment) -> OffsetIndex:
    return parse_offset_index(segment.offset_index, segment.start_offset)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


def given_by(part: ConversionTask, segment: Segment) -> list[int]:
    """The offsets that a worker would find for a part: its range, in its bytes."""
    end = len(segment.log) if part.end_position is None else part.end_position
    position, found = 0, []
    starts = {len(segment.log)}
    for batch in segment.batches:
        starts.add(position)
        if part.start_position <= position < end:
            found += [
                r.offset for r in batch.records if part.from_offset <= r.offset < part.to_offset
            ]
        position += len(batch.encode())
    assert {part.start_position, end} <= starts, "a part begins or ends inside a batch"
    return found


def batches_in(part: ConversionTask, segment: Segment) -> list[int]:
    """Base offsets of the batches that are a part's: its range, in its bytes."""
    end = len(segment.log) if part.end_position is None else part.end_position
    position, found = 0, []
    for batch in segment.batches:
        base = batch.records[0].offset
        if part.start_position <= position < end and part.batches_from <= base < part.batches_to:
            found.append(base)
        position += len(batch.encode())
    return found


def random_segment(seed: int, batches: int, index_every: int) -> Segment:
    chance = random.Random(seed)
    offset, made = chance.randint(0, 1000), []
    for _ in range(batches):
        records = []
        for _ in range(chance.randint(1, 5)):
            records.append(Rec(offset=offset, value=b"x" * chance.randint(0, 80)))
            offset += chance.choice([1, 1, 1, 4])
        made.append(Batch(records=records))
    return Segment(batches=made, index_every=index_every)


def task_over(segment: Segment, low: float, high: float, **more: Any) -> ConversionTask:
    """A task over some of the segment's offsets, by fractions of them."""
    count = segment.end_offset + 1 - segment.start_offset
    first, stop = sorted((int(low * count), int(high * count)))
    return replace(
        segment.task(NO_STORE, target()),
        from_offset=segment.start_offset + first,
        to_offset=segment.start_offset + stop,
        **more,
    )


SEGMENTS: Final = {
    "seed": st.integers(0, 10**6),
    "batches": st.integers(1, 40),
    "index_every": st.integers(1, 6),
    "split_bytes": st.integers(1, 3000),
    "low": st.floats(0, 1),
    "high": st.floats(0, 1),
}


@settings(max_examples=150, deadline=None)
@given(**SEGMENTS)
def test_every_offset_is_in_exactly_one_part(
    seed: int, batches: int, index_every: int, split_bytes: int, low: float, high: float
) -> None:
    segment = random_segment(seed, batches, index_every)
    task = task_over(segment, low, high)
    parts = split_task(task, index_of(segment), split_bytes)
    borders = [p.from_offset for p in parts[1:]]
    assert [p.to_offset for p in parts[:-1]] == borders
    assert (parts[0].from_offset, parts[-1].to_offset) == (task.from_offset, task.to_offset)
    assert [o for p in parts for o in given_by(p, segment)] == wanted_by(task, segment)


@settings(max_examples=150, deadline=None)
@given(**SEGMENTS)
def test_with_a_side_file_every_batch_is_in_exactly_one_part_too(
    seed: int, batches: int, index_every: int, split_bytes: int, low: float, high: float
) -> None:
    segment = random_segment(seed, batches, index_every)
    task = task_over(segment, low, high, side_prefix="side/x")
    parts = split_task(task, index_of(segment), split_bytes)
    borders = [p.batches_from for p in parts[1:]]
    assert [p.batches_to for p in parts[:-1]] == borders == sorted(set(borders))
    assert (parts[0].batches_from, parts[-1].batches_to) == (0, OFFSET_MAX)
    found = [batches_in(part, segment) for part in parts]
    assert all(found), "a part without a batch"
    assert [base for bases in found for base in bases] == [
        b.records[0].offset for b in segment.batches
    ]
    assert [o for p in parts for o in given_by(p, segment)] == wanted_by(task, segment)
    assert all(task.from_offset <= p.from_offset <= p.to_offset <= task.to_offset for p in parts)
    assert {p.side_prefix for p in parts} == {"side/x"}


def wanted_by(task: ConversionTask, segment: Segment) -> list[int]:
    return [
        r.offset
        for b in segment.batches
        for r in b.records
        if task.from_offset <= r.offset < task.to_offset
    ]


def test_a_copy_without_rows_to_take_is_cut_all_the_same() -> None:
    segment = Segment(batches=in_batches(some_records(100, 1000), 5))
    task = replace(
        segment.task(NO_STORE, target()), from_offset=700, to_offset=700, side_prefix="side/x"
    )
    parts = split_task(task, index_of(segment), len(segment.log) // 4)
    assert len(parts) >= 4
    assert {(p.from_offset, p.to_offset) for p in parts} == {(700, 700)}
    assert sum(len(batches_in(p, segment)) for p in parts) == len(segment.batches)


def test_runs_of_batches_with_one_entry_lose_nothing() -> None:
    """Brokers before 4.0: one entry for all batches of an append, with the last one's offset."""
    made = in_batches(some_records(0, 200), 5)
    positions, position = [], 0
    for batch in made:
        positions.append(position)
        position += len(batch.encode())
    entries = [
        struct.pack(">ii", made[i + 3].records[-1].offset, positions[i])
        for i in range(0, len(made), 4)
    ]
    segment = Segment(batches=made)
    index = parse_offset_index(b"".join(entries), 0)
    parts = split_task(segment.task(NO_STORE, target()), index, len(segment.log) // 5)
    assert len(parts) > 3
    assert [o for p in parts for o in given_by(p, segment)] == list(range(200))
    task = replace(segment.task(NO_STORE, target()), side_prefix="side/x")
    parts = split_task(task, index, len(segment.log) // 5)
    assert len(parts) > 3
    assert [b for p in parts for b in batches_in(p, segment)] == [b.records[0].offset for b in made]
    assert [o for p in parts for o in given_by(p, segment)] == list(range(200))


def test_parts_are_about_as_large_as_asked_for() -> None:
    segment = Segment(batches=in_batches(some_records(0, 1000), 5))
    size = len(segment.log)
    parts = split_task(segment.task(NO_STORE, target()), index_of(segment), size // 4)
    assert 4 <= len(parts) <= 5
    ends = [size if p.end_position is None else p.end_position for p in parts]
    sizes = [end - p.start_position for end, p in zip(ends, parts, strict=True)]
    assert max(sizes) < size / 4 * 1.2


def test_watermark_inside_the_segment_skips_its_head() -> None:
    segment = Segment(batches=in_batches(some_records(0, 1000), 5))
    task = replace(segment.task(NO_STORE, target()), from_offset=900, to_offset=950)
    (part,) = split_task(task, index_of(segment), 1 << 30)
    assert part.start_position > len(segment.log) * 0.8
    assert part.end_position is not None
    assert given_by(part, segment) == list(range(900, 950))


def test_empty_index_leaves_the_task_whole() -> None:
    segment = Segment(batches=in_batches(some_records(0, 20), 5))
    task = segment.task(NO_STORE, target())
    assert split_task(task, parse_offset_index(b"", 0), 1) == [task]


def test_converted_parts_hold_every_row_once(store: ObjectStore, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    segment = Segment(batches=in_batches(some_records(50, 2000), 9, ("zstd", "none")))
    entry = segment.store(store)
    task = segment.task(store, target(str(tmp_path / "table")))
    split = split_by_index(store, len(segment.log) // 6)
    parts = split(task, entry)
    assert len(parts) >= 6
    results = [convert_task(part) for part in parts]
    assert [r.failure for r in results] == [None] * len(parts)
    assert [r.converted_to for r in results] == [p.to_offset for p in parts]
    tables = [pq.read_table(e.path) for r in results for e in r.entries]
    assert pa.concat_tables(tables)["kafka_offset"].to_pylist() == list(range(50, 2050))
    assert sum(r.rows for r in results) == 2000


def test_small_segment_or_bad_index_is_not_cut(store: ObjectStore) -> None:
    segment = Segment(batches=in_batches(some_records(0, 500), 5))
    entry = segment.store(store)
    task = segment.task(store, target())
    assert split_by_index(store, 1 << 30)(task, entry) == [task]
    store.put(segment.id.indexes_key, b"\xff" * len(segment.offset_index))
    assert split_by_index(store, 1000)(task, entry) == [task]
    store.delete(segment.id.indexes_key)
    assert split_by_index(store, 1000)(task, entry) == [task]
    bare = replace(entry, parts=())
    assert split_by_index(store, 1000)(task, bare) == [task]


@pytest.mark.parametrize("shift", [-40, 40])
def test_index_that_lies_is_found_out(store: ObjectStore, tmp_path: Path, shift: int) -> None:
    """Offsets moved against their positions would lose or hide rows at the cuts."""
    segment = Segment(batches=in_batches(some_records(100, 1000), 5))
    entry = segment.store(store)
    honest = index_of(segment)
    lying = OffsetIndex(offset=honest.offset + shift, position=honest.position)
    task = segment.task(store, target(str(tmp_path / "table")))
    results = [convert_task(p) for p in split_task(task, lying, len(segment.log) // 4)]
    failures = [r.failure for r in results if r.failure is not None]
    assert {f.kind for f in failures} == {"corrupt"}
    assert all("offset index" in f.reason for f in failures)
    assert isinstance(entry, LedgerEntry)
