"""A topic of odd segments, tiered in this process as far as the engine takes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from native_segments import Segment
from odd_segments import LENGTH, OddTopic, committed

from spark_ext import engine_process
from tiering.config import TierConfig
from tiering.conversion.convert import convert_task
from tiering.ledger import Ledger, LedgerEntry, SegmentState
from tiering.offset_reader import OffsetReader, Record
from tiering.proof.prove import prove_task
from tiering.store import open_store
from tiering.table.commit import TableState
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import ConversionResult, ConversionTask, ProofResult, ProofTask

CYCLES = 6
"""Enough for a segment to be seen twice, converted, proven and retired."""


class InProcess:
    """Converts and proves in this process."""

    def convert(self, tasks: Sequence[ConversionTask]) -> Sequence[ConversionResult]:
        return [convert_task(task) for task in tasks]

    def prove(self, tasks: Sequence[ProofTask]) -> Sequence[ProofResult]:
        return [prove_task(task) for task in tasks]

    def close(self) -> None:
        """Nothing is held."""


class OddTier:
    """One topic of a tier. A grace of 0 lets its segments be retired at once."""

    def __init__(self, config: TierConfig, topic: str) -> None:
        self.config = config
        self.topic = OddTopic.named(topic)
        self.store = open_store(config.store)
        self.made: list[Segment] = []
        self._engine = engine_process._engine(config, self.store, InProcess())

    @classmethod
    def over(cls, config: TierConfig, other: OddTier) -> OddTier:
        """The same topic under another configuration."""
        tier = cls(config, other.topic.name)
        tier.topic, tier.made = other.topic, other.made
        return tier

    def tier(self, segments: int = 1) -> dict[str, str]:
        """Store the next segments of each partition and let the engine do all it wants.

        Returns what stops this topic in the end, as the engine tells it.
        """
        for _ in range(segments):
            for segment in self.topic.segments(len(self.made) // len(self.topic.partitions)):
                segment.store(self.store)
                self.made.append(segment)
        reports = [self._engine.run_cycle() for _ in range(CYCLES)]
        name = self.topic.name
        problems = reports[-1].problems
        return {where: why for where, why in problems.items() if where.startswith(name)}

    def state(self) -> TableState:
        return CatalogTables(self.config).state(self.topic.name, self.topic.topic_id)

    def reader(self) -> OffsetReader:
        tables = CatalogTables(self.config)
        return OffsetReader.open(tables.catalog, self.config.namespace, self.topic.name)

    def read(self, offset: int = 0) -> list[Record]:
        reader = self.reader()
        partitions = reader.partitions()
        return [r for p in partitions for r in reader.records(p, offset=offset)]

    def expected(self) -> list[Record]:
        return [as_record(self.topic.name, row) for row in committed(self.made)]

    def siblings(self) -> dict[str, str]:
        """Every object beside the tables, with its digest."""
        root = Path(self.config.store)
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for part in ("native", "ledger", "side")
            for path in sorted((root / part).rglob("*"))
            if path.is_file()
        }

    def entries(self) -> list[LedgerEntry]:
        """The topic's entries in the ledger."""
        found = Ledger(self.store).scan()
        return [e for e in found if e.metadata.id.topic_id == self.topic.topic_id]

    def check_sole_copy(self) -> None:
        """Every segment was proven and retired, and its native log is gone."""
        entries = self.entries()
        assert {(e.state, e.native_gone, e.fault) for e in entries} == {
            (SegmentState.RETIRED, True, None)
        }
        assert len(entries) == len(self.made)
        assert not list(self.store.list(f"native/{self.topic.topic_id}/"))

    def check(self) -> None:
        """Reads are exact from everywhere, the state is trusted, the watermarks stand."""
        expected = self.expected()
        assert self.read() == expected
        end = len(self.made) // len(self.topic.partitions) * LENGTH
        for offset in range(0, end + 1, 37):
            assert self.read(offset) == [r for r in expected if r.offset >= offset], offset
        state = self.state()
        assert state.flagged is None
        marks = {p: mark.offset for p, mark in state.watermarks.items()}
        assert marks == dict.fromkeys(self.topic.partitions, end)


def as_record(topic: str, row: dict[str, object]) -> Record:
    """A row as the offset reader gives it."""
    micros = row["kafka_timestamp"]
    headers = row["kafka_headers"]
    assert isinstance(headers, list)
    return Record(
        topic=topic,
        partition=int(str(row["kafka_partition"])),
        offset=int(str(row["kafka_offset"])),
        timestamp_ms=-1 if micros is None else int(str(micros)) // 1000,
        timestamp_type=int(str(row["kafka_timestamp_type"])),
        leader_epoch=int(str(row["kafka_leader_epoch"])),
        key=_bytes(row["kafka_key"]),
        value=_bytes(row["value"]),
        headers=tuple((h["key"], h["value"]) for h in headers),
    )


def _bytes(value: object) -> bytes | None:
    assert value is None or isinstance(value, bytes)
    return value
