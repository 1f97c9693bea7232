"""Proof before deletion: it holds for every kind of batch, and no planted fault gets past it."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from native_segments import (
    EPOCH_MS,
    Batch,
    Rec,
    Segment,
    _varint,
    aborted_entry,
    in_batches,
    record_bytes,
    some_records,
)
from proof_places import TOPIC_ID, ProofPlace, ledger_of
from pyiceberg.expressions import In

from tiering.errors import TransientError
from tiering.history import coverage
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.proof import prove
from tiering.proof.prove import prove_task
from tiering.store import ObjectStore, open_store
from tiering.store.local import LocalStore

MARKER = b"\0\0\0\0"


@pytest.fixture
def place(tmp_path: Path) -> ProofPlace:
    return ProofPlace.make(tmp_path)


def segment(start: int = 100, count: int = 300, **more: Any) -> Segment:
    batches = in_batches(some_records(start, count), 7, ("none", "gzip", "zstd"))
    return Segment(**{"batches": batches, "topic_id": TOPIC_ID, **more})


@dataclass(frozen=True, kw_only=True)
class OddBatch(Batch):
    """A batch whose bytes are changed after it was made: header fields, or the records' bytes."""

    fields: tuple[tuple[int, str, int], ...] = ()
    body: bytes | None = None
    count: int | None = None

    def encode(self) -> bytes:
        data = bytearray(super().encode())
        if self.body is not None:
            data[61:] = self.body
            data[8:12] = struct.pack(">i", len(data) - 12)
        if self.count is not None:
            data[57:61] = struct.pack(">i", self.count)
        for at, kind, value in self.fields:
            struct.pack_into(">" + kind, data, at, value)
        data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))
        return bytes(data)


def odd_batches() -> list[Batch]:
    """One of every kind that there is."""
    big = random.Random(3).randbytes(3_000_000)
    wide = b"".join(_wide(record_bytes(r, Rec(offset=140))) for r in some_records(140, 5))
    broken_key = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(-1)
    broken_key += _varint(1) + _varint(2) + b"\xff\xfe" + _varint(-1)
    return [
        *in_batches(some_records(0, 70), 7, ("none", "gzip", "zstd")),
        Batch(records=some_records(70, 10), producer=5, codec="zstd"),
        Batch(records=[Rec(offset=80, timestamp_ms=2**62), Rec(offset=81)]),
        Batch(records=some_records(90, 10), producer=6, epoch=0, codec="gzip"),
        Batch(records=[Rec(offset=100, key=MARKER, value=b"\0" * 6)], producer=5, control=True),
        Batch(records=[Rec(offset=o, timestamp_ms=EPOCH_MS - o) for o in range(110, 120)]),
        Batch(
            records=[Rec(offset=o, timestamp_ms=EPOCH_MS + o % 3) for o in range(120, 130)],
            log_append=True,
            codec="zstd",
        ),
        # The same time for all, which rows alone give back.
        Batch(records=[Rec(offset=o) for o in range(130, 135)], log_append=True),
        OddBatch(records=some_records(140, 5), body=wide),
        OddBatch(records=[Rec(offset=150)], body=_varint(len(broken_key)) + broken_key),
        # All of its records were compacted away; gaps within and behind a batch.
        OddBatch(records=[Rec(offset=160)], last_offset=169, body=b"", count=0),
        Batch(records=[Rec(offset=170), Rec(offset=175), Rec(offset=178)], last_offset=185),
        # A delete horizon stands where the base timestamp was (KIP-534).
        OddBatch(records=some_records(190, 5), fields=((21, "h", 0x40), (27, "q", EPOCH_MS + 7))),
        Batch(records=[Rec(offset=200, value=big), Rec(offset=201, value=None)], codec="zstd"),
        Batch(records=[Rec(offset=202, timestamp_ms=-1, key=b"", value=b"")]),
        OddBatch(records=some_records(210, 5), fields=((43, "q", 77), (51, "h", 3), (53, "i", 9))),
    ]


def _wide(record: bytes) -> bytes:
    """The same record with a length of one byte more than it needs."""
    length, at = 0, 0
    while record[at] & 0x80:
        at += 1
    length = len(record) - at - 1
    zigzag = length << 1
    return (
        bytes([zigzag & 0x7F | 0x80, (zigzag >> 7) & 0x7F | 0x80, zigzag >> 14])
        + (record[at + 1 :])
    )


