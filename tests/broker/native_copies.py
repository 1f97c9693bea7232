"""The native part of a real tier in another directory, for an engine to convert by itself; the
tier's broker can be made to read from there."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from real_tier import RETIRE_GRACE_MS, RealTier, TierProcess
from retirement import kept_path

from tiering.ledger import Ledger, LedgerEntry, SegmentState

__all__ = ["NativeCopy"]


class NativeCopy:
    """A tier that holds segments of another one, as just uploaded; only its engine runs.

    Native objects are links: replace them as a whole, don't write into them.
    """

    def __init__(
        self,
        source: RealTier,
        directory: Path,
        topics: Collection[str],
        *,
        retire_grace_ms: int = RETIRE_GRACE_MS,
    ) -> None:
        self.tier = RealTier(directory, retire_grace_ms=retire_grace_ms)
        self.source = source
        found = (e for e in Ledger(source.store).scan() if not e.delete_requested)
        taken = (e for e in found if e.metadata.topic in topics)
        self.entries = sorted(
            (as_uploaded(e) for e in taken),
            key=lambda e: (e.metadata.start_offset, e.metadata.topic, e.metadata.id),
        )
        for entry in self.entries:
            for key in (entry.metadata.id.log_key, entry.metadata.id.indexes_key):
                self.tier.path_of(key).parent.mkdir(parents=True, exist_ok=True)
                os.link(kept_path(source, key), self.tier.path_of(key))

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

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Meanwhile the source's broker gets what this copy holds: its plug-in finds a service
        over the copy's store where it looks for the source's."""
        source, config = self.source, self.tier.directory / "tier.json"
        service = TierProcess(
            "stand-in",
            self.tier.directory,
            [
                *(sys.executable, "-m", "tiering.service", "--store", self.tier.config.store),
                *("--token-file", str(source.token_file), "--config", str(config)),
                *("--port", str(source.config.service.port)),
            ],
        )
        source.service.stop()
        try:
            service.start()
            yield
        finally:
            service.stop()
            source.service.start()


def as_uploaded(entry: LedgerEntry) -> LedgerEntry:
    """The entry as the upload left it."""
    return replace(
        entry,
        state=SegmentState.UPLOADED,
        quarantine=None,
        side=(),
        proof=None,
        fault=None,
        native_gone=False,
    )
