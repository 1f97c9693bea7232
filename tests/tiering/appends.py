"""Small real tables and plans for the tests of catalog and commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from tiering.pacing import Pacing
from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.table.commit import TableAppend, TableState, load_state
from tiering.table.data_files import entry_from_parquet
from tiering.tasks import DataFileEntry, TableTarget
from tiering.watermarks import Watermark

TOPIC = "orders"
TOPIC_ID = "q9k1xkZkQ1Sg3nXxF2m4Ag"
IDENTIFIER = ("kafka", "orders")

NO_WAIT = Pacing(sleep=lambda seconds: None)


def columns(partition: int, offsets: range) -> dict[str, list[Any]]:
    """Rows whose values say which offset they are."""
    count = len(offsets)
    return {
        "kafka_partition": [partition] * count,
        "kafka_offset": list(offsets),
        "kafka_timestamp": [1_700_000_000_000_000 + o for o in offsets],
        "kafka_timestamp_type": [0] * count,
        "kafka_leader_epoch": [0] * count,
        "kafka_key": [b"key-%d" % o for o in offsets],
        "kafka_headers": [[{"key": "h", "value": None}]] * count,
        "value": [b"value-%d" % o for o in offsets],
    }


def write_rows(
    target: TableTarget, partition: int, offsets: range, *, row_group_rows: int = 64
) -> DataFileEntry:
    """Write one real data file, as a conversion worker does."""
    schema = schema_to_pyarrow(Schema.model_validate_json(target.schema_json))
    rows = pa.Table.from_pydict(columns(partition, offsets), schema=schema)
    path = Path(target.location) / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, compression="zstd", row_group_size=row_group_rows)
    return entry_from_parquet(
        pq.read_metadata(path), path=str(path), size_bytes=path.stat().st_size, target=target
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tierer's view: an open catalog and the place of its tables."""

    catalog: Catalog
    warehouse: str

    @classmethod
    def open(cls, directory: Path) -> Tier:
        """A tier on the SQLite catalog in `directory`."""
        config = CatalogConfig(
            properties={
                "uri": f"sqlite:///{directory / 'catalog.db'}",
                "warehouse": str(directory / "store" / "warehouse"),
            }
        )
        return cls(catalog=open_catalog(config), warehouse=str(directory / "store" / "warehouse"))

    def ensure(self, topic_id: str = TOPIC_ID) -> Table:
        return ensure_table(self.catalog, IDENTIFIER, TOPIC, topic_id, self.warehouse)

    def table(self) -> Table:
        return self.catalog.load_table(IDENTIFIER)

    def target(self) -> TableTarget:
        return table_target(self.table())

    def state(self) -> TableState:
        return load_state(self.catalog, IDENTIFIER, pacing=NO_WAIT)

    def plan(
        self,
        moves: Mapping[int, int],
        *,
        state: TableState | None = None,
        cycle_id: str | None = None,
        empty: bool = False,
    ) -> TableAppend:
        """A plan that brings each partition of `moves` up to that offset, with real files."""
        state = state or self.state()
        target = self.target()
        files: dict[int, tuple[DataFileEntry, ...]] = {}
        for partition, end in moves.items():
            mark = state.watermarks.get(partition)
            start = mark.offset if mark else 0
            if not empty and start < end:
                files[partition] = (write_rows(target, partition, range(start, end)),)
        return TableAppend(
            identifier=IDENTIFIER,
            topic=TOPIC,
            topic_id=TOPIC_ID,
            cycle_id=cycle_id or uuid.uuid4().hex,
            base=state,
            expected={p: state.watermarks.get(p) for p in moves},
            moved={p: Watermark(offset=end, leader_epochs=((0, 0),)) for p, end in moves.items()},
            files=files,
        )

    def offsets(self, partition: int = 0) -> list[int]:
        """All offsets of a partition that a query finds, sorted, with their duplicates."""
        rows = self.table().scan(row_filter=f"kafka_partition = {partition}").to_arrow()
        return sorted(rows["kafka_offset"].to_pylist())

    def marks(self) -> dict[int, int]:
        """{partition: watermark offset}."""
        return {p: mark.offset for p, mark in self.state().watermarks.items()}

    def data_files(self) -> set[str]:
        """Paths of the data files on disk, referenced or not."""
        return {str(p) for p in (Path(self.target().location) / "data").glob("*.parquet")}

    def referenced_files(self) -> list[str]:
        """Paths of the live data files, with duplicates."""
        return sorted(task.file.file_path for task in self.table().scan().plan_files())


Commit = Callable[..., Any]


class Faults:
    """Stands in for a catalog's `commit_table` and treats each call as the script says."""

    def __init__(self, tier: Tier, monkeypatch: pytest.MonkeyPatch, *script: str | Commit) -> None:
        self._real = tier.catalog.commit_table
        self._script = list(script)
        self.calls = 0
        monkeypatch.setattr(tier.catalog, "commit_table", self)

    def __call__(self, table: Any, requirements: Any, updates: Any) -> Any:
        self.calls += 1
        step = self._script.pop(0) if self._script else "pass"
        if callable(step):
            step()
            step = "pass"
        if step.startswith("landed"):
            self._real(table, requirements, updates)
        if step.endswith("409"):
            raise CommitFailedException("the table moved, says the catalog")
        if step.endswith("5xx"):
            raise CommitStateUnknownException("gateway time-out")
        if step.endswith("reset"):
            raise ConnectionResetError("cut")
        return self._real(table, requirements, updates)


def rolled_back(tier: Tier, snapshot_id: int) -> None:
    """What another engine's rollback_to_snapshot does: main points at an ancestor again."""
    tier.table().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def head(tier: Tier) -> int:
    snapshot = tier.table().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id