def odd_segment() -> Segment:
    return segment(batches=odd_batches(), verdicts=aborted_entry(5, 70, 100))


# Proofs that hold


def test_a_plain_segment(place: ProofPlace) -> None:
    made = segment()
    place.convert(made)
    (result,) = place.require_proven(made)
    assert result.batches == len(made.batches)
    assert result.deleted_rows == 0
    view = SnapshotView.of(place.table, MAIN, ReadLimits())
    assert result.coverage == coverage(view, made.partition, 100, 400) != ""


@pytest.mark.parametrize("split", [None, 8, 3])
def test_batches_of_every_kind(place: ProofPlace, split: int | None) -> None:
    made = odd_segment()
    # The large batch is most of the log: parts of about n batches of the others.
    place.convert(made, split_bytes=None if split is None else split * 150)
    results = place.require_proven(made)
    assert sum(r.batches for r in results) == len(made.batches)
    assert len({r.coverage for r in results}) == 1
    assert (len(results) > 3) == (split is not None)


def test_rows_of_several_files_and_segments(place: ProofPlace) -> None:
    first, second, third = segment(), segment(400), segment(700, partition=4)
    for made in (first, second, third):
        place.convert(made, split_bytes=len(made.log) // 3)
    for made in (first, second, third):
        assert len(place.require_proven(made)) >= 3


def test_a_copy_of_which_no_row_was_taken(place: ProofPlace) -> None:
    """Another copy has brought the rows, with other borders and codecs."""
    place.convert(segment())
    again = replace(
        segment(),
        batches=in_batches(some_records(100, 300)[50:200], 4, ("zstd",)),
        segment_id="BAECAwQFBgcICQoLDA0ODw",
    )
    place.convert(again, from_offset=400, to_offset=400)
    place.require_proven(again)


def test_a_log_without_block_checksums(place: ProofPlace) -> None:
    made = segment()
    place.convert(made, checksums=False)
    place.require_proven(made)


def test_dropped_columns_are_proven_where_they_were_dropped_before(place: ProofPlace) -> None:
    with place.table.update_schema() as update:
        update.delete_column("kafka_key")
        update.delete_column("kafka_timestamp_type")
        update.rename_column("value", "payload")
    made = odd_segment()
    place.convert(made)
    place.require_proven(made)


def test_manifests_are_read_once(place: ProofPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiering.offset_reader import file_index

    read: list[str] = []
    original = file_index.live_entries

    def noted(io: Any, manifest: Any) -> Any:
        read.append(manifest.manifest_path)
        return original(io, manifest)

    monkeypatch.setattr(file_index, "live_entries", noted)
    for start in (100, 400, 700):
        made = segment(start)
        place.convert(made)
        for _ in range(2):
            place.require_proven(made)
    assert len(read) == len(set(read)) == 3


# Rows that somebody has changed


def changed_rows(place: ProofPlace, changed: dict[int, dict[str, Any]]) -> None:
    (path,) = place.data_files()
    place.rewrite_rows(path, place.with_values(path, changed))


def without_rows(place: ProofPlace, gone: Sequence[int]) -> None:
    (path,) = place.data_files()
    rows = pq.read_table(path)
    keep = ~np.isin(rows["kafka_offset"].to_numpy(), gone)
    place.rewrite_rows(path, rows.filter(pa.array(keep)))


def with_row(place: ProofPlace, offset: int, like: int) -> None:
    (path,) = place.data_files()
    listed = pq.read_table(path).to_pylist()
    listed.append({**next(r for r in listed if r["kafka_offset"] == like), "kafka_offset": offset})
    listed.sort(key=lambda r: r["kafka_offset"])
    place.rewrite_rows(path, pa.Table.from_pylist(listed, schema=pq.read_schema(path)))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", b"never produced"),
        ("value", None),
        ("kafka_key", b"another"),
        ("kafka_headers", [{"key": "x", "value": None}]),
        ("kafka_timestamp", (EPOCH_MS + 1) * 1000),
        ("kafka_timestamp", None),
    ],
)
def test_a_changed_value_in_parquet(place: ProofPlace, column: str, value: object) -> None:
    made = segment()
    place.convert(made)
    if column == "kafka_timestamp" and value is not None:
        assert isinstance(value, int)
        value = pa.scalar(value, pa.timestamp("us", "UTC")).as_py()
    changed_rows(place, {256: {column: value}})
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 254)
    assert "don't give the records" in failure.reason


