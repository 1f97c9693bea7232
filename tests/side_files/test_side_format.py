"""What others make of our side files: Iceberg's own reader, PyIceberg, pyarrow, DuckDB."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.puffin import PuffinBlobMetadata, PuffinFile
from side_samples import INDEXES, CountingStore, Sample, keys, make_sample, segment, write

from segment_reader.batch_table import BATCH_SCHEMA
from tiering.jars import class_path, java_command
from tiering.side_files import bundle
from tiering.side_files import writer as writing

DUMP = Path(__file__).parent / "java" / "PuffinDump.java"


@pytest.fixture
def sample() -> Sample:
    return make_sample(800)


@pytest.fixture
def stored(
    local_store: CountingStore, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """A side file of several blobs of each kind, and a bundle of it with another."""
    monkeypatch.setattr(writing, "_BATCHES_MAX", 300)
    monkeypatch.setattr(writing, "_KEPT_BYTES_MAX", 4000)
    own = keys(write(local_store, segment(), sample))
    other = keys(write(local_store, segment(1), make_sample(50, seed=2), cuts=(20,)))
    bundle(local_store, [(segment(1), other), (segment(), own)], "side/bundle.puffin")
    names = {"own": own[0], "bundle": "side/bundle.puffin"}
    return {name: local_store.get(key).data for name, key in names.items()}


def own_blobs(file: PuffinFile, kind: str) -> list[PuffinBlobMetadata]:
    wanted = segment().path
    return [b for b in file.footer.blobs if b.type == kind and b.properties["segment"] == wanted]


@pytest.mark.parametrize("which", ["own", "bundle"])
class TestPyIceberg:
    def test_blobs_and_what_they_say(self, stored: dict[str, bytes], which: str) -> None:
        file = PuffinFile(stored[which])
        assert file.footer.properties["created-by"] == "Onecopy"
        for blob in file.footer.blobs:
            assert (blob.fields, blob.snapshot_id, blob.sequence_number) == ([], -1, -1)
            assert blob.properties["segment"] in {segment().path, segment(1).path}
        kinds = [blob.type for blob in file.footer.blobs]
        assert set(kinds) == {"onecopy-batches-v1", "onecopy-index-v1", "onecopy-kept-v1"}
        assert min(kinds.count(kind) for kind in set(kinds)) >= 2

    def test_indexes_verbatim(self, stored: dict[str, bytes], which: str) -> None:
        file = PuffinFile(stored[which])
        blobs = own_blobs(file, "onecopy-index-v1")
        found = {b.properties["part"]: file.get_blob_payload(b) for b in blobs}
        assert found == INDEXES
        codecs = {b.properties["part"]: b.compression_codec for b in blobs}
        assert codecs == {"offset_index": "zstd", "time_index": None, "verdicts": None}

    def test_batches_as_parquet(
        self, stored: dict[str, bytes], which: str, sample: Sample, tmp_path: Path
    ) -> None:
        """Cut out by offset and length, each blob is a Parquet file for anybody."""
        file = PuffinFile(stored[which])
        expected = sample.batches.to_arrow(sample.kept_bytes)
        for i, blob in enumerate(own_blobs(file, "onecopy-batches-v1")):
            cut = stored[which][blob.offset : blob.offset + blob.length]
            (tmp_path / f"{i}.parquet").write_bytes(cut)
        files = sorted(tmp_path.glob("*.parquet"))
        table = pa.concat_tables(pq.read_table(path) for path in files)
        assert table.schema.equals(pa.schema(list(BATCH_SCHEMA)[:-1]))
        assert table.equals(pa.Table.from_batches([expected]).drop_columns(["kept_bytes"]))
        with duckdb.connect() as con:
            rows = con.execute(
                "select * from read_parquet(?) order by position", [[str(path) for path in files]]
            ).fetchall()
        assert rows == [tuple(row.values()) for row in table.to_pylist()]

    def test_kept_bytes_as_parquet(
        self, stored: dict[str, bytes], which: str, sample: Sample, tmp_path: Path
    ) -> None:
        file = PuffinFile(stored[which])
        for i, blob in enumerate(own_blobs(file, "onecopy-kept-v1")):
            (tmp_path / f"{i:03d}.parquet").write_bytes(file.get_blob_payload(blob))
        with duckdb.connect() as con:
            query = "select position, kept_bytes from read_parquet(?) order by position"
            rows = con.execute(query, [f"{tmp_path}/*.parquet"]).fetchall()
        positions = sample.batches.headers.position.tolist()
        pairs = zip(positions, sample.kept_bytes, strict=True)
        assert rows == [(at, data) for at, data in pairs if data is not None]


@pytest.mark.parametrize("which", ["own", "bundle"])
def test_icebergs_own_reader(
    stored: dict[str, bytes], which: str, iceberg_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    path = tmp_path / "side.puffin"
    path.write_bytes(stored[which])
    command = [
        java_command(),
        "-Xmx256m",
        "-cp",
        class_path((*iceberg_jars, *_hadoop())),
        str(DUMP),
    ]
    found = subprocess.run(
        [*command, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr
    file = PuffinFile(stored[which])
    first, *lines = found.stdout.splitlines()
    assert first == _map(file.footer.properties)
    assert lines == [_line(file, blob) for blob in file.footer.blobs]


def _line(file: PuffinFile, blob: PuffinBlobMetadata) -> str:
    """What the Java program must print of a blob."""
    digest = hashlib.sha256(file.get_blob_payload(blob)).hexdigest()
    codec = blob.compression_codec or "null"
    numbers = (blob.snapshot_id, blob.sequence_number, blob.offset, blob.length)
    return "\t".join((blob.type, "[]", *map(str, numbers), codec, _map(blob.properties), digest))


def _map(properties: dict[str, str]) -> str:
    """As Java prints a sorted map."""
    return "{" + ", ".join(f"{k}={v}" for k, v in sorted(properties.items())) + "}"


def _hadoop() -> list[Path]:
    from rest_catalog import _hadoop_jars

    return _hadoop_jars()
