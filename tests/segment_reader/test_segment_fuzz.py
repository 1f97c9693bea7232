"""Damaged bytes are refused, or they decode to what they decoded to before. Nothing in between."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from batch_maker import COMPRESS, MadeBatch, MadeRecord, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_oracle import Row, rows_of
from slow_reader import Refused, read_records

from segment_reader import (
    BytesSource,
    Limits,
    RecordFilter,
    SegmentBounds,
    SegmentReader,
    SegmentReaderError,
)

SMALL = Limits(chunk_bytes=4096, arrow_batch_bytes=2048, large_record_ratio_max=1000)


def read(data: bytes, bounds: SegmentBounds, limits: Limits | None = None) -> list[Row]:
    source = BytesSource("damaged", data)
    reader = SegmentReader(source, bounds, limits=limits or Limits())
    return rows_of(list(reader.record_batches(include=RecordFilter.ALL_DATA)))


def segment(size_bytes: int) -> tuple[bytes, SegmentBounds]:
    """Contiguous batches of every codec in two leader epochs."""
    data, offset, names = b"", 1000, list(COMPRESS)
    epoch_start = 0
    while len(data) < size_bytes:
        epoch = 4 if len(data) < size_bytes // 2 else 6
        epoch_start = epoch_start or (offset if epoch == 6 else 0)
        batch = plain(offset, 3 + offset % 5, names[offset % len(names)], size=40)
        data += MadeBatch(**{**batch.__dict__, "leader_epoch": epoch}).encode()
        offset += batch.count
    epochs = ((4, 1000), (6, epoch_start))
    bounds = SegmentBounds(start_offset=1000, end_offset=offset - 1, leader_epochs=epochs)
    return data, bounds


def outcomes(data: bytes, bounds: SegmentBounds, damaged: Iterator[bytes]) -> tuple[int, int]:
    """How many were refused, and how many accepted with every header field as before."""
    before = header_fields(data, bounds)
    refused = same = 0
    for changed in damaged:
        try:
            after = header_fields(changed, bounds)
        except SegmentReaderError:
            refused += 1
        else:
            # The CRC covers the records: equal CRCs and sizes leave nothing that could differ.
            assert after == before
            assert changed == data
            same += 1
    return refused, same


def header_fields(data: bytes, bounds: SegmentBounds) -> list[list[int]]:
    reader = SegmentReader(BytesSource("damaged", data), bounds)
    return [
        [*h.base_offset.tolist(), *h.leader_epoch.tolist(), *h.size.tolist(), *h.crc.tolist()]
        for h in reader.headers()
    ]


def flipped(data: bytes, bits: Iterator[int]) -> Iterator[bytes]:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << (bit % 8)
        yield bytes(changed)
        changed[bit // 8] ^= 1 << (bit % 8)


def test_every_bit_of_a_small_segment() -> None:
    data, bounds = segment(3000)
    bits = len(data) * 8
    assert outcomes(data, bounds, flipped(data, iter(range(bits)))) == (bits, 0)


def test_sampled_bits_of_a_large_segment() -> None:
    data, bounds = segment(64 * 1024)
    chosen = random.Random(7).sample(range(len(data) * 8), 8000)
    assert outcomes(data, bounds, flipped(data, iter(chosen))) == (len(chosen), 0)


def test_every_truncation() -> None:
    data, bounds = segment(8 * 1024)
    whole = header_fields(data, bounds)
    borders, refused_at = {0}, {}
    for chunk in SegmentReader(BytesSource("x", data), bounds).headers():
        borders |= set((chunk.position + chunk.size).tolist())
    for length in range(len(data)):
        try:
            fields = header_fields(data[:length], bounds)
        except SegmentReaderError as error:
            refused_at[length] = error.position
        else:
            # Cut between two batches, the rest is a shorter log: sizes are the caller's to check.
            assert length in borders
            assert fields != whole
    expected = {
        length: max(border for border in borders if border <= length)
        for length in range(len(data))
        if length not in borders
    }
    assert refused_at == expected


def test_swapped_doubled_and_missing_batches() -> None:
    first, second, third = (plain(i * 10, 10).encode() for i in range(3))
    bounds = SegmentBounds(start_offset=0, end_offset=29)
    assert len(read(first + second + third, bounds)) == 30
    for wrong in (second + first + third, first + first + second, third + third):
        with pytest.raises(SegmentReaderError, match="base offset"):
            read(wrong, bounds)


@pytest.mark.parametrize("compression", COMPRESS)
def test_damaged_records_under_a_right_checksum(compression: str) -> None:
    """A hostile producer computes its own CRC: then the records' own rules must hold."""
    rng = random.Random(compression)
    records = [
        MadeRecord(0, -5, b"key", b"value", ((b"h", b"x"), (b"h", None), ("ü".encode(), b""))),
        MadeRecord(1, 2**40, None, b""),
        MadeRecord(7, 0, b"", None, ((b"", b""),)),
        MadeRecord(9, 1, b"k" * 200, b"v" * 300),
    ]
    codec, compress = COMPRESS[compression]
    payload = b"".join(record.encode() for record in records)
    agreed = 0
    for _ in range(400):
        changed = mutate(payload, rng)
        batch = MadeBatch(5, compress(changed), 4, 9, attributes=codec)
        compare(batch, changed)
        agreed += 1
    assert agreed == 400


