"""The offset reader over a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest
from offset_tables import NAMESPACE, TOPIC, append, make_catalog, make_table, offsets_of, record
from pyiceberg.catalog import Catalog
from s3_server import S3Server

from tiering.errors import FatalError, TransientError
from tiering.offset_reader import OffsetReader

pytestmark = pytest.mark.s3
ROWS = 90


@pytest.fixture
def catalog(s3_server: S3Server, tmp_path: Path) -> Catalog:
    catalog = make_catalog(
        tmp_path,
        warehouse=f"s3://{s3_server.bucket}/reader-{tmp_path.name}",
        **access(s3_server),
    )
    table = make_table(catalog)
    for k in range(3):
        append(table, [(0, o) for o in range(k * 30, (k + 1) * 30)], {0: (k + 1) * 30})
    return catalog


def access(server: S3Server) -> dict[str, str]:
    return {
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
        "s3.region": server.region,
    }


def test_every_seek(catalog: Catalog) -> None:
    reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
    assert list(reader.records(0)) == [record(0, o) for o in range(ROWS)]
    for start in range(0, ROWS + 1, 7):
        assert offsets_of(reader.batches(0, offset=start)) == list(range(start, ROWS))


def test_a_missing_object_is_not_an_outage(catalog: Catalog, s3_server: S3Server) -> None:
    reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
    files = [t.file.file_path for t in catalog.load_table((NAMESPACE, TOPIC)).scan().plan_files()]
    for path in files:
        bucket, _, key = path.removeprefix("s3://").partition("/")
        s3_server.client().remove_object(bucket, key)
    with pytest.raises(FatalError, match="does not exist"):
        offsets_of(reader.batches(0))


def test_refused_credentials_are_an_outage(
    catalog: Catalog, s3_server: S3Server, tmp_path: Path
) -> None:
    wrong = {**access(s3_server), "s3.secret-access-key": "wrong-secret-key"}
    other = make_catalog(tmp_path, **wrong)
    with pytest.raises(TransientError):
        OffsetReader.open(other, NAMESPACE, TOPIC)
