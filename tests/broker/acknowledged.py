"""What producers were acknowledged, record by record, and what a reader must see of it."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from tiering.demo.digest import Headers, encode_record

__all__ = [
    "HASH_BYTES",
    "ISOLATIONS",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Expected",
    "Found",
    "Record",
    "WrittenPartition",
    "WrittenTopic",
    "hashed",
]

HASH_BYTES = 16
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
ISOLATIONS = (READ_COMMITTED, READ_UNCOMMITTED)

Record = tuple[int, int, bytes | None, bytes | None, Headers]
"""(offset, timestamp ms, key, value, headers)"""
Found = tuple[int, bytes]
"""(offset, hash of the record's encoding)"""

COLUMNS = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def hashed(record: Record) -> Found:
    """A record as it is compared: its offset, and a hash of all of its content."""
    return record[0], hashlib.sha256(encode_record(*record)).digest()[:HASH_BYTES]


class Expected:
    """The records of one partition that a reader must see, in offset order."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records: Sequence[Record] = sorted(records, key=lambda r: r[0])
        self.offsets = [r[0] for r in self.records]
        assert len(set(self.offsets)) == len(self.offsets), "one offset was acknowledged twice"

    @cached_property
    def found(self) -> list[Found]:
        """All of them as they are compared."""
        return [hashed(r) for r in self.records]

    def check_seek(self, target: int, got: Sequence[Found]) -> None:
        """`got` must be the first records at or after `target`, and at least one."""
        at = bisect_left(self.offsets, target)
        assert got, f"nothing came after a seek to {target}"
        assert list(got) == self.found[at : at + len(got)], f"wrong records at {target}"

    def check_all(self, got: Sequence[Found], *, start: int = 0, end: int | None = None) -> None:
        """`got` must be all records of [start, end)."""
        at = bisect_left(self.offsets, start)
        stop = len(self.offsets) if end is None else bisect_left(self.offsets, end)
        wanted = self.found[at:stop]
        if list(got) != wanted:
            raise AssertionError(_difference(wanted, got))

    def table(self, end: int | None = None) -> pa.Table:
        """Records below `end` as Arrow."""
        stop = len(self.offsets) if end is None else bisect_left(self.offsets, end)
        offsets, times, keys, values, headers = (
            zip(*self.records[:stop], strict=True) if stop else ((),) * 5
        )
        pairs = [[{"key": k, "value": v} for k, v in each] for each in headers]
        return pa.table([offsets, times, keys, values, pairs], schema=COLUMNS)


@dataclass
class WrittenPartition:
    """Acknowledged records of one partition."""

    committed: list[Record] = field(default_factory=list)
    aborted: list[Record] = field(default_factory=list)

    def expected(self, isolation: str) -> Expected:
        """What a consumer of that isolation level must see. Ask only when all is written."""
        if isolation not in self._expected:
            more = [] if isolation == READ_COMMITTED else self.aborted
            self._expected[isolation] = Expected([*self.committed, *more])
        return self._expected[isolation]

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return max(r[0] for r in (*self.committed, *self.aborted)) + 1

    def __post_init__(self) -> None:
        self._expected: dict[str, Expected] = {}


@dataclass
class WrittenTopic:
    """A topic and everything that was acknowledged for it."""

    name: str
    partitions: list[WrittenPartition]

    @classmethod
    def empty(cls, name: str, partitions: int) -> WrittenTopic:
        """Nothing written yet."""
        return cls(name, [WrittenPartition() for _ in range(partitions)])

    @property
    def ends(self) -> dict[int, int]:
        """End offset of each partition."""
        return {number: p.end_offset for number, p in enumerate(self.partitions)}

    @property
    def records(self) -> int:
        """Over all partitions, aborted ones too."""
        return sum(len(p.committed) + len(p.aborted) for p in self.partitions)


def _difference(wanted: Sequence[Found], got: Sequence[Found]) -> str:
    expected, seen = dict(wanted), dict(got)
    missing = sorted(expected.keys() - seen.keys())
    extra = sorted(seen.keys() - expected.keys())
    other = sorted(o for o in expected.keys() & seen.keys() if expected[o] != seen[o])
    return (
        f"{len(wanted)} records expected, {len(got)} came; missing {len(missing)} {missing[:5]}, "
        f"unexpected {len(extra)} {extra[:5]}, different {len(other)} {other[:5]}"
    )
