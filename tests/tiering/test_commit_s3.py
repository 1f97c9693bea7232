"""A table in a real S3 store: credentials come from the environment, and stay there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from appends import IDENTIFIER, TOPIC, TOPIC_ID, columns
from pyiceberg.io.pyarrow import schema_to_pyarrow
from s3_server import S3Server

from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.table.commit import TableAppend, append, load_state
from tiering.table.data_files import entry_from_parquet
from tiering.watermarks import Watermark

pytestmark = pytest.mark.s3


def test_an_append_lands_in_s3(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    warehouse = f"s3://{s3_server.bucket}/commit-{tmp_path.name}/warehouse"
    properties = {
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": warehouse,
        "s3.endpoint": s3_server.endpoint,
    }
    catalog = open_catalog(CatalogConfig(properties=properties))
    table = ensure_table(catalog, IDENTIFIER, TOPIC, TOPIC_ID, warehouse)
    target = table_target(table)
    assert target.location.startswith(warehouse + "/")
    assert target.io_properties == {
        "s3.endpoint": s3_server.endpoint,
        "s3.region": s3_server.region,
    }

    rows = pa.Table.from_pydict(columns(0, range(50)), schema=schema_to_pyarrow(table.schema()))
    path = f"{target.location}/data/one.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    with table.io.new_input(path).open() as stream:
        metadata = pq.read_metadata(pa.PythonFile(stream))
    entry = entry_from_parquet(
        metadata, path=path, size_bytes=len(table.io.new_input(path)), target=target
    )
    plan = TableAppend(
        identifier=IDENTIFIER,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        cycle_id="one",
        base=load_state(catalog, IDENTIFIER),
        expected={0: None},
        moved={0: Watermark(offset=50)},
        files={0: (entry,)},
    )
    assert append(catalog, plan).landed == {0}
    found = catalog.load_table(IDENTIFIER).scan(row_filter="kafka_offset >= 40").to_arrow()
    assert sorted(found["kafka_offset"].to_pylist()) == list(range(40, 50))
    text = str(catalog.load_table(IDENTIFIER).metadata)
    assert all(secret not in text for secret in s3_server.env.values())
