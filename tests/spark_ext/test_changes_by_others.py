"""Tables that somebody else's Spark works on: what stays exact, and what is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import foreign_spark as foreign
import pytest
from odd_segments import LENGTH
from odd_tier import OddTier
from pyspark.sql import SparkSession
from spark_places import SPARK_MARKS

from tiering.config import EngineConfig, TierConfig, default_config
from tiering.errors import BadInput
from tiering.offset_reader import Record
from tiering.table.topic_tables import CatalogTables

pytestmark = SPARK_MARKS


class Tier(OddTier):
    """A topic with somebody else's Spark beside it."""

    def __init__(self, config: TierConfig, spark: SparkSession, topic: str) -> None:
        super().__init__(config, topic)
        self.spark = spark
        self.table = foreign.spark_name(config, topic)

    def files(self) -> set[str]:
        rows = self.spark.sql(f"SELECT file_path FROM {self.table}.files").collect()
        return {row[0] for row in rows}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TierConfig:
    directory = tmp_path_factory.mktemp("others")
    return default_config(directory, engine=EngineConfig(retire_grace_ms=0))


@pytest.fixture(scope="module")
def spark(config: TierConfig) -> Iterator[SparkSession]:
    with foreign.foreign_spark(config) as session:
        yield session


UPKEEP: dict[str, Callable[[Tier], object]] = {
    "packed": lambda t: foreign.rewrite_data_files(t.spark, t.table),
    "by_value": lambda t: foreign.rewrite_data_files(
        t.spark, t.table, sort_order="value DESC NULLS LAST"
    ),
    "zorder": lambda t: foreign.rewrite_data_files(
        t.spark, t.table, sort_order="zorder(kafka_offset, kafka_timestamp_type)"
    ),
    "sorted": lambda t: foreign.rewrite_data_files(
        t.spark, t.table, sort_order="kafka_partition ASC, kafka_offset ASC"
    ),
}


@pytest.mark.parametrize(
    ("name", "kinds"), [("orders", list(UPKEEP)), ("Page.Views_1", ["zorder"])]
)
def test_upkeep_of_every_kind(
    config: TierConfig, spark: SparkSession, name: str, kinds: Sequence[str]
) -> None:
    """Rewrites, then manifests, expiry and orphans: each time exact, and the engine goes on."""
    tier = Tier(config, spark, name)
    tier.tier(2)
    tier.check()
    for kind in kinds:
        beside, files = tier.siblings(), tier.files()
        UPKEEP[kind](tier)
        assert tier.siblings() == beside, kind
        assert not tier.files() & files, f"{kind}: every file was written anew"
        tier.check()
        foreign.rewrite_manifests(spark, tier.table)
        foreign.expire_snapshots(spark, tier.table)
        assert not any(Path(file.removeprefix("file:")).exists() for file in files), kind
        tier.check()
        assert tier.tier() == {}, kind
        tier.check()
        tier.check_sole_copy()


def test_removal_of_orphans(config: TierConfig, spark: SparkSession) -> None:
    """It takes what lies below the table, and nothing beside it."""
    keeping = replace(config, engine=EngineConfig(retire_grace_ms=3_600_000))
    tier = Tier(keeping, spark, "orphans")
    tier.tier()
    location = Path(CatalogTables(config).table("orphans", tier.topic.topic_id).location())
    stray = location / "data" / "left-by-a-crash.parquet"
    stray.write_bytes(b"nobody refers to it")
    beside = tier.siblings()
    assert {key.partition("/")[0] for key in beside} == {"ledger", "native", "side"}
    gone = foreign.remove_orphan_files(spark, tier.table, Path(config.store))
    assert [Path(path).name for path in gone] == [stray.name]
    assert not stray.exists()
    assert tier.siblings() == beside
    tier.check()
    assert tier.tier() == {}
    tier.check()


def test_a_reader_at_work_survives_expiry(config: TierConfig, spark: SparkSession) -> None:
    """One opened before the files went looks again, and goes on where it was."""
    tier = Tier(config, spark, "atwork")
    tier.tier(2)
    reader = tier.reader()
    records = reader.records(0)
    read = [next(records)]
    foreign.rewrite_data_files(spark, tier.table, sort_order="value")
    foreign.expire_snapshots(spark, tier.table)
    read += records
    assert read == [r for r in tier.expected() if r.partition == 0]
    assert list(reader.records(1)) == [r for r in tier.expected() if r.partition == 1]


