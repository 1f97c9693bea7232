"""Uploads: acknowledged only when durable, whole or not at all, whatever happens on the way."""

from __future__ import annotations

import hashlib
import itertools
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from faulty_store import FaultyStore
from native_segments import log_checksums
from service_harness import Serve
from service_samples import RawUpload, Sample, frame, make_sample, stored_keys, wait_until

from tiering.ledger import Ledger, SegmentState
from tiering.segments import SegmentId
from tiering.service import DEFAULT_SERVICE_LIMITS
from tiering.store import ObjectStore

IN_FLIGHT = 'onecopy_requests_in_flight{kind="put"} 0.0'


def idle(client: httpx.Client) -> bool:
    return IN_FLIGHT in client.get("/metrics").text


def assert_invisible(client: httpx.Client, store: ObjectStore, sample: Sample) -> None:
    wait_until(lambda: idle(client))
    assert stored_keys(store) == []
    assert client.get(f"{sample.path}/log", params={"position": 0}).status_code == 404
    assert client.get(f"{sample.path}/indexes/offset").status_code == 404


def stored_checksums(store: ObjectStore, sample: Sample) -> bytes:
    entry = Ledger(store).load(SegmentId.parse(sample.key))
    assert entry.parts[-1][0] == "log_checksums"
    start, size = entry.part_range("log_checksums") or (0, 0)
    return store.get(f"native/{sample.key}.indexes").data[start : start + size]


def leftovers(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "store" / ".onecopy" / "tmp").iterdir())


class TestDurable:
    def test_an_acknowledged_segment_is_in_the_store(
        self, client: httpx.Client, store: ObjectStore
    ) -> None:
        sample = make_sample()
        body = sample.body()
        answer = client.put(sample.path, content=body)
        assert answer.status_code == 201
        assert answer.json() == {"sha256": hashlib.sha256(body[:-32]).hexdigest()}
        assert store.get(f"native/{sample.key}.log").data == sample.log
        parts = {**sample.indexes, "log_checksums": log_checksums(sample.log)}
        assert store.get(f"native/{sample.key}.indexes").data == b"".join(parts.values())
        entry = Ledger(store).load(SegmentId.parse(sample.key))
        assert entry.state is SegmentState.UPLOADED
        assert entry.parts == tuple((n, len(d)) for n, d in parts.items())
        assert entry.sha256 == answer.json()["sha256"]
        assert entry.metadata.topic == "orders"
        assert (entry.metadata.start_offset, entry.metadata.end_offset) == (
            sample.base_offset,
            sample.end_offset,
        )
        assert entry.metadata.leader_epochs == ((0, sample.base_offset),)
        assert entry.metadata.size_bytes == len(sample.log)

    def test_sizes_around_the_block(self, client: httpx.Client, store: ObjectStore) -> None:
        block = DEFAULT_SERVICE_LIMITS.block_bytes
        for seed, size in enumerate((61, block - 400, block - 1, block, block + 1, 3 * block)):
            sample = make_sample(seed, sizes=[size], transactions=seed % 2 == 0)
            assert client.put(sample.path, content=sample.body()).status_code == 201
            assert store.get(f"native/{sample.key}.log").data == sample.log
            assert stored_checksums(store, sample) == log_checksums(sample.log)

    def test_a_log_of_many_blocks_in_bodies_of_any_pieces(
        self, client: httpx.Client, store: ObjectStore
    ) -> None:
        block = 65536
        for seed, size in enumerate((block - 1, block, block + 1, 7 * block, 7 * block + 61)):
            sample = make_sample(seed, sizes=[size])
            body = sample.body()
            pieces = (body[i : i + 4099] for i in range(0, len(body), 4099))
            headers = {"Content-Length": str(len(body))}
            assert client.put(sample.path, content=pieces, headers=headers).status_code == 201
            assert stored_checksums(store, sample) == log_checksums(sample.log)

    def test_checksums_are_the_services_own(self, client: httpx.Client, store: ObjectStore) -> None:
        sample = make_sample()
        sample.indexes["log_checksums"] = b"1234"
        answer = client.put(sample.path, content=sample.body())
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
        assert_invisible(client, store, sample)

    def test_what_the_broker_reads_back_is_what_it_sent(self, client: httpx.Client) -> None:
        sample = make_sample()
        client.put(sample.path, content=sample.body())
        for name, part in (
            ("timestamp", "time_index"),
            ("transaction", "transaction_index"),
            ("producer_snapshot", "producer_snapshot"),
            ("leader_epoch", "leader_epochs"),
        ):
            answer = client.get(f"{sample.path}/indexes/{name}")
            assert (answer.status_code, answer.content) == (200, sample.indexes[part])
        assert client.get(f"{sample.path}/indexes/log_checksums").status_code == 400

    def test_a_repeat_is_acknowledged_alike(self, client: httpx.Client, store: ObjectStore) -> None:
        sample = make_sample()
        first = client.put(sample.path, content=sample.body())
        keys = [(i.key, i.version) for i in store.list("native/")]
        again = client.put(sample.path, content=sample.body())
        assert (again.status_code, again.json()) == (200, first.json())
        assert [(i.key, i.version) for i in store.list("native/")] == keys

    def test_other_bytes_under_the_same_id_are_a_conflict(
        self, client: httpx.Client, store: ObjectStore
    ) -> None:
        sample = make_sample()
        client.put(sample.path, content=sample.body())
        sample.changes = {"broker_id": 2}
        answer = client.put(sample.path, content=sample.body())
        assert (answer.status_code, answer.json()["error"]) == (409, "segment_exists")
        assert store.get(f"native/{sample.key}.log").data == sample.log

    def test_a_damaged_repeat_is_no_repeat(self, client: httpx.Client) -> None:
        sample = make_sample()
        body = bytearray(sample.body())
        client.put(sample.path, content=bytes(body))
        body[-100] ^= 1
        assert client.put(sample.path, content=bytes(body)).json()["error"] == "digest_mismatch"


