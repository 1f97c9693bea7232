"""Upkeep beside another engine: Spark deletes, rewrites, expires in between, and reads the same."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from appends import IDENTIFIER, TOPIC, TOPIC_ID, Tier
from offset_spark import add_catalog
from pyspark.sql import SparkSession

from tiering.offset_reader import OffsetReader
from tiering.store import open_store
from tiering.table import manifest_merge
from tiering.table.catalog import CatalogConfig, open_catalog
from tiering.table.commit import append
from tiering.table.replace import TableReplacement, replace
from tiering.upkeep.expiry import expire
from tiering.upkeep.withdrawal import Withdrawal, withdraw

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def tier(tmp_path: Path, spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Tier:
    """Ten commits of ten offsets in partition 0 and three in partition 1, manifests merged."""
    monkeypatch.setattr(manifest_merge, "MANIFESTS_MAX", 3)
    monkeypatch.setattr(manifest_merge, "ENTRIES_MIN", 6)
    warehouse = str(tmp_path / "store" / "warehouse")
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    name = "c" + uuid.uuid4().hex  # Spark keeps a catalog by its name
    config = CatalogConfig(name=name, properties={"uri": uri, "warehouse": warehouse})
    tier = Tier(catalog=open_catalog(config), warehouse=warehouse)
    tier.ensure()
    for i in range(1, 11):
        append(tier.catalog, tier.plan({0: 10 * i, 1: 3 * i}))
    add_catalog(spark_session, tmp_path, name)
    return tier


def in_spark(tier: Tier) -> str:
    return ".".join((tier.catalog.name, *IDENTIFIER))


def check(tier: Tier, spark: SparkSession, **expected: set[int]) -> None:
    """Spark, PyIceberg and the offset reader find these offsets, each with its own value."""
    spark.sql(f"REFRESH TABLE {in_spark(tier)}")
    for name, offsets in expected.items():
        partition = int(name.removeprefix("p"))
        rows = spark.sql(
            f"SELECT kafka_offset, CAST(value AS STRING) FROM {in_spark(tier)} "
            f"WHERE kafka_partition = {partition} ORDER BY 1"
        ).collect()
        assert [(r[0], r[1]) for r in rows] == [(o, f"value-{o}") for o in sorted(offsets)]
        assert tier.offsets(partition) == sorted(offsets)
        reader = OffsetReader.open(tier.catalog, IDENTIFIER[0], TOPIC)
        assert [r.offset for r in reader.records(partition)] == sorted(offsets)
    assert tier.state().flagged is None


def withdrawn(tier: Tier, offset: int) -> None:
    withdraw(
        tier.catalog, tier.table(), open_store(tier.table().location()),
        Withdrawal(topic=TOPIC, partition=0, offset=offset, reason="test"),
        cycle_id=uuid.uuid4().hex,
    )  # fmt: skip


def removed(tier: Tier, below: int) -> None:
    """Take out partition 0's files that end below that offset."""
    files = [t.file for t in tier.table().scan().plan_files()]

    def upper(bounds: dict[int, bytes], field_id: int) -> int:
        return int.from_bytes(bounds[field_id], "little")

    gone = {
        f.file_path
        for f in files
        if upper(f.upper_bounds, 1) == 0 and upper(f.upper_bounds, 2) < below
    }
    replace(
        tier.catalog,
        TableReplacement(
            identifier=IDENTIFIER, topic=TOPIC, topic_id=TOPIC_ID, cycle_id=uuid.uuid4().hex,
            base=tier.state(), expected={}, moved={}, removed=frozenset(gone), reason="test",
        ),
    )  # fmt: skip


def test_merge_on_read_deletes_stay_where_they_are(tier: Tier, spark_session: SparkSession) -> None:
    spark = spark_session
    spark.sql(
        f"ALTER TABLE {in_spark(tier)} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    )
    spark.sql(f"DELETE FROM {in_spark(tier)} WHERE kafka_offset IN (3, 13, 42, 43, 77)")
    gone = {3, 13, 42, 43, 77}
    check(tier, spark, p0=set(range(100)) - gone, p1=set(range(30)) - gone)
    withdrawn(tier, 45)
    check(tier, spark, p0=set(range(45)) - gone, p1=set(range(30)) - gone)
    for end in (50, 60, 70, 80):
        append(tier.catalog, tier.plan({0: end}))
    now = set(range(80)) - {3, 13, 42, 43}
    check(tier, spark, p0=now, p1=set(range(30)) - gone)
    removed(tier, below=20)
    check(tier, spark, p0={o for o in now if o >= 20}, p1=set(range(30)) - gone)


def test_between_rewrites_and_expiry_by_spark(tier: Tier, spark_session: SparkSession) -> None:
    spark = spark_session
    procedure = f"CALL {tier.catalog.name}.system"
    where = f"table => '{'.'.join(IDENTIFIER)}'"
    spark.sql(f"{procedure}.rewrite_manifests({where})").collect()
    append(tier.catalog, tier.plan({0: 110}))
    removed(tier, below=10)
    check(tier, spark, p0=set(range(10, 110)), p1=set(range(30)))
    spark.sql(
        f"{procedure}.rewrite_data_files({where}, strategy => 'sort', "
        "sort_order => 'kafka_partition, kafka_offset', "
        "options => map('rewrite-all', 'true', 'min-input-files', '1'))"
    ).collect()
    withdrawn(tier, 55)
    check(tier, spark, p0=set(range(10, 55)), p1=set(range(30)))
    for end in range(60, 130, 10):
        append(tier.catalog, tier.plan({0: end}))
    with tier.table().transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "2"})
    assert expire(tier.catalog, IDENTIFIER, now_ms=10**15, at_once_min=1) > 10
    check(tier, spark, p0=set(range(10, 120)), p1=set(range(30)))
    spark.sql(
        f"{procedure}.expire_snapshots({where}, retain_last => 1, "
        "older_than => TIMESTAMP '2200-01-01 00:00:00')"
    ).collect()
    append(tier.catalog, tier.plan({0: 130}))
    check(tier, spark, p0=set(range(10, 130)), p1=set(range(30)))