def test_one_flipped_bit_of_one_value(place: ProofPlace) -> None:
    made = segment(batches=[Batch(records=[Rec(offset=o, value=b"v" * 900)]) for o in range(50)])
    place.convert(made)
    changed_rows(place, {33: {"value": b"v" * 450 + b"w" + b"v" * 449}})
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 33)


@pytest.mark.parametrize(
    "gone", [[100], [399], [256], list(range(254, 261)), list(range(100, 400))]
)
def test_missing_rows(place: ProofPlace, gone: list[int]) -> None:
    made = segment()
    place.convert(made)
    without_rows(place, gone)
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", gone[0] - (gone[0] - 100) % 7)
    assert "rows for them" in failure.reason


@pytest.mark.parametrize(
    ("offset", "base", "reason"),
    [
        (256, 254, "rows of this batch instead of 7"),  # a second time
        (505, 500, "1 rows of this aborted or control batch instead of 0"),
        (520, 520, "1 rows of this aborted or control batch instead of 0"),
        (450, 394, "at offset 450, which the log hasn't"),  # between batches
        (532, 530, "a row"),  # a gap within a batch
        (599, 590, "at offset 599, which the log hasn't"),
    ],
)
def test_rows_that_are_not_the_logs(place: ProofPlace, offset: int, base: int, reason: str) -> None:
    """None of them changes what Kafka's consumers would get; a SQL engine would show them."""
    made = segment(
        batches=[
            *segment().batches,
            Batch(records=some_records(500, 10), producer=5),
            Batch(records=[Rec(offset=520, key=MARKER, value=b"\0" * 6)], producer=5, control=True),
            Batch(records=[Rec(offset=530), Rec(offset=535)]),
            Batch(records=some_records(590, 5)),
            Batch(records=some_records(600, 5)),
        ],
        verdicts=aborted_entry(5, 500, 520),
    )
    place.convert(made)
    place.require_proven(made)
    with_row(place, offset, like=256)
    forget(place, made)
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", base)
    if offset != 532:
        assert reason in failure.reason


def forget(place: ProofPlace, made: Segment) -> None:
    """A data file was changed where it lies, which nobody does: footers were read already."""
    prove._snapshots.forget(place.proof_task(made))


def test_rows_missing_of_a_batch_that_is_kept_whole(place: ProofPlace) -> None:
    """Kafka's consumers would get it from the side file, SQL engines would miss it."""
    made = segment(batches=[Batch(records=[Rec(offset=o, timestamp_ms=2**62)]) for o in range(9)])
    place.convert(made)
    without_rows(place, [4])
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 4)
    assert "0 rows of this batch instead of 1" in failure.reason


def test_a_data_file_that_cannot_be_decoded(place: ProofPlace) -> None:
    made = segment()
    place.convert(made)
    (path,) = place.data_files()
    group = pq.read_metadata(path).row_group(0)
    column = group.column(group.num_columns - 1)
    data = bytearray(path.read_bytes())
    for i in range(column.data_page_offset + 60, column.data_page_offset + 90):
        data[i] ^= 0xFF
    path.write_bytes(data)
    failure = place.failure(made)
    assert failure.kind == "mismatch", failure


