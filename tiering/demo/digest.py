"""One digest for the same records, whichever way they were read."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Headers", "PartitionDigest", "TopicDigest", "encode_record"]

Headers = Sequence[tuple[str, str | bytes | None]]


def encode_record(
    offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """A record's content as bytes from which it could be read back: null differs from empty."""
    parts = [struct.pack(">qqI", offset, timestamp_ms, len(headers))]
    for item in (key, value, *(x for header in headers for x in header)):
        if item is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            data = item.encode() if isinstance(item, str) else item
            parts += [struct.pack(">I", len(data)), data]
    return b"".join(parts)


@dataclass(slots=True)
class PartitionDigest:
    """SHA-256 over a partition's records, which must come in offset order."""

    records: int = 0
    next_offset: int = 0
    _hash: Any = field(default_factory=hashlib.sha256, repr=False)

    def add(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        """Take one record in; an offset that doesn't rise raises ValueError."""
        if offset < self.next_offset:
            raise ValueError(f"offset {offset} came after {self.next_offset - 1}")
        self.next_offset = offset + 1
        self.records += 1
        self._hash.update(encode_record(offset, timestamp_ms, key, value, headers))

    def hexdigest(self) -> str:
        """The digest so far."""
        return str(self._hash.hexdigest())


class TopicDigest:
    """One digest per partition, and one over them all."""

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionDigest] = {}

    def partition(self, number: int) -> PartitionDigest:
        """The digest of one partition."""
        return self._partitions.setdefault(number, PartitionDigest())

    def add_all(
        self,
        partition: int,
        records: Iterable[tuple[int, int, bytes | None, bytes | None, Headers]],
    ) -> None:
        """Take in (offset, timestamp ms, key, value, headers) of one partition in order."""
        digest = self.partition(partition)
        for offset, timestamp_ms, key, value, headers in records:
            digest.add(offset, timestamp_ms, key, value, headers)

    @property
    def records(self) -> int:
        """Records over all partitions."""
        return sum(p.records for p in self._partitions.values())

    def hexdigest(self) -> str:
        """SHA-256 over the partitions' digests in order of their numbers."""
        total = hashlib.sha256()
        for number, digest in sorted(self._partitions.items()):
            total.update(f"{number}:{digest.records}:{digest.hexdigest()};".encode())
        return total.hexdigest()
