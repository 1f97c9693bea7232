"""The native part of a real tier in another directory, for an engine to convert by itself."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from real_tier import RealTier

from tiering.ledger import Ledger, LedgerEntry, SegmentState

__all__ = ["NativeCopy"]


class NativeCopy:
    """A tier that holds segments of another one, as just uploaded; only its engine runs.

    Native objects are links: replace them as a whole, don't write into them.
    """

    def __init__(self, source: RealTier, directory: Path, topics: Collection[str]) -> None:
        self.tier = RealTier(directory)
        found = (e for e in Ledger(source.store).scan() if not e.delete_requested)
        taken = (e for e in found if e.metadata.topic in topics)
        self.entries = sorted(
            (replace(e, state=SegmentState.UPLOADED, quarantine=None) for e in taken),
            key=lambda e: (e.metadata.start_offset, e.metadata.topic, e.metadata.id),
        )
        for entry in self.entries:
            for key in (entry.metadata.id.log_key, entry.metadata.id.indexes_key):
                self.tier.path_of(key).parent.mkdir(parents=True, exist_ok=True)
                os.link(source.path_of(key), self.tier.path_of(key))

    def reveal(self, entries: Iterable[LedgerEntry]) -> None:
        """Write ledger objects: from now on these segments exist."""
        ledger = Ledger(self.tier.store)
        for entry in entries:
            ledger.create(entry)

    def entry(self, topic: str, partition: int, number: int) -> LedgerEntry:
        """The `number`th segment of a partition."""
        of_partition = [
            e
            for e in self.entries
            if e.metadata.topic == topic and e.metadata.id.partition == partition
        ]
        return of_partition[number]

    def replace_log(self, entry: LedgerEntry, log: bytes) -> None:
        """Put other bytes where the segment's log is."""
        path = self.tier.path_of(entry.metadata.id.log_key)
        path.unlink()
        path.write_bytes(log)

    def log(self, entry: LedgerEntry) -> bytes:
        """The segment's log."""
        return self.tier.path_of(entry.metadata.id.log_key).read_bytes()
