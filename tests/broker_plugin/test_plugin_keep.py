"""What the plug-in keeps of its pulls, and that it is what a pull would have brought."""

from __future__ import annotations

import hashlib
import random
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hostile_server import Connection, HostileServer, Request
from plugin_harness import Harness, Segment
from test_plugin_reads import on_each, query

MIB = 1 << 20
PULL = {"pull_bytes": MIB}


class MarkedLog:
    """Answers pulls as the service does; batches have other sizes than in the original log."""

    def __init__(self, *, count: int = 60, size_max: int = 200_000, marks_every: int = 3) -> None:
        chance = random.Random(count)
        self.batches = [chance.randbytes(chance.randrange(500, size_max)) for _ in range(count)]
        self.sizes = [len(batch) * 5 // 4 for batch in self.batches]
        self.starts = [sum(self.sizes[:i]) for i in range(count + 1)]
        self.size = self.starts[-1]
        self.asked: list[dict[str, str]] = []
        self.sent = 0
        self.marks_every = marks_every
        self.refusal: str | None = None
        self.marks: str | None = None

    @property
    def served(self) -> bytes:
        return b"".join(self.batches)

    def batch_of(self, position: int) -> int:
        """The one that a served position names."""
        return max(i for i, start in enumerate(self.starts[:-1]) if start // 4 <= position)

    def __call__(self, connection: Connection, request: Request) -> None:
        if self.refusal is not None or request.method == "DELETE":
            connection.refuse(404, self.refusal or "segment_not_found")
            return
        asked = query(request)
        self.asked.append(asked)
        first = (
            self.starts.index(int(asked["cursor"]))
            if "cursor" in asked
            else self.batch_of(int(asked["position"]))
        )
        end = int(asked.get("end_position", self.size))
        stop = first + 1
        while (
            stop < len(self.batches)
            and self.starts[stop] // 4 <= end
            and len(b"".join(self.batches[first : stop + 1])) <= int(asked["max_bytes"])
        ):
            stop += 1
        self._answer(connection, first, stop, goes_on=self.starts[stop] // 4 <= end)

    def _answer(self, connection: Connection, first: int, stop: int, *, goes_on: bool) -> None:
        body = b"".join(self.batches[first:stop])
        self.sent += len(body)
        marks = ",".join(
            f"{self.starts[i]}:{len(b''.join(self.batches[first:i]))}"
            for i in range(first, stop, self.marks_every)
        )
        headers = {"Onecopy-Batch-Marks": marks if self.marks is None else self.marks}
        if goes_on and stop < len(self.batches):
            headers["Onecopy-Next-Cursor"] = str(self.starts[stop])
        connection.respond(200, body, headers)


@pytest.fixture
def log(jvm: Harness, segment: Segment) -> MarkedLog:
    """A log, and a segment of its size that the harness uses."""
    made = MarkedLog()
    jvm.use(replace(segment, size_bytes=made.size))
    return made


def head(jvm: Harness, directory: Path, position: int, size: int = MIB) -> bytes:
    outcome = jvm.fetch(directory / "f", position, how=f"head:{size}")
    assert outcome.error is None, outcome
    return (directory / "f").read_bytes()


def begins(log: MarkedLog, data: bytes) -> int:
    """The batch that `data` begins with; it goes on as the log does."""
    whole, at = log.served, 0
    for number, batch in enumerate(log.batches):
        if data[:400] == batch[:400]:
            assert whole[at : at + len(data)] == data
            return number
        at += len(batch)
    raise AssertionError("not at a batch")


def read_on(jvm: Harness, directory: Path, log: MarkedLog) -> None:
    """As a broker reads a log: a mebibyte, then from the last batch that it has had whole."""
    batch = 0
    while batch < len(log.batches) - 1:
        begun = begins(log, data := head(jvm, directory, log.starts[batch] // 4, MIB))
        assert begun <= batch
        got, last = 0, begun
        while last < len(log.batches) and got + len(log.batches[last]) <= len(data):
            got += len(log.batches[last])
            last += 1
        assert last - 1 > batch
        batch = last - 1


def test_every_byte_crosses_once(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, **PULL)
        read_on(jvm, tmp_path, log)
    assert log.sent == len(log.served)


def test_small_first_then_as_much_as_can_be_kept(
    jvm: Harness, log: MarkedLog, tmp_path: Path
) -> None:
    with HostileServer(on_each(log)) as server:
        for keep, later in ((32 * MIB, 4 * MIB), (5 * MIB, 5 * MIB // 2), (2 * MIB, MIB)):
            log.asked.clear()
            jvm.configure(server.url, keep_bytes=keep, **PULL)
            head(jvm, tmp_path, 0, MIB // 2)
            head(jvm, tmp_path, log.starts[4] // 4, 2 * MIB)
            assert [int(asked["max_bytes"]) for asked in log.asked[:2]] == [MIB, later]


def test_within_one_stream_the_second_pull_is_small(
    jvm: Harness, log: MarkedLog, tmp_path: Path
) -> None:
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, **PULL)
        assert begins(log, head(jvm, tmp_path, 0, len(log.served))) == 0
    sizes = [int(asked["max_bytes"]) for asked in log.asked]
    assert sizes == [MIB, MIB, *[4 * MIB] * (len(sizes) - 2)]


@pytest.mark.parametrize("marks_every", [1, 2, 5, 1000])
def test_each_position_begins_at_a_mark_at_or_before_it(
    jvm: Harness, log: MarkedLog, tmp_path: Path, marks_every: int
) -> None:
    log.marks_every = marks_every
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, pull_bytes=4 * MIB)
        head(jvm, tmp_path, 0)
        (asked,) = log.asked
        for batch, (start, end) in enumerate(pairwise(log.starts[:20])):
            for position in {start // 4, (start + end) // 8, end // 4 - 1}:
                assert log.batch_of(position) == batch
                data = head(jvm, tmp_path, position, 1000)
                assert begins(log, data) == batch // marks_every * marks_every
    assert log.asked == [asked]


def test_behind_a_chunk_is_pulled(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, **PULL)
        head(jvm, tmp_path, log.starts[10] // 4)
        inside = [s for s in log.starts if s >= log.starts[10]][: log.marks_every]
        log.asked.clear()
        assert begins(log, head(jvm, tmp_path, log.starts[9] // 4, 1000)) == 9
        assert begins(log, head(jvm, tmp_path, inside[0] // 4 - 1, 1000)) == 9
        assert begins(log, head(jvm, tmp_path, log.starts[40] // 4, 1000)) == 40
        assert [int(asked["position"]) for asked in log.asked] == [
            log.starts[9] // 4,
            log.starts[40] // 4,
        ]


def test_only_marks_are_entered_by_a_cursor(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    """A stream that goes on must neither repeat a batch nor leave one out."""
    with HostileServer(on_each(log)) as server:
        for start in range(30, 34):
            jvm.configure(server.url, **PULL)
            log.marks_every = 7
            head(jvm, tmp_path, log.starts[start] // 4, 2 * MIB)
            assert begins(log, head(jvm, tmp_path, 0, len(log.served))) == 0
            assert (tmp_path / "f").read_bytes() == log.served


@pytest.mark.parametrize("marks", ["", "0", ",0:0", "0:0,5:x", "9:0,5:3", "0:5", "0:0,9:99999999"])
def test_marks_that_make_no_sense(jvm: Harness, log: MarkedLog, tmp_path: Path, marks: str) -> None:
    log.marks = marks
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, **PULL)
        for _ in range(2):
            assert head(jvm, tmp_path, 0) == log.served[:MIB]
    assert [asked.get("position") for asked in log.asked].count("0") == 2


def test_nothing_is_kept_if_so_set(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, keep_bytes=0, pull_bytes=2 * MIB)
        for number in range(3):
            assert head(jvm, tmp_path, 0) == log.served[:MIB]
            assert len(log.asked) == number + 1


def test_those_longest_unused_go(
    jvm: Harness, log: MarkedLog, segment: Segment, tmp_path: Path
) -> None:
    others = [
        replace(segment, segment_id=f"{i}{segment.segment_id[1:]}", size_bytes=log.size)
        for i in range(3)
    ]
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, keep_bytes=5 * MIB // 2, **PULL)
        for number, asked in ((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4)):
            jvm.use(others[number])
            head(jvm, tmp_path, 0, 1000)
            assert len(log.asked) == asked, number


def test_what_changes_shows_soon(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, keep_ms=200, **PULL)
        before = head(jvm, tmp_path, 0, 1000)
        log.batches[0] = bytes(len(log.batches[0]))
        assert before == log.served[:1000] or len(log.asked) == 1
        time.sleep(0.25)
        assert head(jvm, tmp_path, 0, 1000) == bytes(1000)[: len(log.batches[0])][:1000]
    assert len(log.asked) == 2


def test_a_deleted_segment_is_forgotten(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, **PULL)
        head(jvm, tmp_path, 0, 1000)
        assert jvm.delete().error is None
        log.refusal = "segment_deleted"
        assert jvm.fetch(tmp_path / "f").error == "RemoteResourceNotFoundException"


def test_a_segment_that_is_gone_is_forgotten(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    with HostileServer(on_each(log)) as server:
        for gone in ("pull", "index"):
            log.refusal = None
            jvm.configure(server.url, **PULL)
            head(jvm, tmp_path, 0, 1000)
            log.refusal = "index_not_found"
            jvm.index("TRANSACTION", tmp_path / "index")
            head(jvm, tmp_path, 0, 1000)
            log.refusal = "segment_not_found"
            if gone == "pull":
                jvm.fetch(tmp_path / "f", log.starts[50] // 4)
            else:
                jvm.index("OFFSET", tmp_path / "index")
            assert jvm.fetch(tmp_path / "f").error == "RemoteResourceNotFoundException"


def test_up_to_an_end(jvm: Harness, log: MarkedLog, tmp_path: Path) -> None:
    """What lies wholly before the end may have been kept; what was cut there is not kept."""
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, **PULL)
        for last in (3, 20, 21, 22, 35, len(log.batches) - 1):
            end = log.starts[last] // 4
            for first in (0, 2, 3):
                assert jvm.fetch(tmp_path / "f", log.starts[first] // 4, end).error is None
                data = (tmp_path / "f").read_bytes()
                assert data == b"".join(log.batches[begins(log, data) : last + 1])
        assert head(jvm, tmp_path, 0, len(log.served)) == log.served


def test_behind_the_end_of_the_log_is_not_kept(
    jvm: Harness, log: MarkedLog, tmp_path: Path
) -> None:
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, **PULL)
        head(jvm, tmp_path, log.starts[-2] // 4, 1000)
        log.refusal = "position_out_of_range"
        assert head(jvm, tmp_path, (log.size - 1) // 4, 1000)
        assert jvm.fetch(tmp_path / "f", -(-log.size // 4)).error == "RemoteStorageException"


def test_many_threads(jvm: Harness, log: MarkedLog) -> None:
    """As many as a broker's readers, a memory that is too small for all that they read."""
    log.marks_every = 1
    chance = random.Random(1)
    whole = log.served
    places = [len(b"".join(log.batches[:i])) for i in range(len(log.batches))]
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, keep_bytes=5 * MIB, **PULL)
        for _ in range(3):
            chosen = chance.choices(range(len(log.batches)), k=100)
            positions = [log.starts[batch] // 4 for batch in chosen]
            found = jvm.race(positions, threads=10, head=300_000)
            heads = [whole[places[batch] : places[batch] + 300_000] for batch in chosen]
            assert found == [hashlib.sha256(each).hexdigest() for each in heads]
