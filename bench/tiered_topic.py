"""A topic that lies in the broker's local log as a whole, and is handed to the tier on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from bench.production import produce
from bench.records import Records
from bench.topic_settings import alter_topic
from tiering.ledger import Ledger, LedgerEntry
from tiering.local.kafka import LocalKafka
from tiering.local.tier_stack import TierStack
from tiering.store import open_store

__all__ = ["TieredTopic"]

_PATIENCE_S: Final = 180.0
_POLL_S: Final = 0.02
_ROLL_MS: Final = 1000


class TieredTopic:
    """Filled first, then copied into the tier at one go.

    Its segments stay on the broker's disk, so a consumer reads the local log whatever is tiered.
    `ends` holds the offset behind the last record of the closed segments of each partition.
    """

    def __init__(self, tier: TierStack, name: str, *, partitions: int, segment_bytes: int) -> None:
        assert tier.kafka is not None
        self.name = name
        self.ends: dict[int, int] = {}
        self.record_bytes = 0
        self._kafka: LocalKafka = tier.kafka
        self._ledger = Ledger(open_store(tier.config.store))
        self._partitions = partitions
        self._kafka.create_topic(
            name, partitions, {"segment.bytes": str(segment_bytes), "retention.ms": "-1"}
        )

    def fill(self, form: Records, count: int, *, codec: str) -> None:
        """Produce `count` records and have the broker close the segments that hold them."""
        self.record_bytes = produce(
            self._kafka, self.name, form, count, codec=codec, partitions=self._partitions
        )
        alter_topic(self._kafka.bootstrap_servers, self.name, {"segment.ms": str(_ROLL_MS)})
        later = int(time.time() * 1000) + 10 * _ROLL_MS
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers})
        for partition in range(self._partitions):
            producer.produce(self.name, value=b"", partition=partition, timestamp=later)
        assert producer.flush(30) == 0
        partitions = range(self._partitions)
        self.ends = {p: self._kafka.local_segments(self.name, p)[-1] for p in partitions}
        assert sum(self.ends.values()) == count, (self.ends, count)

    def hand_over(self) -> None:
        """Turn tiering on, and wait until the store holds every closed segment."""
        alter_topic(self._kafka.bootstrap_servers, self.name, {"remote.storage.enable": "true"})
        _await(lambda: self._copied_to() == self.ends, "not all segments were copied")

    def entries(self) -> list[LedgerEntry]:
        """Ledger entries of the live copies."""
        found = (e for e in self._ledger.scan() if e.metadata.topic == self.name)
        return [e for e in found if not e.delete_requested]

    def logs(self) -> list[Path]:
        """The topic's log files on the broker's disk."""
        return sorted(self._kafka.data_directory.glob(f"{self.name}-*/*.log"))

    def _copied_to(self) -> Mapping[int, int]:
        ends: dict[int, int] = {}
        for entry in sorted(self.entries(), key=lambda e: e.metadata.start_offset):
            partition, start = entry.metadata.id.partition, entry.metadata.start_offset
            if start == ends.get(partition, 0):
                ends[partition] = entry.metadata.end_offset + 1
        return ends


def _await(condition: Callable[[], bool], complaint: str) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"{complaint} within {_PATIENCE_S:.0f} s"
        time.sleep(_POLL_S)
