"""The plug-in against the real service: what goes in comes back, byte for byte."""

from __future__ import annotations

import os
import random
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from plugin_harness import Harness, Segment
from plugin_segments import aborted, write_segment, write_transaction_index

from tiering.ledger import Ledger
from tiering.segments import SegmentId
from tiering.service.server import ServiceServer
from tiering.store import ObjectStore, open_store

TOKEN = "a-token-for-these-tests"
HEAD = ">qiibIhiqqqhii"


def batches(base_offset: int, count: int, rng: random.Random) -> bytes:
    """`count` batches of one record each; only their heads are real."""
    log = bytearray()
    for offset in range(base_offset, base_offset + count):
        payload = rng.randbytes(rng.randrange(100, 60_000))
        length = struct.calcsize(HEAD) - 12 + len(payload)
        log += struct.pack(HEAD, offset, length, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) + payload
    return bytes(log)


def starts_of(log: bytes) -> list[int]:
    """Where each batch begins."""
    starts, at = [], 0
    while at < len(log):
        starts.append(at)
        at += 12 + struct.unpack_from(">i", log, at + 8)[0]
    return starts


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    return open_store(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def service(store: ObjectStore) -> Iterator[str]:
    server = ServiceServer(store, TOKEN)
    thread = threading.Thread(target=server.serve_until_stopped)
    thread.start()
    yield server.url
    server.stop()
    thread.join(timeout=20)
    assert not thread.is_alive()


@pytest.fixture
def stored(jvm: Harness, service: str, tmp_path: Path) -> Segment:
    """A copied segment of about 9 MB with all its indexes and a verdict from a later file."""
    directory = tmp_path / "orders.eu_1-7"
    rng = random.Random(4)
    segment = write_segment(
        directory, end_offset=399, transaction_index=aborted(5, 120, 130), size_bytes=0
    )
    log = batches(100, 300, rng)
    index = b"".join(
        struct.pack(">ii", number, start)
        for number, start in enumerate(starts_of(log))
        if number % 7 == 3
    )
    (directory / f"{100:020d}.log").write_bytes(log)
    (directory / f"{100:020d}.index").write_bytes(index)
    write_transaction_index(directory, 800, aborted(6, 300, 500))
    segment_id = SegmentId.parse(segment.path.removeprefix("segments/")).segment_id
    fresh = f"{random.Random(os.urandom(8)).randrange(10**10):010d}{segment_id[10:]}"
    segment = replace(segment, size_bytes=len(log), segment_id=fresh)
    jvm.use(segment)
    assert jvm.configure(service, token=TOKEN).error is None
    outcome = jvm.copy()
    assert outcome.error is None, outcome
    return segment


def test_log_comes_back(jvm: Harness, service: str, stored: Segment, tmp_path: Path) -> None:
    log = (stored.directory / f"{100:020d}.log").read_bytes()
    assert jvm.configure(service, token=TOKEN, keep_bytes=0).error is None
    assert jvm.fetch(tmp_path / "all").error is None
    assert (tmp_path / "all").read_bytes() == log
    for start in random.Random(1).sample(starts_of(log), 20):
        assert jvm.fetch(tmp_path / "part", start // 4, how="head:1500000").error is None
        assert (tmp_path / "part").read_bytes() == log[start : start + 1_500_000]


def test_log_comes_back_from_what_was_kept(jvm: Harness, stored: Segment, tmp_path: Path) -> None:
    """From a batch at or a little before the one that was asked for, and on from there."""
    log = (stored.directory / f"{100:020d}.log").read_bytes()
    starts = starts_of(log)
    begun = set()
    for start in random.Random(1).sample(starts, 60):
        assert jvm.fetch(tmp_path / "part", start // 4, how="head:1500000").error is None
        part = (tmp_path / "part").read_bytes()
        at = log.index(part[:61])
        assert log[at : at + 1_500_000] == part
        assert start - 2**18 < at <= start
        assert at in starts
        begun.add(at == start)
    assert begun == {True, False}


def test_end_position_is_inclusive(jvm: Harness, stored: Segment, tmp_path: Path) -> None:
    log = (stored.directory / f"{100:020d}.log").read_bytes()
    starts = starts_of(log)
    outcome = jvm.fetch(tmp_path / "part", starts[10] // 4, starts[200] // 4)
    assert outcome.error is None
    assert (tmp_path / "part").read_bytes() == log[starts[10] : starts[201]]


def test_position_behind_the_end(jvm: Harness, stored: Segment, tmp_path: Path) -> None:
    outcome = jvm.fetch(tmp_path / "none", stored.size_bytes)
    assert outcome.error == "RemoteStorageException"
    assert "416" in outcome.message


def test_indexes_come_back(jvm: Harness, stored: Segment, tmp_path: Path) -> None:
    base = f"{100:020d}"
    files = {
        "TIMESTAMP": f"{base}.timeindex",
        "TRANSACTION": f"{base}.txnindex",
        "PRODUCER_SNAPSHOT": f"{400:020d}.snapshot",
        "LEADER_EPOCH": "leader-epochs",
    }
    for kind, file in files.items():
        assert jvm.index(kind, tmp_path / kind).error is None
        assert (tmp_path / kind).read_bytes() == (stored.directory / file).read_bytes()
    assert jvm.index("OFFSET", tmp_path / "OFFSET").error is None
    served = struct.iter_unpack(">ii", (tmp_path / "OFFSET").read_bytes())
    own = struct.iter_unpack(">ii", (stored.directory / f"{base}.index").read_bytes())
    assert list(served) == [(offset, position // 4) for offset, position in own]


def test_store_holds_what_was_sent(stored: Segment, store: ObjectStore) -> None:
    segment = SegmentId.parse(stored.path.removeprefix("segments/"))
    entry = Ledger(store).load(segment)
    assert (entry.metadata.start_offset, entry.metadata.end_offset) == (100, 399)
    assert entry.metadata.topic == stored.topic
    place = entry.part_range("verdicts")
    assert place is not None
    start, size = place
    verdicts = aborted(5, 120, 130) + aborted(6, 300, 500)
    assert bytes(store.get_range(segment.indexes_key, start, size)) == verdicts


def test_copy_again_delete_and_after(jvm: Harness, stored: Segment, tmp_path: Path) -> None:
    assert jvm.copy().error is None  # the same id and bytes: acknowledged again
    assert jvm.delete().error is None
    assert jvm.delete().error is None
    assert jvm.fetch(tmp_path / "gone").error == "RemoteResourceNotFoundException"
    assert jvm.index("OFFSET", tmp_path / "index").error == "RemoteResourceNotFoundException"
    outcome = jvm.copy()
    assert outcome.error == "RemoteStorageException", "a deleted id must not come back"
    assert "410" in outcome.message


def test_segment_without_transactions(jvm: Harness, service: str, tmp_path: Path) -> None:
    segment = replace(write_segment(tmp_path / "p", start_offset=5000, end_offset=5099))
    jvm.use(segment)
    jvm.configure(service, token=TOKEN)
    log = segment.directory / f"{5000:020d}.log"
    content = batches(5000, 100, random.Random(2))
    log.write_bytes(content)
    jvm.use(replace(segment, size_bytes=len(content), leader_epochs=((0, 5000),)))
    assert jvm.copy().error is None
    outcome = jvm.index("TRANSACTION", tmp_path / "index")
    assert outcome.error == "RemoteResourceNotFoundException"


def test_delete_of_an_unknown_segment(jvm: Harness, service: str, tmp_path: Path) -> None:
    jvm.use(write_segment(tmp_path / "p", start_offset=777_000, end_offset=777_999))
    jvm.configure(service, token=TOKEN)
    assert jvm.delete().error is None


def test_wrong_token(jvm: Harness, service: str, segment: Segment, tmp_path: Path) -> None:
    jvm.configure(service, token="not-the-token")
    assert jvm.copy().error == "RetriableRemoteStorageException"
    assert jvm.fetch(tmp_path / "f").error == "RemoteStorageException"
    assert jvm.delete().error == "RemoteStorageException"
