"""Batches regenerated after Spark has changed the table: deletes of every kind, orders, columns."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from history_tier import PARTITION, TOPIC_ID, HistoryTier, batches_of, check, encoded
from native_segments import Segment, in_batches, some_records
from pyspark.sql import SparkSession

from tiering.history import HistoryMismatch, RegeneratedRun, Regenerator, coverage
from tiering.side_files import SideFile

sys.path.append(str(Path(__file__).parents[1] / "tiering"))

from offset_spark import add_catalog, started

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
GONE = {*range(7, 95, 3), 198, 199}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def tier(spark: SparkSession, tmp_path: Path) -> HistoryTier:
    # Spark keeps a catalog for as long as it runs: each test has its own.
    name = f"history_{uuid.uuid4().hex}"
    add_catalog(spark, tmp_path, name)
    return HistoryTier.make(tmp_path, name)


@pytest.fixture
def made(tier: HistoryTier) -> Segment:
    batches = in_batches(some_records(0, 200), 7, ("none", "gzip", "zstd"))
    made = Segment(batches=batches, topic_id=TOPIC_ID, partition=PARTITION)
    tier.convert(made)
    return made


def table_of(tier: HistoryTier) -> str:
    return f"{tier.catalog.name}.kafka.orders"


def rewrite(tier: HistoryTier, spark: SparkSession, *options: str) -> None:
    arguments = ["table => 'kafka.orders'", *options]
    arguments.append("options => map('rewrite-all', 'true', 'min-input-files', '1')")
    spark.sql(f"CALL {tier.catalog.name}.system.rewrite_data_files({', '.join(arguments)})")


def runs_of(tier: HistoryTier, side: SideFile, *, may_miss: bool = False) -> list[RegeneratedRun]:
    with tier.records().cursor(PARTITION) as rows:
        return list(Regenerator(side, rows, rows_may_miss=may_miss, run_bytes=3000).runs())


@pytest.mark.parametrize("version", ["2", "3"], ids=["positional", "deletion-vectors"])
def test_merge_on_read_deletes(
    tier: HistoryTier, spark: SparkSession, made: Segment, version: str
) -> None:
    side = tier.side(made)
    spark.sql(
        f"ALTER TABLE {table_of(tier)} SET TBLPROPERTIES "
        f"('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    seen = [coverage(tier.view(), PARTITION, 0, 200)]
    for condition in ("BETWEEN 7 AND 94 AND (kafka_offset - 7) % 3 = 0", "IN (198, 199)"):
        spark.sql(f"DELETE FROM {table_of(tier)} WHERE kafka_offset {condition}")
        seen.append(coverage(tier.view(), PARTITION, 0, 200))
    assert len(set(seen)) == 3
    summary = tier.table.current_snapshot().summary
    assert summary.additional_properties["total-position-deletes"] == str(len(GONE))
    runs = runs_of(tier, side, may_miss=True)
    assert [data for run in runs for data in batches_of(run)] == [
        encoded([r for r in batch.records if r.offset not in GONE], batch.records[0])
        for batch in made.batches
    ]
    assert sum(run.deleted_rows for run in runs) == len(GONE)
    with pytest.raises(HistoryMismatch, match=r"batch 1 at offset 7: .* the table has 4 rows"):
        runs_of(tier, side)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_an_update_is_found(
    tier: HistoryTier, spark: SparkSession, made: Segment, mode: str
) -> None:
    side = tier.side(made)
    spark.sql(f"ALTER TABLE {table_of(tier)} SET TBLPROPERTIES ('write.update.mode' = '{mode}')")
    spark.sql(f"UPDATE {table_of(tier)} SET kafka_key = X'00' WHERE kafka_offset = 77")
    with pytest.raises(HistoryMismatch, match="batch 11 at offset 77: its 7 rows"):
        runs_of(tier, side, may_miss=True)


@pytest.mark.parametrize("order", ["zorder(kafka_offset, kafka_timestamp)", "value DESC"])
def test_rewritten_in_another_order(
    tier: HistoryTier, spark: SparkSession, made: Segment, order: str
) -> None:
    side = tier.side(made)
    rewrite(tier, spark, "strategy => 'sort'", f"sort_order => '{order}'")
    assert check(runs_of(tier, side), made.log) == len(made.batches)


def test_a_header_field_more_in_front(
    tier: HistoryTier, spark: SparkSession, made: Segment
) -> None:
    """Files of before have two fields, files of after three, in another order."""
    sides = [tier.side(made)]
    spark.sql(f"ALTER TABLE {table_of(tier)} ADD COLUMN kafka_headers.element.note string FIRST")
    spark.sql(f"ALTER TABLE {table_of(tier)} RENAME COLUMN kafka_headers.element.key TO name")
    spark.sql(f"ALTER TABLE {table_of(tier)} ALTER COLUMN value FIRST")
    more = Segment(
        batches=in_batches(some_records(200, 50), 7), topic_id=TOPIC_ID, partition=PARTITION
    )
    sides.append(tier.convert(more))
    for _ in range(2):
        for segment, side in zip((made, more), sides, strict=True):
            assert check(runs_of(tier, side), segment.log) == len(segment.batches)
        rewrite(tier, spark)
