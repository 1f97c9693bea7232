"""A topic's table and side files made by real conversion, and what each batch must come back as."""

from __future__ import annotations

import gzip
import itertools
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cramjam
import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from native_segments import Rec, Segment, record_bytes
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, In
from pyiceberg.table import Table

from tiering.conversion.convert import convert_task
from tiering.history import RegeneratedRun, TableRecords
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.side_files import SideFile
from tiering.store import ObjectStore, open_store
from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.table.commit import TableAppend, append, load_state
from tiering.tasks import DataFileEntry
from tiering.watermarks import Watermark

IDENTIFIER = ("kafka", "orders")
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
PARTITION = 3
FOREIGN = b"what no log has"


@dataclass(frozen=True, kw_only=True)
class Original:
    """A batch as its log has it: header fields and decompressed records."""

    base_offset: int
    attributes: int
    count: int
    records: bytes


def originals(log: bytes) -> list[Original]:
    """The batches of a log, read without any of our code (DefaultRecordBatch of Kafka)."""
    found, at = [], 0
    while at < len(log):
        base_offset, length = struct.unpack_from(">qi", log, at)
        (attributes,) = struct.unpack_from(">h", log, at + 21)
        (count,) = struct.unpack_from(">i", log, at + 57)
        data = log[at + 61 : at + 12 + length]
        found.append(
            Original(
                base_offset=base_offset,
                attributes=attributes,
                count=count,
                records=_decompressed(attributes & 7, data) if data else b"",
            )
        )
        at += 12 + length
    return found