def test_two_tasks_of_one_segment_fail_apart(place: ProofPlace) -> None:
    made = segment()
    place.convert(made, split_bytes=len(made.log) // 4)
    path = place.data_files()
    holding = next(p for p in path if 256 in pq.read_table(p)["kafka_offset"].to_pylist())
    place.rewrite_rows(holding, place.with_values(holding, {256: {"value": b"no"}}))
    results = place.prove(made)
    failed = [r for r in results if r.failure is not None]
    assert len(failed) == 1 < len(results)
    assert failed[0].failure is not None
    assert failed[0].failure.offset == 254


# Rows that were deleted through SQL


@pytest.mark.filterwarnings("ignore:Parquet writer option")  # PyIceberg, of Spark's settings
def test_deleted_rows_are_counted_where_rows_may_miss(place: ProofPlace) -> None:
    made = odd_segment()
    place.convert(made)
    place.table.delete(In("kafka_offset", {3, 4, 5, 69, 117, 125, 170, 201}))
    (result,) = place.prove(made, rows_may_miss=True)
    assert result.failure is None
    assert (result.deleted_rows, result.batches) == (8, len(made.batches))
    strict = place.failure(made)
    assert (strict.kind, strict.offset) == ("mismatch", 0)


def test_all_rows_deleted(place: ProofPlace) -> None:
    made = segment()
    place.convert(made)
    place.table.delete()
    (result,) = place.prove(made, rows_may_miss=True)
    assert (result.failure, result.deleted_rows) == (None, 300)


@pytest.mark.parametrize("partly", [False, True])
def test_a_changed_row_beside_deleted_ones(place: ProofPlace, partly: bool) -> None:
    """The digest says nothing of a batch that has lost rows; the log itself does."""
    made = segment()
    place.convert(made)
    changed_rows(place, {256: {"value": b"no"}})
    if partly:
        without_rows(place, [255])
    failure = place.failure(made, rows_may_miss=True)
    assert (failure.kind, failure.offset) == ("mismatch", 254)
    assert ("1 of its rows are gone" in failure.reason) == partly


# Side files that are wrong


HEADER_FIELDS = [
    *("base_offset", "leader_epoch", "attributes", "last_offset_delta", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence"),
]


@pytest.mark.parametrize("field", HEADER_FIELDS)
@pytest.mark.parametrize("which", [0, 20, 42])
def test_a_wrong_header_field(place: ProofPlace, field: str, which: int) -> None:
    made = segment()
    place.convert(made)
    batches = place.side(made).batches
    values = getattr(batches.headers, field).copy()
    values[which] += 1
    wrong = replace(batches, headers=replace(batches.headers, **{field: values}))
    place.write_side(made, wrong, [None] * len(batches))
    failure = place.failure(made)
    assert failure.kind == "mismatch"
    if field in ("base_offset", "last_offset_delta") and which < 42:
        assert "doesn't follow the batch before it" in failure.reason
    elif field == "base_timestamp":  # its records' timestamps are others, too
        assert failure.offset == 100 + 7 * which
    else:
        expected = f"{field} is {values[which]}, in the log {values[which] - 1}"
        assert expected in failure.reason


def test_a_wrong_count(place: ProofPlace) -> None:
    made = segment()
    place.convert(made)
    batches = place.side(made).batches
    counts = batches.headers.count.copy()
    counts[20] -= 1
    wrong = replace(batches, headers=replace(batches.headers, count=counts))
    place.write_side(made, wrong, [None] * len(batches))
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 240)


@pytest.mark.parametrize("field", ["records_crc", "records_size"])
def test_a_wrong_digest(place: ProofPlace, field: str) -> None:
    made = segment()
    place.convert(made)
    batches = place.side(made).batches
    values = getattr(batches, field).copy()
    values[20] ^= 1
    place.write_side(made, replace(batches, **{field: values}), [None] * len(batches))
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 240)


def test_other_kept_bytes_than_the_logs(place: ProofPlace) -> None:
    """With a digest that fits them: only the native log can tell."""
    made = odd_segment()
    place.convert(made)
    side = place.side(made)
    kept = side.kept_bytes(0, len(side.batches))
    aborted = kept[10]
    assert aborted is not None
    changed = aborted[:-1] + bytes([aborted[-1] ^ 1])
    kept[10] = changed
    crcs = side.batches.records_crc.copy()
    crcs[10] = google_crc32c.value(changed)
    place.write_side(made, replace(side.batches, records_crc=crcs), kept)
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 70)
    assert f"byte {len(changed) - 1} of {len(changed)} (decompressed) differs" in failure.reason


@pytest.mark.parametrize(("keep", "offset"), [(slice(0, -1), 394), (slice(0, 1), 107)])
def test_a_side_file_that_ends_early(place: ProofPlace, keep: slice, offset: int) -> None:
    made = segment()
    place.convert(made)
    batches = place.side(made).batches.slice(keep)
    place.write_side(made, batches, [None] * len(batches))
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", offset)


def test_a_side_file_without_its_first_batch(place: ProofPlace) -> None:
    made = segment()
    place.convert(made)
    batches = place.side(made).batches.slice(slice(1, None))
    place.write_side(made, batches, [None] * len(batches))
    assert place.failure(made).kind == "mismatch"


