"""Segments with everything odd in them, and what a table must hold of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from native_segments import (
    EPOCH_MS,
    NO_TIMESTAMP,
    Batch,
    Rec,
    Segment,
    aborted_entry,
    in_batches,
    kafka_uuid,
    some_records,
)

LENGTH = 160
"""Offsets that one odd segment takes."""

_MARKER = (b"\0\0\0\0", b"\0\0\0\0\0\0")


@dataclass(frozen=True, kw_only=True)
class OddTopic:
    """A topic whose segments hold nulls, gaps, log-append time, aborted and control batches."""

    name: str
    topic_id: str
    partitions: Sequence[int] = (0, 1)

    @classmethod
    def named(cls, name: str) -> OddTopic:
        return cls(name=name, topic_id=kafka_uuid())

    def segments(self, number: int) -> list[Segment]:
        """The segment of that number (0, 1, ...) of each partition."""
        return [self._segment(partition, number) for partition in self.partitions]

    def _segment(self, partition: int, number: int) -> Segment:
        start = number * LENGTH
        records = some_records(start, LENGTH, seed=partition + 7)
        batches = [
            *in_batches(records[:40], 9, ("zstd", "none", "gzip")),
            Batch(records=records[40:50], codec="zstd", log_append=True),
            Batch(records=[replace(r, timestamp_ms=NO_TIMESTAMP) for r in records[50:60]]),
            Batch(records=records[60:70], producer=5),
            Batch(records=records[70:80], producer=6, codec="gzip"),
            *_marker(start + 80, producer=5),
            Batch(records=[r for r in records[81:110] if r.offset % 3], codec="zstd"),
            # Offsets 110 to 119 are a gap between batches.
            *in_batches(records[120:], 10, ("none",)),
        ]
        return Segment(
            batches=batches,
            topic=self.name,
            topic_id=self.topic_id,
            partition=partition,
            verdicts=aborted_entry(5, start + 60, start + 80),
        )


def _marker(offset: int, producer: int) -> list[Batch]:
    key, value = _MARKER
    marker = Rec(offset=offset, key=key, value=value, timestamp_ms=EPOCH_MS)
    return [Batch(records=[marker], producer=producer, control=True)]


def committed(segments: Sequence[Segment]) -> list[dict[str, object]]:
    """The rows that the table must hold of them, in the order of partition and offset."""
    rows = [
        row
        for segment in segments
        for row in segment.rows()
        if not 60 <= int(str(row["kafka_offset"])) % LENGTH < 70  # aborted
    ]
    return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))
