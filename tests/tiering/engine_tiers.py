"""Engines over a store and a catalog of one directory, converting and proving in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from native_segments import Segment, in_batches, rows_of, some_records

from tiering.config import TierConfig
from tiering.conversion.convert import convert_task
from tiering.conversion.splitting import split_by_index
from tiering.engine import CycleReport, Engine
from tiering.ledger import Ledger, SegmentState
from tiering.proof.prove import prove_task
from tiering.proof.rescue import rescue_task
from tiering.status import PartitionStatus, collect_status
from tiering.store import ObjectStore, open_store
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import (
    ConversionResult,
    ConversionTask,
    ProofResult,
    ProofTask,
    RescueResult,
    RescueTask,
)


class InProcess:
    """Converts and proves in this process."""

    def convert(self, tasks: Sequence[ConversionTask]) -> Sequence[ConversionResult]:
        return [convert_task(task) for task in tasks]

    def prove(self, tasks: Sequence[ProofTask]) -> Sequence[ProofResult]:
        return [prove_task(task) for task in tasks]

    def rescue(self, tasks: Sequence[RescueTask]) -> Sequence[RescueResult]:
        return [rescue_task(task) for task in tasks]

    def close(self) -> None:
        """Nothing is held."""


class Tier:
    """A store and a catalog, and engines over them."""

    def __init__(self, config: TierConfig) -> None:
        self.config = config
        self.store: ObjectStore = open_store(self.config.store)

    def engine(
        self, reached: Callable[[str], None] = lambda step: None, bytes_max: int = 10**9
    ) -> Engine:
        return Engine(
            ledger=Ledger(self.store),
            tables=CatalogTables(self.config),
            converter=InProcess(),
            store_url=self.config.store,
            bytes_max=bytes_max,
            split=split_by_index(self.store, 2048),
            reached=reached,
        )

    def settle(self, cycles: int = 4) -> list[CycleReport]:
        engine = self.engine()
        return [engine.run_cycle() for _ in range(cycles)]

    def rows(self, segment: Segment) -> list[dict[str, object]]:
        table = CatalogTables(self.config).table(segment.topic, segment.topic_id)
        return rows_of(table.scan().to_arrow())

    def states(self) -> list[SegmentState]:
        return [entry.state for entry in Ledger(self.store).scan()]


def segment(start: int, count: int, like: Segment | None = None, **fields: object) -> Segment:
    made = Segment(batches=in_batches(some_records(start, count), 7, ("none", "zstd")))
    if like is not None:
        made = replace(made, topic=like.topic, topic_id=like.topic_id, partition=like.partition)
    return replace(made, **fields)


def records(*segments: Segment) -> list[dict[str, object]]:
    """What the table must hold: each offset once."""
    rows = {r["kafka_offset"]: r for s in segments for r in s.rows()}
    return [rows[offset] for offset in sorted(rows, key=lambda o: int(str(o)))]


def tier_status(tier: Tier) -> dict[tuple[str, int], PartitionStatus]:
    tables = CatalogTables(tier.config)
    status = collect_status(
        Ledger(tier.store).scan(), state_of=tables.state, files_of=tables.files, heartbeat={}
    )
    return {(t.topic, p.partition): p for t in status.topics for p in t.partitions}
