"""Deletes: asked durably first, idempotent, final."""

from __future__ import annotations

import threading
import time

import httpx
from faulty_store import FaultyStore
from service_harness import Serve
from service_samples import RawUpload, make_sample, stored_keys, wait_until

from tiering.ledger import Ledger
from tiering.segments import SegmentId
from tiering.store import ObjectStore


def test_marked_then_removed_and_again(client: httpx.Client, store: ObjectStore) -> None:
    sample = make_sample()
    client.put(sample.path, content=sample.body())
    client.get(f"{sample.path}/log?position=0")
    client.get(f"{sample.path}/indexes/offset")
    for _ in range(2):
        answer = client.delete(sample.path)
        assert (answer.status_code, answer.content) == (204, b"")
    assert Ledger(store).load(SegmentId.parse(sample.key)).delete_requested
    assert stored_keys(store) == [f"ledger/{sample.key}.json"]
    for path in ("log?position=0", "log?cursor=0", "indexes/offset", "indexes/leader_epoch"):
        answer = client.get(f"{sample.path}/{path}")
        assert (answer.status_code, answer.json()["error"]) == (404, "segment_not_found")


def test_an_unknown_segment_is_gone_already(client: httpx.Client) -> None:
    assert client.delete(make_sample().path).status_code == 204


def test_a_deleted_id_never_comes_back(
    client: httpx.Client, serve: Serve, store: ObjectStore
) -> None:
    known, unknown = make_sample(1), make_sample(2)
    client.put(known.path, content=known.body())
    for sample in (known, unknown):
        client.delete(sample.path)
        answer = client.put(sample.path, content=sample.body())
        assert (answer.status_code, answer.json()["error"]) == (410, "segment_deleted")
    answer = serve(store).put(known.path, content=known.body())  # another process knows it too
    assert (answer.status_code, answer.json()["error"]) == (410, "segment_deleted")


def test_what_a_failed_try_left_is_removed(client: httpx.Client, store: ObjectStore) -> None:
    sample = make_sample()
    store.put(f"native/{sample.key}.log", b"orphan")
    store.put(f"native/{sample.key}.indexes", b"orphan")
    assert client.delete(sample.path).status_code == 204
    assert stored_keys(store) == []


def test_a_delete_stops_the_upload_under_way(client: httpx.Client, store: ObjectStore) -> None:
    sample = make_sample()
    body = sample.body()
    upload = RawUpload(client, sample.path, len(body))
    upload.send(body[:-1])
    wait_until(lambda: 'in_flight{kind="put"} 1.0' in client.get("/metrics").text)
    started = time.monotonic()
    assert client.delete(sample.path).status_code == 204
    assert time.monotonic() - started < 5
    assert upload.status() == 410
    upload.cut()
    assert stored_keys(store) == []


def test_a_delete_waits_for_an_upload_that_commits(serve: Serve, store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    client = serve(faulty)
    sample = make_sample()
    faulty.hold("put_if")
    threads = [
        threading.Thread(target=client.put, args=(sample.path,), kwargs={"content": sample.body()})
    ]
    threads[0].start()
    wait_until(lambda: faulty.waiting == 1)
    threads.append(threading.Thread(target=client.delete, args=(sample.path,)))
    threads[1].start()
    faulty.gate.set()
    for thread in threads:
        thread.join(20)
    assert client.get(f"{sample.path}/log?position=0").status_code == 404
    assert f"native/{sample.key}.log" not in stored_keys(store)
    assert f"native/{sample.key}.indexes" not in stored_keys(store)


def test_an_outage_is_told_and_the_mark_comes_first(serve: Serve, store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    client = serve(faulty)
    sample = make_sample()
    client.put(sample.path, content=sample.body())
    faulty.fail("put_if")
    assert client.delete(sample.path).json()["error"] == "store_unavailable"
    assert len(stored_keys(store)) == 3  # nothing is removed before it is marked
    faulty.faults.clear()
    faulty.fail("delete", ".log")
    assert client.delete(sample.path).status_code == 503
    assert client.get(f"{sample.path}/log?position=0").status_code == 404
    faulty.faults.clear()
    assert client.delete(sample.path).status_code == 204
    assert stored_keys(store) == [f"ledger/{sample.key}.json"]


def test_a_delete_by_another_process_is_not_hidden(
    client: httpx.Client, serve: Serve, store: ObjectStore
) -> None:
    sample = make_sample()
    client.put(sample.path, content=sample.body())
    client.get(f"{sample.path}/log?position=0")
    client.get(f"{sample.path}/indexes/offset")
    assert serve(store).delete(sample.path).status_code == 204
    for path in ("log?position=0", "log?cursor=0", "indexes/offset"):
        assert client.get(f"{sample.path}/{path}").json()["error"] == "segment_not_found"
