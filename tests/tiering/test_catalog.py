"""Opening catalogs, and the table of a topic: made once, found again, put aside."""

from __future__ import annotations

import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from appends import IDENTIFIER, NO_WAIT, TOPIC, TOPIC_ID, Tier
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from tiering.errors import BadInput, FatalError, TransientError
from tiering.table.catalog import (
    CatalogConfig,
    ensure_table,
    former_identifier,
    open_catalog,
    table_target,
)
from tiering.table.commit import append
from tiering.table.schema import raw_schema
from tiering.watermarks import (
    COLUMNS_VERSION_PROPERTY,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    WATERMARKS_PROPERTY,
)

NEW_TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
FORMER = ("kafka", "orders__abd935c6")


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier.open(tmp_path)


def test_a_new_table_has_the_columns_order_and_properties(tier: Tier) -> None:
    table = tier.ensure()
    assert [f.name for f in table.schema().fields] == [f.name for f in raw_schema().fields]
    assert table.format_version == 2
    assert table.spec().is_unpartitioned()
    order = [table.schema().find_column_name(f.source_id) for f in table.sort_order().fields]
    assert order == ["kafka_partition", "kafka_offset"]
    assert table.properties[TOPIC_PROPERTY] == TOPIC
    assert table.properties[TOPIC_ID_PROPERTY] == TOPIC_ID
    assert table.properties[COLUMNS_VERSION_PROPERTY] == "1"
    assert table.properties[WATERMARKS_PROPERTY] == "{}"
    assert table.properties["write.parquet.compression-codec"] == "zstd"
    assert table.properties["write.parquet.row-group-size-bytes"] == str(8 * 1024 * 1024)
    assert 0 in table.sort_orders(), "Spark rewrites in other orders only where 0 is listed"
    assert table.location() == f"{tier.warehouse}/orders-{TOPIC_ID}"
    state = tier.state()
    assert (state.snapshot_id, state.watermarks, state.flagged) == (None, {}, None)


def test_an_existing_table_is_found_again(tier: Tier, tmp_path: Path) -> None:
    made = tier.ensure()
    assert Tier.open(tmp_path).ensure().metadata.table_uuid == made.metadata.table_uuid


def test_tierers_that_make_the_same_table_at_once_get_the_same(tmp_path: Path) -> None:
    tiers = [Tier.open(tmp_path) for _ in range(6)]
    with ThreadPoolExecutor(len(tiers)) as pool:
        tables = list(pool.map(Tier.ensure, tiers))
    assert len({t.metadata.table_uuid for t in tables}) == 1


def test_a_topic_made_again_gets_a_table_of_its_own(tier: Tier) -> None:
    tier.ensure()
    append(tier.catalog, tier.plan({0: 10}))
    old = tier.table()
    new = tier.ensure(NEW_TOPIC_ID)

    assert new.metadata.table_uuid != old.metadata.table_uuid
    former = tier.catalog.load_table(FORMER)
    assert former.metadata.table_uuid == old.metadata.table_uuid
    assert former.scan().to_arrow().num_rows == 10
    assert new.location() != former.location(), "no engine's orphan removal sees both"
    assert not new.location().startswith(former.location())


def test_the_former_topic_id_finds_its_renamed_table(tier: Tier) -> None:
    old = tier.ensure()
    tier.ensure(NEW_TOPIC_ID)
    again = tier.ensure(TOPIC_ID)
    assert again.metadata.table_uuid == old.metadata.table_uuid
    assert tuple(again.name()) == FORMER
    assert table_target(again).identifier == FORMER
    assert tier.ensure(NEW_TOPIC_ID).name() == IDENTIFIER


def test_tierers_that_put_a_former_table_aside_at_once(tmp_path: Path) -> None:
    old = Tier.open(tmp_path).ensure()
    tiers = [Tier.open(tmp_path) for _ in range(6)]
    with ThreadPoolExecutor(len(tiers)) as pool:
        tables = list(pool.map(lambda t: t.ensure(NEW_TOPIC_ID), tiers))
    assert len({t.metadata.table_uuid for t in tables}) == 1
    former = tiers[0].catalog.load_table(FORMER)
    assert former.metadata.table_uuid == old.metadata.table_uuid


def test_a_table_of_somebody_else_is_left_alone(tier: Tier) -> None:
    tier.catalog.create_namespace("kafka")
    tier.catalog.create_table(IDENTIFIER, Schema(NestedField(1, "x", LongType())))
    with pytest.raises(BadInput, match="isn't Onecopy's: rename or drop it"):
        tier.ensure()


