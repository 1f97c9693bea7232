"""Engines that prove and retire in this process, and readers of what they leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from engine_tiers import InProcess, Tier
from native_segments import Segment

from segment_reader import BytesSource, RecordFilter, SegmentBounds, SegmentReader
from segment_reader.batches import BatchHeaders
from tiering.config import EngineConfig, TopicConfig, default_config
from tiering.conversion.splitting import split_by_index
from tiering.engine import CycleReport, Engine
from tiering.ledger import Ledger, LedgerEntry
from tiering.schemas.topic_schemas import Registry, TopicSchemas
from tiering.segments import SegmentId
from tiering.service.limits import DEFAULT_SERVICE_LIMITS
from tiering.service.metrics import ServiceMetrics
from tiering.service.retired_reads import RetiredReads
from tiering.service.segment_reads import SegmentReads
from tiering.service.table_views import TableViews
from tiering.table.topic_tables import CatalogTables
from tiering.upkeep.table_custody import TableCustody

HEADER_FIELDS = (
    *("base_offset", "leader_epoch", "last_offset_delta", "base_timestamp", "max_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence", "count"),
)
FLAGS = 0x78
"""All attribute bits but the codec's."""


@dataclass
class Clock:
    """Epoch milliseconds that stand still unless moved."""

    at_ms: int = 1_800_000_000_000

    def __call__(self) -> int:
        return self.at_ms


@dataclass
class SoleCopyTier(Tier):
    """A tier whose engine proves and retires."""

    directory: Path
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    grace_ms: int = 0
    clock: Clock = field(default_factory=Clock)
    registry: Registry | None = None

    def __post_init__(self) -> None:
        engine = EngineConfig(retire_grace_ms=self.grace_ms)
        config = default_config(self.directory, engine=engine)
        object.__setattr__(config, "topics", self.topics)
        Tier.__init__(self, config)

    def engine(
        self, reached: Callable[[str], None] = lambda step: None, bytes_max: int = 10**9
    ) -> Engine:
        tables = CatalogTables(self.config)
        return Engine(
            ledger=Ledger(self.store),
            tables=tables,
            converter=InProcess(),
            schemas=TopicSchemas(self.config, tables, self.registry, clock=time.monotonic),
            custody=TableCustody(self.store, tables, self.config, now_ms=self.clock),
            retire_grace_ms=self.grace_ms,
            store_url=self.config.store,
            bytes_max=bytes_max,
            split=split_by_index(self.store, 2048),
            now_ms=self.clock,
            reached=reached,
        )

    def entry(self, segment: Segment) -> LedgerEntry:
        return Ledger(self.store).load(segment.id)

    def native_keys(self) -> list[str]:
        return [info.key for info in self.store.list("native/")]

    @contextmanager
    def reads(self) -> Iterator[SegmentReads]:
        """The service's reads, without its HTTP."""
        retired = RetiredReads(
            self.store,
            TableViews(
                self.store,
                limits=DEFAULT_SERVICE_LIMITS,
                monotonic=time.monotonic,
                load_table=CatalogTables(self.config).table,
            ),
            limits=DEFAULT_SERVICE_LIMITS,
            metrics=ServiceMetrics(),
            monotonic=time.monotonic,
        )
        try:
            yield SegmentReads(
                self.store, retired, limits=DEFAULT_SERVICE_LIMITS, monotonic=time.monotonic
            )
        finally:
            retired.close()


def pulled(reads: SegmentReads, segment: SegmentId, max_bytes: int = 3000) -> bytes:
    """A whole log as a broker pulls it: from the start, cursor after cursor."""
    pieces, cursor = [], None
    while True:
        position = 0 if cursor is None else None
        pull = reads.pull(
            segment, position=position, cursor=cursor, end_position=None, max_bytes=max_bytes
        )
        pieces.append(bytes(pull.data))
        cursor = pull.next_position
        if cursor is None:
            return b"".join(pieces)


def assert_served(tier: SoleCopyTier, segment: Segment) -> None:
    """What is served is the log: every header field and record, in whatever compression."""
    with tier.reads() as reads:
        served = pulled(reads, segment.id)
    assert _facts(served, segment) == _facts(segment.log, segment)
    assert _records(served, segment) == _records(segment.log, segment)


def _reader(log: bytes, segment: Segment) -> SegmentReader:
    epochs = segment.leader_epochs
    bounds = SegmentBounds(
        start_offset=segment.start_offset, end_offset=segment.end_offset, leader_epochs=epochs
    )
    return SegmentReader(BytesSource("log", log), bounds)


def _facts(log: bytes, segment: Segment) -> list[tuple[int, ...]]:
    def facts(headers: BatchHeaders) -> list[tuple[int, ...]]:
        columns = [getattr(headers, name).tolist() for name in HEADER_FIELDS]
        return list(zip(*columns, (headers.attributes & FLAGS).tolist(), strict=True))

    return [each for headers in _reader(log, segment).headers() for each in facts(headers)]


def _records(log: bytes, segment: Segment) -> list[dict[str, object]]:
    batches = list(_reader(log, segment).record_batches(include=RecordFilter.ALL_DATA))
    rows: list[dict[str, object]] = pa.Table.from_batches(batches).to_pylist() if batches else []
    return rows


def settled(engine: Engine, cycles: int = 4) -> list[CycleReport]:
    """The reports of some cycles of one engine."""
    return [engine.run_cycle() for _ in range(cycles)]
