"""Retired segments, readers of them, and what must come back, told without our code."""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import google_crc32c
import pytest
from history_tier import Original, originals
from native_segments import Segment
from sole_copy import SoleCopyTier

from tiering.ledger import SegmentState
from tiering.offset_reader.parquet_files import ParquetFiles, RowGroup
from tiering.segments import SegmentId
from tiering.service.limits import DEFAULT_SERVICE_LIMITS, ServiceLimits
from tiering.service.metrics import ServiceMetrics
from tiering.service.pulls import Pull
from tiering.service.retired_reads import RetiredReads
from tiering.service.segment_reads import SegmentReads
from tiering.service.table_views import LoadTable, TableViews
from tiering.store import ObjectStore
from tiering.table.topic_tables import CatalogTables
from tiering.upkeep.table_custody import TableCustody

T = TypeVar("T")

FLAGS = ~0x07
"""All attribute bits but the codec's."""


class Seconds:
    """A monotonic clock that stands still unless moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Reader:
    """The service's reads in this process, as a fresh one starts them."""

    store: ObjectStore
    limits: ServiceLimits = DEFAULT_SERVICE_LIMITS
    load_table: LoadTable | None = None
    clock: Callable[[], float] = time.monotonic
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)

    def __post_init__(self) -> None:
        self.views = TableViews(
            self.store, limits=self.limits, monotonic=self.clock, load_table=self.load_table
        )
        self.retired = RetiredReads(
            self.store,
            self.views,
            limits=self.limits,
            metrics=self.metrics,
            monotonic=self.clock,
        )
        self.reads = SegmentReads(
            self.store, self.retired, limits=self.limits, monotonic=self.clock
        )

    def pull(self, segment: SegmentId, max_bytes: int = 1 << 20, **where: int | None) -> Pull:
        asked = {"position": None, "cursor": None, "end_position": None, **where}
        return self.reads.pull(segment, max_bytes=max_bytes, **asked)

    def walk(self, segment: SegmentId, max_bytes: int = 1 << 20, cursor: int = 0) -> list[bytes]:
        """Every answer from a cursor to the segment's end."""
        pieces, at = [], cursor
        while True:
            pull = self.pull(segment, max_bytes, cursor=at)
            pieces.append(bytes(pull.data))
            if pull.next_position is None:
                return pieces
            at = pull.next_position

    def value(self, name: str) -> float:
        """A metric's value."""
        found = self.metrics.registry.get_sample_value(f"onecopy_{name}")
        assert found is not None
        return found

    @property
    def made(self) -> int:
        """Units regenerated so far, in vain or not."""
        return int(self.value("regeneration_seconds_count"))


@contextmanager
def reader(
    store: ObjectStore, limits: ServiceLimits | None = None, **more: Any
) -> Iterator[Reader]:
    made = Reader(store, limits or DEFAULT_SERVICE_LIMITS, **more)
    try:
        yield made
    finally:
        made.retired.close()


def small(**limits: Any) -> ServiceLimits:
    """Limits with the given ones changed."""
    return replace(DEFAULT_SERVICE_LIMITS, **limits)


def retire(tier: SoleCopyTier, *segments: Segment) -> None:
    """Store segments and let the engine take them all the way."""
    for each in segments:
        each.store(tier.store)
    tier.settle()
    for each in segments:
        assert tier.entry(each).state is SegmentState.RETIRED
        assert tier.entry(each).native_gone


def from_catalog(tier: SoleCopyTier) -> LoadTable:
    """Asks the tier's catalog."""
    return CatalogTables(tier.config).table


def table_of(tier: SoleCopyTier, segment: Segment) -> Any:
    """The segment's table as the catalog has it now."""
    return from_catalog(tier)(segment.topic, segment.topic_id)


@dataclass(frozen=True)
class Place:
    """Where a batch lay in its log."""

    position: int
    size: int
    base_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


def places(log: bytes) -> list[Place]:
    """Where the batches of a log lie, by their length fields alone."""
    found, at = [], 0
    while at < len(log):
        base_offset, length = struct.unpack_from(">qi", log, at)
        found.append(Place(at, 12 + length, base_offset))
        at += 12 + length
    assert at == len(log)
    return found


def bases(data: bytes | memoryview) -> list[int]:
    """Base offsets of whole batches."""
    return [place.base_offset for place in places(bytes(data))]


