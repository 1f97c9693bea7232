"""What can be wrong with native Kafka bytes, split by what the caller does about it."""

from __future__ import annotations

__all__ = ["CorruptSegment", "SegmentReaderError", "UnsupportedFormat"]


class SegmentReaderError(Exception):
    """Root of every error this package raises on purpose.

    Attributes:
        segment: the segment's name as the caller knows it (object key or file name).
        position: byte position in the segment's log (or index) where the fault was found.
        reason: what is wrong there, without segment and position.
    """

    def __init__(self, reason: str, *, segment: str, position: int) -> None:
        super().__init__(f"{segment}: byte {position}: {reason}")
        self.reason = reason
        self.segment = segment
        self.position = position

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by keyword, so that the error survives the way from a worker to the driver."""
        return _rebuild, (type(self), self.reason, self.segment, self.position)


class CorruptSegment(SegmentReaderError):
    """The bytes contradict Kafka's format: quarantine the segment, keep its native copy."""


class UnsupportedFormat(SegmentReaderError):
    """The bytes are legal Kafka, but of a format this version does not read (magic 0 and 1)."""


def _rebuild(
    kind: type[SegmentReaderError], reason: str, segment: str, position: int
) -> SegmentReaderError:
    return kind(reason, segment=segment, position=position)
