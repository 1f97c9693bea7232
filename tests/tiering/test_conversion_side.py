"""The side file that a conversion writes: every batch, and what the table doesn't hold of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from native_segments import (
    EPOCH_MS,
    Batch,
    Rec,
    Segment,
    aborted_entry,
    in_batches,
    offsets,
    record_bytes,
    some_records,
)
from proof_places import TOPIC_ID, ProofPlace, parts_of

from segment_reader.batch_table import Kept
from tiering.conversion.convert import convert_task
from tiering.conversion.splitting import split_by_index
from tiering.errors import NotFound, TransientError
from tiering.segments import CHECKSUMS_PART
from tiering.side_files import SideFile
from tiering.store import ObjectStore, open_store


@pytest.fixture
def place(tmp_path: Path) -> ProofPlace:
    return ProofPlace.make(tmp_path)


def segment(**more: Any) -> Segment:
    batches = in_batches(some_records(100, 300), 7, ("none", "gzip", "zstd"))
    return Segment(**{"batches": batches, "topic_id": TOPIC_ID, **more})


def odd_segment() -> Segment:
    """Ordinary, aborted, control and append-time batches, and a time that tables can't hold."""
    marker = [Rec(offset=50, key=b"\0\0\0\0", value=b"\0\0\0\0\0\0")]
    appended = [Rec(offset=51 + i, timestamp_ms=EPOCH_MS + i) for i in range(5)]
    return segment(
        batches=[
            Batch(records=some_records(0, 20)),
            Batch(records=some_records(20, 10), producer=5, codec="zstd"),
            Batch(records=[Rec(offset=30, timestamp_ms=2**62)]),
            Batch(records=some_records(40, 10), producer=6),
            Batch(records=marker, producer=5, control=True),
            Batch(records=appended, log_append=True),
        ],
        verdicts=aborted_entry(5, 20, 50),
    )


def encoded(batch: Batch) -> bytes:
    return b"".join(record_bytes(r, batch.records[0]) for r in batch.records)


def headers_of(log: bytes) -> list[tuple[int, ...]]:
    """Header fields, read by the format's description (KIP-98)."""
    found, at = [], 0
    while at < len(log):
        base, length, epoch = struct.unpack_from(">qii", log, at)
        rest = struct.unpack_from(">hiqqqhii", log, at + 21)
        found.append((at, length + 12, base, epoch, *rest))
        at += 12 + length
    return found


def sides(side: SideFile) -> list[tuple[int, ...]]:
    h = side.batches.headers
    columns = (
        *(h.position, h.size, h.base_offset, h.leader_epoch, h.attributes, h.last_offset_delta),
        *(h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch, h.base_sequence),
        h.count,
    )
    return list(zip(*(c.tolist() for c in columns), strict=True))


@pytest.mark.parametrize("make", [segment, odd_segment])
def test_every_batch_is_in_it_with_the_digest_of_its_records(
    place: ProofPlace, make: Callable[[], Segment]
) -> None:
    made = make()
    (result,) = place.convert(made)
    side = place.side(made)
    assert sides(side) == headers_of(made.log)
    wanted = [encoded(b) for b in made.batches]
    assert side.batches.records_size.tolist() == [len(w) for w in wanted]
    assert side.batches.records_crc.tolist() == [google_crc32c.value(w) for w in wanted]
    assert result.side_key is not None
    assert result.side_bytes == place.store.size(result.side_key)


def test_what_rows_do_not_give_is_kept(place: ProofPlace) -> None:
    made = odd_segment()
    (result,) = place.convert(made)
    side = place.side(made)
    assert side.batches.kept.tolist() == [
        *(Kept.ROWS, Kept.RAW, Kept.RAW, Kept.ROWS, Kept.RAW, Kept.DELTAS)
    ]
    kept = side.kept_bytes(0, len(side.batches))
    for i in (1, 2, 4):
        assert kept[i] == encoded(made.batches[i])
    assert (kept[0], kept[3]) == (None, None)
    assert result.kept_bytes == sum(len(k) for k in kept if k is not None)
    assert (result.rows, result.aborted_rows, result.control_batches) == (36, 10, 1)