class TestCutBodies:
    def test_half_an_upload_is_invisible_at_each_cut(
        self, client: httpx.Client, store: ObjectStore, tmp_path: Path
    ) -> None:
        sample = make_sample(sizes=[5000] * 40)
        body = sample.body()
        manifest_end = 4 + int.from_bytes(body[:4], "big")
        sizes = [len(data) for data in sample.indexes.values()]
        borders = [manifest_end + at for at in itertools.accumulate(sizes, initial=0)]
        ends = [0, 2, 4, manifest_end - 1, len(body) - 33, len(body) - 32, len(body) - 1]
        cuts = {*ends, *borders, *(at + 1 for at in borders), len(body) // 2}
        for cut in sorted(cuts):
            upload = RawUpload(client, sample.path, len(body))
            upload.send(body[:cut])
            upload.cut()
        assert_invisible(client, store, sample)
        assert leftovers(tmp_path) == []
        assert client.put(sample.path, content=body).status_code == 201

    def test_large_bodies_cut_while_blocks_are_written(
        self, client: httpx.Client, store: ObjectStore, tmp_path: Path
    ) -> None:
        sample = make_sample(sizes=[100_000] * 100)
        body = sample.body()
        for cut in (2**21, 5 * 2**20, len(body) - 1):
            upload = RawUpload(client, sample.path, len(body))
            upload.send(body[:cut])
            upload.cut()
        assert_invisible(client, store, sample)
        assert leftovers(tmp_path) == []

    def test_altered_bytes_are_refused_wherever(
        self, client: httpx.Client, store: ObjectStore, tmp_path: Path
    ) -> None:
        sample = make_sample()
        body = sample.body()
        manifest_end = 4 + int.from_bytes(body[:4], "big")
        for at in (manifest_end, manifest_end + 500, len(body) // 2, len(body) - 33, len(body) - 1):
            damaged = bytearray(body)
            damaged[at] ^= 0x40
            answer = client.put(sample.path, content=bytes(damaged))
            assert (answer.status_code, answer.json()["error"]) == (422, "digest_mismatch")
        assert_invisible(client, store, sample)
        assert leftovers(tmp_path) == []

    def test_a_body_without_progress_is_given_up(
        self, serve: Serve, store: ObjectStore, tmp_path: Path
    ) -> None:
        client = serve(store, replace(DEFAULT_SERVICE_LIMITS, no_progress_s=0.2))
        sample = make_sample()
        body = sample.body()
        for sent in (0, 3, len(body) - 1):
            upload = RawUpload(client, sample.path, len(body))
            upload.send(body[:sent])
            assert upload.status() == 408
            upload.cut()
        assert_invisible(client, store, sample)
        assert leftovers(tmp_path) == []

    def test_a_body_that_drips_is_given_up_too(self, serve: Serve, store: ObjectStore) -> None:
        limits = replace(DEFAULT_SERVICE_LIMITS, no_progress_s=5, put_deadline_s=0.3)
        client = serve(store, limits)
        sample = make_sample()
        upload = RawUpload(client, sample.path, len(sample.body()))
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.02):
                try:
                    upload.send(b"\0")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert upload.status() == 408
        stop.set()
        dripping.join()
        upload.cut()
        assert_invisible(client, store, sample)


class TestStoreOutages:
    @pytest.mark.parametrize(
        ("method", "ending"),
        [
            ("get", ".json"),
            ("open_upload", ".indexes"),
            ("open_upload", ".log"),
            ("write", ".indexes"),
            ("write", ".log"),
            ("commit", ".indexes"),
            ("commit", ".log"),
            ("put_if", ".json"),
        ],
    )
    def test_nothing_is_seen_and_the_next_try_works(
        self, serve: Serve, store: ObjectStore, tmp_path: Path, method: str, ending: str
    ) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty)
        sample = make_sample()
        faulty.fail(method, ending)
        answer = client.put(sample.path, content=sample.body())
        assert (answer.status_code, answer.json()["error"]) == (503, "store_unavailable")
        assert "retry-after" in answer.headers
        faulty.faults.clear()
        assert client.get(f"{sample.path}/log?position=0").status_code == 404
        if method != "put_if":  # there it is not known whether the entry may still land
            assert_invisible(client, store, sample)
        assert leftovers(tmp_path) == []
        assert client.put(sample.path, content=sample.body()).status_code == 201
        assert client.get(f"{sample.path}/indexes/timestamp").status_code == 200

    @pytest.mark.parametrize("ending", [".indexes", ".log"])
    def test_an_object_that_landed_unsaid_is_removed(
        self, serve: Serve, store: ObjectStore, ending: str
    ) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty)
        sample = make_sample()
        faulty.fail("commit", ending, "after")
        assert client.put(sample.path, content=sample.body()).status_code == 503
        faulty.faults.clear()
        assert_invisible(client, store, sample)

    def test_a_ledger_entry_that_landed_unsaid_is_found(
        self, serve: Serve, store: ObjectStore
    ) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty)
        sample = make_sample()
        faulty.fail("put_if", ".json", "after")
        assert client.put(sample.path, content=sample.body()).status_code == 201

    def test_a_ledger_entry_of_unknown_fate_keeps_its_objects(
        self, serve: Serve, store: ObjectStore
    ) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty)
        sample = make_sample()
        faulty.hold("put_if")
        answers: list[httpx.Response] = []
        sender = threading.Thread(
            target=lambda: answers.append(client.put(sample.path, content=sample.body()))
        )
        sender.start()
        wait_until(lambda: faulty.waiting == 1)
        faulty.fail("put_if", ".json", "after")
        faulty.fail("get", ".json")
        faulty.gate.set()
        sender.join(20)
        assert answers[0].status_code == 503
        faulty.faults.clear()
        # The entry had landed, so the segment is whole: log and indexes were not removed.
        assert client.get(f"{sample.path}/log?position=0").status_code == 200
        assert client.put(sample.path, content=sample.body()).status_code == 200


