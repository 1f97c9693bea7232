"""What somebody might write into a topic to bring a reader down."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard
from batch_maker import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    MadeBatch,
    MadeRecord,
    plain,
    snappy_xerial,
    unsigned,
    zigzag,
)
from kafka_oracle import rows_of

from segment_reader import (
    BytesSource,
    CorruptSegment,
    Limits,
    SegmentBounds,
    SegmentReader,
    UnsupportedFormat,
    whole_batches,
)

MIB = 1024 * 1024
ZEROS = bytes(MIB)
LOOSE = SegmentBounds(start_offset=0, end_offset=2**62)

BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip.compress(ZEROS * 64, 1) * 8),
    "snappy-xerial": (SNAPPY, lambda: snappy_xerial(ZEROS * 16) * 16),
    "snappy-raw": (SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(ZEROS * 256))),
    "lz4": (LZ4, lambda: bytes(lz4.frame.compress(ZEROS * 512))),
    "zstd": (ZSTD, lambda: zstandard.ZstdCompressor().compress(ZEROS * 512) * 4),
    "zstd-frames": (ZSTD, lambda: zstandard.ZstdCompressor().compress(ZEROS) * 2000),
}


def read_all(data: bytes, limits: Limits | None = None) -> int:
    reader = SegmentReader(BytesSource("hostile", data), LOOSE, limits=limits or Limits())
    return sum(batch.num_rows for batch in reader.record_batches())


def of_payload(payload: bytes, codec: int, count: int = 1) -> bytes:
    return MadeBatch(0, payload, count, count - 1, attributes=codec).encode()


def memory_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise AssertionError(field)


@contextmanager
def peak_memory_below(extra_bytes: int) -> Iterator[None]:
    """Both what Python and numpy allocate, and what the process really holds at its peak."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_kib("VmRSS")
    tracemalloc.start()
    try:
        yield
        traced = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    resident = (memory_kib("VmHWM") - before) * 1024
    assert traced <= extra_bytes
    assert resident <= extra_bytes


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bombs_stay_small(name: str) -> None:
    codec, make = BOMBS[name]
    data = of_payload(make(), codec, count=1000)
    with peak_memory_below(64 * MIB), pytest.raises(CorruptSegment) as caught:
        read_all(data)
    assert caught.value.position == 0


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_a_bomb_that_is_one_giant_record_stays_small(name: str) -> None:
    size = 400 * MIB
    head = zigzag(size) + b"\0" + zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(size - 20)
    body = head + ZEROS * 128
    made = {
        "gzip": (GZIP, lambda: gzip.compress(body, 1)),
        "lz4": (LZ4, lambda: bytes(lz4.frame.compress(body))),
        "zstd": (ZSTD, lambda: zstandard.ZstdCompressor().compress(body)),
    }
    codec, make = made[name]
    data = of_payload(make(), codec)
    with (
        peak_memory_below(64 * MIB),
        pytest.raises(CorruptSegment, match="one record is larger than"),
    ):
        read_all(data)


def test_many_records_out_of_few_bytes_are_given_in_bounded_memory() -> None:
    count = 300_000
    records = b"".join(MadeRecord(i, 0, None, None).encode() for i in range(count))
    data = of_payload(zstandard.ZstdCompressor(level=9).compress(records), ZSTD, count)
    with peak_memory_below(64 * MIB):
        assert read_all(data) == count


def test_a_record_of_a_million_headers_in_bounded_memory() -> None:
    record = MadeRecord(0, 0, None, None, ((b"", None),) * 1_000_000).encode()
    data = of_payload(lz4.frame.compress(record), LZ4)
    reader = SegmentReader(BytesSource("hostile", data), LOOSE)
    with peak_memory_below(64 * MIB):
        (batch,) = reader.record_batches()
        assert len(batch.column("headers")[0]) == 1_000_000


