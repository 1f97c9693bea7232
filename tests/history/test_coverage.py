"""What changes the text that says which files some offsets are read from, and what doesn't."""

from __future__ import annotations

from pathlib import Path

import pytest
from history_tier import PARTITION, TOPIC_ID, HistoryTier
from native_segments import Segment, in_batches, some_records
from pyiceberg.types import StringType

from tiering.history import coverage


def segment(start: int, partition: int = PARTITION) -> Segment:
    return Segment(
        batches=in_batches(some_records(start, 40), 10), topic_id=TOPIC_ID, partition=partition
    )


@pytest.fixture
def tier(tmp_path: Path) -> HistoryTier:
    tier = HistoryTier.make(tmp_path)
    tier.convert(segment(0))
    tier.convert(segment(40))
    return tier


def of(tier: HistoryTier, start: int = 10, end: int = 30) -> str:
    return coverage(tier.view(), PARTITION, start, end)


def test_is_the_same_for_the_same_files(tier: HistoryTier) -> None:
    before = of(tier)
    assert of(tier) == of(tier, 0, 40) == before
    tier.convert(segment(80))
    tier.convert(segment(0, PARTITION + 1))
    tier.insert([60])
    with tier.table.update_schema() as update:
        update.rename_column("value", "payload")
        update.add_column("note", StringType())
    assert of(tier) == before


def test_differs_with_the_range(tier: HistoryTier) -> None:
    assert len({of(tier), of(tier, 50, 60), of(tier, 30, 60), of(tier, 500, 600)}) == 4


def test_changes_with_every_rewrite_insert_and_delete(tier: HistoryTier) -> None:
    seen = [of(tier)]
    tier.rewrite("offset", files=2, row_group_rows=10)
    seen.append(of(tier))
    tier.insert([20])
    seen.append(of(tier))
    tier.table.delete("kafka_offset = 25")
    seen.append(of(tier))
    tier.change(12)
    seen.append(of(tier))
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("column", ["value", "kafka_key", "kafka_headers", "kafka_headers.value"])
def test_changes_with_a_dropped_column(tier: HistoryTier, column: str) -> None:
    before = of(tier)
    with tier.table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column)
    assert of(tier) != before
