"""Batch borders of native segments as they were uploaded, read from their headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from real_tier import RealTier
from retirement import kept_log

__all__ = ["Batch", "batches_of", "borders", "native_batches"]

HEADER = struct.Struct(">qiibIhiqqqhii")
NO_RECORDS = 61


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The part of a batch's header that the tests ask for."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    attributes: int
    count: int

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & 7

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's marker."""
        return bool(self.attributes & 0x20)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether its base timestamp is a delete horizon."""
        return bool(self.attributes & 0x40)


def native_batches(tier: RealTier, topic: str, partition: int) -> Iterator[Batch]:
    """All batches of a partition."""
    for entry in tier.entries(topic):
        if entry.metadata.id.partition == partition:
            yield from batches_of(kept_log(tier, entry))


def borders(tier: RealTier, topic: str, partition: int) -> list[int]:
    """Every batch's first and last offset and their neighbours, ascending."""
    offsets: set[int] = set()
    for batch in native_batches(tier, topic, partition):
        for edge in (batch.base_offset, batch.last_offset):
            offsets |= {max(0, edge - 1), edge, edge + 1}
    return sorted(offsets)


def batches_of(log: bytes) -> list[Batch]:
    """The batches of one log."""
    found = []
    at = 0
    while at < len(log):
        base, length, _, _, _, attributes, delta, *_, count = HEADER.unpack_from(log, at)
        found.append(
            Batch(
                position=at,
                size=length + 12,
                base_offset=base,
                last_offset=base + delta,
                attributes=attributes,
                count=count,
            )
        )
        at += length + 12
    return found