def _decompressed(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        return _snappy(data)
    if codec == 3:
        return bytes(lz4.frame.decompress(data))
    if codec == 4:
        return zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(data)
    return data


def _snappy(data: bytes) -> bytes:
    """Blocks as Java's stream frames them."""
    out, at = b"", 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return out


@dataclass(frozen=True, kw_only=True)
class HistoryTier:
    """A store, a catalog, and one topic's table in it."""

    store: ObjectStore
    catalog: Catalog

    @classmethod
    def make(cls, directory: Path, name: str = "onecopy", **more: str) -> HistoryTier:
        """An empty table below `directory`."""
        warehouse = str(directory / "warehouse")
        properties = {"uri": f"sqlite:///{directory}/catalog.db", "warehouse": warehouse, **more}
        catalog = open_catalog(CatalogConfig(name=name, properties=properties))
        table = ensure_table(catalog, IDENTIFIER, "orders", TOPIC_ID, warehouse)
        # PyIceberg, which rewrites files here, warns of what only Spark knows.
        for_spark = {"write.parquet.row-group-size-bytes"} & set(table.properties)
        with table.transaction() as change:
            change.remove_properties(*for_spark)
        return cls(store=open_store(str(directory / "store")), catalog=catalog)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(IDENTIFIER)

    def convert(self, segment: Segment, log: bytes | None = None) -> SideFile:
        """Put a segment (or `log` in its place) into store and table; returns its side file."""
        segment.store(self.store, log)
        task = segment.task(self.store, table_target(self.table))
        result = convert_task(replace(task, side_prefix=segment.id.side_prefix))
        assert result.failure is None, result.failure
        assert result.side_key is not None
        if result.entries:
            self.commit(result.entries)
        return self.side(segment)

    def side(self, segment: Segment) -> SideFile:
        """What conversion has written beside the rows."""
        keys = sorted(info.key for info in self.store.list(segment.id.side_prefix))
        return SideFile.open(self.store, segment.id, keys)

    def commit(self, entries: Iterable[DataFileEntry]) -> None:
        """Append data files."""
        files: dict[int, list[DataFileEntry]] = {}
        for entry in entries:
            files.setdefault(entry.kafka_partition, []).append(entry)
        state = load_state(self.catalog, IDENTIFIER)
        outcome = append(
            self.catalog,
            TableAppend(
                identifier=IDENTIFIER,
                topic="orders",
                topic_id=TOPIC_ID,
                cycle_id=os.urandom(8).hex(),
                base=state,
                expected={p: state.watermarks.get(p) for p in files},
                moved={
                    p: Watermark(offset=max(f.last_offset for f in e) + 1) for p, e in files.items()
                },
                files={p: tuple(e) for p, e in files.items()},
            ),
        )
        assert set(outcome.landed) == set(files)

    def view(self) -> SnapshotView:
        """The newest snapshot."""
        return SnapshotView.of(self.table, MAIN, ReadLimits())

    def records(self, limits: ReadLimits | None = None) -> TableRecords:
        """The newest snapshot's rows."""
        return TableRecords(self.view(), limits or ReadLimits())

    def rewrite(self, order: str, *, files: int, row_group_rows: int) -> None:
        """Put all rows into new files, as another engine may."""
        with self.table.transaction() as change:
            change.set_properties({"write.parquet.row-group-limit": str(row_group_rows)})
        rows = self.table.scan().to_arrow()
        foreign = np.array([value == FOREIGN for value in rows["value"].to_pylist()])
        keys = {
            "offset": lambda: np.argsort(rows["kafka_offset"].to_numpy(), kind="stable"),
            "key": lambda: pc.sort_indices(rows, [("kafka_key", "ascending")]).to_numpy(),
            "shuffled": lambda: np.random.default_rng(5).permutation(rows.num_rows),
            "foreign first": lambda: np.argsort(~foreign, kind="stable"),
            "foreign last": lambda: np.argsort(foreign, kind="stable"),
        }
        rows = rows.take(pa.array(keys[order]()))
        table = self.table
        table.delete()
        step = -(-rows.num_rows // files)
        for first in range(0, rows.num_rows, step):
            table.append(rows.slice(first, step).combine_chunks())

    def insert(
        self,
        offsets: Sequence[int | None],
        *,
        partition: int | Sequence[int | None] | None = PARTITION,
    ) -> None:
        """Rows that no log has, as by another engine's INSERT."""
        if partition is None or isinstance(partition, int):
            partition = [partition] * len(offsets)
        schema = self.table.schema().as_arrow()
        rows = [
            {"kafka_partition": p, "kafka_offset": o, "kafka_headers": None, "value": FOREIGN}
            for p, o in zip(partition, offsets, strict=True)
        ]
        self.table.append(pa.Table.from_pylist(rows, schema=schema))

    def repeat(self, offsets: Sequence[int]) -> None:
        """The same rows once more."""
        self.table.append(self.table.scan(In("kafka_offset", set(offsets))).to_arrow())

    def change(self, offset: int) -> None:
        """Another value for one row, as by UPDATE."""
        rows = self.table.scan(EqualTo("kafka_offset", offset)).to_arrow()
        place = rows.schema.get_field_index("value")
        field = rows.schema.field(place)
        changed = rows.set_column(place, field, pa.array([FOREIGN] * rows.num_rows, field.type))
        self.table.overwrite(changed, EqualTo("kafka_offset", offset))


def check(runs: Iterable[RegeneratedRun], log: bytes, first: int = 0) -> int:
    """Every batch of `runs` is what the log has; returns how many there were."""
    expected = originals(log)
    at = first
    for run in runs:
        assert run.first == at
        assert run.deleted_rows == 0
        data = run.records.buffer.tobytes()
        for i, (start, end) in enumerate(itertools.pairwise(run.records.borders.tolist())):
            original = expected[at]
            assert data[start:end] == original.records, at
            assert run.counts[i] == run.headers.count[i] == original.count
            assert run.headers.base_offset[i] == original.base_offset
            assert run.headers.attributes[i] == original.attributes
            at += 1
    return at - first


def batches_of(run: RegeneratedRun) -> list[bytes]:
    """Each batch's record bytes."""
    data = run.records.buffer.tobytes()
    return [data[start:end] for start, end in itertools.pairwise(run.records.borders.tolist())]


def encoded(records: Sequence[Rec], first: Rec) -> bytes:
    """Records of the batch that begins with `first`."""
    return b"".join(record_bytes(record, first) for record in records)
