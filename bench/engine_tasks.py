"""A broker's segment file taken through the engine's conversion, and the tasks that came of it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiering.block_checksums import BlockChecksums
from tiering.config import default_config
from tiering.conversion.convert import convert_task
from tiering.engine import Engine
from tiering.ledger import Ledger, LedgerEntry
from tiering.proof.prove import prove_task
from tiering.segments import CHECKSUMS_PART, SegmentId, SegmentMetadata
from tiering.store import ObjectStore, open_store
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import ConversionResult, ConversionTask, ProofResult, ProofTask
from tiering.upkeep.table_custody import TableCustody

__all__ = ["EngineTasks", "tasks_of"]

_CYCLES_MAX: Final = 5
_NO_CLOCK_MS: Final = 1_750_000_000_000
_INDEX_FILES: Final = (("offset_index", ".index"), ("time_index", ".timeindex"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTasks:
    """The tasks that the engine gave for one segment; the table holds what the first one wrote."""

    conversion: ConversionTask
    proof: ProofTask


def tasks_of(directory: Path, topic: str, log: Path, last_offset: int) -> EngineTasks:
    """Store the log and its indexes below `directory` as the service does, and convert and prove it
    in this process. The segment has no transactions."""
    config = default_config(directory)
    store = open_store(config.store)
    _store_segment(store, topic, log, last_offset)
    runner = _InThisProcess()
    tables = CatalogTables(config)
    engine = Engine(
        ledger=Ledger(store),
        tables=tables,
        converter=runner,
        custody=TableCustody(store, tables, config, now_ms=lambda: _NO_CLOCK_MS),
        retire_grace_ms=config.engine.retire_grace_ms,
        store_url=config.store,
        bytes_max=config.engine.cycle_bytes_max,
        split=lambda task, _: [task],
        now_ms=lambda: _NO_CLOCK_MS,
    )
    # A partition's first segment is taken at the second look.
    for _ in range(_CYCLES_MAX):
        report = engine.run_cycle()
        assert not report.problems, report.problems
        if runner.proofs:
            break
    (conversion,), (proof,) = runner.conversions, runner.proofs
    return EngineTasks(conversion=conversion, proof=proof)


class _InThisProcess:
    """A Converter that keeps its tasks."""

    def __init__(self) -> None:
        self.conversions: list[ConversionTask] = []
        self.proofs: list[ProofTask] = []

    def convert(self, tasks: Sequence[ConversionTask]) -> Sequence[ConversionResult]:
        self.conversions += tasks
        return [convert_task(task) for task in tasks]

    def prove(self, tasks: Sequence[ProofTask]) -> Sequence[ProofResult]:
        self.proofs += tasks
        return [prove_task(task) for task in tasks]

    def close(self) -> None:
        """Holds nothing."""


def _store_segment(store: ObjectStore, topic: str, log: Path, last_offset: int) -> None:
    data = log.read_bytes()
    checksums = BlockChecksums()
    checksums.update(data)
    indexes = {name: log.with_suffix(suffix).read_bytes() for name, suffix in _INDEX_FILES}
    indexes |= {
        "leader_epochs": b"0\n1\n0 0\n",
        "verdicts": b"",
        CHECKSUMS_PART: checksums.finish(),
    }
    meta = SegmentMetadata(
        id=SegmentId(
            topic_id=_kafka_uuid(), partition=0, base_offset=int(log.stem), segment_id=_kafka_uuid()
        ),
        topic=topic,
        start_offset=int(log.stem),
        end_offset=last_offset,
        max_timestamp_ms=0,
        broker_id=1,
        size_bytes=len(data),
        leader_epochs=((0, 0),),
    )
    store.put(meta.id.log_key, data)
    store.put(meta.id.indexes_key, b"".join(indexes.values()))
    parts = tuple((name, len(part)) for name, part in indexes.items())
    Ledger(store).create(LedgerEntry(metadata=meta, parts=parts, sha256="", uploaded_at_ms=0))


def _kafka_uuid() -> str:
    """A random id as Kafka writes it; never beginning with '-'."""
    return base64.urlsafe_b64encode(b"\x10" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
