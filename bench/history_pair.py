"""The same history in two tiers: Onecopy with nothing native left, and Kafka's own reference tier.

Two brokers of one version with the same settings get the same records. Both have handed all of them
to their tier and keep none on their own disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.json_records import JSON_EVENTS
from bench.production import produce, produce_transactions
from bench.sealed_topics import create_open, seal
from bench.service_metrics import ServiceFigures
from tiering.config import EngineConfig, default_config
from tiering.demo.tiered import await_tiered
from tiering.demo.workload import DemoTopic
from tiering.ledger import Ledger
from tiering.local.kafka import LocalKafka, local_tiered_storage
from tiering.local.tier_stack import TierStack
from tiering.service.limits import DEFAULT_SERVICE_LIMITS
from tiering.service.units import unit_borders
from tiering.side_files import SideFile
from tiering.store import open_store

__all__ = ["COMMITTED", "UNCOMMITTED", "HistoryPair", "HistoryTopic", "TopicForm"]

UNCOMMITTED: Final = "read_uncommitted"
COMMITTED: Final = "read_committed"

PULL_BYTES: Final = os.environ.get("BENCH_PULL_BYTES", "")
"""The plug-in's onecopy.pull.bytes; its own default if empty."""

_PATIENCE_S: Final = 240.0
_POLL_S: Final = 0.1
_FIRST_MS: Final = 1_750_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicForm:
    """A topic of JSON events to be made; `transactional`: in transactions, every fifth aborted."""

    name: str
    codec: str
    segment_bytes: int
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTopic:
    """A topic that lies in both tiers as a whole.

    Attributes:
        records: how many there are to read, by isolation level.
        end: the partition's end offset.
        record_bytes: of one record's key and value.
        native_bytes: size of the segments' logs.
        units: how many pieces the service makes the whole topic of.
    """

    name: str
    codec: str
    records: Mapping[str, int]
    end: int
    record_bytes: int
    native_bytes: int
    units: int

    def megabytes(self, isolation: str) -> float:
        """Bytes of keys and values that a reader gets, in millions."""
        return self.records[isolation] * self.record_bytes / 1e6


class HistoryPair:
    """Both tiers. A context manager."""

    def __init__(self, directory: Path) -> None:
        # A grace of nothing: what is proven is retired at once.
        config = default_config(directory / "onecopy", engine=EngineConfig(retire_grace_ms=0))
        pull = {"rsm.config.onecopy.pull.bytes": PULL_BYTES} if PULL_BYTES else {}
        self.tier = TierStack(config, directory / "onecopy", with_kafka=True, kafka_properties=pull)
        self._rival = LocalKafka(
            directory / "rival", remote=local_tiered_storage(directory / "rival-store")
        )

    @property
    def rival(self) -> LocalKafka:
        """The broker with LocalTieredStorage."""
        return self._rival

    @property
    def ours(self) -> LocalKafka:
        """The broker with Onecopy."""
        assert self.tier.kafka is not None
        return self.tier.kafka

    @property
    def our_pids(self) -> list[int]:
        """Broker and service."""
        assert self.tier.service is not None
        pids = (self.ours.pid, self.tier.service.pid)
        return [pid for pid in pids if pid is not None]

    @property
    def rival_pids(self) -> list[int]:
        """The broker, which reads its tier itself."""
        assert self.rival.pid is not None
        return [self.rival.pid]

    def figures(self) -> ServiceFigures:
        """What our service counts."""
        return ServiceFigures.of(self.tier)

    def forget(self) -> None:
        """Start our service again: nothing that it has regenerated is kept."""
        service = self.tier.service
        assert service is not None
        service.stop()
        service.start()
        service.await_ready()

    def make(self, form: TopicForm, megabytes: int) -> HistoryTopic:
        """Fill the topic on both sides, and wait until all of it is in the tiers alone."""
        count = megabytes * 1_000_000 // JSON_EVENTS.value_bytes
        with self._engine():
            committed, record_bytes = self._fill(self.ours, form, count)
            assert self._fill(self.rival, form, count) == (committed, record_bytes)
            topic = DemoTopic(name=form.name, partitions=1, share=1.0, codec=form.codec)
            tiered = await_tiered(self.tier, topic)
        assert tiered.native_bytes_left == tiered.native_objects == 0
        assert tiered.retired == tiered.segments > 0
        (end,) = tiered.ends.values()
        _await(lambda: self.rival.local_segments(form.name) == [end], "the rival keeps segments")
        return HistoryTopic(
            name=form.name,
            codec=form.codec,
            records={UNCOMMITTED: count, COMMITTED: committed},
            end=end,
            record_bytes=record_bytes,
            native_bytes=tiered.native_bytes,
            units=self._units(form.name),
        )

    def __enter__(self) -> Self:
        self.tier.start()
        try:
            assert self.tier.engine is not None
            self.tier.engine.stop()  # it works while a topic is made, and not beside a reader
            self._rival.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._rival.stop()
        self.tier.stop()

    @contextmanager
    def _engine(self) -> Iterator[None]:
        engine = self.tier.engine
        assert engine is not None
        engine.start()
        try:
            engine.await_ready()
            yield
        finally:
            engine.stop()

    def _fill(self, kafka: LocalKafka, form: TopicForm, count: int) -> tuple[int, int]:
        """Returns how many records are committed, and the bytes of one."""
        create_open(kafka, form.name, segment_bytes=form.segment_bytes)
        key, value = next(JSON_EVENTS.records(0, 1))
        committed = count
        if form.transactional:
            committed = produce_transactions(
                kafka, form.name, JSON_EVENTS, count, codec=form.codec, first_ms=_FIRST_MS
            )
        else:
            produce(kafka, form.name, JSON_EVENTS, count, codec=form.codec, first_ms=_FIRST_MS)
        seal(kafka, form.name)
        return committed, len(key) + len(value)

    def _units(self, topic: str) -> int:
        store = open_store(self.tier.config.store)
        units = 0
        for entry in Ledger(store).scan():
            if entry.metadata.topic == topic:
                side = SideFile.open(store, entry.metadata.id, entry.side)
                units += len(unit_borders(side.batches, DEFAULT_SERVICE_LIMITS.unit_bytes)) - 1
        return units


def _await(condition: Callable[[], bool], complaint: str) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"{complaint} after {_PATIENCE_S:.0f} s"
        time.sleep(_POLL_S)