class TestCaps:
    def test_one_topic_leaves_room_for_others(self, serve: Serve, store: ObjectStore) -> None:
        limits = replace(DEFAULT_SERVICE_LIMITS, put_in_flight_max=3, put_per_topic_max=2)
        client = serve(store, limits)
        slow = [make_sample(i, topic_id="A" * 22) for i in range(3)]
        others = [make_sample(i) for i in (10, 11)]
        held = [RawUpload(client, s.path, len(s.body())) for s in slow[:2]]
        wait_until(lambda: 'in_flight{kind="put"} 2.0' in client.get("/metrics").text)
        refused = client.put(slow[2].path, content=slow[2].body())
        assert (refused.status_code, refused.json()["error"]) == (503, "busy")
        assert refused.headers["retry-after"] == "1"
        assert client.put(others[0].path, content=others[0].body()).status_code == 201
        held.append(RawUpload(client, others[1].path, len(others[1].body())))
        wait_until(lambda: 'in_flight{kind="put"} 3.0' in client.get("/metrics").text)
        another = make_sample(12)
        assert client.put(another.path, content=another.body()).json()["error"] == "busy"
        assert client.get(f"{others[0].path}/log?position=0").status_code == 200
        for upload, sample in zip(held, [*slow[:2], others[1]], strict=True):
            upload.send(sample.body())
            assert upload.status() == 201
            upload.cut()
        assert client.put(slow[2].path, content=slow[2].body()).status_code == 201

    def test_the_same_id_twice_at_once(self, client: httpx.Client, store: ObjectStore) -> None:
        sample = make_sample()
        body = sample.body()
        first = RawUpload(client, sample.path, len(body))
        first.send(body[:-1])
        wait_until(lambda: 'in_flight{kind="put"} 1.0' in client.get("/metrics").text)
        second = client.put(sample.path, content=body)
        assert (second.status_code, second.json()["error"]) == (503, "busy")
        first.send(body[-1:])
        assert first.status() == 201
        first.cut()
        assert client.put(sample.path, content=body).status_code == 200
        assert store.get(f"native/{sample.key}.log").data == sample.log

    def test_many_at_once_by_content(self, client: httpx.Client, store: ObjectStore) -> None:
        samples = [make_sample(i, sizes=[50_000] * 60) for i in range(8)]
        statuses: list[int] = []

        def send(sample: Sample) -> None:
            statuses.append(client.put(sample.path, content=sample.body()).status_code)

        threads = [threading.Thread(target=send, args=(sample,)) for sample in samples]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [201] * 8
        for sample in samples:
            assert store.get(f"native/{sample.key}.log").data == sample.log

    def test_a_refusal_comes_before_the_body(self, serve: Serve, store: ObjectStore) -> None:
        limits = replace(DEFAULT_SERVICE_LIMITS, log_bytes_max=1000, indexes_bytes_max=1000)
        client = serve(store, limits)
        sample = make_sample()
        upload = RawUpload(client, sample.path, 10**9, extra="Expect: 100-continue\r\n")
        assert upload.status() == 413
        upload.cut()
        assert_invisible(client, store, sample)