def mutate(payload: bytes, rng: random.Random) -> bytes:
    changed = bytearray(payload)
    kind = rng.randrange(5)
    at = rng.randrange(len(changed))
    if kind == 0:
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        changed[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
    elif kind == 2:
        changed[at : at + rng.randrange(3)] = bytes([0x80 | rng.randrange(128)] * rng.randrange(12))
    elif kind == 3:
        del changed[at : at + rng.randrange(1, 9)]
    return bytes(changed)


def compare(batch: MadeBatch, payload: bytes) -> None:
    last = batch.base_offset + max(batch.last_offset_delta, 0)
    bounds = SegmentBounds(start_offset=0, end_offset=last)
    expected: list[Row] | None
    try:
        expected = read_records(
            payload,
            count=batch.count,
            base_offset=batch.base_offset,
            last_offset_delta=batch.last_offset_delta,
            base_timestamp=batch.base_timestamp,
            append_time=batch.max_timestamp if batch.attributes & 8 else None,
            epoch=batch.leader_epoch,
        )
    except Refused:
        expected = None
    for limits in (Limits(), Limits(arrow_batch_bytes=64, large_record_ratio_max=10_000)):
        try:
            ours: list[Row] | None = read(batch.encode(), bounds, limits)
        except SegmentReaderError:
            ours = None
        assert ours == expected


texts = st.one_of(st.none(), st.binary(max_size=300))
headers = st.lists(st.tuples(st.binary(max_size=12), texts), max_size=4).map(tuple)
timestamps = st.integers(-(2**63), 2**63 - 1)


@st.composite
def batches(draw: st.DrawFn) -> tuple[MadeBatch, bytes]:
    steps = draw(st.lists(st.integers(1, 1000), max_size=30))
    deltas, delta = [], draw(st.integers(-1, 5))
    for step in steps:
        delta += step
        deltas.append(delta)
    records = [
        MadeRecord(delta, draw(timestamps), draw(texts), draw(texts), draw(headers))
        for delta in deltas
    ]
    attributes = draw(st.sampled_from([0, 8, 0x10, 0x40, 0x58]))
    made = MadeBatch.of(draw(st.integers(0, 2**62)), records, draw(st.sampled_from([*COMPRESS])))
    fields = {
        **made.__dict__,
        "attributes": made.attributes | attributes,
        "base_timestamp": draw(timestamps),
        "max_timestamp": draw(timestamps),
        "last_offset_delta": made.last_offset_delta + draw(st.integers(0, 3)),
        "leader_epoch": draw(st.integers(0, 2**31 - 1)),
    }
    return MadeBatch(**fields), b"".join(record.encode() for record in records)


@settings(max_examples=300, deadline=None)
@given(batches())
def test_any_batch_reads_as_the_slow_reader_reads_it(made: tuple[MadeBatch, bytes]) -> None:
    compare(*made)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_garbage_is_refused(garbage: bytes) -> None:
    bounds = SegmentBounds(start_offset=0, end_offset=2**62)
    if not garbage:
        return
    with pytest.raises(SegmentReaderError):
        read(garbage, bounds)
