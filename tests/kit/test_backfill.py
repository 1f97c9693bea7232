"""Topics that a real broker tiered with LocalTieredStorage, brought into tables afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from polling import eventually

from tiering.cli import main
from tiering.config import default_config
from tiering.demo.readings import read_by_offset
from tiering.demo.workload import TOPICS, produce_topic
from tiering.local.kafka import LocalKafka, local_tiered_storage
from tiering.local.tier_stack import CONFIG_FILE
from tiering.offset_reader import OffsetReader
from tiering.table.topic_tables import CatalogTables

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 30_000
# Twenty batches fill the index, so transactions reach over many small segments.
TOPIC_CONFIG = {
    "segment.index.bytes": "240",
    "index.interval.bytes": "1",
    "local.retention.ms": "1000",
}


def tiered_to(root: Path, kafka: LocalKafka, topic: str, partition: int) -> bool:
    """Whether all but an empty active segment lies in the foreign tier."""
    local = kafka.local_segments(topic, partition)
    active = kafka.data_directory / f"{topic}-{partition}" / f"{local[0]:020d}.log"
    return len(local) == 1 and local[0] > 0 and active.stat().st_size == 0


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_topic_tiered_before_onecopy_comes_into_the_table_whole(
    local_kafka: Callable[..., LocalKafka], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign"
    kafka = local_kafka(remote=local_tiered_storage(foreign))
    payments = TOPICS[0]
    kafka.create_tiered_topic(payments.name, payments.partitions, TOPIC_CONFIG)
    acknowledged = produce_topic(
        kafka.bootstrap_servers, payments, RECORDS, advance=lambda count: None
    )
    for partition in range(payments.partitions):
        eventually(lambda p=partition: tiered_to(foreign, kafka, payments.name, p), timeout_s=120)
    kafka.stop()
    root = foreign / "kafka-tiered-storage"
    before = contents(root)
    assert sum(name.endswith(".log") for name in before) > payments.partitions

    tier = tmp_path / "tier"
    tier.mkdir()
    config = default_config(tier)
    (tier / CONFIG_FILE).write_text(config.to_json())
    capsys.readouterr()
    assert main(["backfill", str(root), payments.name, "--dir", str(tier), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["backfill", str(root), "--dir", str(tier), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)

    catalog = CatalogTables(config).catalog
    reader = OffsetReader.open(catalog, config.namespace, payments.name)
    ends = {p: reader.end_offset(p) for p in range(payments.partitions)}
    found = read_by_offset(reader, ends, advance=lambda count: None)
    expected = acknowledged.digest(ends)
    assert found.records == expected.records == sum(map(len, acknowledged.records))
    assert found.hexdigest() == expected.hexdigest()
    assert first["rows"] == found.records
    assert first["problems"] == again["problems"] == {}
    assert (again["rows"], again["commits"]) == (0, 0)
    assert contents(root) == before


def test_a_directory_without_segments_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / CONFIG_FILE).write_text(default_config(tmp_path).to_json())
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["backfill", str(empty), "--dir", str(tmp_path)]) == 2
    assert "holds no segments of any topic" in capfd.readouterr().err
