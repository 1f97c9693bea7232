"""Batches made by chance, what is kept of them, and stores that count what they are asked."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import google_crc32c
import numpy as np

from segment_reader.batch_table import BATCH_SCHEMA, BatchTable, Kept
from segment_reader.batches import BatchHeaders
from tiering.segments import SegmentId
from tiering.side_files import SideFile, SideFileInfo, SideFileWriter
from tiering.store import ObjectInfo, ObjectStore, StoredObject, Upload

INDEXES = {
    "offset_index": b"".join(i.to_bytes(4, "big") * 2 for i in range(400)),
    "time_index": random.Random(3).randbytes(120),
    "verdicts": b"",
}


def segment(number: int = 0, base_offset: int = 0) -> SegmentId:
    return SegmentId(
        topic_id="AAECAwQFBgcICQoLDA0ODw",
        partition=3,
        base_offset=base_offset,
        segment_id=f"{number:022d}",
    )


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Consecutive batches from position 0 on, with what is kept of each."""

    batches: BatchTable
    kept_bytes: list[bytes | None]

    def __len__(self) -> int:
        return len(self.kept_bytes)

    def cut(self, first: int, stop: int) -> Sample:
        return Sample(
            batches=self.batches.slice(slice(first, stop)), kept_bytes=self.kept_bytes[first:stop]
        )


def make_sample(
    count: int, seed: int = 1, *, kept_share: float = 0.2, kept_bytes: int = 200
) -> Sample:
    """Batches of all sizes and producers; `kept_share` of them are kept, RAW and DELTAS alike."""
    chance = np.random.default_rng(seed)
    noise = random.Random(seed)
    counts = chance.integers(0, 40, count)
    kinds = np.where(chance.random(count) < kept_share, chance.integers(1, 3, count), 0)
    sizes = 61 + chance.integers(0, 16_000, count)
    data = [noise.randbytes(noise.randrange(kept_bytes)) if kind else None for kind in kinds]
    records_size = chance.integers(0, 30_000, count)
    crc = chance.integers(0, 2**32, count)
    for i, each in enumerate(data):
        if each is not None and kinds[i] == Kept.RAW:
            records_size[i], crc[i] = len(each), google_crc32c.value(each)
    gaps = chance.integers(0, 3, count)
    spans = np.maximum(counts, 1) + gaps
    times = 1_700_000_000_000 + np.cumsum(chance.integers(-5, 50, count))
    headers = BatchHeaders(
        position=np.cumsum(sizes) - sizes,
        size=sizes,
        base_offset=np.cumsum(spans) - spans,
        leader_epoch=np.sort(chance.integers(0, 3, count)),
        crc=np.zeros(count, np.int64),
        attributes=chance.integers(0, 128, count),
        last_offset_delta=np.maximum(counts, 1) - 1,
        base_timestamp=times,
        max_timestamp=times + chance.integers(0, 9, count),
        producer_id=chance.choice([-1, 0, 1, 2**62], count),
        producer_epoch=chance.integers(-1, 2**15, count),
        base_sequence=chance.integers(-1, 2**31, count),
        count=counts,
    )
    table = BatchTable(
        headers=headers, records_size=records_size, records_crc=crc, kept=kinds.astype(np.int64)
    )
    return Sample(batches=table, kept_bytes=data)


def extremes() -> BatchTable:
    """Two batches with the least and the greatest value that each column holds."""
    columns = {}
    for field in BATCH_SCHEMA:
        if field.name != "kept_bytes":
            width = field.type.bit_width
            low = 0 if field.type == "uint32" else -(2 ** (width - 1))
            high = 2**width - 1 if field.type == "uint32" else 2 ** (width - 1) - 1
            columns[field.name] = np.array([low, high, low], np.int64)
    places = {
        "position": np.array([0, 5, 7], np.int64),
        "size": np.array([5, 2, 2**31 - 8], np.int64),
        "base_offset": np.array([0, 1, 2**63 - 1], np.int64),
        "last_offset_delta": np.zeros(3, np.int64),
        "kept": np.zeros(3, np.int64),
        "crc": np.zeros(3, np.int64),
    }
    columns = {**columns, **places}
    own = {name: columns.pop(name) for name in ("records_size", "records_crc", "kept")}
    return BatchTable(headers=BatchHeaders(**columns), **own)


