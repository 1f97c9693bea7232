"""Backfill: what was tiered before Onecopy, brought into the tables without touching it.

The segments of a foreign tier are planned, converted and committed by the same engine as
Onecopy's own. What differs is that nothing is ever written to their store: their states live in
memory for one run, and the tables' watermarks say what an earlier run has brought.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from segment_reader import LocalTieredStorageLayout, NativeSegment, SegmentReaderError
from tiering.engine import CycleReport, Engine, Tables
from tiering.errors import BadInput, NotFound
from tiering.ledger import LedgerEntry, Quarantine, SegmentState
from tiering.segments import SegmentId, SegmentMetadata
from tiering.tasks import Converter

__all__ = ["BackfillReport", "ForeignSegments", "backfill"]

_LAYOUT: Final = "local_tiered_storage"
_OFFSET_MAX: Final = 2**63 - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    """What a backfill brought, and what stopped a topic or partition.

    `already` counts segments below their partition's watermark: an earlier run has brought them,
    or the tier began behind them and can't take them any more.
    """

    segments: int
    already: int
    rows: int
    commits: int
    problems: dict[str, str]


class ForeignSegments:
    """Segments of Kafka's LocalTieredStorage as ledger entries that live in memory.

    A segment whose files contradict themselves is listed as quarantined from the start, so that
    its partition stops there and the others go on.
    """

    def __init__(self, root: Path, topics: Collection[str] = ()) -> None:
        """List `root` once; `topics` narrows it. Raises BadInput if there is nothing."""
        try:
            layout = LocalTieredStorageLayout(root)
            found = [s for s in layout.segments() if not topics or s.topic in topics]
        except OSError as error:
            raise BadInput(f"{root}: can't be listed: {error.strerror}") from error
        missing = set(topics) - {s.topic for s in found}
        if missing or not found:
            what = f"topics {', '.join(sorted(missing))}" if missing else "any topic"
            raise BadInput(
                f"{root} holds no segments of {what}; name the directory that has "
                "<topic>-<partition>-<topic id> directories in it (kafka-tiered-storage)"
            )
        entries = (_entry(layout, segment) for segment in found)
        self._entries = {entry.metadata.id: entry for entry in entries}

    @property
    def damaged(self) -> Mapping[str, str]:
        """Nothing: what can't be read is listed as quarantined."""
        return {}

    def scan(self) -> Iterator[LedgerEntry]:
        """Every segment."""
        return iter(tuple(self._entries.values()))

    def update(
        self, segment: SegmentId, change: Callable[[LedgerEntry], LedgerEntry]
    ) -> LedgerEntry:
        """Change one segment's entry, in memory."""
        if segment not in self._entries:
            raise NotFound(f"segment {segment.path} is not in the foreign tier")
        self._entries[segment] = change(self._entries[segment])
        return self._entries[segment]

    def advance(self, segment: SegmentId, state: SegmentState) -> LedgerEntry:
        """Set one segment's state, in memory."""
        return self.update(segment, lambda entry: replace(entry, state=state))


def backfill(
    root: Path,
    topics: Collection[str],
    *,
    tables: Tables,
    converter: Converter,
    bytes_max: int,
    progress: Callable[[CycleReport], None] = lambda report: None,
) -> BackfillReport:
    """Convert all that a LocalTieredStorage directory holds; safe to run again.

    Stops when a cycle brings nothing new. Raises BadInput for a directory without segments.
    """
    engine = Engine(
        ledger=ForeignSegments(root, topics),
        tables=tables,
        converter=converter,
        store_url=str(root.resolve()),
        bytes_max=bytes_max,
        split=lambda task, entry: [task],
        layout=_LAYOUT,
        path_of=_path_of,
    )
    segments = already = rows = commits = 0
    for cycle in count():
        report = engine.run_cycle()
        progress(report)
        segments += report.segments
        already += report.settled
        rows += report.rows
        commits += report.commits
        # The first look only lists what the second may step over holes to.
        if cycle and report.commits == 0:
            break
    return BackfillReport(
        segments=segments,
        already=already,
        rows=rows,
        commits=commits,
        problems=dict(report.problems),
    )


def _entry(layout: LocalTieredStorageLayout, segment: NativeSegment) -> LedgerEntry:
    identity = SegmentId(
        topic_id=segment.topic_id,
        partition=segment.partition,
        base_offset=segment.base_offset,
        segment_id=segment.segment_id,
    )
    quarantine: Quarantine | None = None
    # Nobody knows where an unreadable one ends: what no other copy holds from here on may be in it.
    end_offset, size_bytes = _OFFSET_MAX, 0
    epochs: tuple[tuple[int, int], ...] = ()
    try:
        bounds = layout.bounds(segment)
        size_bytes = layout.log(segment).size_bytes
        end_offset, epochs = bounds.end_offset, bounds.leader_epochs
    except SegmentReaderError as error:
        quarantine = Quarantine(reason=error.reason, position=error.position)
    except (OSError, ValueError) as error:
        quarantine = Quarantine(reason=f"can't be read: {error}", position=0)
    return LedgerEntry(
        metadata=SegmentMetadata(
            id=identity,
            topic=segment.topic,
            start_offset=segment.base_offset,
            end_offset=end_offset,
            max_timestamp_ms=-1,
            broker_id=-1,
            size_bytes=size_bytes,
            leader_epochs=epochs,
        ),
        parts=(),
        sha256="",
        uploaded_at_ms=0,
        quarantine=quarantine,
    )


def _path_of(meta: SegmentMetadata) -> str:
    return f"{meta.topic}-{meta.id.partition}-{meta.id.topic_id}/{meta.id.name}"
