"""Batch headers, scanned and checked a chunk at a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from segment_reader.bounds import SegmentBounds
from segment_reader.errors import CorruptSegment, SegmentReaderError, UnsupportedFormat
from segment_reader.kernels import batch_scan, checksum
from segment_reader.limits import DEFAULT_LIMITS, Limits

__all__ = ["BatchHeaders", "BatchStarts", "Codec", "HeaderScanner", "whole_batches"]

BATCH_OVERHEAD: Final = 61
_CRC_COVERS_FROM: Final = 21
_KERNEL_CHECKSUM_MAX: Final = 256 * 1024
"""Longer batches go through google-crc32c, which is a little faster once its call is paid for."""

_CODEC_MASK, _LOG_APPEND, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
_KNOWN_ATTRIBUTES: Final = 0x7F

_UNKNOWN_CODEC: Final = "its codec is not one of Kafka's five"
_UNKNOWN_ATTRIBUTES: Final = "it has attribute bits that have no meaning yet"
_UNSUPPORTED: Final = (_UNKNOWN_CODEC, _UNKNOWN_ATTRIBUTES)

_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


class Codec(IntEnum):
    """Compression codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStarts:
    """Absolute positions and sizes (bytes, int64) of whole batches, in the log's order."""

    starts: _Int64s
    sizes: _Int64s


