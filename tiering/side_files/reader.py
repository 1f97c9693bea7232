"""Reading the side file of a segment: headers at once, kept bytes and indexes when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.batch_table import KEPT_COLUMN, BatchTable, Kept
from tiering.errors import FatalError
from tiering.segments import SegmentId
from tiering.side_files import blobs
from tiering.side_files.batch_parquet import decode_batches, decode_kept
from tiering.side_files.objects import PuffinObject, open_object
from tiering.side_files.puffin import Blob
from tiering.store import ObjectStore

__all__ = ["SideFile"]

_PARTS_AT_ONCE: Final = 8
_BLOB_NBYTES: Final = 512
"""What a blob's description is taken to weigh."""

_Int64s = npt.NDArray[np.int64]
_Decoded = TypeVar("_Decoded")


class SideFile:
    """All parts of one segment's side file, or one of them; may be shared by threads.

    `batches`: headers and digests in log order, without what is kept. `nbytes`: memory held.
    Objects that are damaged, cut or of another segment give a FatalError that names them, never
    other data; one that is gone gives NotFound.
    """

    def __init__(self, segment: SegmentId, parts: Sequence[_Part]) -> None:
        self._segment = segment
        self.batches = BatchTable.concat([part.batches for part in parts])
        self._kept = [(part.file, blob) for part in parts for blob in part.kept]
        self._kept_starts = np.array(
            [int(blob.properties[blobs.FIRST_POSITION]) for _, blob in self._kept], np.int64
        )
        self._indexes = {
            name: index for part in reversed(parts) for name, index in part.indexes.items()
        }
        held = sum(len(index.held or b"") for index in self._indexes.values())
        described = _BLOB_NBYTES * (len(self._kept) + len(self._indexes))
        self.nbytes = self.batches.nbytes + held + described

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        segment: SegmentId,
        keys: Sequence[str],
        *,
        part: int | None = None,
    ) -> SideFile:
        """Read the headers of `segment` from all of `keys` (its parts in offset order), or of one.

        Mostly one request per part, the parts side by side. Batches must follow one another
        without a gap, from the log's first byte on unless only a later part is read.
        """
        wanted = list(keys) if part is None else [keys[part]]
        if not wanted:
            raise FatalError(f"segment {segment.path} has no side file")
        read = partial(_read_part, store, segment)
        if len(wanted) == 1:
            parts = [read(wanted[0])]
        else:
            with ThreadPoolExecutor(min(len(wanted), _PARTS_AT_ONCE)) as threads:
                parts = list(threads.map(read, wanted))
        side = cls(segment, parts)
        side._check_sequence(first=None if part else 0)
        return side

    def kept_bytes(self, first: int, stop: int) -> list[bytes | None]:
        """What is kept of the batches [first, stop), None for `Kept.ROWS`; reads only what it must.

        A reader goes through them in runs: about 2 MiB are read at least wherever any is kept.
        """
        first, stop, _ = slice(first, stop).indices(len(self.batches))
        chosen = first + np.flatnonzero(self.batches.kept[first:stop] != Kept.ROWS)
        result: list[bytes | None] = [None] * (stop - first)
        if not len(chosen):
            return result
        place = np.searchsorted(self._kept_starts, self.batches.headers.position[chosen], "right")
        if not place[0]:
            raise self._fault(int(chosen[0]), "what is kept of it is missing")
        for number, table in self._kept_tables(np.unique(place - 1).tolist()):
            here = chosen[place - 1 == number]
            for i, data in zip(here.tolist(), self._taken(table, here), strict=True):
                result[i - first] = data
        return result

    @property
    def index_parts(self) -> tuple[str, ...]:
        """Names of the index parts that are there."""
        return tuple(self._indexes)

    def index(self, part: str) -> bytes | None:
        """A part of the segment's indexes object, byte for byte; None when it had none."""
        found = self._indexes.get(part)
        if found is None:
            return None
        if found.held is not None:
            return found.held
        (stored,) = found.file.read([found.blob])
        return blobs.index_bytes(found.blob, stored, found.file.key)

    def _kept_tables(self, numbers: list[int]) -> Iterator[tuple[int, Any]]:
        """(number, content) of blobs of kept bytes, neighbours read together."""
        for file, group in groupby(numbers, key=lambda number: self._kept[number][0]):
            same_file = list(group)
            wanted = [self._kept[number][1] for number in same_file]
            for number, blob, stored in zip(same_file, wanted, file.read(wanted), strict=True):
                yield number, _decoded(partial(decode_kept, stored), file.key, blob)

    def _check_sequence(self, first: int | None) -> None:
        headers = self.batches.headers
        if not len(headers):
            return
        start = int(headers.position[0]) if first is None else first
        ends = headers.position + headers.size
        wrong = headers.position != np.concatenate(([start], ends[:-1]))
        wrong[1:] |= headers.base_offset[1:] <= headers.last_offset[:-1]
        if wrong.any():
            raise self._fault(int(np.argmax(wrong)), "it doesn't follow the batch before it")

    def _taken(self, table: Any, chosen: _Int64s) -> list[bytes]:
        """Kept bytes of the batches `chosen`, all of which `table` must have."""
        held = table.column("position").to_numpy().astype(np.int64)
        wanted = self.batches.headers.position[chosen]
        rows = np.searchsorted(held, wanted)
        missing = (rows == len(held)) | (held[np.minimum(rows, len(held) - 1)] != wanted)
        if missing.any():
            raise self._fault(int(chosen[np.argmax(missing)]), "what is kept of it is missing")
        taken: list[bytes] = table.column(KEPT_COLUMN).take(pa.array(rows)).to_pylist()
        sizes = np.fromiter(map(len, taken), np.int64, len(taken))
        wrong = (self.batches.kept[chosen] == Kept.RAW) & (
            sizes != self.batches.records_size[chosen]
        )
        if wrong.any():
            raise self._fault(int(chosen[np.argmax(wrong)]), "what is kept of it is not whole")
        return taken

    def _fault(self, batch: int, reason: str) -> FatalError:
        headers = self.batches.headers
        return FatalError(
            f"side file of segment {self._segment.path}: batch {batch} (offset "
            f"{headers.base_offset[batch]}, position {headers.position[batch]}): {reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """Where an index part is; `held` where it came along with the footer."""

    file: PuffinObject
    blob: Blob
    held: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one object has of a segment."""

    file: PuffinObject
    batches: BatchTable
    kept: list[Blob]
    indexes: dict[str, _Index]


def _read_part(store: ObjectStore, segment: SegmentId, key: str) -> _Part:
    file = open_object(store, key)
    own = blobs.blobs_of(segment, file.blobs, key)
    wanted = [blob for blob in own if blob.type == blobs.BATCHES]
    if not wanted:
        raise FatalError(f"side file {key} has no batches of segment {segment.path}")
    batches = [
        _decoded(partial(decode_batches, stored), key, blob)
        for blob, stored in zip(wanted, file.read(wanted), strict=True)
    ]
    rest = file.for_later()
    return _Part(
        file=rest,
        batches=BatchTable.concat(batches),
        kept=[blob for blob in own if blob.type == blobs.KEPT],
        indexes={
            blob.properties[blobs.PART]: _Index(file=rest, blob=blob, held=_held(file, blob))
            for blob in own
            if blob.type == blobs.INDEX
        },
    )


def _held(file: PuffinObject, blob: Blob) -> bytes | None:
    if not file.has_at_hand(blob):
        return None
    (stored,) = file.read([blob])
    return blobs.index_bytes(blob, stored, file.key)


def _decoded(decode: Callable[[], _Decoded], key: str, blob: Blob) -> _Decoded:
    try:
        return decode()
    except (ValueError, OSError, pa.ArrowException) as error:
        raise FatalError(
            f"side file {key} is damaged: the {blob.type} blob at byte {blob.offset}: {error}"
        ) from error
