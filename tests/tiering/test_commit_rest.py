"""The same protocol against a real REST catalog, with its errors on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from appends import IDENTIFIER, NO_WAIT, TOPIC, TOPIC_ID, Tier
from rest_catalog import RestServer, run_rest_catalog

from tiering.errors import FatalError, NotFound, TransientError
from tiering.table import manifest_merge
from tiering.table.catalog import CatalogConfig, open_catalog
from tiering.table.commit import append
from tiering.table.replace import TableReplacement
from tiering.table.replace import replace as replace_files
from tiering.upkeep.expiry import expire


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with run_rest_catalog(tmp_path_factory.mktemp("rest")) as server:
        yield server


def opened(server: RestServer) -> Tier:
    catalog = open_catalog(CatalogConfig(properties=server.properties))
    return Tier(catalog=catalog, warehouse=server.warehouse)


@pytest.fixture
def tier(server: RestServer) -> Iterator[Tier]:
    tier = opened(server)
    tier.ensure()
    yield tier
    for table in tier.catalog.list_tables(IDENTIFIER[:-1]):
        tier.catalog.drop_table(table)


def test_rows_and_watermarks_land(tier: Tier) -> None:
    assert append(tier.catalog, tier.plan({0: 100, 1: 5})).landed == {0, 1}
    assert append(tier.catalog, tier.plan({0: 150}, empty=True)).landed == {0}
    assert append(tier.catalog, tier.plan({0: 200})).landed == {0}
    assert tier.offsets(0) == [*range(100), *range(150, 200)]
    assert tier.marks() == {0: 200, 1: 5}


@pytest.mark.parametrize("kind", ["landed-409", "landed-500", "landed-504", "landed-cut"])
def test_landed_but_reported_as_failed(tier: Tier, server: RestServer, kind: str) -> None:
    append(tier.catalog, tier.plan({0: 10}))
    server.fail_next_commit(kind)
    assert append(tier.catalog, tier.plan({0: 100}), pacing=NO_WAIT).landed == {0}
    assert tier.offsets() == list(range(100))
    assert len(tier.table().snapshots()) == 2


@pytest.mark.parametrize("kind", ["409", "503"])
def test_failed_and_not_landed_is_sent_again(tier: Tier, server: RestServer, kind: str) -> None:
    server.fail_next_commit(kind)
    plan = tier.plan({0: 100})
    assert append(tier.catalog, plan, pacing=NO_WAIT).landed == {0}
    assert tier.offsets() == list(range(100))


def test_tierers_that_race_land_each_offset_once(tier: Tier, server: RestServer) -> None:
    plans = [tier.plan({0: 100, 1 + i: 10}) for i in range(4)]

    def go(index: int) -> frozenset[int]:
        return append(opened(server).catalog, plans[index]).landed

    with ThreadPoolExecutor(4) as pool:
        landings = list(pool.map(go, range(4)))
    assert sum(0 in landed for landed in landings) == 1
    assert all(1 + i in landings[i] for i in range(4))
    assert tier.offsets(0) == list(range(100))
    assert tier.marks() == {0: 100, 1: 10, 2: 10, 3: 10, 4: 10}


def test_a_zombie_is_refused(tier: Tier) -> None:
    stale = tier.plan({0: 20}, empty=True)
    append(tier.catalog, tier.plan({0: 40}))
    assert append(tier.catalog, replace(stale, cycle_id="zombie")).dropped == {0}
    assert tier.marks() == {0: 40}


def test_rollback_by_somebody_else_stops_the_table(tier: Tier) -> None:
    first = append(tier.catalog, tier.plan({0: 100})).snapshot_id
    assert first is not None
    append(tier.catalog, tier.plan({0: 200}))
    tier.table().manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(FatalError, match="rolled the table back"):
        append(tier.catalog, tier.plan({0: 300}))


def test_a_topic_made_again_gets_a_table_of_its_own(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 10}))
    new = tier.ensure("AAECAwQFBgcICQoLDA0ODw")
    assert new.current_snapshot() is None
    assert tier.ensure(TOPIC_ID).scan().to_arrow().num_rows == 10


def test_tierers_that_make_the_same_table_at_once_get_the_same(
    tier: Tier, server: RestServer
) -> None:
    tier.catalog.drop_table(IDENTIFIER)
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: opened(server).ensure(), range(4)))
    assert len({t.metadata.table_uuid for t in tables}) == 1


def test_a_missing_table_is_known_to_be_missing(tier: Tier) -> None:
    tier.catalog.drop_table(IDENTIFIER)
    with pytest.raises(NotFound):
        tier.state()
    tier.ensure()


def test_a_wrong_token_is_said_without_saying_it(server: RestServer) -> None:
    properties = {**server.properties, "token": "wrong-token-7"}
    with pytest.raises(TransientError) as caught:
        open_catalog(CatalogConfig(properties=properties), pacing=NO_WAIT)
    assert "wrong-token-7" not in str(caught.value)


@pytest.mark.parametrize("kind", ["landed-409", "landed-504", "409", "503"])
def test_files_replaced_manifests_merged_snapshots_expired(
    tier: Tier, server: RestServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(manifest_merge, "MANIFESTS_MAX", 3)
    for end in range(10, 100, 10):
        append(tier.catalog, tier.plan({0: end, 1: end}))
    state = tier.state()
    gone = {
        task.file.file_path
        for task in tier.table().scan(row_filter="kafka_partition = 0").plan_files()
        if int.from_bytes(task.file.lower_bounds[2], "little") >= 50
    }
    plan = TableReplacement(
        identifier=IDENTIFIER, topic=TOPIC, topic_id=TOPIC_ID, cycle_id=f"back-{kind}",
        base=state, expected={0: state.watermarks[0]}, moved={0: state.watermarks[0].until(50)},
        removed=frozenset(gone), reason="test",
    )  # fmt: skip
    server.fail_next_commit(kind)
    assert replace_files(tier.catalog, plan, pacing=NO_WAIT).removed_files == 4
    with tier.table().transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "3"})
    server.fail_next_commit(kind)
    assert expire(tier.catalog, IDENTIFIER, now_ms=10**15, at_once_min=1, pacing=NO_WAIT) == 7
    append(tier.catalog, tier.plan({0: 70}))
    assert (tier.offsets(0), tier.offsets(1)) == (list(range(70)), list(range(90)))
    assert tier.state().flagged is None
    assert len(tier.table().snapshots()) == 4
