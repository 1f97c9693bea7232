"""What a topic takes in the store, and what it would take as native segments."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tiering.config import TierConfig
from tiering.ledger import Ledger
from tiering.segments import CHECKSUMS_PART
from tiering.store import open_store
from tiering.table.topic_tables import CatalogTables

__all__ = ["TopicSizes", "compact"]

_OUR_PARTS: Final = ("verdicts", CHECKSUMS_PART)
"""What Onecopy has put beside the broker's own indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSizes:
    """In bytes; `native` is all segments with their indexes, as the broker handed them over."""

    segments: int
    native: int
    files: int
    parquet: int
    side_files: int
    side: int

    @property
    def at_rest(self) -> int:
        """All that a retired topic takes."""
        return self.parquet + self.side

    @classmethod
    def of(cls, config: TierConfig, topic: str) -> Self:
        """Of what the current snapshot and the live segments name; leftovers don't count."""
        store, tables = open_store(config.store), CatalogTables(config)
        entries = [e for e in Ledger(store).scan() if e.metadata.topic == topic]
        indexes = sum(size for e in entries for name, size in e.parts if name not in _OUR_PARTS)
        keys = {key for e in entries for key in e.side}
        files, parquet = tables.files(tables.state(topic, entries[0].metadata.id.topic_id))
        return cls(
            segments=len(entries),
            native=indexes + sum(e.metadata.size_bytes for e in entries),
            files=files,
            parquet=parquet,
            side_files=len(keys),
            side=sum(store.size(key) for key in keys),
        )


def compact(directory: Path) -> dict[str, Any]:
    """`onecopy compact` on the tier in `directory`, over all tables; its report."""
    command = [sys.executable, "-m", "tiering.cli", "compact", "--dir", str(directory)]
    done = subprocess.run(
        [*command, "--min-files", "2", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    report: dict[str, Any] = json.loads(done.stdout)
    assert not report["problems"], report["problems"]
    return report