def test_without_odd_batches_nothing_is_kept(place: ProofPlace) -> None:
    (result,) = place.convert(segment())
    assert result.kept_bytes == 0


def test_a_dropped_column_is_kept_raw(place: ProofPlace) -> None:
    with place.table.update_schema() as update:
        update.delete_column("kafka_headers")
    made = segment(batches=in_batches(some_records(100, 300), 2))
    place.convert(made)
    wanted = [Kept.RAW if any(r.headers for r in b.records) else Kept.ROWS for b in made.batches]
    assert set(wanted) == {Kept.RAW, Kept.ROWS}
    assert place.side(made).batches.kept.tolist() == wanted


def test_indexes_come_along_byte_for_byte(place: ProofPlace) -> None:
    made = odd_segment()
    place.convert(made)
    side = place.side(made)
    assert side.index("offset_index") == made.offset_index
    assert side.index("verdicts") == made.verdicts
    assert side.index(CHECKSUMS_PART) is None


def test_an_empty_index_is_one(place: ProofPlace) -> None:
    made = segment()
    place.convert(made)
    assert place.side(made).index("verdicts") == b""


def test_rows_from_the_watermark_on_and_all_batches(place: ProofPlace) -> None:
    made = segment()
    (result,) = place.convert(made, from_offset=250)
    assert result.rows == 150
    assert result.converted_to == 400
    (entry,) = result.entries
    assert (entry.first_offset, entry.last_offset) == (250, 399)
    assert sides(place.side(made)) == headers_of(made.log)
    assert set(place.side(made).batches.kept.tolist()) == {Kept.ROWS}


def test_a_superseded_copy_writes_only_a_side_file(place: ProofPlace) -> None:
    made = segment()
    (result,) = place.convert(made, from_offset=400, to_offset=400)
    assert (result.rows, result.entries, result.converted_to) == (0, (), 400)
    assert not place.data_files()
    assert sides(place.side(made)) == headers_of(made.log)
    assert place.side(made).index("offset_index") == made.offset_index


@pytest.mark.parametrize("rows", [(100, 400), (250, 400), (400, 400), (100, 180), (201, 299)])
def test_parts_of_a_large_segment(place: ProofPlace, rows: tuple[int, int]) -> None:
    made = segment()
    results = place.convert(
        made, split_bytes=len(made.log) // 4, from_offset=rows[0], to_offset=rows[1]
    )
    assert len(results) >= 4
    keys = list(parts_of(results))
    assert keys == sorted(keys)
    assert sides(place.side(made)) == headers_of(made.log)
    assert place.side(made).index("offset_index") == made.offset_index
    later = SideFile.open(place.store, made.id, keys, part=1)
    assert later.index("offset_index") is None
    assert sum(r.rows for r in results) == rows[1] - rows[0]
    assert max(r.converted_to for r in results) == rows[1]
    found = place.table.scan().to_arrow()["kafka_offset"].to_pylist()
    assert sorted(found) == list(range(*rows))


def test_without_a_prefix_there_is_none(place: ProofPlace) -> None:
    made = segment()
    made.store(place.store)
    result = convert_task(place.task(made, side_prefix=None))
    assert (result.side_key, result.side_bytes, result.kept_bytes) == (None, 0, 0)
    assert result.rows == 300
    assert not list(place.store.list("side/"))


def test_rows_are_the_same_with_and_without(place: ProofPlace) -> None:
    made = odd_segment()
    made.store(place.store)
    with_side, without = (
        convert_task(place.task(made, side_prefix=prefix)) for prefix in (made.id.side_prefix, None)
    )
    assert replace(with_side.entries[0], path="") == replace(without.entries[0], path="")
    counts = ("rows", "aborted_rows", "control_batches", "batches", "native_bytes")
    assert [getattr(with_side, c) for c in counts] == [getattr(without, c) for c in counts]
    place.commit(with_side.entries, 56)
    rows = place.table.scan().to_arrow().to_pylist()
    assert sorted(offsets(rows)) == [*range(20), 30, *range(40, 50), *range(51, 56)]  # type: ignore[type-var]