def test_a_table_of_a_newer_version_is_left_alone(tier: Tier) -> None:
    with tier.ensure().transaction() as transaction:
        transaction.set_properties({COLUMNS_VERSION_PROPERTY: "2"})
    with pytest.raises(BadInput, match="is 2, this version of Onecopy writes 1"):
        tier.ensure()


def test_a_table_of_another_topic_with_the_same_topic_id_is_fatal(tier: Tier) -> None:
    tier.ensure()
    with pytest.raises(FatalError, match="is orders, not payments"):
        ensure_table(tier.catalog, IDENTIFIER, "payments", TOPIC_ID, tier.warehouse)


def test_an_illegal_topic_name_makes_no_table(tier: Tier) -> None:
    with pytest.raises(BadInput):
        ensure_table(tier.catalog, IDENTIFIER, "../x", TOPIC_ID, tier.warehouse)


def test_the_former_name_comes_from_the_first_bytes_of_the_topic_id() -> None:
    assert former_identifier(("a", "b", "t"), NEW_TOPIC_ID) == ("a", "b", "t__00010203")


def test_target_field_ids_are_those_of_the_table(tier: Tier) -> None:
    table = tier.ensure()
    target = table_target(table)
    assert Schema.model_validate_json(target.schema_json) == table.schema()
    assert target.location == table.location()
    assert target.sort_order_id == table.metadata.default_sort_order_id != 0


def test_files_keep_our_sort_order_when_somebody_sorts_the_table_otherwise(tier: Tier) -> None:
    table = tier.ensure()
    ours = table.metadata.default_sort_order_id
    with table.update_sort_order() as update:
        update.asc("kafka_timestamp", IdentityTransform())
    assert table.metadata.default_sort_order_id != ours
    assert table_target(table).sort_order_id == ours


def test_secrets_do_not_travel_to_workers(tmp_path: Path) -> None:
    secrets = {
        "s3.access-key-id": "AKIASECRET1",
        "s3.secret-access-key": "SECRET2secret",
        "s3.session-token": "SECRET3secret",
        "token": "SECRET4secret",
        "credential": "id:SECRET5secret",
        "header.X-Api": "SECRET6secret",
    }
    config = CatalogConfig(
        properties={
            "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
            "s3.endpoint": "http://127.0.0.1:9000",
            **secrets,
        }
    )
    catalog = open_catalog(config)
    target = table_target(
        ensure_table(catalog, IDENTIFIER, TOPIC, TOPIC_ID, str(tmp_path / "warehouse"))
    )
    assert target.io_properties == {
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.region": "us-east-1",
    }
    assert all(secret not in repr(config) for secret in secrets.values())


def test_secrets_are_not_in_error_texts(tmp_path: Path) -> None:
    config = CatalogConfig(
        properties={"uri": "http://127.0.0.1:1/api?token=SECRET4secret", "token": "SECRET4secret"}
    )
    with pytest.raises(TransientError, match="can't be opened") as caught:
        open_catalog(config, pacing=NO_WAIT)
    assert "SECRET4secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_properties_that_can_not_be_right_are_bad_input() -> None:
    with pytest.raises(BadInput, match="uri"):
        open_catalog(CatalogConfig(properties={}))
    with pytest.raises(BadInput, match="nonsense"):
        open_catalog(CatalogConfig(properties={"uri": "x", "type": "nonsense"}))


def test_sqlite_waits_for_another_writer(tier: Tier, tmp_path: Path) -> None:
    tier.ensure()
    plan = tier.plan({0: 10})
    file = tmp_path / "catalog.db"
    with closing(sqlite3.connect(file)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("begin exclusive")
        waiting = pool.submit(append, tier.catalog, plan)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.5)
        other.rollback()
        assert waiting.result(timeout=60).landed == {0}


def test_a_sqlite_catalog_survives_a_fork(tier: Tier) -> None:
    """No connection is kept, so parent and child never share one."""
    tier.ensure()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_read_often, args=(tier,)) for _ in range(3)]
    for child in children:
        child.start()
    _read_often(tier)
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]


def test_the_directory_of_the_catalog_file_is_made(tmp_path: Path) -> None:
    catalog = open_catalog(
        CatalogConfig(properties={"uri": f"sqlite:///{tmp_path / 'a' / 'b' / 'catalog.db'}"})
    )
    assert isinstance(catalog, SqlCatalog)
    assert (tmp_path / "a" / "b" / "catalog.db").is_file()


def test_a_catalog_in_memory_is_one_catalog() -> None:
    catalog: Catalog = open_catalog(CatalogConfig(properties={"uri": "sqlite:///:memory:"}))
    catalog.create_namespace("kafka")
    assert catalog.list_namespaces() == [("kafka",)]


def _read_often(tier: Tier) -> None:
    for _ in range(20):
        tier.table()
