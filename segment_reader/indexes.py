"""The five index files that the broker hands over with a segment (KIP-405), parsed and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from segment_reader.errors import CorruptSegment, UnsupportedFormat

__all__ = [
    "OffsetIndex",
    "ProducerSnapshot",
    "TimeIndex",
    "TransactionIndex",
    "parse_leader_epochs",
    "parse_offset_index",
    "parse_producer_snapshot",
    "parse_time_index",
    "parse_transaction_index",
    "serve_offset_index",
]

SERVED_POSITION_DIVISOR: Final = 4

_Int64s = npt.NDArray[np.int64]

_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_TRANSACTION_ENTRY: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
_PRODUCER_ENTRY: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_transaction_first_offset", ">i8"),
    ]
)
_SNAPSHOT_HEADER_BYTES: Final = 10
_SNAPSHOT_VERSION: Final = 1
_CRC_COVERS_FROM: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetIndex:
    """`.index`: absolute offset (a batch's *last*) and the batch's byte position."""

    offset: _Int64s
    position: _Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeIndex:
    """`.timeindex`: the highest timestamp so far (ms) and the offset that has it."""

    timestamp_ms: _Int64s
    offset: _Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionIndex:
    """`.txnindex`: aborted transactions whose marker lies in the segment, in the markers' order."""

    producer_id: _Int64s
    first_offset: _Int64s
    last_offset: _Int64s
    last_stable_offset: _Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshot:
    """`.snapshot`: the producers known at the segment's end.

    `current_transaction_first_offset` is -1 for a producer without an open transaction.
    """

    producer_id: _Int64s
    producer_epoch: _Int64s
    last_sequence: _Int64s
    last_offset: _Int64s
    offset_delta: _Int64s
    timestamp_ms: _Int64s
    coordinator_epoch: _Int64s
    current_transaction_first_offset: _Int64s


def parse_offset_index(data: bytes, base_offset: int, *, name: str = "offset index") -> OffsetIndex:
    """Parse an OFFSET index of the segment that starts at `base_offset`; may be empty.

    Raises CorruptSegment if it isn't whole entries with rising offsets and positions.
    """
    entries = _entries(data, _OFFSET_ENTRY, name)
    offset, position = entries["offset"].astype(np.int64), entries["position"].astype(np.int64)
    _require_rising(offset, 8, name, "offset", floor=0)
    _require_rising(position, 8, name, "position", floor=0)
    return OffsetIndex(offset=offset + base_offset, position=position)


def parse_time_index(data: bytes, base_offset: int, *, name: str = "time index") -> TimeIndex:
    """Parse a TIMESTAMP index; raises CorruptSegment where timestamps or offsets fall."""
    entries = _entries(data, _TIME_ENTRY, name)
    timestamp, offset = entries["timestamp"].astype(np.int64), entries["offset"].astype(np.int64)
    _require_rising(timestamp, 12, name, "timestamp", floor=-1)
    _require_rising(offset, 12, name, "offset", floor=0, strictly=False)
    return TimeIndex(timestamp_ms=timestamp, offset=offset + base_offset)


def parse_transaction_index(
    data: bytes, *, name: str = "transaction index", ordered: bool = True
) -> TransactionIndex:
    """Parse a TRANSACTION index; raises CorruptSegment (UnsupportedFormat for other versions).

    `ordered` asks for rising last offsets, as within the index of one segment.
    """
    entries = _entries(data, _TRANSACTION_ENTRY, name)
    unknown = np.flatnonzero(entries["version"] != 0)
    if len(unknown):
        at = int(unknown[0])
        version = int(entries["version"][at])
        raise UnsupportedFormat(f"entry of version {version}", segment=name, position=at * 34)
    first, last = entries["first_offset"].astype(np.int64), entries["last_offset"].astype(np.int64)
    bad = np.flatnonzero((first < 0) | (last < first))
    if len(bad):
        at = int(bad[0])
        reason = f"a transaction from {int(first[at])} to {int(last[at])} is none"
        raise CorruptSegment(reason, segment=name, position=at * 34)
    if ordered:
        _require_rising(last, 34, name, "last offset", floor=0)
    return TransactionIndex(
        producer_id=entries["producer_id"].astype(np.int64),
        first_offset=first,
        last_offset=last,
        last_stable_offset=entries["last_stable_offset"].astype(np.int64),
    )


def parse_producer_snapshot(data: bytes, *, name: str = "producer snapshot") -> ProducerSnapshot:
    """Parse a producer snapshot; raises CorruptSegment if its size or CRC-32C is wrong."""
    if len(data) < _SNAPSHOT_HEADER_BYTES:
        raise CorruptSegment(f"only {len(data)} bytes", segment=name, position=0)
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != _SNAPSHOT_VERSION:
        raise UnsupportedFormat(f"version {version}", segment=name, position=0)
    if google_crc32c.value(data[_CRC_COVERS_FROM:]) != int.from_bytes(data[2:6], "big"):
        raise CorruptSegment("its CRC-32C does not match", segment=name, position=2)
    entries = _entries(data[_SNAPSHOT_HEADER_BYTES:], _PRODUCER_ENTRY, name)
    count = int.from_bytes(data[6:10], "big", signed=True)
    if count != len(entries):
        reason = f"it announces {count} producers and holds {len(entries)}"
        raise CorruptSegment(reason, segment=name, position=6)
    columns = {field: entries[field].astype(np.int64) for field in _PRODUCER_ENTRY.names or ()}
    return ProducerSnapshot(timestamp_ms=columns.pop("timestamp"), **columns)


def parse_leader_epochs(
    data: bytes, *, name: str = "leader epoch checkpoint"
) -> tuple[tuple[int, int], ...]:
    """Parse a leader epoch checkpoint (KIP-101) into (epoch, start offset), both rising.

    Raises CorruptSegment.
    """
    try:
        lines = data.decode("ascii").splitlines()
        version, count = int(lines[0]), int(lines[1])
        entries = [tuple(int(number) for number in line.split()) for line in lines[2:] if line]
    except (ValueError, IndexError) as error:
        raise CorruptSegment(f"not a checkpoint: {error}", segment=name, position=0) from error
    if version != 0:
        raise UnsupportedFormat(f"version {version}", segment=name, position=0)
    pairs = tuple((entry[0], entry[1]) for entry in entries if len(entry) == 2)
    if count != len(entries) or len(pairs) != len(entries):
        reason = f"it announces {count} epochs and holds {len(pairs)}"
        raise CorruptSegment(reason, segment=name, position=0)
    for i, (epoch, start) in enumerate(pairs):
        before = pairs[i - 1] if i else (-1, -1)
        if epoch <= before[0] or start <= before[1]:
            reason = f"epoch {epoch} from {start} does not rise over {before}"
            raise CorruptSegment(reason, segment=name, position=0)
    return pairs


def serve_offset_index(data: bytes) -> bytes:
    """The OFFSET index as it is served: the broker's own with every position divided by four.

    A pure function of the stored index, because a broker keeps what it was once served. Raises
    CorruptSegment for a size that no index has.
    """
    entries = _entries(data, _OFFSET_ENTRY, "offset index").copy()
    entries["position"] //= SERVED_POSITION_DIVISOR
    return entries.tobytes()


def _entries(data: bytes, entry: np.dtype[np.void], name: str) -> npt.NDArray[np.void]:
    if len(data) % entry.itemsize:
        raise CorruptSegment(
            f"{len(data)} bytes are not whole entries of {entry.itemsize}",
            segment=name,
            position=len(data) - len(data) % entry.itemsize,
        )
    return np.frombuffer(data, dtype=entry)


def _require_rising(
    values: _Int64s, entry_bytes: int, name: str, what: str, *, floor: int, strictly: bool = True
) -> None:
    if not len(values):
        return
    steps = np.diff(values)
    bad = np.flatnonzero(steps <= 0 if strictly else steps < 0) + 1
    at = 0 if values[0] < floor else int(bad[0]) if len(bad) else None
    if at is not None:
        reason = f"{what} {int(values[at])} of entry {at} does not rise"
        raise CorruptSegment(reason, segment=name, position=at * entry_bytes)
