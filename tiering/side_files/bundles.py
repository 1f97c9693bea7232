"""Many segments' side files in one object, so that compacted history isn't made of small ones."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.errors import FatalError
from tiering.segments import SegmentId
from tiering.side_files import blobs
from tiering.side_files.objects import PuffinObject, PuffinUpload, open_object
from tiering.side_files.puffin import Blob
from tiering.store import ObjectStore

__all__ = ["bundle"]


def bundle(store: ObjectStore, sides: Sequence[tuple[SegmentId, Sequence[str]]], key: str) -> None:
    """Copy the side files of `sides` (segment, its keys in offset order) into one object at `key`.

    Every blob is copied verbatim and checked on the way; the key stands for all parts of each
    segment then. The footer grows by about 2 KiB a segment and is read whole by whoever opens one
    of them: bundle some hundreds, not thousands. Sources may be bundles themselves.

    Raises NotFound when a source is gone, FatalError when one is damaged or incomplete; nothing
    is visible under `key` then.
    """
    upload = PuffinUpload(store, key)
    opened: dict[str, PuffinObject] = {}
    try:
        for segment, keys in sides:
            position = 0
            for source in keys:
                if source not in opened:
                    opened.clear()  # one is enough: a bundle's segments come one after the other
                    opened[source] = open_object(store, source)
                position = _copy(upload, opened[source], segment, position)
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def _copy(upload: PuffinUpload, source: PuffinObject, segment: SegmentId, position: int) -> int:
    """Copy one source's blobs of a segment; returns the log position behind its batches."""
    own = blobs.blobs_of(segment, source.blobs, source.key)
    for blob, stored in zip(own, source.read(own), strict=True):
        position = _follow(blob, position, source.key)
        upload.copy(blob, stored)
    return position


def _follow(blob: Blob, position: int, key: str) -> int:
    if blob.type != blobs.BATCHES or blobs.FIRST_POSITION not in blob.properties:
        return position
    first = int(blob.properties[blobs.FIRST_POSITION])
    if first != position:
        raise FatalError(f"side file {key} has batches from {first} on where {position} comes next")
    return int(blob.properties[blobs.END_POSITION])
