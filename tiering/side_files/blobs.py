"""The blobs of a side file: their types, their properties, and whose they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import zstandard

from segment_reader.batch_table import BatchTable
from tiering.errors import FatalError
from tiering.segments import SegmentId
from tiering.side_files.puffin import Blob

__all__ = [
    "BATCHES",
    "END_POSITION",
    "FIRST_POSITION",
    "INDEX",
    "KEPT",
    "PART",
    "SEGMENT",
    "batches_properties",
    "blobs_of",
    "index_bytes",
    "index_properties",
    "kept_properties",
]

BATCHES: Final = "onecopy-batches-v1"
"""Headers and digests of consecutive batches: Parquet, `batch_parquet.HEADER_SCHEMA`."""
KEPT: Final = "onecopy-kept-v1"
"""What is kept of some of them, by position: Parquet, `batch_parquet.KEPT_SCHEMA`."""
INDEX: Final = "onecopy-index-v1"
"""One part of the indexes object, verbatim, compressed where that helps."""

SEGMENT: Final = "segment"
"""`SegmentId.path`: topic id, partition, base offset and segment id."""
PART: Final = "part"
FIRST_OFFSET, LAST_OFFSET = "first-offset", "last-offset"
FIRST_POSITION, END_POSITION = "first-position", "end-position"
COUNT: Final = "batches"
SIZE: Final = "size"
"""Bytes before compression."""

_COMPRESSION_LEVEL: Final = 6
ZSTD: Final = "zstd"


def batches_properties(batches: BatchTable) -> dict[str, str]:
    """What a blob of batches holds; one without batches says no more than that."""
    if not len(batches):
        return {COUNT: "0"}
    headers = batches.headers
    return {
        COUNT: str(len(batches)),
        FIRST_OFFSET: str(headers.base_offset[0]),
        LAST_OFFSET: str(headers.last_offset[-1]),
        FIRST_POSITION: str(headers.position[0]),
        END_POSITION: str(headers.position[-1] + headers.size[-1]),
    }


def kept_properties(first_position: int) -> dict[str, str]:
    """Position of the first batch of which the blob keeps something."""
    return {FIRST_POSITION: str(first_position)}


def index_properties(part: str, data: bytes) -> tuple[dict[str, str], str | None, bytes]:
    """(properties, codec, bytes to store) of an index part."""
    packed = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).compress(data)
    properties = {PART: part, SIZE: str(len(data))}
    return (properties, ZSTD, packed) if len(packed) < len(data) else (properties, None, data)


def index_bytes(blob: Blob, stored: bytes, key: str) -> bytes:
    """The index part that `stored` holds; FatalError naming `key` if it isn't whole."""
    size = int(blob.properties[SIZE])
    data = stored
    try:
        if blob.codec == ZSTD:
            data = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
    except zstandard.ZstdError as error:
        raise FatalError(f"side file {key} is damaged: {blob.type}: {error}") from error
    if len(data) != size:
        raise FatalError(f"side file {key} is damaged: an index of {len(data)}, not {size} bytes")
    return data


def blobs_of(segment: SegmentId, blobs: Iterable[Blob], key: str) -> tuple[Blob, ...]:
    """Those of one segment; FatalError naming `key` when there are none."""
    found = tuple(blob for blob in blobs if blob.properties.get(SEGMENT) == segment.path)
    if not found:
        raise FatalError(f"side file {key} holds nothing of segment {segment.path}")
    return found
