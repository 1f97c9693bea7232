"""The upload's body, fed whole, byte by byte, cut and altered: it parses or it is refused."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import pytest
from service_samples import frame, make_sample

from tiering.errors import BadInput
from tiering.segments import SegmentId
from tiering.service import DEFAULT_SERVICE_LIMITS
from tiering.service.upload_body import DigestMismatch, UploadBody

SAMPLE = make_sample(sizes=[61, 100, 300])
BODY = SAMPLE.body()
SEGMENT = SegmentId.parse(SAMPLE.key)


def feed(body: bytes, steps: list[int], length: int | None = None) -> tuple[dict[str, bytes], str]:
    parser = UploadBody(len(body) if length is None else length, SEGMENT, DEFAULT_SERVICE_LIMITS)
    parts: dict[str, bytes] = defaultdict(bytes)
    at = 0
    for step in steps:
        for piece in parser.feed(body[at : at + step]):
            parts[piece.part] += piece.data
        at += step
    return parts, parser.finish()


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100, 1000, len(BODY)])
def test_in_any_blocks(step: int) -> None:
    parts, digest = feed(BODY, [step] * -(-len(BODY) // step))
    assert parts == {name: d for name, d in SAMPLE.indexes.items() if d} | {"log": SAMPLE.log}
    assert digest == BODY[:-32].hex() or len(digest) == 64


def test_in_random_blocks() -> None:
    rng = random.Random(1)
    for _ in range(200):
        cuts = sorted(rng.sample(range(1, len(BODY)), 6))
        steps = [b - a for a, b in zip([0, *cuts], [*cuts, len(BODY)], strict=True)]
        assert feed(BODY, steps)[0]["log"] == SAMPLE.log


def test_empty_parts_anywhere() -> None:
    sample = make_sample(transactions=False)
    sample.indexes |= {"offset_index": b"", "time_index": b""}
    body = sample.body()
    parser = UploadBody(len(body), SegmentId.parse(sample.key), DEFAULT_SERVICE_LIMITS)
    assert {piece.part for piece in parser.feed(body)} == {
        "producer_snapshot",
        "leader_epochs",
        "log",
    }


def test_every_cut_is_refused() -> None:
    for cut in range(len(BODY)):
        with pytest.raises(BadInput):
            feed(BODY[:cut], [cut], len(BODY))


def test_every_altered_byte_is_refused() -> None:
    for at in range(len(BODY)):
        altered = bytearray(BODY)
        altered[at] ^= 1
        with pytest.raises(BadInput):
            feed(bytes(altered), [50] * (len(BODY) // 50 + 1))


def test_more_bytes_than_told_are_refused() -> None:
    with pytest.raises(BadInput):
        feed(BODY + b"x", [len(BODY) + 1], len(BODY))


def test_altered_parts_are_a_mismatch() -> None:
    altered = bytearray(BODY)
    altered[-40] ^= 1
    with pytest.raises(DigestMismatch, match=SAMPLE.segment_id):
        feed(bytes(altered), [len(BODY)])


@pytest.mark.parametrize("length", [0, 4, 36])
def test_too_short_for_an_upload(length: int) -> None:
    with pytest.raises(BadInput):
        UploadBody(length, SEGMENT, DEFAULT_SERVICE_LIMITS)


def test_a_manifest_longer_than_body_or_cap() -> None:
    for told in (2**32 - 1, len(BODY), len(BODY) - 35):
        with pytest.raises(BadInput, match="length"):
            feed(told.to_bytes(4, "big") + BODY[4:], [4])
    parser = UploadBody(10**9, SEGMENT, replace(DEFAULT_SERVICE_LIMITS, manifest_bytes_max=100))
    with pytest.raises(BadInput, match="length"):
        parser.feed(frame(b" " * 101, b""))