def whole_batches(
    buffer: bytes | bytearray | memoryview,
    start_position: int,
    *,
    name: str,
    limits: Limits = DEFAULT_LIMITS,
) -> BatchStarts:
    """Find the batches that lie whole at the head of `buffer`, of whatever magic.

    `buffer` begins on a batch border, at `start_position` of the log called `name`. Only sizes
    are looked at. Raises CorruptSegment at a size that no batch can have.
    """
    data = _as_array(buffer)
    capacity = len(data) // 26 + 1
    starts, sizes = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    found = batch_scan.scan_sizes(data, limits.batch_bytes_max, starts, sizes)
    if found < 0:
        n = -1 - found
        at = int(starts[n - 1] + sizes[n - 1]) if n else 0
        raise _bad_size(data, at, start_position + at, name)
    return BatchStarts(starts=starts[:found] + start_position, sizes=sizes[:found].copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeaders:
    """The headers of consecutive batches of magic 2: one int64 (or bool) per batch and field.

    `position` is absolute in the log, `size` counts the whole batch, `attributes` are raw. With
    the delete-horizon flag `base_timestamp` is the horizon (KIP-534); the timestamps of records
    count from it all the same, as they do in Kafka.
    """

    position: _Int64s
    size: _Int64s
    base_offset: _Int64s
    leader_epoch: _Int64s
    crc: _Int64s
    attributes: _Int64s
    last_offset_delta: _Int64s
    base_timestamp: _Int64s
    max_timestamp: _Int64s
    producer_id: _Int64s
    producer_epoch: _Int64s
    base_sequence: _Int64s
    count: _Int64s

    def __len__(self) -> int:
        return len(self.position)

    @property
    def last_offset(self) -> _Int64s:
        """Offset of each batch's last record, gone ones included."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> _Int64s:
        """`Codec` numbers."""
        return self.attributes & _CODEC_MASK

    @property
    def log_append_time(self) -> _Bools:
        """Whether every record's timestamp is the batch's `max_timestamp`."""
        return self._flag(_LOG_APPEND)

    @property
    def transactional(self) -> _Bools:
        """Whether the batch is part of a transaction (data, or the marker that ends it)."""
        return self._flag(_TRANSACTIONAL)

    @property
    def control(self) -> _Bools:
        """Whether the batch holds control records, which no consumer is given."""
        return self._flag(_CONTROL)

    @property
    def delete_horizon(self) -> _Bools:
        """Whether `base_timestamp` is a delete horizon."""
        return self._flag(_DELETE_HORIZON)

    def _flag(self, bit: int) -> _Bools:
        flags: _Bools = (self.attributes & bit) != 0
        return flags

    def slice(self, chosen: slice) -> BatchHeaders:
        """The batches of an index range, without copying."""
        return BatchHeaders(**{name: getattr(self, name)[chosen] for name in batch_scan.FIELDS})

    def copy(self) -> BatchHeaders:
        """The same in memory of its own."""
        return BatchHeaders(**{name: getattr(self, name).copy() for name in batch_scan.FIELDS})

    def take(self, chosen: _Bools) -> BatchHeaders:
        """The batches where `chosen` is true."""
        return BatchHeaders(**{name: getattr(self, name)[chosen] for name in batch_scan.FIELDS})


class HeaderScanner:
    """Scans chunk after chunk of one log, checking each batch and its place after the last one.

    Checked per batch: size, magic, CRC-32C, attributes, counts against the bytes there are,
    offsets against the bounds and against the batch before, leader epoch against the bounds.
    """

    def __init__(self, name: str, bounds: SegmentBounds, limits: Limits) -> None:
        self._name = name
        self._bounds = bounds
        self._limits = limits
        self._next_offset = bounds.start_offset
        self._last_epoch = -1
        self._fields = np.empty((len(batch_scan.FIELDS), 0), np.int64)

    def scan(self, chunk: npt.NDArray[np.uint8], position: int) -> tuple[BatchHeaders, int]:
        """The whole batches at the head of `chunk` (at `position` of the log), and their bytes.

        The headers are good until the next scan, which uses their memory again. Raises
        CorruptSegment or UnsupportedFormat for the first batch that is wrong.
        """
        capacity = len(chunk) // BATCH_OVERHEAD + 1
        if capacity > self._fields.shape[1]:
            self._fields = np.empty((len(batch_scan.FIELDS), capacity), np.int64)
        result = np.zeros(2, np.int64)
        fault = batch_scan.scan_headers(chunk, self._limits.batch_bytes_max, self._fields, result)
        found, consumed = int(result[0]), int(result[1])
        headers = _headers(self._fields[:, :found], position)
        self._check(chunk, headers, position)
        if fault:
            raise self._structural_error(fault, chunk, consumed, position + consumed)
        return headers, consumed

    def _check(self, data: npt.NDArray[np.uint8], headers: BatchHeaders, position: int) -> None:
        if not len(headers):
            return
        bad_crc = _first_bad_checksum(data, headers, position)
        known = slice(0, len(headers) if bad_crc is None else bad_crc)
        self._check_places(headers, known)
        if bad_crc is not None:
            raise self._error(headers, bad_crc, "the CRC-32C does not match the batch")
        self._next_offset = int(headers.last_offset[-1]) + 1
        self._last_epoch = int(headers.leader_epoch[-1])

    def _check_places(self, headers: BatchHeaders, known: slice) -> None:
        """Raise for the first batch of `known` (whose CRCs are right) that can't be there."""
        base, last = headers.base_offset[known], headers.last_offset[known]
        if not len(base):
            return
        floor = np.concatenate(([self._next_offset], last[:-1] + 1))
        epoch = headers.leader_epoch[known]
        epoch_before = np.concatenate(([self._last_epoch], epoch[:-1]))
        low, high = self._bounds.epoch_range(base)
        low_at_end, high_at_end = self._bounds.epoch_range(last)
        attributes = headers.attributes[known]
        # An offset that overflows int64 wraps to below its base.
        checks = (
            (base < floor, "its base offset is not above the batch before (or below the start)"),
            ((last > self._bounds.end_offset) | (last < base), "its last offset is past the end"),
            ((epoch < low) | (epoch > high), "its leader epoch is not the one of its offset"),
            (
                (epoch < low_at_end) | (epoch > high_at_end),
                "its leader epoch is not the one of its last offset",
            ),
            (epoch < epoch_before, "its leader epoch is lower than that of the batch before"),
            ((attributes & _CODEC_MASK) > Codec.ZSTD, _UNKNOWN_CODEC),
            ((attributes & ~_KNOWN_ATTRIBUTES) != 0, _UNKNOWN_ATTRIBUTES),
        )
        wrong = [(int(np.argmax(bad)), reason) for bad, reason in checks if bad.any()]
        if wrong:
            raise self._error(headers, *min(wrong, key=lambda found: found[0]))

    def _error(self, headers: BatchHeaders, index: int, reason: str) -> SegmentReaderError:
        base = int(headers.base_offset[index])
        epoch = int(headers.leader_epoch[index])
        bounds = self._bounds
        kind = UnsupportedFormat if reason in _UNSUPPORTED else CorruptSegment
        return kind(
            f"batch refused: {reason} (base offset {base}, leader epoch {epoch}, attributes "
            f"{int(headers.attributes[index]):#x}; the segment holds offsets "
            f"{bounds.start_offset}..{bounds.end_offset})",
            segment=self._name,
            position=int(headers.position[index]),
        )

    def _structural_error(
        self, fault: int, data: npt.NDArray[np.uint8], at: int, position: int
    ) -> SegmentReaderError:
        magic = int(data[at + 16]) if at + 16 < len(data) else -1
        if fault == batch_scan.FAULT_BAD_SIZE:
            return _bad_size(data, at, position, self._name)
        if fault == batch_scan.FAULT_OLD_MAGIC:
            reason = f"message format v{magic} (before Kafka 0.11) is not read, only v2"
            return UnsupportedFormat(reason, segment=self._name, position=position)
        reason = {
            batch_scan.FAULT_UNKNOWN_MAGIC: f"magic {magic} is none of Kafka's",
            batch_scan.FAULT_BAD_COUNT: "its record count is negative or more than its bytes hold",
            batch_scan.FAULT_LAST_OFFSET_DELTA: "its last offset delta is below its record count",
        }[fault]
        return CorruptSegment(f"batch refused: {reason}", segment=self._name, position=position)


def _headers(fields: npt.NDArray[np.int64], position: int) -> BatchHeaders:
    fields[0] += position
    return BatchHeaders(**dict(zip(batch_scan.FIELDS, fields, strict=True)))


def _first_bad_checksum(
    data: npt.NDArray[np.uint8], headers: BatchHeaders, position: int
) -> int | None:
    starts = headers.position - position + _CRC_COVERS_FROM
    ends = headers.position - position + headers.size
    small = checksum.first_mismatch(
        data, starts, ends, np.ascontiguousarray(headers.crc), _KERNEL_CHECKSUM_MAX
    )
    large = np.flatnonzero(ends - starts > _KERNEL_CHECKSUM_MAX).tolist()
    for i in large:
        if small >= 0 and i > small:
            break
        if google_crc32c.value(data[starts[i] : ends[i]]) != headers.crc[i]:
            return int(i)
    return small if small >= 0 else None


def _bad_size(data: npt.NDArray[np.uint8], at: int, position: int, name: str) -> SegmentReaderError:
    size = int.from_bytes(data[at + 8 : at + 12].tobytes(), "big", signed=True) + 12
    return CorruptSegment(f"a batch can't have {size} bytes", segment=name, position=position)


def _as_array(buffer: bytes | bytearray | memoryview) -> npt.NDArray[np.uint8]:
    data = np.frombuffer(buffer, dtype=np.uint8)
    data.flags.writeable = False
    return data
