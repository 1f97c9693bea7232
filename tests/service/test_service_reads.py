"""Bounded pulls and indexes: whole batches, by served positions, as they were uploaded."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from faulty_store import FaultyStore
from service_harness import Serve
from service_samples import Sample, batch, make_sample, wait_until

from tiering.ledger import Ledger, SegmentState
from tiering.segments import SegmentId
from tiering.service import DEFAULT_SERVICE_LIMITS
from tiering.store import ObjectStore

CURSOR = "onecopy-next-cursor"
MARKS = "onecopy-batch-marks"
LAYOUTS = {
    "mixed": make_sample(1),
    "without index": make_sample(2, index_every=10**9),
    "every batch indexed": make_sample(3, index_every=0),
    "smallest batches": make_sample(4, sizes=[61] * 3000),
    "odd small batches": make_sample(5, sizes=[61, 62, 63, 64, 65] * 300),
    "large among small": make_sample(6, sizes=[61, 200_000, 70, 70, 300_000, 61, 61] * 3),
    "one batch": make_sample(7, sizes=[500]),
}


def put(client: httpx.Client, sample: Sample) -> Sample:
    assert client.put(sample.path, content=sample.body()).status_code in {200, 201}
    return sample


def pull(client: httpx.Client, sample: Sample, **query: int | str) -> httpx.Response:
    return client.get(f"{sample.path}/log", params=query)


def walk(client: httpx.Client, sample: Sample, **query: int) -> Iterator[bytes]:
    """Every pull's bytes, following the cursors."""
    answer = pull(client, sample, **query)
    rest = {name: value for name, value in query.items() if name != "position"}
    while True:
        assert answer.status_code == 200, answer.text
        yield answer.content
        if CURSOR not in answer.headers:
            return
        answer = pull(client, sample, cursor=answer.headers[CURSOR], **rest)