class TestHostileRequests:
    @pytest.mark.parametrize(
        "path",
        [
            "/v1/segments/short/0/00000000000000000000-" + "a" * 22,
            "/v1/segments/" + "a" * 22 + "/-1/00000000000000000000-" + "a" * 22,
            "/v1/segments/" + "a" * 22 + "/x/00000000000000000000-" + "a" * 22,
            "/v1/segments/" + "a" * 22 + "/4294967296/00000000000000000000-" + "a" * 22,
            "/v1/segments/" + "a" * 22 + "/0/5-" + "a" * 22,
            "/v1/segments/" + "a" * 22 + "/0/99999999999999999999-" + "a" * 22,
            "/v1/segments/" + "a" * 22 + "/0/%2e%2e",
            "/v1/segments/%2e%2e/0/00000000000000000000-" + "a" * 22,
        ],
    )
    def test_paths(self, client: httpx.Client, store: ObjectStore, path: str) -> None:
        for answer in (
            client.put(path, content=make_sample().body()),
            client.delete(path),
            client.get(f"{path}/log?position=0"),
        ):
            assert answer.status_code in {400, 404}
            assert answer.json()["error"] == "bad_request"
        assert stored_keys(store) == []

    def test_a_body_without_length(self, client: httpx.Client, store: ObjectStore) -> None:
        sample = make_sample()
        answer = client.put(sample.path, content=iter([sample.body()]))
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
        assert stored_keys(store) == []

    def test_manifests(self, client: httpx.Client, store: ObjectStore) -> None:
        sample = make_sample()
        for manifest in (b"", b"{}", b"[" * 100_000, b"not json", b"\xff"):
            answer = client.put(sample.path, content=frame(manifest, sample.log))
            assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
        for changes in ({"segment_id": "x" * 22}, {"partition": 4}, {"parts": []}):
            sample.changes = dict(changes)
            answer = client.put(sample.path, content=sample.body())
            assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
        assert stored_keys(store) == []
