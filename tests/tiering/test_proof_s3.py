"""Proofs in a real S3 store: what is damaged there, and what only can't be read for now."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_segments import Batch, Rec, Segment, in_batches, some_records
from proof_places import TOPIC_ID, ProofPlace
from s3_server import S3Server

from tiering.proof.prove import prove_task
from tiering.tasks import ProofFailure, ProofTask

pytestmark = pytest.mark.s3


@pytest.fixture
def place(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProofPlace:
    if not s3_server.heeds_conditions:
        pytest.skip("this S3 server ignores conditional writes")
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    properties = {"s3.endpoint": s3_server.endpoint, "s3.region": s3_server.region}
    return ProofPlace.make(tmp_path, s3_server.url(f"proof-{tmp_path.name}"), properties)


def converted(place: ProofPlace) -> Segment:
    batches = [
        *in_batches(some_records(0, 3000), 50, ("none", "zstd")),
        Batch(records=[Rec(offset=3000, timestamp_ms=2**62)]),
    ]
    made = Segment(batches=batches, topic_id=TOPIC_ID)
    place.convert(made, split_bytes=len(made.log) // 3)
    return made


def failed(task: ProofTask) -> ProofFailure:
    failure = prove_task(task).failure
    assert failure is not None
    return failure


def test_what_was_converted_is_proven(place: ProofPlace) -> None:
    made = converted(place)
    assert len(place.require_proven(made)) == 3
    assert not place.proof_task(made).io_properties.keys() - {"s3.endpoint", "s3.region"}


def test_a_changed_log_is_corrupt(place: ProofPlace) -> None:
    made = converted(place)
    log = bytearray(made.log)
    log[-9] ^= 1
    place.store.put(made.id.log_key, bytes(log))
    kinds = [r.failure and r.failure.kind for r in place.prove(made)]
    assert set(kinds) <= {None, "corrupt"}
    assert kinds[-1] == "corrupt"


def test_a_damaged_data_file_is_told_from_an_outage(place: ProofPlace) -> None:
    made = converted(place)
    keys = [o.key for o in place.store.list("warehouse/") if o.key.endswith(".parquet")]
    for key in keys:
        data = bytearray(place.store.get(key).data)
        middle = len(data) * 2 // 3
        data[middle : middle + 64] = bytes(64)
        place.store.put(key, bytes(data))
    assert failed(place.proof_task(made)).kind == "mismatch"


def test_a_data_file_that_is_gone(place: ProofPlace) -> None:
    made = converted(place)
    for info in place.store.list("warehouse/"):
        if info.key.endswith(".parquet"):
            place.store.delete(info.key)
    assert failed(place.proof_task(made)).kind == "transient"


def test_a_table_that_cannot_be_reached(place: ProofPlace) -> None:
    made = converted(place)
    nowhere = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "us-east-1"}
    assert failed(place.proof_task(made, io_properties=nowhere)).kind == "transient"


def test_missing_objects(place: ProofPlace) -> None:
    made = converted(place)
    place.store.delete(place.sides[made.id][1])
    kinds = [r.failure and r.failure.kind for r in place.prove(made)]
    assert kinds == ["missing", "missing", None]
    place.store.delete(made.id.indexes_key)
    assert failed(place.proof_task(made, 2)).kind == "missing"
