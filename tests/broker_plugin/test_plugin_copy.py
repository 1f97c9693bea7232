"""What a copy sends, byte for byte, and which exception each failure of it becomes."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_server import Connection, HostileServer, Request, Upload, parse_upload
from plugin_harness import Harness, Segment
from plugin_segments import TOPIC_ID, aborted, write_segment, write_transaction_index

RETRIABLE = "RetriableRemoteStorageException"
PLAIN = "RemoteStorageException"
DEADLINE_MS = 400
#: What a loaded machine may add to a deadline.
SLACK_MS = 4_000

Act = Callable[[Connection, Request], object]


def on_put(act: Act) -> Callable[[Connection], None]:
    """A script that does `act` for every request of every connection."""

    def script(connection: Connection) -> None:
        while (request := connection.read_request()) is not None:
            act(connection, request)

    return script


def acknowledge(connection: Connection, request: Request) -> Upload:
    """Take the body as the service does, and answer 201."""
    connection.go_on()
    upload = parse_upload(connection.read_body(request.content_length))
    connection.respond(201, json.dumps({"sha256": upload.sha256}).encode())
    return upload


def copy(jvm: Harness, act: Act, **settings: object) -> tuple[str | None, str, int]:
    """Error, message and milliseconds of one copy against a server that does `act`."""
    with HostileServer(on_put(act)) as server:
        assert jvm.configure(server.url, **settings).error is None
        outcome = jvm.copy()
    return outcome.error, outcome.message, outcome.millis


def sent(jvm: Harness) -> tuple[Request, Upload]:
    """Request and upload of one successful copy."""
    seen: list[tuple[Request, Upload]] = []
    error, message, _ = copy(jvm, lambda c, r: seen.append((r, acknowledge(c, r))))
    assert error is None, message
    return seen[0]


# What is sent


def test_request_and_manifest(jvm: Harness, segment: Segment) -> None:
    request, upload = sent(jvm)
    assert (request.method, request.target) == ("PUT", f"/v1/{segment.path}")
    assert request.headers["authorization"] == "Bearer secret-token"
    sizes = upload.manifest.pop("parts")
    assert upload.manifest == {
        "version": 1,
        "topic": "orders.eu_1",
        "topic_id": TOPIC_ID,
        "partition": 7,
        "segment_id": segment.segment_id,
        "start_offset": 100,
        "end_offset": 199,
        "max_timestamp_ms": 1234567,
        "broker_id": 1,
        "segment_size_bytes": segment.size_bytes,
        "leader_epochs": [[0, 100], [3, 150]],
    }
    assert [part["name"] for part in sizes] == [  # type: ignore[attr-defined]
        "offset_index",
        "time_index",
        "producer_snapshot",
        "leader_epochs",
        "verdicts",
        "log",
    ]


def test_parts_are_the_files(jvm: Harness, tmp_path: Path) -> None:
    entry = aborted(5, 120, 130)
    segment = write_segment(tmp_path / "p", transaction_index=entry, size_bytes=3_000_001)
    jvm.use(segment)
    _, upload = sent(jvm)
    base = f"{100:020d}"
    read = {
        "offset_index": f"{base}.index",
        "time_index": f"{base}.timeindex",
        "transaction_index": f"{base}.txnindex",
        "producer_snapshot": f"{200:020d}.snapshot",
        "leader_epochs": "leader-epochs",
        "log": f"{base}.log",
    }
    expected = {name: (segment.directory / file).read_bytes() for name, file in read.items()}
    assert upload.parts == {**expected, "verdicts": entry}


def test_preallocated_log_ends_where_the_segment_does(jvm: Harness, tmp_path: Path) -> None:
    segment = write_segment(tmp_path / "p", size_bytes=1000, preallocated_bytes=5000)
    jvm.use(segment)
    assert len(sent(jvm)[1].parts["log"]) == 1000


def test_verdicts_come_from_this_and_every_later_index(jvm: Harness, segment: Segment) -> None:
    overlapping = [
        aborted(1, 90, 100),  # begins before, ends at the first offset
        aborted(2, 150, 160),
        aborted(3, 199, 500),  # its marker lies segments later
        aborted(4, 0, 10_000),  # spans all of it
    ]
    outside = [aborted(9, 0, 99), aborted(9, 200, 300)]
    write_transaction_index(segment.directory, 0, aborted(8, 150, 160))  # earlier: not read
    write_transaction_index(segment.directory, 100, outside[0], *overlapping[:2])
    write_transaction_index(segment.directory, 400)
    write_transaction_index(segment.directory, 450, overlapping[2], outside[1])
    torn = aborted(7, 150, 160)[:20]  # being appended right now
    write_transaction_index(segment.directory, 9000, overlapping[3], torn)
    for other in ("00000000000000000500.txnindex.deleted", "500.txnindex", "x.txnindex"):
        (segment.directory / other).write_bytes(aborted(6, 150, 160))
    assert sent(jvm)[1].parts["verdicts"] == b"".join(overlapping)


def test_many_verdicts(jvm: Harness, segment: Segment) -> None:
    entries = [aborted(i, 100 + i % 90, 105 + i % 90) for i in range(10_000)]
    write_transaction_index(segment.directory, 100, *entries)
    assert sent(jvm)[1].parts["verdicts"] == b"".join(entries)


def test_verdicts_survive_segments_that_vanish_meanwhile(jvm: Harness, segment: Segment) -> None:
    kept = aborted(1, 150, 160)
    write_transaction_index(segment.directory, 800, kept)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            write_transaction_index(segment.directory, 300, aborted(2, 300, 310))
            path = segment.directory / f"{300:020d}.txnindex"
            path.rename(path.with_suffix(".txnindex.deleted"))

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        seen: list[Upload] = []
        with HostileServer(on_put(lambda c, r: seen.append(acknowledge(c, r)))) as server:
            jvm.configure(server.url)
            outcomes = [jvm.copy() for _ in range(20)]
    finally:
        stop.set()
        churning.join()
    # The bound on listings may be met by bad luck; that is a failed copy, never a short list.
    assert {outcome.error for outcome in outcomes} <= {None, PLAIN}
    assert seen
    assert all(upload.parts["verdicts"] == kept for upload in seen)


# Local failures: nothing was sent, but waiting wouldn't help either


def test_unreadable_directory_fails_the_copy(jvm: Harness, segment: Segment) -> None:
    write_transaction_index(segment.directory, 300, aborted(1, 150, 160))
    (segment.directory / f"{300:020d}.txnindex").unlink()
    (segment.directory / f"{300:020d}.txnindex").symlink_to(segment.directory / "gone")
    error, message, _ = copy(jvm, acknowledge)
    assert error == PLAIN
    assert "transaction indexes" in message


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_missing_file_fails_the_copy(jvm: Harness, segment: Segment, suffix: str) -> None:
    (segment.directory / f"{100:020d}.{suffix}").unlink()
    error, message, _ = copy(jvm, acknowledge)
    assert error == PLAIN
    assert f".{suffix}" in message


def test_log_shorter_than_its_metadata_fails_the_copy(jvm: Harness, segment: Segment) -> None:
    with (segment.directory / f"{100:020d}.log").open("r+b") as log:
        log.truncate(1000)
    error, message, _ = copy(jvm, acknowledge)
    assert error == PLAIN
    assert "has 1000 bytes, the broker said 300000" in message


# No byte accepted: the broker keeps the id and tries again


def test_refused_connection(jvm: Harness, segment: Segment) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, never listening: nobody else gets the port
        jvm.configure(f"http://127.0.0.1:{unused.getsockname()[1]}")
        outcome = jvm.copy()
    assert outcome.error == RETRIABLE
    assert "can't connect" in outcome.message
    assert "No segment can be copied now" in jvm.stderr()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "unauthorized", RETRIABLE),
        (503, "busy", RETRIABLE),
        (503, "store_unavailable", RETRIABLE),
        (429, "slow_down", RETRIABLE),
        (502, "proxy", RETRIABLE),
        (400, "bad_request", PLAIN),
        (403, "forbidden", PLAIN),
        (404, "not_found", PLAIN),
        (410, "segment_deleted", PLAIN),
        (413, "too_large", PLAIN),
        (301, "moved", PLAIN),
        (500, "internal", PLAIN),
    ],
)
def test_refusal_before_the_body(
    jvm: Harness, segment: Segment, status: int, code: str, expected: str
) -> None:
    error, message, millis = copy(jvm, lambda c, _: c.refuse(status, code))
    assert error == expected
    assert f"status {status}" in message
    assert "secret-token" not in message
    assert millis < SLACK_MS


def test_the_connection_of_a_refused_copy_is_not_used_again(jvm: Harness, segment: Segment) -> None:
    def script(connection: Connection) -> None:
        request = connection.read_request()
        assert request is not None
        if connection.number == 1:
            connection.refuse(503, "busy")
            connection.wait_for_end()
        else:
            acknowledge(connection, request)

    with HostileServer(script) as server:
        jvm.configure(server.url)
        assert jvm.copy().error == RETRIABLE
        assert jvm.copy().error is None
        assert server.accepted == 2


def test_stall_before_the_body(jvm: Harness, segment: Segment) -> None:
    error, message, millis = copy(
        jvm, lambda c, _: c.wait_for_end(), progress_deadline_ms=DEADLINE_MS
    )
    assert error == RETRIABLE
    assert f"no progress for {DEADLINE_MS} ms" in message
    assert DEADLINE_MS <= millis < DEADLINE_MS + SLACK_MS


def test_server_that_never_accepts(jvm: Harness, segment: Segment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        jvm.configure(
            f"http://127.0.0.1:{listening.getsockname()[1]}", progress_deadline_ms=DEADLINE_MS
        )
        outcome = jvm.copy()
    assert outcome.error == RETRIABLE
    assert outcome.millis < DEADLINE_MS + SLACK_MS


def test_connection_closed_before_the_body(jvm: Harness, segment: Segment) -> None:
    error, _, _ = copy(jvm, lambda c, _: c.reset())
    assert error == RETRIABLE


def test_pooled_connection_that_died_is_replaced_without_a_failure(
    jvm: Harness, segment: Segment
) -> None:
    def script(connection: Connection) -> None:
        request = connection.read_request()
        assert request is not None
        acknowledge(connection, request)
        if connection.number == 1:
            connection.read_request()  # takes the next one, and breaks off
            connection.reset()

    with HostileServer(script) as server:
        jvm.configure(server.url)
        assert jvm.copy().error is None
        assert jvm.copy().error is None
        assert server.accepted == 2


# Bytes went out: the outcome is unknown, the broker deletes this try


def test_stall_within_the_body(jvm: Harness, tmp_path: Path) -> None:
    # More than the sockets' buffers take without a reader.
    jvm.use(write_segment(tmp_path / "big", size_bytes=32 << 20))

    over = threading.Event()

    def stall(connection: Connection, _: Request) -> None:
        connection.go_on()
        connection.read_body(1000)
        over.wait((DEADLINE_MS + 2 * SLACK_MS) / 1000)

    with HostileServer(on_put(stall)) as server:
        jvm.configure(server.url, progress_deadline_ms=DEADLINE_MS)
        outcome = jvm.copy()
        over.set()
    assert outcome.error == PLAIN
    assert "no progress" in outcome.message
    assert outcome.millis < DEADLINE_MS + SLACK_MS


def test_stall_after_the_body(jvm: Harness, segment: Segment) -> None:
    def stall(connection: Connection, request: Request) -> None:
        connection.go_on()
        connection.read_body(request.content_length)
        connection.wait_for_end()

    error, message, millis = copy(jvm, stall, progress_deadline_ms=DEADLINE_MS)
    assert error == PLAIN
    assert "no progress" in message
    assert millis < DEADLINE_MS + SLACK_MS


def test_trickle_is_ended_by_the_whole_copy_deadline(jvm: Harness, tmp_path: Path) -> None:
    jvm.use(write_segment(tmp_path / "big", size_bytes=32 << 20))

    def trickle(connection: Connection, request: Request) -> None:
        connection.go_on()
        for _ in range(request.content_length // 65536):
            connection.read_body(65536)
            time.sleep(0.02)  # the server's pace: about 3 MB/s

    error, message, millis = copy(
        jvm, trickle, progress_deadline_ms=3000, copy_deadline_ms=3 * DEADLINE_MS
    )
    assert error == PLAIN
    assert "not done within" in message
    assert millis < 3 * DEADLINE_MS + SLACK_MS


def test_slow_but_steady_copy_succeeds(jvm: Harness, tmp_path: Path) -> None:
    jvm.use(write_segment(tmp_path / "big", size_bytes=32 << 20))

    def steady(connection: Connection, request: Request) -> None:
        connection.go_on()
        body = bytearray()
        while len(body) < request.content_length:
            time.sleep(0.05)  # the server's pace: 20 MiB/s
            body += connection.read_body(min(1 << 20, request.content_length - len(body)))
        connection.respond(201, json.dumps({"sha256": parse_upload(bytes(body)).sha256}).encode())

    error, message, millis = copy(jvm, steady, progress_deadline_ms=1000)
    assert error is None, message
    assert millis > 1000, "too quick to show anything"


def test_connection_cut_within_the_body(jvm: Harness, segment: Segment) -> None:
    def cut(connection: Connection, _: Request) -> None:
        connection.go_on()
        connection.read_body(5000)
        connection.reset()

    assert copy(jvm, cut)[0] == PLAIN


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 201 Cre", b"\x00\xff rubbish\r\n\r\n"])
def test_answer_cut_or_rubbish(jvm: Harness, segment: Segment, head: bytes) -> None:
    def cut(connection: Connection, request: Request) -> None:
        connection.go_on()
        connection.read_body(request.content_length)
        connection.sock.sendall(head)
        connection.sock.close()

    assert copy(jvm, cut)[0] == PLAIN


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "unauthorized"),
        (409, "conflict"),
        (410, "segment_deleted"),
        (422, "digest_mismatch"),
        (503, "store_unavailable"),
    ],
)
def test_refusal_after_the_body(jvm: Harness, segment: Segment, status: int, code: str) -> None:
    def refuse(connection: Connection, request: Request) -> None:
        connection.go_on()
        connection.read_body(request.content_length)
        connection.refuse(status, code)

    error, message, _ = copy(jvm, refuse)
    assert error == PLAIN
    assert code in message


@pytest.mark.parametrize("body", [b'{"sha256":"' + b"0" * 64 + b'"}', b"{}", b""])
def test_wrong_or_missing_digest(jvm: Harness, segment: Segment, body: bytes) -> None:
    def lie(connection: Connection, request: Request) -> None:
        connection.go_on()
        connection.read_body(request.content_length)
        connection.respond(201, body)

    error, message, _ = copy(jvm, lie)
    assert error == PLAIN
    assert "SHA-256" in message


def test_success_before_the_body_is_none(jvm: Harness, segment: Segment) -> None:
    error, _, _ = copy(jvm, lambda c, _: c.respond(201, b'{"sha256":"' + b"0" * 64 + b'"}'))
    assert error == PLAIN


def test_identical_copy_that_is_there_already(jvm: Harness, segment: Segment) -> None:
    def again(connection: Connection, request: Request) -> None:
        connection.go_on()
        upload = parse_upload(connection.read_body(request.content_length))
        connection.respond(200, json.dumps({"sha256": upload.sha256}).encode())

    assert copy(jvm, again)[0] is None


def test_log_truncated_within_the_copy(jvm: Harness, tmp_path: Path) -> None:
    segment = write_segment(tmp_path / "big", size_bytes=32 << 20)
    jvm.use(segment)

    def truncate(connection: Connection, request: Request) -> None:
        connection.go_on()
        connection.read_body(1000)
        with (segment.directory / f"{100:020d}.log").open("r+b") as log:
            log.truncate(1000)
        connection.read_body(request.content_length - 1000)

    error, message, _ = copy(jvm, truncate)
    assert error == PLAIN
    assert "part log ended at byte" in message


def test_interrupt_cancels_and_keeps_the_flag(jvm: Harness, segment: Segment) -> None:
    ended = threading.Event()

    def stall(connection: Connection) -> None:
        request = connection.read_request()
        assert request is not None
        connection.go_on()
        connection.read_body(request.content_length)
        connection.wait_for_end()
        ended.set()

    with HostileServer(stall) as server:
        jvm.configure(server.url)
        outcome = jvm.copy(interrupt_after_ms=300)
        assert outcome.error == PLAIN
        assert outcome.interrupted
        assert outcome.millis < SLACK_MS
        assert ended.wait(5), "the request was not cancelled"


def test_token_file_is_read_again_after_a_401(
    jvm: Harness, segment: Segment, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    def check(connection: Connection, request: Request) -> None:
        if request.headers["authorization"] == "Bearer new":
            acknowledge(connection, request)
        else:
            file.write_text("new\n")
            connection.refuse(401, "unauthorized")

    with HostileServer(on_put(check)) as server:
        jvm.configure(server.url, token=None, token_file=file)
        assert jvm.copy().error == RETRIABLE
        assert jvm.copy().error is None
