"""Where a segment's bytes come from: a name, a size, and ranged reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from segment_reader.errors import CorruptSegment

__all__ = ["BytesSource", "FileSource", "RangeSource"]


class RangeSource(Protocol):
    """An immutable run of bytes that can be read in ranges.

    A source raises whatever its store raises (an outage is not a corrupt segment).
    """

    @property
    def name(self) -> str:
        """How errors call it."""

    @property
    def size_bytes(self) -> int:
        """Length of the whole."""

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start` on."""


class BytesSource:
    """A segment that is in memory already."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.size_bytes = len(data)
        self._data = data

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start` on; raises CorruptSegment past the end."""
        _check_range(self, start, length)
        return self._data[start : start + length]


class FileSource:
    """A segment in a local file, which may not change while it is read."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self.name = str(self._path)
        self.size_bytes = self._path.stat().st_size

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start` on; raises CorruptSegment if the file shrank."""
        _check_range(self, start, length)
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            return _read_fully(self.name, descriptor, start, length)
        finally:
            os.close(descriptor)


def _read_fully(name: str, descriptor: int, start: int, length: int) -> bytes:
    data = os.pread(descriptor, length, start)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), start + len(data))
        if not more:
            raise CorruptSegment(
                f"the file ends here, {length - len(data)} bytes short",
                segment=name,
                position=start + len(data),
            )
        data += more
    return data


def _check_range(source: RangeSource, start: int, length: int) -> None:
    if start < 0 or length < 0 or start + length > source.size_bytes:
        raise CorruptSegment(
            f"{length} bytes asked of {source.size_bytes}", segment=source.name, position=start
        )