def test_attempts_never_meet(place: ProofPlace) -> None:
    made = segment()
    made.store(place.store)
    first, second = convert_task(place.task(made)), convert_task(place.task(made))
    assert first.side_key != second.side_key
    assert first.side_bytes == second.side_bytes


# What goes wrong


def test_a_prefix_of_another_segment_is_refused(place: ProofPlace) -> None:
    made = segment()
    made.store(place.store)
    failure = convert_task(place.task(made, side_prefix="side/else")).failure
    assert failure is not None
    assert "side/else" in failure.reason
    assert not list(place.store.list("side/"))


def test_a_corrupt_log_leaves_nothing(place: ProofPlace) -> None:
    made = segment()
    log = bytearray(made.log)
    log[-3] ^= 1
    made.store(place.store, bytes(log))
    failure = convert_task(place.task(made)).failure
    assert failure is not None
    assert failure.kind == "corrupt"
    assert not list(place.store.list("side/"))
    assert not place.data_files()


class _Uploads:
    """A store whose uploads of some keys fail at `write` or `commit`."""

    def __init__(self, store: ObjectStore, kind: str, method: str, error: Exception) -> None:
        self._store, self._kind, self._method, self._error = store, kind, method, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open_upload(self, key: str) -> Any:
        upload = self._store.open_upload(key)
        if not key.endswith(self._kind):
            return upload
        return _Upload(upload, self._method, self._error)


class _Upload:
    def __init__(self, upload: Any, method: str, error: Exception) -> None:
        self._upload, self._method, self._error = upload, method, error

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self._upload, name)
        return self._fail

    def _fail(self, *arguments: Any) -> None:
        raise self._error


@pytest.mark.parametrize("kind", [".puffin", ".parquet"])
@pytest.mark.parametrize("method", ["write", "commit"])
@pytest.mark.parametrize(
    "error", [TransientError("store is out"), OSError("disk is full"), NotFound("no bucket")]
)
def test_when_one_file_fails_neither_is_left(
    place: ProofPlace, kind: str, method: str, error: Exception
) -> None:
    made = odd_segment()
    made.store(place.store)
    result = convert_task(
        place.task(made),
        open_store=lambda url: _Uploads(open_store(url), kind, method, error),  # type: ignore[arg-type,return-value]
    )
    assert result.failure is not None
    assert result.failure.kind == "transient"
    assert str(error) in result.failure.reason
    assert (result.side_key, result.entries) == (None, ())
    assert not list(place.store.list("side/"))
    assert not place.data_files()


@pytest.mark.parametrize(
    "fault",
    [
        lambda place, made: place.store.delete(made.id.indexes_key),
        lambda place, made: place.store.put(made.id.indexes_key, b"short"),
    ],
    ids=["gone", "short"],
)
def test_indexes_that_are_not_there(
    place: ProofPlace, fault: Callable[[ProofPlace, Segment], None]
) -> None:
    made = segment()
    made.store(place.store, checksums=False)
    fault(place, made)
    failure = convert_task(place.task(made)).failure
    assert failure is not None
    assert failure.kind in ("missing", "corrupt")
    assert not list(place.store.list("side/"))


def test_an_index_that_hides_batches_is_found_out(place: ProofPlace) -> None:
    """A cut that puts a batch into no part, though it puts each wanted row into one."""
    made = segment()
    entry = made.store(place.store)
    task = place.task(made, from_offset=350)
    parts = split_by_index(place.store, len(made.log) // 4)(task, entry)
    second = parts[1]
    later = made.batches[len(made.batches) // 2 : len(made.batches) // 2 + 1]
    skipped = len(b"".join(b.encode() for b in made.batches[: len(made.batches) // 2]))
    assert skipped > second.start_position
    assert later[0].records[0].offset < 350
    failure = convert_task(replace(second, start_position=skipped, end_position=None)).failure
    assert failure is not None
    assert failure.kind == "corrupt"
    assert "offset index" in failure.reason