def check_served(data: bytes, log: bytes, first: int = 0) -> int:
    """Batches as a broker gets them are those of the log from the `first` one on: headers, record
    bytes, checksums, and the sizes that positions depend on. Returns how many there are."""
    lay, come = places(log), places(data)
    expected, served = originals(log), originals(data)
    for i, (place, batch) in enumerate(zip(come, served, strict=True), first):
        assert_same(batch, expected[i])
        assert place.size >= lay[i].size / 4
        assert place.size <= max(2 * lay[i].size, 1 << 20)
        assert _fields(data, place) == _fields(log, lay[i])
        assert _crc_holds(data, place)
    return len(come)


def assert_same(served: Original, original: Original) -> None:
    assert (served.base_offset, served.count) == (original.base_offset, original.count)
    assert served.attributes & FLAGS == original.attributes & FLAGS
    assert served.records == original.records


def _fields(data: bytes, place: Place) -> tuple[int, ...]:
    """The header but for length, checksum, codec and count (DefaultRecordBatch of Kafka)."""
    epoch, magic = struct.unpack_from(">ib", data, place.position + 12)
    attributes, *rest = struct.unpack_from(">hiqqqhi", data, place.position + 21)
    return (place.base_offset, epoch, magic, attributes & FLAGS, *rest)


def _crc_holds(data: bytes, place: Place) -> bool:
    (stated,) = struct.unpack_from(">I", data, place.position + 17)
    return bool(google_crc32c.value(data[place.position + 21 : place.end]) == stated)


def values(data: bytes | memoryview) -> dict[int, bytes | None]:
    """Offset -> value of plain batches' records, checked against the counts in their headers."""
    data = bytes(data)
    found: dict[int, bytes | None] = {}
    for place, batch in zip(places(data), originals(data), strict=True):
        assert _crc_holds(data, place)
        records = list(_records(batch.records))
        assert len(records) == batch.count
        found |= {batch.base_offset + delta: value for delta, value in records}
    return found


def _records(data: bytes) -> Iterator[tuple[int, bytes | None]]:
    at = 0
    while at < len(data):
        size, at = _varint(data, at)
        end = at + size
        _, at = _varint(data, at + 1)
        delta, at = _varint(data, at)
        _, at = _bytes(data, at)
        value, at = _bytes(data, at)
        yield delta, value
        at = end


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


@dataclass
class Decodes:
    """Row groups whose rows were decoded (not only their offsets), and a gate before them."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    held: str | None = None
    held_from: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def hold(self, part: str, row_group: int = 0) -> None:
        """Let decoding of files with `part` in their path wait for `gate`, from a row group on."""
        self.held, self.held_from = part, row_group

    def holds(self, row_group: RowGroup) -> bool:
        mine = self.held is not None and self.held in row_group.file.path
        return mine and row_group.number >= self.held_from and not self.gate.is_set()


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Decodes]:
    """Watch what is decoded; whatever waits goes on at the end."""
    seen = Decodes()
    decode = ParquetFiles.decode

    def watching(
        self: ParquetFiles, row_group: RowGroup, field_ids: Sequence[int], batch_rows: int
    ) -> Iterator[Any]:
        if len(field_ids) > 2:
            seen.counts[row_group.file.path, row_group.number] += 1
        if seen.holds(row_group):
            seen.waiting += 1
            assert seen.gate.wait(30)
        return decode(self, row_group, field_ids, batch_rows)

    monkeypatch.setattr(ParquetFiles, "decode", watching)
    try:
        yield seen
    finally:
        seen.gate.set()


def custody(tier: SoleCopyTier) -> tuple[CatalogTables, TableCustody]:
    """The engine's hands on tables."""
    tables = CatalogTables(tier.config)
    return tables, TableCustody(tier.store, tables, tier.config, now_ms=tier.clock)


def announce(tier: SoleCopyTier, segment: Segment) -> None:
    """Tell readers where the segment's table is now, as the engine does before it retires."""
    _, hands = custody(tier)
    reading = hands.read(segment.topic, segment.topic_id)
    hands.announce(reading, segment.topic_id)


def rewrite(tier: SoleCopyTier, segment: Segment, *, files: int, row_group_rows: int) -> list[str]:
    """Put all rows into new files, as another engine may; returns where they were before."""
    table = table_of(tier, segment)
    before = [task.file.file_path for task in table.scan().plan_files()]
    with table.transaction() as change:
        change.set_properties({"write.parquet.row-group-limit": str(row_group_rows)})
    rows = table.scan().to_arrow().sort_by("kafka_offset")
    table.delete()
    step = -(-rows.num_rows // files)
    for first in range(0, rows.num_rows, step):
        table.append(rows.slice(first, step).combine_chunks())
    return before


def in_thread(call: Callable[[], T]) -> Future[T]:
    """What `call` gives, made by a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
