"""The SQL catalog keeps metadata: it must be what the file says, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest
from appends import IDENTIFIER, Tier
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tiering.table import sql_catalog
from tiering.table.commit import append
from tiering.table.sql_catalog import LeanSqlCatalog
from tiering.upkeep.expiry import expire

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
"""PyIceberg, standing in for another writer, knows fewer table properties than Spark."""


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    tier = Tier.open(tmp_path)
    tier.ensure()
    return tier


def as_stored(table: Table) -> str:
    """The metadata as its file has it, read without any catalog."""
    return FromInputFile.table_metadata(
        table.io.new_input(table.metadata_location)
    ).model_dump_json()


def check(tier: Tier) -> str:
    table = tier.table()
    kept = table.metadata.model_dump_json()
    assert kept == as_stored(table)
    assert table.metadata == FromInputFile.table_metadata(
        table.io.new_input(table.metadata_location)
    )
    return kept


def change_in_every_way(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 10, 1: 5}))
    append(tier.catalog, tier.plan({0: 20}, empty=True))
    with tier.table().update_schema() as update:
        update.add_column("note", StringType())
    with tier.table().update_schema() as update:
        update.delete_column("note")
    append(tier.catalog, tier.plan({0: 30}))
    with tier.table().transaction() as transaction:
        transaction.set_properties({"a": "b"})
    with tier.table().transaction() as transaction:
        transaction.remove_properties("a")
    head = tier.table().current_snapshot()
    assert head is not None
    tier.table().manage_snapshots().create_tag(head.snapshot_id, "t").commit()
    tier.table().delete("kafka_offset = 3")
    with tier.table().update_spec() as spec:
        spec.add_identity("kafka_partition")
    expire(tier.catalog, IDENTIFIER, now_ms=10**15, at_once_min=1)


def test_the_default_catalog_is_one_of_these(tier: Tier) -> None:
    assert isinstance(tier.catalog, LeanSqlCatalog)


def test_what_is_kept_is_what_was_written(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step, and what was loaded before a step has not changed under its reader."""
    loaded: list[tuple[Table, str]] = []
    real = LeanSqlCatalog.commit_table

    def watched(self: LeanSqlCatalog, *request: object) -> object:
        loaded.append((tier.table(), check(tier)))
        response = real(self, *request)  # type: ignore[arg-type]
        check(tier)
        return response

    monkeypatch.setattr(LeanSqlCatalog, "commit_table", watched)
    change_in_every_way(tier)
    assert len(loaded) > 8
    for table, before in loaded:
        assert table.metadata.model_dump_json() == before


def test_the_same_as_pyicebergs_own(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same updates, applied by PyIceberg's catalog, give the same metadata."""
    compared = 0
    ours = LeanSqlCatalog._update_and_stage_table

    def both(self: LeanSqlCatalog, table: Table, *rest: object) -> object:
        nonlocal compared
        staged = ours(self, table, *rest)  # type: ignore[arg-type]
        theirs = SqlCatalog._update_and_stage_table(self, table, *rest)  # type: ignore[arg-type]
        own = {"last_updated_ms", "snapshot_log"}  # they carry the time of the call
        assert staged.metadata.model_dump(exclude=own) == theirs.metadata.model_dump(exclude=own)
        compared += 1
        return staged

    monkeypatch.setattr(LeanSqlCatalog, "_update_and_stage_table", both)
    change_in_every_way(tier)
    assert compared > 8


def test_commits_of_another_process_are_seen(tier: Tier, tmp_path: Path) -> None:
    other = Tier.open(tmp_path)
    append(other.catalog, other.plan({0: 10}))
    assert tier.offsets() == list(range(10))
    append(tier.catalog, tier.plan({0: 20}))
    assert other.offsets() == list(range(20))
    check(other)


def test_a_renamed_table_and_a_new_one_of_its_name(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 10}))
    old = tier.table().metadata.table_uuid
    tier.catalog.rename_table(IDENTIFIER, ("kafka", "former"))
    assert tier.catalog.load_table(("kafka", "former")).metadata.table_uuid == old
    assert tier.catalog.load_table(("kafka", "former")).name() == ("kafka", "former")
    tier.ensure()
    assert tier.table().metadata.table_uuid != old


def test_a_metadata_file_is_read_once(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    real = FromInputFile.table_metadata

    def counted(*args: object) -> object:
        nonlocal reads
        reads += 1
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(FromInputFile, "table_metadata", counted)
    for end in range(10, 60, 10):
        append(tier.catalog, tier.plan({0: end}))
    assert reads == 0


def test_what_is_kept_is_bounded(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_catalog, "_SNAPSHOTS_KEPT", 20)
    for end in range(1, 30):
        append(tier.catalog, tier.plan({0: end}))
    catalog = tier.catalog
    assert isinstance(catalog, LeanSqlCatalog)
    assert len(catalog._known._by_location) == 1
    check(tier)