def test_the_ratio_is_capped_where_records_are_fine() -> None:
    records = b"".join(MadeRecord(i, 0, None, bytes(1000)).encode() for i in range(2000))
    data = of_payload(zstandard.ZstdCompressor().compress(records), ZSTD, 2000)
    assert read_all(data) == 2000
    strict = Limits(ratio_free_bytes=1000, decompression_ratio_max=20)
    with pytest.raises(CorruptSegment, match="are allowed"):
        read_all(data, strict)
    with pytest.raises(CorruptSegment, match="are allowed"):
        read_all(data, Limits(decompressed_batch_bytes_max=MIB))


@pytest.mark.parametrize("size", [-1, 0, 10, 48, 2**31 - 1])
def test_impossible_batch_sizes(size: int) -> None:
    good = plain(0, 3).encode()
    bad = bytearray(plain(3, 3).encode())
    bad[8:12] = struct.pack(">i", size)
    with peak_memory_below(64 * MIB), pytest.raises(CorruptSegment) as caught:
        read_all(good + bytes(bad))
    assert caught.value.position == len(good)
    if size < 14 or size > 2**30:
        with pytest.raises(CorruptSegment) as caught:
            whole_batches(good + bytes(bad), 500, name="x")
        assert caught.value.position == 500 + len(good)


@pytest.mark.parametrize(
    ("count", "last_offset_delta"), [(-1, 0), (2**31 - 1, 2**31 - 1), (5, 3), (3, -1), (4, 3)]
)
def test_impossible_counts(count: int, last_offset_delta: int) -> None:
    payload = plain(0, 3).payload
    for codec, packed in ((NONE, payload), (LZ4, lz4.frame.compress(payload))):
        batch = MadeBatch(0, packed, count, last_offset_delta, attributes=codec)
        with peak_memory_below(64 * MIB), pytest.raises(CorruptSegment):
            read_all(batch.encode())