class TestPulls:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_from_each_batch_and_from_between(
        self, shared_client: httpx.Client, layout: str
    ) -> None:
        sample = put(shared_client, LAYOUTS[layout])
        ends = [*sample.starts[1:], len(sample.log)]
        step = max(1, len(sample.starts) // 60)
        for start, end in list(zip(sample.starts, ends, strict=True))[::step]:
            positions = {start // 4, (start // 4 + end // 4) // 2, (end - 1) // 4, end // 4 - 1}
            for position in {
                p for p in positions if start // 4 <= p < max(end // 4, start // 4 + 1)
            }:
                answer = pull(shared_client, sample, position=position, max_bytes=1)
                assert answer.content == sample.log[start:end], (position, start)
                assert answer.headers.get(CURSOR) == (str(end) if end < len(sample.log) else None)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("max_bytes", [1, 1000, 65_536, 250_000, 10**9])
    def test_cursors_walk_the_whole_log(
        self, shared_client: httpx.Client, layout: str, max_bytes: int
    ) -> None:
        sample = put(shared_client, LAYOUTS[layout])
        starts = {*sample.starts, len(sample.log)}
        many = len(starts) > 500 and max_bytes == 1
        position = sample.starts[-100] // 4 if many else 0
        pieces = list(walk(shared_client, sample, position=position, max_bytes=max_bytes))
        first = len(sample.log) - sum(map(len, pieces))
        assert b"".join(pieces) == sample.log[first:]
        assert first // 4 == position
        at = first
        for piece in pieces:
            at += len(piece)
            assert at in starts  # whole batches only
            assert len(piece) <= max_bytes or at - len(piece) in starts

    def test_never_more_than_the_cap_or_one_batch(self, serve: Serve, store: ObjectStore) -> None:
        client = serve(store, replace(DEFAULT_SERVICE_LIMITS, pull_bytes_max=10_000))
        sample = put(client, make_sample(8, sizes=[4000, 4000, 4000, 30_000, 4000]))
        pieces = list(walk(client, sample, position=0, max_bytes=10**6))
        assert [len(piece) for piece in pieces] == [8000, 4000, 30_000, 4000]

    def test_one_mebibyte_without_being_asked(self, client: httpx.Client) -> None:
        sample = put(client, make_sample(9, sizes=[100_000] * 30))
        assert len(pull(client, sample, position=0).content) == 1_000_000

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_up_to_an_end(self, shared_client: httpx.Client, layout: str) -> None:
        sample = put(shared_client, LAYOUTS[layout])
        rng = random.Random(layout)
        for _ in range(12):
            first, last = sorted(rng.choices(range(len(sample.starts)), k=2))
            ends = [*sample.starts[1:], len(sample.log)]
            end_position = rng.randrange(
                sample.starts[last] // 4, max(ends[last] // 4, sample.starts[last] // 4 + 1)
            )
            pieces = walk(
                shared_client,
                sample,
                position=sample.starts[first] // 4,
                end_position=end_position,
                max_bytes=100_000,
            )
            assert b"".join(pieces) == sample.log[sample.starts[first] : ends[last]]

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("max_bytes", [1, 20_000, 10**9])
    def test_marks_say_where_batches_begin(
        self, shared_client: httpx.Client, layout: str, max_bytes: int
    ) -> None:
        sample = put(shared_client, LAYOUTS[layout])
        longest = max(b - a for a, b in pairwise([*sample.starts, len(sample.log)]))
        for start in sample.starts[:: max(1, len(sample.starts) // 20)]:
            answer = pull(shared_client, sample, cursor=start, max_bytes=max_bytes)
            marks = [mark.split(":") for mark in answer.headers[MARKS].split(",")]
            begun = [(int(at), int(place)) for at, place in marks]
            assert begun[0] == (start, 0)
            assert {at for at, _ in begun} <= set(sample.starts)
            assert all(place == at - start < len(answer.content) for at, place in begun)
            length = len(answer.content)
            batches = sum(start <= at < start + length for at in sample.starts)
            assert len(begun) == batches or 1 <= len(begun) <= 64 < batches
            # From any batch it is not far back to a mark.
            steps = [b - a for (a, _), (b, _) in pairwise([*begun, (start + length, length)])]
            assert batches <= 64 or max(steps) <= length // 64 + 1 + 2 * longest

    def test_behind_the_end(self, client: httpx.Client) -> None:
        sample = put(client, make_sample())
        for query in ({"position": -(-len(sample.log) // 4)}, {"cursor": len(sample.log)},
                      {"position": 10**18}, {"cursor": 10**18}):  # fmt: skip
            answer = pull(client, sample, **query)
            assert (answer.status_code, answer.json()["error"]) == (416, "position_out_of_range")

    @pytest.mark.parametrize(
        "query",
        ["", "position=", "position=-1", "position=x", "position=1&cursor=1", "cursor=1.5",
         "position=0&max_bytes=-1", "position=0&end_position=x", "position=" + "9" * 30],
    )  # fmt: skip
    def test_bad_questions(self, client: httpx.Client, query: str) -> None:
        sample = put(client, make_sample())
        answer = client.get(f"{sample.path}/log?{query}")
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")

    def test_an_unknown_segment(self, client: httpx.Client) -> None:
        sample = make_sample()
        for path in (f"{sample.path}/log?position=0", f"{sample.path}/indexes/offset"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (404, "segment_not_found")


class TestIndexes:
    def test_all_five(self, client: httpx.Client) -> None:
        sample = put(client, make_sample())
        parts = {
            "timestamp": "time_index",
            "producer_snapshot": "producer_snapshot",
            "transaction": "transaction_index",
            "leader_epoch": "leader_epochs",
        }
        for name, part in parts.items():
            answer = client.get(f"{sample.path}/indexes/{name}")
            assert answer.content == sample.indexes[part]

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_the_offset_index_has_positions_over_four(
        self, shared_client: httpx.Client, layout: str
    ) -> None:
        sample = put(shared_client, LAYOUTS[layout])
        stored = list(struct.iter_unpack(">ii", sample.indexes["offset_index"]))
        first = shared_client.get(f"{sample.path}/indexes/offset").content
        served = list(struct.iter_unpack(">ii", first))
        assert served == [(offset, position // 4) for offset, position in stored]
        assert len({position for _, position in served}) == len(stored)
        assert shared_client.get(f"{sample.path}/indexes/offset").content == first
        for _, position in served[:: max(1, len(served) // 20)]:
            assert pull(shared_client, sample, position=position, max_bytes=1).content in sample.log

    def test_it_is_the_same_from_another_process_and_later_state(
        self, client: httpx.Client, serve: Serve, store: ObjectStore
    ) -> None:
        sample = put(client, make_sample())
        before = client.get(f"{sample.path}/indexes/offset").content
        Ledger(store).advance(SegmentId.parse(sample.key), SegmentState.PROVEN)
        assert serve(store).get(f"{sample.path}/indexes/offset").content == before

    def test_no_transaction_index(self, client: httpx.Client) -> None:
        sample = put(client, make_sample(transactions=False))
        answer = client.get(f"{sample.path}/indexes/transaction")
        assert (answer.status_code, answer.json()["error"]) == (404, "index_not_found")

    def test_no_such_index(self, client: httpx.Client) -> None:
        sample = put(client, make_sample())
        assert client.get(f"{sample.path}/indexes/verdicts").json()["error"] == "bad_request"


class TestDamagedLogs:
    @pytest.mark.parametrize("size", [-1, 0, 13, 2**31 - 13, 10**6])
    def test_a_hostile_length_names_segment_and_byte(self, client: httpx.Client, size: int) -> None:
        sample = make_sample(sizes=[200] * 10, index_every=10**9)
        log = bytearray(sample.log)
        struct.pack_into(">i", log, 600 + 8, size)
        sample.log = bytes(log)
        put(client, sample)
        assert pull(client, sample, position=50).content == sample.log[200:600]
        for query in ({"position": 200}, {"cursor": 600}):
            answer = pull(client, sample, **query)
            assert (answer.status_code, answer.json()["error"]) == (500, "corrupt_segment")
            assert sample.segment_id in answer.json()["message"]
            assert "byte 600" in answer.json()["message"]

    def test_a_cut_object(self, client: httpx.Client, tmp_path: Path) -> None:
        sample = put(client, make_sample(sizes=[5000] * 50))
        file = tmp_path / "store" / "native" / f"{sample.key}.log"
        file.write_bytes(sample.log[:100_000])
        answer = pull(client, sample, position=0)
        assert (answer.status_code, answer.json()["error"]) == (500, "corrupt_segment")

    def test_a_lost_object_is_not_a_missing_segment(
        self, client: httpx.Client, store: ObjectStore
    ) -> None:
        sample = put(client, make_sample())
        store.delete(f"native/{sample.key}.log")
        store.delete(f"native/{sample.key}.indexes")
        for path in ("log?position=0", "log?cursor=0", "indexes/offset"):
            assert client.get(f"{sample.path}/{path}").status_code == 500

    def test_a_batch_over_the_limit(self, serve: Serve, store: ObjectStore) -> None:
        client = serve(store, replace(DEFAULT_SERVICE_LIMITS, batch_bytes_max=150_000))
        sample = put(client, make_sample(sizes=[100_000, 200_000]))
        assert len(pull(client, sample, position=0, max_bytes=1).content) == 100_000
        assert pull(client, sample, cursor=100_000).json()["error"] == "corrupt_segment"

    def test_v0_and_v1_batches_are_served_too(self, client: httpx.Client) -> None:
        sample = make_sample(sizes=[100] * 5)
        small = struct.pack(">qi", 5, 14 + 20) + bytes(34)
        sample.log = small * 3 + batch(9, 1, 80, random.Random(1))
        sample.starts = [0, 46, 92, 138]
        sample.indexes["offset_index"] = b""
        put(client, sample)
        assert b"".join(walk(client, sample, position=0, max_bytes=50)) == sample.log


class TestOutagesAndCaps:
    def test_an_outage_is_503_never_404(self, serve: Serve, store: ObjectStore) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty)
        sample = put(client, make_sample())
        for method in ("get", "get_range"):
            faulty.faults.clear()
            faulty.fail(method)
            for path in ("log?position=0", "indexes/offset"):
                answer = client.get(f"{sample.path}/{path}")
                assert (answer.status_code, answer.json()["error"]) == (503, "store_unavailable")
        faulty.faults.clear()
        assert pull(client, sample, position=0).status_code == 200

    def test_a_slow_topic_leaves_room(self, serve: Serve, store: ObjectStore) -> None:
        faulty = FaultyStore(store)
        client = serve(faulty, replace(DEFAULT_SERVICE_LIMITS, get_per_topic_max=2))
        slow, other = put(client, make_sample(1)), put(client, make_sample(2))
        pull(client, other, position=0)  # now its entry and index positions are cached
        faulty.hold("get")
        threads = [
            threading.Thread(target=pull, args=(client, slow), kwargs={"position": 0})
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: faulty.waiting == 2)
        assert pull(client, slow, position=0).json()["error"] == "busy"
        assert pull(client, other, position=0).status_code == 200
        faulty.gate.set()
        for thread in threads:
            thread.join()
        assert pull(client, slow, position=0).status_code == 200

    def test_a_client_that_leaves_is_quiet(
        self, client: httpx.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        sample = put(client, make_sample(sizes=[100_000] * 60))
        for _ in range(5):
            with client.stream(
                "GET", f"{sample.path}/log", params={"position": 0, "max_bytes": 4 * 2**20}
            ) as answer:
                next(answer.iter_raw(1000))  # the rest is never read
        assert pull(client, sample, position=0).status_code == 200
        assert caplog.records == [] or {r.name for r in caplog.records} <= {"httpx", "httpcore"}


def test_a_damaged_offset_index_names_segment_and_byte(client: httpx.Client) -> None:
    sample = make_sample()
    sample.indexes["offset_index"] = struct.pack(">iiii", 5, 4000, 4, 100)
    put(client, sample)
    answer = pull(client, sample, position=0)
    assert (answer.status_code, answer.json()["error"]) == (500, "corrupt_segment")
    assert sample.segment_id in answer.json()["message"]
    assert "byte 8" in answer.json()["message"]
