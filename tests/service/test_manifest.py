"""Manifests: every field checked before anything is stored."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from service_samples import make_sample

from tiering.errors import BadInput
from tiering.segments import SegmentId
from tiering.service import DEFAULT_SERVICE_LIMITS
from tiering.service.manifest import Manifest, parse_manifest

SAMPLE = make_sample()
PARTS = [{"name": n, "size": len(d)} for n, d in [*SAMPLE.indexes.items(), ("log", SAMPLE.log)]]
SUM = sum(part["size"] for part in PARTS)  # type: ignore[misc]


def parse(changes: dict[str, object], *, parts_bytes: int = SUM) -> Manifest:
    raw = {**SAMPLE.manifest(), **changes}
    data = json.dumps({name: value for name, value in raw.items() if value != "absent"}).encode()
    segment = SegmentId.parse(SAMPLE.key)
    return parse_manifest(data, segment, parts_bytes=parts_bytes, limits=DEFAULT_SERVICE_LIMITS)


def part(name: str, size: object) -> dict[str, object]:
    return {"name": name, "size": size}


def resized(name: str, size: object) -> list[dict[str, object]]:
    return [part(name, size) if p["name"] == name else p for p in PARTS]


def test_as_the_broker_says_it() -> None:
    manifest = parse({"leader_epochs": [[0, 0], [3, 7], [4, 7]], "something_new": 1})
    assert manifest.metadata.leader_epochs == ((0, 0), (3, 7), (4, 7))
    assert manifest.parts[-1] == ("log", len(SAMPLE.log))
    assert [name for name, _ in manifest.index_parts] == list(SAMPLE.indexes)


def test_without_a_transaction_index() -> None:
    parts = [p for p in PARTS if p["name"] != "transaction_index"]
    manifest = parse({"parts": parts}, parts_bytes=SUM - 68)
    assert "transaction_index" not in dict(manifest.parts)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": "absent"},
        {"topic": ".."},
        {"topic": "a/b"},
        {"topic": "a" * 250},
        {"topic": 5},
        {"topic_id": "b" * 22},
        {"topic_id": None},
        {"segment_id": "b" * 22},
        {"partition": 4},
        {"partition": True},
        {"partition": 3.0},
        {"partition": 2**31},
        {"start_offset": SAMPLE.base_offset + 1},
        {"start_offset": -1},
        {"end_offset": SAMPLE.base_offset - 1},
        {"end_offset": 2**63},
        {"end_offset": "7"},
        {"max_timestamp_ms": 2**63},
        {"max_timestamp_ms": None},
        {"broker_id": 2**31},
        {"segment_size_bytes": len(SAMPLE.log) + 1},
        {"segment_size_bytes": 0},
        {"segment_size_bytes": 2**31},
        {"segment_size_bytes": 10**400},
        {"leader_epochs": []},
        {"leader_epochs": {}},
        {"leader_epochs": [[1]]},
        {"leader_epochs": [1, 2]},
        {"leader_epochs": [[-1, 0]]},
        {"leader_epochs": [[1, 5], [1, 6]]},
        {"leader_epochs": [[1, 5], [2, 4]]},
        {"leader_epochs": [[1, 2**63]]},
        {"parts": {}},
        {"parts": []},
        {"parts": ["log"]},
        {"parts": PARTS[1:]},
        {"parts": PARTS[:-1]},
        {"parts": [*PARTS, PARTS[0]]},
        {"parts": [PARTS[-1], *PARTS[:-1]]},
        {"parts": [*PARTS[:-1], part("../log", len(SAMPLE.log))]},
        {"parts": PARTS * 1000},
        {"parts": resized("log", len(SAMPLE.log) - 1)},
        {"parts": resized("producer_snapshot", -1)},
        {"parts": resized("producer_snapshot", 1.5)},
        {"parts": resized("time_index", 61)},
        {"parts": resized("offset_index", 7)},
        {"parts": resized("verdicts", 35)},
        {"parts": resized("producer_snapshot", 2**31)},
    ],
)
def test_what_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=r"manifest|topic name|segment "):
        parse(changes)


def test_sizes_must_sum_to_the_body() -> None:
    for wrong in (SUM - 1, SUM + 1, 0):
        with pytest.raises(BadInput, match="sum"):
            parse({}, parts_bytes=wrong)


def test_indexes_have_a_cap() -> None:
    limits = replace(DEFAULT_SERVICE_LIMITS, indexes_bytes_max=SUM - len(SAMPLE.log) - 1)
    with pytest.raises(BadInput, match="indexes"):
        parse_manifest(
            json.dumps(SAMPLE.manifest()).encode(),
            SegmentId.parse(SAMPLE.key),
            parts_bytes=SUM,
            limits=limits,
        )


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"1", b"nope", b"\xff\xfe", b"[" * 10**5, b'{"version":' + b"9" * 5000 + b"}"],
)
def test_what_is_no_manifest(data: bytes) -> None:
    with pytest.raises(BadInput):
        parse_manifest(
            data, SegmentId.parse(SAMPLE.key), parts_bytes=1, limits=DEFAULT_SERVICE_LIMITS
        )
