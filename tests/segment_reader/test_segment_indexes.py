"""The five index files, as the broker's classes write them and damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from segment_reader import (
    CorruptSegment,
    UnsupportedFormat,
    Verdicts,
    parse_leader_epochs,
    parse_offset_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
    serve_offset_index,
)
from segment_reader.transactions import overlapping_entries

SECOND = "a-b.c_1-12-9zRY-_0sQlq-_b1nIgSuUw/00000000000000000020-BBBBBBBBBBBBBBBBBB-1-B"


def offsets(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def times(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def aborted(*entries: tuple[int, int, int], version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *entry, entry[1]) for entry in entries)


def test_indexes_that_the_broker_wrote(tiered_storage: Path) -> None:
    stem = str(tiered_storage / SECOND)
    index = parse_offset_index(Path(f"{stem}.index").read_bytes(), 20)
    assert index.offset.tolist() == [22, 25]
    assert index.position[0] > 61
    stamps = parse_time_index(Path(f"{stem}.timeindex").read_bytes(), 20)
    assert stamps.offset.tolist() == [22, 25]
    assert stamps.timestamp_ms.tolist() == [1_700_000_000_022, 1_700_000_000_025]
    transactions = parse_transaction_index(Path(f"{stem}.txnindex").read_bytes())
    assert transactions.producer_id.tolist() == [1]
    assert (transactions.first_offset[0], transactions.last_offset[0]) == (10, 22)
    snapshot = parse_producer_snapshot(Path(f"{stem}.snapshot").read_bytes())
    known = dict(
        zip(
            snapshot.producer_id.tolist(),
            snapshot.current_transaction_first_offset.tolist(),
            strict=True,
        )
    )
    assert known == {1: -1, 2: -1, 3: 23, 4: 25}
    epochs = parse_leader_epochs(Path(f"{stem}.leader_epoch_checkpoint").read_bytes())
    assert epochs == ((0, 0), (7, 10))


def test_the_served_index_has_quartered_positions() -> None:
    entries = [(0, 0), (3, 61), (4, 127), (2**31 - 1, 2**31 - 1)]
    served = serve_offset_index(offsets(*entries))
    assert served == offsets(*((offset, position // 4) for offset, position in entries))
    assert serve_offset_index(b"") == b""
    with pytest.raises(CorruptSegment):
        serve_offset_index(b"1234567")


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (offsets((0, 0)) + b"x", 8),
        (offsets((1, 0), (1, 70)), 8),
        (offsets((1, 70), (2, 70)), 8),
        (offsets((-1, 0)), 0),
        (offsets((1, 70), (2, 140), (3, 100)), 16),
    ],
)
def test_damaged_offset_indexes(data: bytes, position: int) -> None:
    with pytest.raises(CorruptSegment) as caught:
        parse_offset_index(data, 0, name="some.index")
    assert (caught.value.segment, caught.value.position) == ("some.index", position)


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (times((5, 0)) + b"x", 12),
        (times((5, 1), (5, 2)), 12),
        (times((5, 2), (6, 1)), 12),
        (times((-2, 2)), 0),
    ],
)
def test_damaged_time_indexes(data: bytes, position: int) -> None:
    with pytest.raises(CorruptSegment) as caught:
        parse_time_index(data, 0)
    assert caught.value.position == position


def test_damaged_transaction_indexes() -> None:
    assert len(parse_transaction_index(aborted((1, 2, 3), (1, 4, 4))).producer_id) == 2
    for data in (aborted((1, 2, 3), (2, 1, 2)), aborted((1, 3, 2)), aborted((1, -1, 2)), b"x" * 33):
        with pytest.raises(CorruptSegment):
            parse_transaction_index(data)
    with pytest.raises(UnsupportedFormat):
        parse_transaction_index(aborted((1, 2, 3), version=1))


def test_damaged_producer_snapshots(tiered_storage: Path) -> None:
    good = (tiered_storage / f"{SECOND}.snapshot").read_bytes()
    for bit in range(len(good) * 8):
        changed = bytearray(good)
        changed[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises((CorruptSegment, UnsupportedFormat)):
            parse_producer_snapshot(bytes(changed))
    for length in range(len(good)):
        with pytest.raises(CorruptSegment):
            parse_producer_snapshot(good[:length])
    lying = good[6:].replace(b"\0\0\0\4", b"\0\0\0\5", 1)
    crc = struct.pack(">I", google_crc32c.value(lying))
    with pytest.raises(CorruptSegment, match="announces 5"):
        parse_producer_snapshot(good[:2] + crc + lying)


@pytest.mark.parametrize(
    "text",
    ["", "0\n", "x\n0\n", "0\n2\n0 0\n", "0\n1\n0 0 0\n", "0\n2\n1 5\n0 6\n", "0\n2\n0 6\n1 6\n"],
)
def test_damaged_checkpoints(text: str) -> None:
    with pytest.raises(CorruptSegment):
        parse_leader_epochs(text.encode())


def test_checkpoints() -> None:
    assert parse_leader_epochs(b"0\n0\n") == ()
    assert parse_leader_epochs(b"0\n2\n0 0\n3 17\n") == ((0, 0), (3, 17))
    with pytest.raises(UnsupportedFormat):
        parse_leader_epochs(b"1\n0\n")


def test_entries_that_overlap_once_each() -> None:
    data = aborted((1, 0, 9), (1, 10, 10), (2, 5, 30), (1, 10, 10), (3, 21, 22))
    assert overlapping_entries(data, 10, 20) == aborted((1, 10, 10), (2, 5, 30))


def test_ten_thousand_verdicts_equal_a_plain_search() -> None:
    rng = np.random.default_rng(3)
    entries, ends = [], {}
    for _ in range(10_000):
        producer = int(rng.integers(0, 50))
        first = ends.get(producer, 0) + int(rng.integers(1, 20))
        last = first + int(rng.integers(0, 30))
        ends[producer] = last
        entries.append((producer, first, last))
    entries += entries[:100]
    verdicts = Verdicts.from_entries(aborted(*entries))
    producers = rng.integers(0, 52, 2000)
    bases = rng.integers(0, 7000, 2000)
    ranges = {p: [(a, b) for q, a, b in entries if q == p] for p in range(52)}
    expected = [
        any(first <= base <= last for first, last in ranges[producer])
        for producer, base in zip(producers.tolist(), bases.tolist(), strict=True)
    ]
    assert 100 < sum(expected) < 1900
    assert verdicts.covers(producers.astype(np.int64), bases.astype(np.int64)).tolist() == expected
