"""Offset order out of files that do not have it: overlaps, other sort orders, mixed partitions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from offset_tables import (
    NAMESPACE,
    TOPIC,
    append,
    gappy,
    make_catalog,
    make_table,
    offsets_of,
    record,
    table_offsets,
)
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from tiering.offset_reader import DEFAULT_LIMITS, OffsetReader, ReadLimits

PASSES = ReadLimits(gather_bytes=600, batch_bytes=300)
"""So little that any overlap is read in many passes."""


@pytest.fixture
def made(tmp_path: Path) -> tuple[Catalog, Table]:
    catalog = make_catalog(tmp_path)
    return catalog, make_table(catalog)


def check(catalog: Catalog, table: Table, partition: int, limits: ReadLimits, step: int) -> None:
    """Compare with SQL's view: whole, and from every `step`th offset."""
    table.refresh()
    expected = table_offsets(table, partition)
    reader = OffsetReader.open(catalog, NAMESPACE, TOPIC, limits=limits)
    assert list(reader.records(partition)) == [record(partition, o) for o in expected]
    for start in range(0, expected[-1] + 2, step):
        got = offsets_of(reader.batches(partition, offset=start, end_offset=start + 40))
        assert got == [o for o in expected if start <= o < start + 40], start
    assert reader.beginning_offset(partition) == expected[0]


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, PASSES], ids=["memory", "passes"])
class TestOrder:
    def test_overlapping_files(self, made: tuple[Catalog, Table], limits: ReadLimits) -> None:
        catalog, table = made
        chance = random.Random(5)
        offsets = gappy(200, seed=5)
        parts: list[list[int]] = [[] for _ in range(4)]
        for offset in offsets:
            chance.choice(parts).append(offset)
        for part in parts:
            append(table, [(0, o) for o in part])
        check(catalog, table, 0, limits, 9)

    def test_chain_of_overlaps(self, made: tuple[Catalog, Table], limits: ReadLimits) -> None:
        catalog, table = made
        for k in range(5):
            inside = range(40 * k, 40 * k + 60)
            append(table, [(0, o) for o in inside if (o % 5 != 0) == (o < 40 * k + 20) or k == 0])
        check(catalog, table, 0, limits, 11)

    def test_unsorted_file(self, made: tuple[Catalog, Table], limits: ReadLimits) -> None:
        catalog, table = made
        offsets = gappy(150, seed=8)
        random.Random(8).shuffle(offsets)
        append(table, [(0, o) for o in offsets])
        append(table, [(0, o) for o in range(150, 200)])
        check(catalog, table, 0, limits, 7)

    def test_falling_file(self, made: tuple[Catalog, Table], limits: ReadLimits) -> None:
        catalog, table = made
        append(table, [(0, o) for o in reversed(range(100))])
        check(catalog, table, 0, limits, 13)

    def test_mixed_partitions(self, made: tuple[Catalog, Table], limits: ReadLimits) -> None:
        """Files that hold several partitions, one after the other and mixed up."""
        catalog, table = made
        chance = random.Random(3)
        sorted_rows = [(p, o) for p in (1, 4, 6) for o in gappy(80, seed=p)]
        append(table, sorted_rows)
        mixed = [(p, o) for p in (1, 6) for o in gappy(80, seed=10 + p, start=80)]
        chance.shuffle(mixed)
        append(table, mixed)
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC, limits=limits)
        assert reader.partitions() == (1, 4, 6)
        for partition in (1, 4, 6):
            check(catalog, table, partition, limits, 17)

    def test_partitioned_table(self, made: tuple[Catalog, Table], limits: ReadLimits) -> None:
        catalog, table = made
        append(table, [(0, o) for o in range(50)])
        with table.update_spec() as update:
            update.add_field("kafka_timestamp_type", IdentityTransform())
            update.add_field("kafka_partition", IdentityTransform())
        append(table, [(p, o) for p in (0, 1) for o in range(50, 150)])
        check(catalog, table, 0, limits, 19)
        check(catalog, table, 1, limits, 19)

    def test_random_layouts(self, made: tuple[Catalog, Table], limits: ReadLimits) -> None:
        catalog, table = made
        chance = random.Random(99)
        for k in range(6):
            low, high = chance.randint(0, 120), chance.randint(121, 200)
            chosen = [o for o in range(low, high) if o % 6 == k and chance.random() < 0.8]
            if chance.random() < 0.5:
                chance.shuffle(chosen)
            append(table, [(0, o) for o in chosen])
        check(catalog, table, 0, limits, 5)


def test_rows_of_equal_offset_all_come(made: tuple[Catalog, Table]) -> None:
    """As SQL has them: only somebody else's INSERT makes them."""
    catalog, table = made
    append(table, [(0, o) for o in (1, 2, 3)])
    append(table, [(0, o) for o in (2, 2, 4)])
    for limits in (DEFAULT_LIMITS, PASSES):
        reader = OffsetReader.open(catalog, NAMESPACE, TOPIC, limits=limits)
        assert offsets_of(reader.batches(0)) == [1, 2, 2, 2, 3, 4]


def test_passes_keep_to_the_bound(
    made: tuple[Catalog, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deep overlap is sorted in windows that fit the bound; only its end overlaps nothing."""
    from tiering.offset_reader import offset_order

    catalog, table = made
    for k in range(5):
        append(table, [(0, o) for o in range(k, 1000, 5)])
    windows: list[int] = []
    sorting = offset_order._sorted

    def spied(window: list[offset_order._Taken], batch_bytes: int) -> object:
        windows.append(sum(len(t.rows.rows) for t in window))
        return sorting(window, batch_bytes)

    monkeypatch.setattr(offset_order, "_sorted", spied)
    reader = OffsetReader.open(catalog, NAMESPACE, TOPIC, limits=ReadLimits(gather_bytes=8000))
    assert offsets_of(reader.batches(0)) == list(range(1000))
    assert 950 < sum(windows) <= 1000
    assert max(windows) < 200