def test_a_part_that_is_left_out(place: ProofPlace) -> None:
    made = segment()
    place.convert(made, split_bytes=len(made.log) // 5)
    keys = place.sides[made.id]
    assert len(keys) >= 5
    place.sides[made.id] = (*keys[:2], *keys[3:])
    kinds = [r.failure and r.failure.kind for r in place.prove(made)]
    assert kinds == [None, "mismatch", *[None] * (len(keys) - 3)]
    place.sides[made.id] = keys[:-1]
    kinds = [r.failure and r.failure.kind for r in place.prove(made)]
    assert kinds == [*[None] * (len(keys) - 2), "mismatch"]
    place.sides[made.id] = keys[1:]
    assert place.prove(made)[0].failure is not None


def test_parts_in_the_wrong_order(place: ProofPlace) -> None:
    made = segment()
    place.convert(made, split_bytes=len(made.log) // 3)
    first, second, *others = place.sides[made.id]
    place.sides[made.id] = (second, first, *others)
    kinds = {r.failure.kind for r in place.prove(made) if r.failure is not None}
    assert kinds == {"mismatch"}


def test_a_side_file_of_another_segment(place: ProofPlace) -> None:
    made, other = segment(), segment(400)
    place.convert(made)
    place.convert(other)
    place.sides[made.id] = place.sides[other.id]
    failure = place.failure(made)
    assert failure.kind == "mismatch"
    assert made.id.path in failure.reason


def test_a_side_file_of_another_copy_under_this_ones_name(place: ProofPlace) -> None:
    made = segment()
    other = replace(made, batches=in_batches(some_records(100, 300), 8, ("zstd",)))
    place.convert(made)
    place.convert(replace(other, segment_id="BAECAwQFBgcICQoLDA0ODw"), from_offset=400)
    copied = replace(other, segment_id="BAECAwQFBgcICQoLDA0ODw")
    side = place.side(copied)
    place.write_side(copied, side.batches, [None] * len(side.batches), of=made.id)
    place.sides[made.id] = place.sides[copied.id]
    failure = place.failure(made)
    assert failure.kind == "mismatch"


def test_a_damaged_side_file(place: ProofPlace) -> None:
    made = odd_segment()
    place.convert(made)
    (key,) = place.sides[made.id]
    data = bytearray(place.store.get(key).data)
    data[len(data) // 2] ^= 1
    place.store.put(key, bytes(data))
    failure = place.failure(made)
    assert failure.kind == "mismatch"
    assert "checksum" in failure.reason


@pytest.mark.parametrize("part", ["offset_index", "verdicts"])
def test_indexes_that_are_not_those_of_the_side_file(place: ProofPlace, part: str) -> None:
    made = segment(
        batches=[*segment().batches, Batch(records=some_records(500, 10), producer=5)],
        verdicts=aborted_entry(5, 500, 520),
    )
    place.convert(made)
    data = bytearray(place.store.get(made.id.indexes_key).data)
    # The last byte of the index, or of the transaction's last stable offset, which nobody reads.
    at = len(made.offset_index) + (len(made.verdicts) if part == "verdicts" else 0) - 1
    data[at] ^= 1
    place.store.put(made.id.indexes_key, bytes(data))
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", -1)
    assert f"index {part}" in failure.reason


# Native logs that have changed


def test_a_log_that_was_changed_after_the_conversion(place: ProofPlace) -> None:
    made = segment()
    place.convert(made)
    log = bytearray(made.log)
    log[5000] ^= 1
    place.store.put(made.id.log_key, bytes(log))
    failure = place.failure(made)
    assert failure.kind == "corrupt"
    assert "block 0" in failure.reason


def test_a_change_that_no_checksum_of_kafkas_covers(place: ProofPlace) -> None:
    """The leader epoch, in a log that was uploaded before there were checksums of blocks."""
    made = segment(leader_epochs=((0, 0), (1, 394)))
    log = bytearray(made.log)
    at = len(b"".join(b.encode() for b in made.batches[:-1]))
    struct.pack_into(">i", log, at + 12, 1)
    place.convert(made, log=bytes(log), checksums=False)
    place.require_proven(made)
    struct.pack_into(">i", log, at - len(made.batches[-2].encode()) + 12, 1)
    place.store.put(made.id.log_key, bytes(log))
    failure = place.failure(made)
    assert (failure.kind, failure.offset) in (("corrupt", -1), ("mismatch", 387))


@pytest.mark.parametrize("change", [{"producer": 9}, {"log_append": True}, {"value": b"other"}])
def test_another_log_of_legal_batches(place: ProofPlace, change: dict[str, Any]) -> None:
    """Its checksums are right; nothing but the comparison can tell."""
    records = [Rec(offset=o) for o in range(50)]
    made = segment(batches=in_batches(records, 5))
    place.convert(made, checksums=False)
    batches = list(made.batches)
    if "value" in change:
        batches[6] = replace(batches[6], records=[replace(r, **change) for r in records[30:35]])
    else:
        batches[6] = replace(batches[6], **change)
    place.store.put(made.id.log_key, b"".join(b.encode() for b in batches))
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 30)


def test_compressed_anew_is_the_same(place: ProofPlace) -> None:
    """Sizes and positions would differ, and pulls go by them: that is no proof."""
    made = segment()
    place.convert(made, checksums=False)
    again = [replace(b, codec="gzip") if b.codec == "zstd" else b for b in made.batches]
    log = b"".join(b.encode() for b in again)
    place.store.put(made.id.log_key, log)
    ledger_of(place).update(
        made.id, lambda e: replace(e, metadata=replace(e.metadata, size_bytes=len(log)))
    )
    failure = place.failure(made)
    assert (failure.kind, failure.offset) == ("mismatch", 114)
    assert "attributes is 4, in the log 1" in failure.reason


# What is gone, and outages


@pytest.mark.parametrize("which", ["log", "indexes", "ledger", "side"])
def test_missing_objects(place: ProofPlace, which: str) -> None:
    made = segment()
    place.convert(made)
    keys = {
        "log": made.id.log_key,
        "indexes": made.id.indexes_key,
        "ledger": made.id.ledger_key,
        "side": place.sides[made.id][0],
    }
    place.store.delete(keys[which])
    assert place.failure(made).kind == "missing"


@pytest.mark.parametrize("which", ["data", "manifest", "metadata"])
def test_a_table_that_has_moved_on(place: ProofPlace, which: str) -> None:
    made = segment()
    place.convert(made)
    location = Path(place.table.location().removeprefix("file://"))
    task = place.proof_task(made)
    paths = {
        "data": place.data_files()[0],
        "manifest": next(p for p in location.rglob("*-m0.avro")),
        "metadata": Path(task.metadata_location.removeprefix("file://")),
    }
    paths[which].unlink()
    failure = prove_task(task).failure
    assert failure is not None
    assert failure.kind == "transient"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TransientError("store is out"), "store is out"),
        (OSError("broken pipe"), "broken pipe"),
        (MemoryError("much too big"), "MemoryError: much too big"),
    ],
)
def test_outages_are_results(
    place: ProofPlace, error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = segment()
    place.convert(made)

    def failing(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(LocalStore, "get_range", failing)
    failure = place.failure(made)
    assert (failure.kind, failure.reason) == ("transient", reason)


def test_bits_flipped_on_the_way_are_read_again(
    place: ProofPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = segment()
    place.convert(made)
    read, flips = LocalStore.get_range, iter([True])

    def flipping(store: LocalStore, key: str, start: int, length: int) -> bytes:
        data = read(store, key, start, length)
        if key.endswith(".log") and length > 8 and next(flips, False):
            data = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        return data

    monkeypatch.setattr(LocalStore, "get_range", flipping)
    place.require_proven(made)
    assert next(flips, None) is None


def test_reasons_hold_no_secret(place: ProofPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-5512")
    made = segment()
    place.convert(made)

    def refuse(url: str) -> ObjectStore:
        raise TransientError("http://user:pw@host refused canary-5512")

    failure = prove_task(place.proof_task(made), open_store=refuse).failure
    assert failure is not None
    assert "canary-5512" not in failure.reason
    assert "pw" not in failure.reason


def test_nothing_is_written(place: ProofPlace) -> None:
    made = odd_segment()
    place.convert(made, split_bytes=2000)

    class ReadOnly:
        def __init__(self, store: ObjectStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            assert name in ("get", "get_range", "get_tail", "size", "url"), name
            return getattr(self._store, name)

    for part in range(len(place.sides[made.id])):
        task = place.proof_task(made, part)
        result = prove_task(task, open_store=lambda url: ReadOnly(open_store(url)))  # type: ignore[arg-type,return-value]
        assert result.failure is None
