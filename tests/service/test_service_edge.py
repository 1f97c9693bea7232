"""Token, health, metrics: what is around the segments' own requests."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace

import httpx
import pytest
from faulty_store import FaultyStore
from service_harness import Serve
from service_samples import TOKEN, RawUpload, make_sample, stored_keys, wait_until

from tiering.errors import BadInput
from tiering.service import DEFAULT_SERVICE_LIMITS, build_app
from tiering.store import ObjectStore

NO_CACHE = replace(DEFAULT_SERVICE_LIMITS, health_cache_s=0, ledger_count_every_s=0)


class TestToken:
    @pytest.mark.parametrize(
        "sent", [None, "", "Bearer", f"Bearer {TOKEN}x", f"bearer {TOKEN}", TOKEN,
                 f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \u00e9"]
    )  # fmt: skip
    def test_needed_everywhere(
        self, client: httpx.Client, store: ObjectStore, sent: str | None
    ) -> None:
        sample = make_sample()
        client.headers.pop("authorization")
        headers = {} if sent is None else {"Authorization": sent.encode()}
        for method, path in (
            ("PUT", sample.path),
            ("DELETE", sample.path),
            ("GET", f"{sample.path}/log?position=0"),
            ("GET", f"{sample.path}/indexes/offset"),
            ("GET", "/metrics"),
            ("GET", "/nothing"),
            ("GET", "/v1/health/"),
            ("GET", "//v1/health"),
        ):
            content = sample.body() if method == "PUT" else None
            answer = client.request(method, path, headers=headers, content=content)  # type: ignore[arg-type]
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
        assert stored_keys(store) == []

    def test_sent_twice_is_refused(self, client: httpx.Client) -> None:
        answer = client.get("/metrics", headers=[("Authorization", f"Bearer {TOKEN}")] * 2)
        assert answer.status_code == 401

    def test_a_refusal_comes_before_the_body(self, client: httpx.Client) -> None:
        upload = RawUpload(client, make_sample().path, 10**6, extra="Expect: 100-continue\r\n")
        assert upload.socket.recv(65536).startswith(b"HTTP/1.1 100 ")  # with the token: go on
        upload.cut()

    @pytest.mark.parametrize("token", ["", "short", "with\nnewline-in-it", "\u00e9" * 20])
    def test_a_weak_token_is_refused(self, store: ObjectStore, token: str) -> None:
        with pytest.raises(BadInput, match="token"):
            build_app(store, token)


class TestHealth:
    def test_needs_no_token(self, client: httpx.Client) -> None:
        answer = httpx.get(client.base_url.join("/v1/health"), trust_env=False)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    def test_tells_an_outage_and_its_end(self, serve: Serve, store: ObjectStore) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty, NO_CACHE)
        faulty.fail("size")
        answer = client.get("/v1/health")
        assert (answer.status_code, answer.json()["error"]) == (503, "store_unavailable")
        faulty.faults.clear()
        assert client.get("/v1/health").status_code == 200

    def test_a_store_that_hangs_is_an_outage(self, serve: Serve, store: ObjectStore) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty, replace(NO_CACHE, store_answer_s=0.1))
        faulty.hold("size", "get")
        for _ in range(5):
            assert client.get("/v1/health").status_code == 503
        assert faulty.waiting == 1  # one look at a time, however often it is asked
        assert client.get("/metrics").status_code == 200
        faulty.gate.set()
        wait_until(lambda: client.get("/v1/health").status_code == 200)


class TestMetrics:
    def test_what_was_done(self, client: httpx.Client) -> None:
        sample = make_sample()
        body = sample.body()
        client.put(sample.path, content=body)
        client.get(f"{sample.path}/log?position=0&max_bytes=10000000")
        client.get(f"{sample.path}/log?position=10000000")
        text = client.get("/metrics").text
        for line in (
            'onecopy_requests_total{route="put_segment",status="201"} 1.0',
            'onecopy_requests_total{route="get_log",status="200"} 1.0',
            'onecopy_requests_total{route="get_log",status="416"} 1.0',
            f"onecopy_received_bytes_total {float(len(body))}",
            'onecopy_requests_in_flight{kind="get"} 0.0',
            'onecopy_request_seconds_count{route="put_segment"} 1.0',
        ):
            assert line in text, line
        sent = re.search(r'onecopy_sent_bytes_total\{route="get_log"\} (\S+)', text)
        assert sent is not None
        assert len(sample.log) < float(sent[1]) < len(sample.log) + 500  # and the 416's text

    def test_store_errors(self, serve: Serve, store: ObjectStore) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty)
        faulty.fail("get")
        client.get(f"{make_sample().path}/indexes/offset")
        faulty.faults.clear()
        assert 'onecopy_store_errors_total{route="get_index"} 1.0' in client.get("/metrics").text

    def test_segments_by_state(self, serve: Serve, store: ObjectStore) -> None:
        client = serve(store, NO_CACHE)
        samples = [make_sample(i) for i in range(3)]
        for sample in samples:
            client.put(sample.path, content=sample.body())
        client.delete(samples[0].path)
        wait_until(lambda: 'onecopy_segments{state="uploaded"} 2.0' in client.get("/metrics").text)
        text = client.get("/metrics").text
        assert 'onecopy_segments{state="delete_requested"} 1.0' in text
        assert 'onecopy_segments{state="converted"} 0.0' in text

    def test_a_damaged_ledger_object_breaks_nothing(self, serve: Serve, store: ObjectStore) -> None:
        client = serve(store, NO_CACHE)
        store.put("ledger/x/0/y.json", b"nonsense")
        for _ in range(3):
            assert client.get("/metrics").status_code == 200

    def test_the_engine_as_it_reported(self, client: httpx.Client, store: ObjectStore) -> None:
        assert "onecopy_engine" not in client.get("/metrics").text
        topics = {"orders": {"watermark_lag_offsets": 7, "pending_segments": 2, "quarantined": 0}}
        beat = {"at_ms": 5000, "cycles": 3, "commits": 2, "failed_cycles": 1, "topics": topics}
        store.put("engine/heartbeat.json", json.dumps(beat).encode())
        text = client.get("/metrics").text
        for line in (
            "onecopy_engine_heartbeat_timestamp_seconds 5.0",
            "onecopy_engine_cycles 3.0",
            "onecopy_engine_failed_cycles 1.0",
            'onecopy_engine_watermark_lag_offsets{topic="orders"} 7.0',
            'onecopy_engine_quarantined{topic="orders"} 0.0',
        ):
            assert line in text

    def test_what_became_of_values(self, client: httpx.Client, store: ObjectStore) -> None:
        assert "onecopy_typed_rows" not in client.get("/metrics").text
        bad = {"truncated": 3, "unknown_schema": 1}
        values = {"orders": {"typed_rows": 90, "raw_rows": 4, "bad_records": bad}}
        store.put("engine/heartbeat.json", json.dumps({"at_ms": 1, "values": values}).encode())
        text = client.get("/metrics").text
        for line in (
            'onecopy_typed_rows_total{topic="orders"} 90.0',
            'onecopy_raw_rows_total{topic="orders"} 4.0',
            'onecopy_bad_records_total{cause="truncated",topic="orders"} 3.0',
            'onecopy_bad_records_total{cause="unknown_schema",topic="orders"} 1.0',
        ):
            assert line in text
        for name in ("typed_rows", "raw_rows", "bad_records"):
            assert f"# TYPE onecopy_{name}_total counter" in text

    @pytest.mark.parametrize(
        "beat",
        [
            *(b"", b"[]", b"{}", b'{"topics": 5, "cycles": "x"}', b'{"topics": {"a": 1}}'),
            *(b'{"values": 5}', b'{"values": {"a": 1, "b": {"bad_records": 2}}}'),
            b'{"values": {"a": {"typed_rows": "x", "bad_records": {"y": "z"}}}}',
        ],
    )
    def test_a_damaged_heartbeat_breaks_nothing(
        self, client: httpx.Client, store: ObjectStore, beat: bytes
    ) -> None:
        store.put("engine/heartbeat.json", beat)
        assert client.get("/metrics").status_code == 200


def test_no_credentials_in_the_log(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sample = make_sample()
    client.put(sample.path, content=b"x" * 100)
    client.get(f"{sample.path}/log?position=0")
    client.get("/metrics", headers={"Authorization": "Bearer somebody-elses"})
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("onecopy")]
    assert any("400 bad_request" in message for message in ours)
    assert not any(TOKEN in m or "somebody-elses" in m for m in caplog.messages)


def test_unknown_paths_and_methods(client: httpx.Client) -> None:
    for method, path in (("GET", "/"), ("POST", make_sample().path), ("GET", "/v1/segments")):
        answer = client.request(method, path)
        assert answer.status_code in {404, 405}
        assert answer.json()["error"] == "bad_request"