@pytest.mark.parametrize(
    "payload",
    [
        b"\x80" * 7,
        b"\xff\xff\xff\xff\xff\x01" + bytes(20),
        zigzag(-5) + bytes(20),
        zigzag(2**31 - 1) + bytes(20),
        zigzag(20) + b"\0" + b"\xff" * 11 + bytes(8),
        zigzag(10) + b"\0\0\0" + zigzag(2**30) + bytes(10),
        zigzag(10) + b"\0\0\0\1" + zigzag(2**30) + bytes(10),
        zigzag(10) + b"\0\0\0\1\1" + unsigned(2**31) + bytes(10),
        zigzag(6) + b"\0\0\0\1\1\2" + bytes(1),
    ],
)
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_hostile_lengths_in_records(payload: bytes, codec: int) -> None:
    packed = payload if codec == NONE else lz4.frame.compress(payload)
    with pytest.raises(CorruptSegment) as caught:
        read_all(of_payload(packed, codec))
    assert caught.value.position == (61 if codec == NONE else 0)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_payloads_that_are_not_of_their_codec(codec: int) -> None:
    made = {
        GZIP: gzip.compress(plain(0, 3).payload),
        SNAPPY: snappy_xerial(plain(0, 3).payload),
        LZ4: lz4.frame.compress(plain(0, 3).payload),
        ZSTD: zstandard.ZstdCompressor().compress(plain(0, 3).payload),
    }
    good = made.pop(codec)
    assert read_all(of_payload(good, codec, 3)) == 3
    wrong = [
        *made.values(),
        b"\xff" * 40,
        good[: len(good) // 2],
        good[:-1],
        good + b"garbage",
        b"\0",
    ]
    for payload in wrong:
        with pytest.raises(CorruptSegment):
            read_all(of_payload(payload, codec, 3))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(UnsupportedFormat, match="codec"):
        read_all(of_payload(plain(0, 1).payload, codec))


@pytest.mark.parametrize("bit", range(7, 16))
def test_attribute_bits_without_a_meaning(bit: int) -> None:
    attributes = struct.unpack(">h", struct.pack(">H", 1 << bit))[0]
    with pytest.raises(UnsupportedFormat, match="attribute"):
        read_all(of_payload(plain(0, 1).payload, attributes))


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_magic_that_does_not_exist(magic: int) -> None:
    data = bytearray(plain(0, 1).encode())
    data[16] = magic
    with pytest.raises(CorruptSegment, match="magic"):
        read_all(bytes(data))


def test_offsets_at_the_end_of_their_range() -> None:
    top = 2**63 - 2
    bounds = SegmentBounds(start_offset=0, end_offset=top)
    records = plain(0, 2)
    for base, fits in ((top - 1, True), (top, False)):
        data = MadeBatch(base, records.payload, 2, 1).encode()
        reader = SegmentReader(BytesSource("x", data), bounds)
        if fits:
            rows = rows_of(list(reader.record_batches()))
            assert [row[0] for row in rows] == [top - 1, top]
        else:
            with pytest.raises(CorruptSegment, match="past the end"):
                list(reader.record_batches())


def test_bounds_and_epochs_are_enforced_to_the_last_offset() -> None:
    second = MadeBatch(**{**plain(15, 5).__dict__, "leader_epoch": 3})
    data = plain(10, 5).encode() + second.encode()

    def refused(start: int, end: int, *epochs: tuple[int, int]) -> bool:
        bounds = SegmentBounds(start_offset=start, end_offset=end, leader_epochs=epochs)
        try:
            list(SegmentReader(BytesSource("x", data), bounds).headers())
        except CorruptSegment:
            return True
        return False

    assert not refused(10, 19, (0, 0), (3, 15))
    assert not refused(0, 100)
    assert not refused(10, 19, (3, 15))  # below the first known epoch: any lower one
    assert refused(11, 19)
    assert refused(10, 18)
    assert refused(10, 19, (0, 0), (3, 14))
    assert refused(10, 19, (0, 0), (3, 16))
    assert refused(10, 19, (0, 0), (2, 15))


def test_header_keys_that_are_not_utf8_are_replaced() -> None:
    headers = ((b"ok", b"1"), (b"\xff\xfe", b"2"), (b"a\xc3", None), ("é".encode(), b""))
    data = MadeBatch.of(0, [MadeRecord(0, headers=headers), MadeRecord(1)]).encode()
    reader = SegmentReader(BytesSource("x", data), LOOSE)
    (batch,) = reader.record_batches()
    batch.validate(full=True)
    read = [(header["key"], header["value"]) for header in batch.column("headers")[0].as_py()]
    assert read == [("ok", b"1"), ("\ufffd\ufffd", b"2"), ("a\ufffd", None), ("é", b"")]


def test_null_lengths_other_than_minus_one_are_nulls_as_in_kafka() -> None:
    body = b"\0\0\0" + zigzag(-7) + zigzag(-2) + zigzag(0)
    data = of_payload(zigzag(len(body)) + body, NONE)
    (batch,) = SegmentReader(BytesSource("x", data), LOOSE).record_batches()
    assert batch.column("key").to_pylist() == [None]
    assert batch.column("value").to_pylist() == [None]


def test_one_large_uncompressed_batch_in_small_chunks() -> None:
    rng = np.random.default_rng(1)
    values = [rng.bytes(100_000) for _ in range(20)]
    records = [MadeRecord(i, 0, None, value) for i, value in enumerate(values)]
    data = plain(0, 1).encode() + MadeBatch.of(1, records).encode() + plain(21, 1).encode()
    limits = Limits(chunk_bytes=4096, arrow_batch_bytes=150_000)
    batches = list(SegmentReader(BytesSource("x", data), LOOSE, limits=limits).record_batches())
    assert [row[5] for row in rows_of(batches)][1:-1] == values
    assert max(batch.nbytes for batch in batches) < 350_000
