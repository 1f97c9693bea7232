"""A store, a catalog and one topic's table, with segments converted, committed and to be proven."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from native_segments import Segment
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from segment_reader.batch_table import BatchTable
from tiering.conversion.convert import convert_task
from tiering.conversion.splitting import split_by_index
from tiering.ledger import Ledger
from tiering.proof.prove import prove_task
from tiering.segments import INDEX_PARTS, SegmentId
from tiering.side_files import SideFile, SideFileWriter
from tiering.store import ObjectStore, open_store
from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.table.commit import TableAppend, append
from tiering.table.loading import load_state
from tiering.tasks import (
    ConversionResult,
    ConversionTask,
    DataFileEntry,
    ProofFailure,
    ProofResult,
    ProofTask,
)
from tiering.watermarks import Watermark

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
IDENTIFIER = ("kafka", "orders")


@dataclass
class ProofPlace:
    """What was converted here is remembered by segment id: the keys of its side file."""

    store: ObjectStore
    catalog: Catalog
    sides: dict[SegmentId, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def make(
        cls, directory: Path, store_url: str | None = None, properties: Mapping[str, str] = {}
    ) -> ProofPlace:
        """A catalog in `directory`; the store there, too, or at `store_url`."""
        store = open_store(store_url or str(directory / "store"))
        warehouse = store.url.partition("?")[0] + "/warehouse"
        found = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": warehouse,
            **properties,
        }
        catalog = open_catalog(CatalogConfig(properties=found))
        ensure_table(catalog, IDENTIFIER, "orders", TOPIC_ID, warehouse)
        return cls(store, catalog)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(IDENTIFIER)

    def task(self, segment: Segment, **changes: Any) -> ConversionTask:
        task = segment.task(self.store, table_target(self.table))
        return replace(task, **{"side_prefix": segment.id.side_prefix, **changes})

    def convert(
        self,
        segment: Segment,
        *,
        log: bytes | None = None,
        split_bytes: int | None = None,
        checksums: bool = True,
        **changes: Any,
    ) -> list[ConversionResult]:
        """Store, convert and commit a segment; its parts where it is to be split."""
        entry = segment.store(self.store, log, checksums=checksums)
        tasks = [self.task(segment, **changes)]
        if split_bytes is not None:
            tasks = list(split_by_index(self.store, split_bytes)(tasks[0], entry))
        results = [convert_task(task) for task in tasks]
        assert [r.failure for r in results] == [None] * len(results)
        self.commit([e for r in results for e in r.entries], segment.end_offset + 1)
        self.sides[segment.id] = tuple(str(r.side_key) for r in results)
        return results

    def commit(self, entries: Sequence[DataFileEntry], upto: int) -> None:
        partitions = {e.kafka_partition for e in entries}
        if not partitions:
            return
        state = load_state(self.catalog, IDENTIFIER)
        outcome = append(
            self.catalog,
            TableAppend(
                identifier=IDENTIFIER,
                topic="orders",
                topic_id=TOPIC_ID,
                cycle_id=os.urandom(8).hex(),
                base=state,
                expected={p: state.watermarks.get(p) for p in partitions},
                moved={p: Watermark(offset=upto) for p in partitions},
                files={p: tuple(e for e in entries if e.kafka_partition == p) for p in partitions},
            ),
        )
        assert set(outcome.landed) == partitions

    def proof_task(self, segment: Segment, part: int = 0, **changes: Any) -> ProofTask:
        task = ProofTask(
            task_id=part,
            store_url=self.store.url,
            segment_path=segment.id.path,
            topic=segment.topic,
            topic_id=segment.topic_id,
            partition=segment.partition,
            segment_start_offset=segment.start_offset,
            segment_end_offset=segment.end_offset,
            leader_epochs=segment.leader_epochs,
            side_keys=self.sides[segment.id],
            part=part,
            metadata_location=self.table.metadata_location,
            table=IDENTIFIER,
            io_properties=table_target(self.table).io_properties,
        )
        return replace(task, **changes)

    def prove(self, segment: Segment, **changes: Any) -> list[ProofResult]:
        parts = range(len(self.sides[segment.id]))
        return [prove_task(self.proof_task(segment, part, **changes)) for part in parts]

    def failure(self, segment: Segment, **changes: Any) -> ProofFailure:
        """What the proof of a segment of one part says is wrong."""
        (result,) = self.prove(segment, **changes)
        assert result.failure is not None
        assert (result.batches, result.coverage) == (0, "")
        return result.failure

    def require_proven(self, segment: Segment, log: bytes | None = None) -> list[ProofResult]:
        results = self.prove(segment)
        assert [r.failure for r in results] == [None] * len(results)
        assert sum(r.native_bytes for r in results) == len(segment.log if log is None else log)
        return results

    # Side files as they should not be

    def side(self, segment: Segment) -> SideFile:
        return SideFile.open(self.store, segment.id, self.sides[segment.id])

    def write_side(
        self,
        segment: Segment,
        batches: BatchTable,
        kept: Sequence[bytes | None],
        of: SegmentId | None = None,
    ) -> None:
        """Put another side file in the place of a segment's, its indexes as they were."""
        side = self.side(segment)
        name = uuid.uuid4().hex
        writer = SideFileWriter(self.store, of or segment.id, 0, new_name=lambda: name)
        for part in INDEX_PARTS:
            data = side.index(part)
            if data is not None:
                writer.add_index(part, data)
        writer.add(batches, kept)
        self.sides[segment.id] = (writer.finish().key,)

    # Data files as they should not be

    def data_files(self) -> list[Path]:
        location = Path(self.table.location().removeprefix("file://"))
        return sorted(location.rglob("*.parquet"))

    def rewrite_rows(self, path: Path, rows: pa.Table) -> None:
        """Put other rows into a data file, so that the table doesn't know."""
        assert rows.schema == pq.read_schema(path)
        pq.write_table(rows, path)

    def with_values(self, path: Path, changed: dict[int, dict[str, Any]]) -> pa.Table:
        """A data file's rows, some columns changed of some offsets."""
        rows = pq.read_table(path)
        listed = rows.to_pylist()
        for row in listed:
            row.update(changed.get(row["kafka_offset"], {}))
        return pa.Table.from_pylist(listed, schema=rows.schema)


def parts_of(results: Sequence[ConversionResult]) -> Iterator[str]:
    """Keys of the side files written."""
    for result in results:
        assert result.side_key is not None
        yield result.side_key


def ledger_of(place: ProofPlace) -> Ledger:
    return Ledger(place.store)