def writer(
    store: ObjectStore, of: SegmentId, first_offset: int = 0, names: Iterator[int] | None = None
) -> SideFileWriter:
    return SideFileWriter(store, of, first_offset, new_name=namer(names))


def namer(names: Iterator[int] | None = None) -> Callable[[], str]:
    numbers = names or itertools.count()
    return lambda: f"try{next(numbers)}"


def write(
    store: ObjectStore,
    of: SegmentId,
    sample: Sample,
    cuts: Sequence[int] = (),
    *,
    indexes: dict[str, bytes] = INDEXES,
    step: int = 97,
) -> list[SideFileInfo]:
    """Write `sample` as parts cut at these batches, each added in steps; indexes in the first."""
    written = []
    for first, stop in itertools.pairwise([0, *cuts, len(sample)]):
        part = sample.cut(first, stop)
        offset = int(part.batches.headers.base_offset[0]) if len(part) else 0
        side = writer(store, of, offset)
        for name, data in indexes.items() if not first else ():
            side.add_index(name, data)
        for at in range(0, len(part), step):
            piece = part.cut(at, min(at + step, len(part)))
            side.add(piece.batches, piece.kept_bytes)
        written.append(side.finish())
    return written


def keys(written: Sequence[SideFileInfo]) -> list[str]:
    return [each.key for each in written]


def assert_same_batches(found: BatchTable, expected: BatchTable) -> None:
    """Every field of every batch; the CRC over compressed bytes is the one that isn't kept."""
    no_crc = np.zeros(len(expected), np.int64)
    wanted = replace(expected, headers=replace(expected.headers, crc=no_crc))
    nothing: list[bytes | None] = [None] * len(expected)
    assert found.to_arrow(nothing).equals(wanted.to_arrow(nothing))
    assert not found.headers.crc.any()


def assert_holds(side: SideFile, sample: Sample, indexes: dict[str, bytes] = INDEXES) -> None:
    """A side file gives back everything that was put in."""
    assert_same_batches(side.batches, sample.batches)
    assert side.kept_bytes(0, len(sample)) == sample.kept_bytes
    for name in (*INDEXES, "log_checksums"):
        assert side.index(name) == indexes.get(name)


class CountingStore:
    """A store that notes its reads: (method, key, bytes given).

    `altered`: objects that ranges are read of as if they were there, without writing to a disk.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.reads: list[tuple[str, str, int]] = []
        self.altered: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return self.inner.url

    def get(self, key: str) -> StoredObject:
        stored = self.inner.get(key)
        self.reads.append(("get", key, len(stored.data)))
        return stored

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if key in self.altered:
            return self.altered[key][start : start + length]
        data = self.inner.get_range(key, start, length)
        self.reads.append(("get_range", key, len(data)))
        return data

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        if key in self.altered:
            return self.altered[key][-length:], len(self.altered[key])
        data, size = self.inner.get_tail(key, length)
        self.reads.append(("get_tail", key, len(data)))
        return data, size

    def size(self, key: str) -> int:
        self.reads.append(("size", key, 0))
        return self.inner.size(key)

    def put(self, key: str, data: bytes) -> None:
        self.inner.put(key, data)

    def put_if(self, key: str, data: bytes, *, expected: str | None) -> str:
        return self.inner.put_if(key, data, expected=expected)

    def open_upload(self, key: str) -> Upload:
        return self.inner.open_upload(key)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix)

    def taken(self) -> list[tuple[str, str, int]]:
        """The reads since the last call."""
        reads, self.reads = self.reads, []
        return reads