def test_rolled_back(config: TierConfig, spark: SparkSession) -> None:
    """Nothing is converted on top of it, and it is said."""
    tier = Tier(config, spark, "rolled")
    tier.tier()
    snapshot = tier.state().snapshot_id
    assert snapshot is not None
    tier.tier()
    tier.check()
    foreign.roll_back(spark, tier.table, snapshot)
    assert "rolled the table back" in (tier.state().flagged or "")
    assert tier.state().snapshot_id == snapshot
    assert "rolled the table back" in tier.tier()["rolled"]
    assert tier.state().snapshot_id == snapshot, "no commit on top"


@pytest.mark.parametrize("merge_on_read", [False, True], ids=["rewritten", "hidden"])
def test_sql_delete_is_a_gap(config: TierConfig, spark: SparkSession, merge_on_read: bool) -> None:
    tier = Tier(config, spark, f"deleted{int(merge_on_read)}")
    tier.tier(2)
    foreign.delete_rows(
        spark,
        tier.table,
        "kafka_partition = 0 AND (kafka_offset % 5 = 0 OR kafka_offset BETWEEN 20 AND 45)",
        merge_on_read=merge_on_read,
    )

    def stays(record: Record) -> bool:
        return (
            record.partition > 0
            or record.offset >= 2 * LENGTH
            or not (record.offset % 5 == 0 or 20 <= record.offset <= 45)
        )

    assert tier.read() == [r for r in tier.expected() if stays(r)]
    assert tier.state().flagged is None
    tier.tier()
    assert tier.read() == [r for r in tier.expected() if stays(r)], "conversion went on"


def test_sql_update_shows_in_the_table(config: TierConfig, spark: SparkSession) -> None:
    """The offset reader reads the table as it is; the Kafka view has a digest to hold against."""
    tier = Tier(config, spark, "updated")
    tier.tier()
    foreign.update_rows(spark, tier.table, "value = X'00'", "kafka_offset = 7")
    found = {(r.partition, r.offset): r.value for r in tier.read()}
    wanted = {(r.partition, r.offset): r.value for r in tier.expected()}
    assert found == {**wanted, (0, 7): b"\0", (1, 7): b"\0"}
    assert tier.state().flagged is None


def test_sql_insert_leaves_progress_alone(config: TierConfig, spark: SparkSession) -> None:
    """Rows of others, at offsets of ours and beyond: the watermark says where to go on."""
    tier = Tier(config, spark, "inserted")
    tier.tier()
    foreign.insert_again(spark, tier.table, "kafka_offset = 7 AND kafka_partition = 0")
    foreign.insert_at(spark, tier.table, 0, 10 * LENGTH)
    assert tier.state().watermarks[0].offset == LENGTH
    offsets = [r.offset for r in tier.reader().records(0)]
    assert offsets.count(7) == 2
    assert offsets[-1] == 10 * LENGTH
    tier.tier()
    assert tier.state().flagged is None
    assert tier.state().watermarks[0].offset == 2 * LENGTH
    found = [r for r in tier.read() if r.offset < 2 * LENGTH]
    twice = found.index(next(r for r in found if r.offset == 7))
    del found[twice]
    assert found == tier.expected()


def test_renamed_columns_are_found(config: TierConfig, spark: SparkSession) -> None:
    tier = Tier(config, spark, "renamed")
    tier.tier()
    foreign.rename_column(spark, tier.table, "value", "payload")
    foreign.rename_column(spark, tier.table, "kafka_key", "id")
    tier.check()
    assert tier.tier() == {}
    tier.check()


def test_a_dropped_value_is_said(config: TierConfig, spark: SparkSession) -> None:
    tier = Tier(config, spark, "dropped")
    tier.tier()
    foreign.drop_column(spark, tier.table, "value")
    with pytest.raises(BadInput, match="no binary column for the record's value"):
        tier.read()
    offsets = [o for b in tier.reader().batches(0) for o in b["kafka_offset"].to_pylist()]
    assert offsets == [r.offset for r in tier.expected() if r.partition == 0]
