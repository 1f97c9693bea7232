"""Record bytes as they are in a log, and their comparison byte by byte."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from batch_maker import COMPRESS, MadeBatch, MadeRecord

from segment_reader import BytesSource, CorruptSegment, Limits, SegmentBounds, SegmentReader
from segment_reader.kernels.comparison import first_difference, gone_records

SMALL = Limits(chunk_bytes=3000, piece_bytes=1000, arrow_batch_bytes=1 << 12)
TINY = Limits(chunk_bytes=100, piece_bytes=100, arrow_batch_bytes=64)


def made_records(chance: random.Random, most_bytes: int) -> list[MadeRecord]:
    return [
        MadeRecord(i, i * 3, None, chance.randbytes(chance.randint(0, most_bytes)))
        for i in range(chance.randint(0, 9))
    ]


def log_of(
    payloads: Sequence[Sequence[MadeRecord]], compressions: Sequence[str]
) -> tuple[SegmentBounds, bytes]:
    offset, log = 0, b""
    for i, records in enumerate(payloads):
        log += MadeBatch.of(offset, records, compressions[i % len(compressions)]).encode()
        offset += 20
    return SegmentBounds(start_offset=0, end_offset=offset), log


def encoded(records: Sequence[MadeRecord]) -> bytes:
    return b"".join(record.encode() for record in records)


@pytest.mark.parametrize("limits", [Limits(), SMALL, TINY], ids=["default", "small", "tiny"])
@pytest.mark.parametrize("compressions", [*([c] for c in COMPRESS), list(COMPRESS)], ids=str)
def test_payloads_are_what_was_compressed(limits: Limits, compressions: list[str]) -> None:
    chance = random.Random(str(compressions))
    made = [made_records(chance, most) for most in [30] * 40 + [3000] * 10 + [20] * 5]
    bounds, log = log_of(made, compressions)
    found, positions = [], []
    for some in SegmentReader(BytesSource("x", log), bounds, limits=limits).payloads():
        places = zip(some.starts.tolist(), some.ends.tolist(), strict=True)
        found += [some.buffer[start:end].tobytes() for start, end in places]
        positions += some.headers.position.tolist()
        assert len(some) == len(some.starts)
    assert found == [encoded(records) for records in made]
    assert positions == sorted(set(positions))


def test_a_byte_range_of_the_log() -> None:
    made = [[MadeRecord(0, value=b"%d" % i)] for i in range(9)]
    bounds, log = log_of(made, ["none"])
    size = len(log) // 9
    reader = SegmentReader(BytesSource("x", log), bounds)
    found = [p.headers.base_offset for p in reader.payloads(2 * size, 5 * size)]
    assert np.concatenate(found).tolist() == [40, 60, 80]


def test_what_puts_out_too_much_is_refused() -> None:
    limits = Limits(decompression_ratio_max=2, ratio_free_bytes=100)
    bounds, log = log_of([[MadeRecord(0, value=b"x" * 10_000)]], ["zstd"])
    reader = SegmentReader(BytesSource("x", log), bounds, limits=limits)
    with pytest.raises(CorruptSegment, match="put out"):
        list(reader.payloads())


def ranges(pieces: Sequence[bytes], gap: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts, buffer = [], b""
    for piece in pieces:
        buffer += gap
        starts.append(len(buffer))
        buffer += piece
    ends = [start + len(piece) for start, piece in zip(starts, pieces, strict=True)]
    return np.frombuffer(buffer, np.uint8), np.array(starts), np.array(ends)


@pytest.mark.parametrize(
    ("other", "first"),
    [
        ([b"abc", b"", b"defg"], -1),
        ([b"abc", b"", b"defh"], 2),
        ([b"abc", b"", b"defgh"], 2),
        ([b"abc", b"x", b"defg"], 1),
        ([b"ab", b"", b"defg"], 0),
    ],
)
def test_first_range_that_differs(other: list[bytes], first: int) -> None:
    one = ranges([b"abc", b"", b"defg"], b"--")
    assert first_difference(*one, *ranges(other, b"+")) == first


@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4], [0, 4], [2], [], [0, 1, 2, 3], [1, 2, 3, 4]])
def test_records_that_are_gone(kept: list[int]) -> None:
    records = [MadeRecord(i, 0, b"k", b"v" * 70 * i) for i in range(5)]
    left = encoded([records[i] for i in kept])
    assert gone(encoded(records), left) == 5 - len(kept)


def test_records_that_were_never_there() -> None:
    records = [MadeRecord(i, 0, b"k", b"v" * 70 * i) for i in range(5)]
    whole = encoded(records)
    assert gone(whole, encoded([MadeRecord(3, 0, b"k", b"w" * 210)])) == -1
    assert gone(whole, encoded(records[3:] + records[:1])) == -1
    assert gone(whole, encoded([*records, MadeRecord(7)])) == -1
    assert gone(whole, whole[:-1]) == -1
    assert gone(whole[:-1], encoded(records[:2])) == -1, "what isn't records"


def gone(whole: bytes, left: bytes) -> int:
    return gone_records(np.frombuffer(whole, np.uint8), np.frombuffer(left, np.uint8))
