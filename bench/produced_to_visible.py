"""Producing at a steady rate, and watching when what was produced can be seen in the table."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from bench.records import Records
from tiering.config import TierConfig
from tiering.errors import NotFound, TransientError
from tiering.local.kafka import LocalKafka
from tiering.table.loading import load_table, state_of
from tiering.table.topic_tables import CatalogTables

__all__ = ["TableWatch", "produce_steadily"]

_TICK_S: Final = 0.01
_POLL_S: Final = 0.02
_PATIENCE_S: Final = 240.0

_Seconds = npt.NDArray[np.float64]


def produce_steadily(
    kafka: LocalKafka, topic: str, records: Records, *, count: int, bytes_per_s: float
) -> _Seconds:
    """Produce `count` records to partition 0; when each was handed to the producer (monotonic
    seconds, by offset). Raises AssertionError unless the broker acknowledged every one."""
    lost: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.type": "none",
            "linger.ms": 5,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: lost.append(error),
        }
    )
    sent = np.zeros(count)
    begun = time.monotonic()
    for number, (key, value) in enumerate(records.records(0, count)):
        due = begun + number * records.value_bytes / bytes_per_s
        now = time.monotonic()
        if due - now > _TICK_S:
            producer.poll(due - now)
            now = time.monotonic()
        producer.produce(topic, key=key, value=value, partition=0)
        sent[number] = now
    assert producer.flush(_PATIENCE_S) == 0, "the broker did not acknowledge every record"
    assert not lost, lost[0]
    return sent


class TableWatch:
    """Notes when partition 0 of a topic's table has come how far. A context manager."""

    def __init__(self, config: TierConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._steps: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watch {topic}")

    @property
    def first(self) -> int:
        """The end offset of what was visible first."""
        return self._steps[0][1]

    def wait(self, offset: int) -> None:
        """Until all below `offset` is visible."""
        until = time.monotonic() + _PATIENCE_S
        while not self._steps or self._steps[-1][1] < offset:
            assert self._thread.is_alive(), "the watch has ended"
            assert time.monotonic() < until, f"{self._topic} isn't visible up to {offset}"
            time.sleep(_POLL_S)

    def visible(self, start: int, end: int) -> _Seconds:
        """When each of the offsets [start, end) could be seen first."""
        times, reached = map(np.array, zip(*self._steps, strict=True))
        return np.asarray(times[np.searchsorted(reached, np.arange(start, end), side="right")])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        tables = CatalogTables(self._config)
        catalog, identifier = tables.catalog, tables.identifier(self._topic)
        location, reached = "", 0
        while not self._stop.wait(_POLL_S):
            try:
                table = load_table(catalog, identifier)
            except (NotFound, TransientError):
                continue
            if table.metadata_location == location:
                continue
            location, now = table.metadata_location, time.monotonic()
            mark = state_of(table).watermarks.get(0)
            if mark is not None and mark.offset > reached:
                reached = mark.offset
                self._steps.append((now, reached))
