"""The whole way on a real S3 server and a real REST catalog, chosen by configuration alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_tiers import Tier, records, segment, tier_status
from rest_catalog import run_rest_catalog
from s3_server import S3Server

from tiering.config import default_config
from tiering.offset_reader import OffsetReader
from tiering.table.topic_tables import CatalogTables


@pytest.fixture
def s3_url(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if not s3_server.heeds_conditions:
        pytest.skip("this S3 server ignores conditional writes")
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return s3_server.url(f"engine-{tmp_path.name}")


def check_the_whole_way(tier: Tier) -> None:
    first = segment(0, 300)
    other = segment(0, 40, topic="page.views")
    first.store(tier.store)
    other.store(tier.store)
    tier.settle()
    later = segment(300, 70, first)
    later.store(tier.store)
    tier.settle()
    assert tier.rows(first) == records(first, later)
    assert tier.rows(other) == other.rows()
    assert tier_status(tier)[first.topic, first.partition].lag == 0
    reader = OffsetReader.open(CatalogTables(tier.config).catalog, "kafka", first.topic)
    found = [r.offset for r in reader.records(first.partition, offset=299)]
    assert found == list(range(299, 370))


@pytest.mark.s3
def test_s3_with_the_embedded_catalog(s3_url: str, tmp_path: Path) -> None:
    check_the_whole_way(Tier(default_config(tmp_path, store=s3_url)))


def test_a_directory_with_a_rest_catalog(tmp_path: Path) -> None:
    with run_rest_catalog(tmp_path) as server:
        config = default_config(tmp_path, catalog_uri=server.properties["uri"])
        secret = {"token": server.properties["token"]}
        check_the_whole_way(Tier(replace(config, catalog={**config.catalog, **secret})))
