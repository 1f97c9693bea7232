"""The four compression codecs of KIP-98 and KIP-110, as streams with a cap on what they put out.

| codec | framing |
| --- | --- |
| gzip | RFC 1952, any number of members |
| snappy | Java clients: xerial's blocks; librdkafka and others: one raw block |
| lz4 | LZ4 frame |
| zstd | any number of frames, mostly without a content size |
"""

from __future__ import annotations

import zlib
from typing import Final, Protocol

import cramjam
import lz4.frame
import numpy as np
import zstandard

from segment_reader.errors import CorruptSegment
from segment_reader.limits import Limits

__all__ = ["Payload", "new_zstd_decompressor"]

_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 3, 4
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_MAGIC_AS_SIZE: Final = int.from_bytes(_XERIAL_MAGIC[:4], "big")
_SNAPPY_RATIO_MAX: Final = 64
"""No element of snappy's format turns three bytes into more than 64."""
_ZSTD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
"""What zstd itself accepts by default, and what its highest level asks for."""


class _Malformed(Exception):
    """What the bytes are not."""


_FAULTS: Final = (
    _Malformed,
    zlib.error,
    cramjam.DecompressionError,
    zstandard.ZstdError,
    RuntimeError,  # lz4.frame's own
    EOFError,
)


class _Stream(Protocol):
    def readinto(self, target: memoryview) -> int:
        """Put out at most len(target) bytes; 0 only at the end (target is never empty)."""


def new_zstd_decompressor() -> zstandard.ZstdDecompressor:
    """A decompressor for `Payload`s that are read one after the other: making one is costly."""
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)


class Payload:
    """One batch's records, decompressed piece by piece.

    `size` is how many compressed bytes there are, `produced` how many came out so far. Raises
    CorruptSegment (at the batch's `position`) where the bytes are not of the codec, or put out
    more than the limits.
    """

    __slots__ = ("_allowed", "_name", "_position", "_stream", "produced", "size")

    def __init__(
        self,
        codec: int,
        data: memoryview,
        limits: Limits,
        zstd: zstandard.ZstdDecompressor,
        *,
        name: str,
        position: int,
    ) -> None:
        self.size = len(data)
        self.produced = 0
        self._name = name
        self._position = position
        ratio = max(limits.ratio_free_bytes, self.size * limits.decompression_ratio_max)
        self._allowed = min(ratio, limits.decompressed_batch_bytes_max)
        try:
            whole = max(limits.arrow_batch_bytes, self.size * limits.large_record_ratio_max)
            self._stream = _open(codec, data, zstd, whole)
        except _FAULTS as error:
            raise self._error(f"its records can't be decompressed: {error}") from error

    def fill(self, target: memoryview) -> int:
        """Fill `target` from its start; fewer bytes than it holds only at the payload's end."""
        filled = 0
        try:
            while filled < len(target):
                n = self._stream.readinto(target[filled:])
                if n == 0:
                    break
                filled += n
        except _FAULTS as error:
            raise self._error(f"its records can't be decompressed: {error}") from error
        self.produced += filled
        if self.produced > self._allowed:
            raise self._error(
                f"its {self.size} compressed bytes put out {self.produced} and more, "
                f"of which {self._allowed} are allowed"
            )
        return filled

    def _error(self, reason: str) -> CorruptSegment:
        return CorruptSegment(
            f"batch refused: {reason}", segment=self._name, position=self._position
        )


def _open(
    codec: int, data: memoryview, zstd: zstandard.ZstdDecompressor, block_bytes_max: int
) -> _Stream:
    if codec == _ZSTD:
        return zstd.stream_reader(data, read_across_frames=True)
    if codec == _LZ4:
        return _Lz4Stream(data)
    if codec == _GZIP:
        return _GzipStream(data)
    if codec == _NONE:
        return _PlainStream(data)
    if codec != _SNAPPY:
        raise _Malformed(f"codec {codec} is not a known one")
    if bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        return _SnappyStream(data, _XERIAL_HEADER_BYTES, block_bytes_max)
    return _SnappyStream(data, None, block_bytes_max)


class _PlainStream:
    def __init__(self, data: memoryview) -> None:
        self._left = data

    def readinto(self, target: memoryview) -> int:
        n = min(len(target), len(self._left))
        target[:n] = self._left[:n]
        self._left = self._left[n:]
        return n


class _GzipStream:
    def __init__(self, data: memoryview) -> None:
        self._left: bytes | memoryview = data
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def readinto(self, target: memoryview) -> int:
        while True:
            if self._member.eof:
                self._left = self._member.unused_data
                if not self._left:
                    return 0
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            out = self._member.decompress(self._left, len(target))
            self._left = self._member.unconsumed_tail
            if out:
                target[: len(out)] = out
                return len(out)
            if not self._member.eof:
                raise _Malformed("the gzip stream is cut off")


class _Lz4Stream:
    def __init__(self, data: memoryview) -> None:
        self._left: bytes | memoryview = data
        self._frame = lz4.frame.LZ4FrameDecompressor()

    def readinto(self, target: memoryview) -> int:
        while not self._frame.eof:
            out = self._frame.decompress(self._left, max_length=len(target))
            self._left = b""
            if out:
                target[: len(out)] = out
                return len(out)
            if self._frame.needs_input and not self._frame.eof:
                raise _Malformed("the lz4 frame is cut off")
        if self._frame.unused_data:
            raise _Malformed("there are bytes behind the lz4 frame")
        return 0


class _SnappyStream:
    """Xerial blocks (from `at` on) or one raw block (`at` is None).

    A block is decompressed as a whole, so its size is capped; Java clients' have 32 KiB.
    """

    def __init__(self, data: memoryview, at: int | None, block_bytes_max: int) -> None:
        self._block_bytes_max = block_bytes_max
        self._data = data
        self._at = at
        self._raw_left = at is None
        self._block = memoryview(b"")

    def readinto(self, target: memoryview) -> int:
        while not self._block:
            source = self._next_block()
            if source is None:
                return 0
            length = _snappy_length(source)
            if length <= len(target):
                if length == 0:
                    continue
                return int(cramjam.snappy.decompress_raw_into(source, target[:length]))
            if length > self._block_bytes_max:
                raise _Malformed(
                    f"a snappy block of {length} bytes, {self._block_bytes_max} are allowed"
                )
            block = np.empty(length, np.uint8)
            cramjam.snappy.decompress_raw_into(source, block.data)
            self._block = block.data
        n = min(len(target), len(self._block))
        target[:n] = self._block[:n]
        self._block = self._block[n:]
        return n

    def _next_block(self) -> memoryview | None:
        if self._at is None:
            source = self._data if self._raw_left else None
            self._raw_left = False
            return source
        while self._at < len(self._data):
            size = int.from_bytes(self._data[self._at : self._at + 4], "big")
            if size == _XERIAL_MAGIC_AS_SIZE:  # streams may be put together
                self._at += _XERIAL_HEADER_BYTES
                continue
            start, self._at = self._at + 4, self._at + 4 + size
            if self._at > len(self._data):
                raise _Malformed("a snappy block is cut off")
            return self._data[start : self._at]
        return None


def _snappy_length(block: memoryview) -> int:
    """The length that a raw block says it has, checked against what its bytes can put out."""
    length = 0
    for i, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if length > len(block) * _SNAPPY_RATIO_MAX:
                raise _Malformed(f"{len(block)} bytes of snappy can't put out {length}")
            return length
    raise _Malformed("a snappy block has no length")
