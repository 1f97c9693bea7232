"""Fetches and deletes: what is asked, what a failure becomes, and what becomes of connections."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hostile_server import Connection, HostileServer, Request
from plugin_harness import Harness, Outcome, Segment

PLAIN = "RemoteStorageException"
NOT_FOUND = "RemoteResourceNotFoundException"
DEADLINE_MS = 400
SLACK_MS = 4_000
INDEXES = {
    "OFFSET": "offset",
    "TIMESTAMP": "timestamp",
    "PRODUCER_SNAPSHOT": "producer_snapshot",
    "TRANSACTION": "transaction",
    "LEADER_EPOCH": "leader_epoch",
}

Act = Callable[[Connection, Request], None]
Call = Callable[[Harness, Path], Outcome]


def on_each(act: Act) -> Callable[[Connection], None]:
    """A script that does `act` for every request of every connection."""

    def script(connection: Connection) -> None:
        while (request := connection.read_request()) is not None:
            act(connection, request)

    return script


def query(request: Request) -> dict[str, str]:
    """The request's parameters."""
    parsed = parse_qs(urlsplit(request.target).query, strict_parsing=True)
    return {name: values[0] for name, values in parsed.items()}


class Log:
    """Serves chunks one pull after the other, with cursors that need escaping."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.asked: list[dict[str, str]] = []

    def __call__(self, connection: Connection, request: Request) -> None:
        asked = query(request)
        self.asked.append(asked)
        at = int(asked["cursor"].removeprefix("a/b+c&")) if "cursor" in asked else 0
        more = at + 1 < len(self.chunks)
        headers = {"Onecopy-Next-Cursor": f"a/b+c&{at + 1}"} if more else {}
        connection.respond(200, self.chunks[at], headers)


def fetch(jvm: Harness, target: Path) -> Outcome:
    return jvm.fetch(target / "log")


def fetch_index(jvm: Harness, target: Path) -> Outcome:
    return jvm.index("OFFSET", target / "index")


def delete(jvm: Harness, _: Path) -> Outcome:
    return jvm.delete()


every_call = pytest.mark.parametrize("call", [fetch, fetch_index, delete])


# What is asked, and what the broker gets


def test_log_in_pulls_over_one_connection(jvm: Harness, segment: Segment, tmp_path: Path) -> None:
    log = Log(b"a" * 70_000, b"b" * 3, b"", b"c" * 100)
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, pull_bytes=2 << 20)
        # An empty answer that goes on would be a loop: it must not be taken.
        assert jvm.fetch(tmp_path / "f", 25).error == "IOException"
        log = Log(*log.chunks[:2], log.chunks[3])
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url, pull_bytes=2 << 20)
        for how in ("all", "byte"):
            log.asked.clear()
            assert jvm.fetch(tmp_path / how, 25, how=how).error is None
            assert (tmp_path / how).read_bytes() == b"".join(log.chunks)
            most = {"max_bytes": str(2 << 20)}
            assert log.asked == [
                {"position": "25", **most},
                {"cursor": "a/b+c&1", **most},
                {"cursor": "a/b+c&2", **most},
            ]
        assert server.accepted == 1


def test_end_position_goes_with_every_pull(jvm: Harness, segment: Segment, tmp_path: Path) -> None:
    log = Log(b"abc", b"def")
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url)
        assert jvm.fetch(tmp_path / "f", 3, 77).message == "6"
    assert [asked["end_position"] for asked in log.asked] == ["77", "77"]
    assert jvm.fetch(tmp_path / "f", 5, 4).error == "IllegalArgumentException"
    assert jvm.fetch(tmp_path / "f", -1).error == "IllegalArgumentException"


def test_early_close_costs_no_pull_and_no_connection(
    jvm: Harness, segment: Segment, tmp_path: Path
) -> None:
    log = Log(*(bytes([i]) * 100_000 for i in range(5)))
    with HostileServer(on_each(log)) as server:
        jvm.configure(server.url)
        for number in range(10):
            assert jvm.fetch(tmp_path / "f", how="head:1000").message == "1000"
            assert len(log.asked) == number + 1
        assert server.accepted == 1


def test_large_pull(jvm: Harness, segment: Segment, tmp_path: Path) -> None:
    # One batch may be larger than what was asked for, up to twice its segment and a bit.
    large = bytes(range(256)) * 6000
    with HostileServer(on_each(Log(large))) as server:
        jvm.configure(server.url, pull_bytes=1 << 20)
        assert jvm.fetch(tmp_path / "f").error is None
    assert (tmp_path / "f").read_bytes() == large


def test_answer_beyond_every_bound_is_not_taken_into_memory(
    jvm: Harness, segment: Segment, tmp_path: Path
) -> None:
    endless = {"Content-Length": str(1 << 40)}
    with HostileServer(on_each(lambda c, _: c.respond(200, b"x" * 3_000_000, endless))) as server:
        jvm.configure(server.url, fetch_deadline_ms=SLACK_MS)
        outcome = jvm.fetch(tmp_path / "f")
    assert outcome.error == PLAIN
    assert "longer than" in outcome.message


@pytest.mark.parametrize("kind", INDEXES)
def test_each_index(jvm: Harness, segment: Segment, tmp_path: Path, kind: str) -> None:
    targets: list[str] = []

    def answer(connection: Connection, request: Request) -> None:
        targets.append(request.target)
        connection.respond(200, b"bytes of " + kind.encode())

    with HostileServer(on_each(answer)) as server:
        jvm.configure(server.url + "/behind/a/proxy/")
        assert jvm.index(kind, tmp_path / "index").error is None
    assert (tmp_path / "index").read_bytes() == b"bytes of " + kind.encode()
    assert targets == [f"/behind/a/proxy/v1/{segment.path}/indexes/{INDEXES[kind]}"]


def test_empty_index(jvm: Harness, segment: Segment, tmp_path: Path) -> None:
    with HostileServer(on_each(lambda c, _: c.respond(200))) as server:
        jvm.configure(server.url)
        assert jvm.index("TRANSACTION", tmp_path / "index").message == "0"


def test_missing_transaction_index(jvm: Harness, segment: Segment, tmp_path: Path) -> None:
    with HostileServer(on_each(lambda c, _: c.refuse(404, "index_not_found"))) as server:
        jvm.configure(server.url)
        assert jvm.index("TRANSACTION", tmp_path / "index").error == NOT_FOUND


@pytest.mark.parametrize(
    ("status", "code"), [(204, None), (404, "segment_not_found"), (410, "segment_deleted")]
)
def test_delete_of_what_is_gone(
    jvm: Harness, segment: Segment, status: int, code: str | None
) -> None:
    def answer(connection: Connection, request: Request) -> None:
        assert (request.method, request.target) == ("DELETE", f"/v1/{segment.path}")
        if code is None:
            connection.sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            connection.refuse(status, code)

    with HostileServer(on_each(answer)) as server:
        jvm.configure(server.url)
        assert jvm.delete().error is None
        assert jvm.delete().error is None


# Failures


@pytest.mark.parametrize("call", [fetch, fetch_index])
def test_missing_segment(jvm: Harness, segment: Segment, tmp_path: Path, call: Call) -> None:
    with HostileServer(on_each(lambda c, _: c.refuse(404, "segment_not_found"))) as server:
        jvm.configure(server.url)
        assert call(jvm, tmp_path).error == NOT_FOUND


@every_call
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>no such page</html>"),  # a proxy's word is not the service's
        (404, b'{"error":"bad_request","message":"no such path"}'),
        (401, b'{"error":"unauthorized"}'),
        (403, b""),
        (416, b'{"error":"position_out_of_range"}'),
        (500, b'{"error":"segment_not_found"}'),
        (503, b'{"error":"busy"}'),
        (302, b""),
    ],
)
def test_other_refusals_are_never_not_found(
    jvm: Harness, segment: Segment, tmp_path: Path, call: Call, status: int, body: bytes
) -> None:
    with HostileServer(on_each(lambda c, _: c.respond(status, body))) as server:
        jvm.configure(server.url)
        outcome = call(jvm, tmp_path)
    assert outcome.error == PLAIN
    assert f"status {status}" in outcome.message


@every_call
def test_refused_connection(jvm: Harness, segment: Segment, tmp_path: Path, call: Call) -> None:
    with HostileServer(lambda _: None) as closed:
        pass
    jvm.configure(closed.url)
    assert call(jvm, tmp_path).error == PLAIN


@every_call
def test_stall_is_ended_by_the_deadline(
    jvm: Harness, segment: Segment, tmp_path: Path, call: Call
) -> None:
    with HostileServer(lambda c: c.wait_for_end()) as server:
        jvm.configure(server.url, fetch_deadline_ms=DEADLINE_MS)
        outcome = call(jvm, tmp_path)
    assert outcome.error == PLAIN
    assert DEADLINE_MS <= outcome.millis < DEADLINE_MS + SLACK_MS


@pytest.mark.parametrize("call", [fetch, fetch_index])
def test_stall_within_the_answer(
    jvm: Harness, segment: Segment, tmp_path: Path, call: Call
) -> None:
    def stall(connection: Connection, _: Request) -> None:
        connection.respond(200, b"begins", {"Content-Length": "1000"})
        connection.wait_for_end()

    with HostileServer(on_each(stall)) as server:
        jvm.configure(server.url, fetch_deadline_ms=DEADLINE_MS)
        outcome = call(jvm, tmp_path)
    assert outcome.error == PLAIN
    assert outcome.millis < DEADLINE_MS + SLACK_MS


@every_call
def test_pooled_connection_that_died_is_replaced(
    jvm: Harness, segment: Segment, tmp_path: Path, call: Call
) -> None:
    def script(connection: Connection) -> None:
        connection.read_request()
        connection.respond(200 if call is not delete else 404, b'{"error":"segment_not_found"}')
        if connection.number == 1:
            connection.read_request()
            connection.reset()

    with HostileServer(script) as server:
        jvm.configure(server.url)
        assert call(jvm, tmp_path).error is None
        for name in ("log", "index"):
            (tmp_path / name).unlink(missing_ok=True)
        assert call(jvm, tmp_path).error is None
        assert server.accepted == 2


@pytest.mark.parametrize("call", [fetch, fetch_index])
def test_cut_answer_is_asked_for_again_once(
    jvm: Harness, segment: Segment, tmp_path: Path, call: Call
) -> None:
    def script(connection: Connection) -> None:
        connection.read_request()
        cut = connection.number == 1
        connection.respond(200, b"whole" if not cut else b"who", {"Content-Length": "5"})

    with HostileServer(script) as server:
        jvm.configure(server.url)
        assert call(jvm, tmp_path).message == "5"
        assert server.accepted == 2


@pytest.mark.parametrize("call", [fetch, fetch_index])
def test_answer_that_is_always_cut(
    jvm: Harness, segment: Segment, tmp_path: Path, call: Call
) -> None:
    def script(connection: Connection) -> None:
        connection.read_request()
        connection.respond(200, b"who", {"Content-Length": "5"})

    with HostileServer(script) as server:
        jvm.configure(server.url)
        assert call(jvm, tmp_path).error == PLAIN
        assert server.accepted <= 2 * 2  # our second try, and what the JDK repeats by itself


@pytest.mark.parametrize("call", [fetch, fetch_index])
def test_answer_without_a_length_could_be_cut_unseen(
    jvm: Harness, segment: Segment, tmp_path: Path, call: Call
) -> None:
    def script(connection: Connection) -> None:
        connection.read_request()
        connection.sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")

    with HostileServer(script) as server:
        jvm.configure(server.url)
        outcome = call(jvm, tmp_path)
    assert outcome.error == PLAIN
    assert "no Onecopy answer" in outcome.message


def test_later_pull_that_fails_is_an_io_error(
    jvm: Harness, segment: Segment, tmp_path: Path
) -> None:
    def answer(connection: Connection, request: Request) -> None:
        if "cursor" in query(request):
            connection.refuse(503, "store_unavailable")
        else:
            connection.respond(200, b"abc", {"Onecopy-Next-Cursor": "1"})

    with HostileServer(on_each(answer)) as server:
        jvm.configure(server.url)
        outcome = jvm.fetch(tmp_path / "f")
    assert outcome.error == "IOException"
    assert "store_unavailable" in outcome.message
    assert (tmp_path / "f").read_bytes() == b"abc"


def test_redirect_is_not_followed_with_the_token(
    jvm: Harness, segment: Segment, tmp_path: Path
) -> None:
    with HostileServer(lambda c: c.wait_for_end()) as elsewhere:
        location = {"Location": elsewhere.url}
        with HostileServer(on_each(lambda c, _: c.respond(307, b"", location))) as server:
            jvm.configure(server.url)
            assert jvm.fetch(tmp_path / "f").error == PLAIN
        assert elsewhere.accepted == 0


def test_closed_plugin_answers_at_once(jvm: Harness, segment: Segment, tmp_path: Path) -> None:
    with HostileServer(lambda c: c.wait_for_end()) as server:
        jvm.configure(server.url)
        assert jvm.call("close").error is None
        assert jvm.call("close").error is None
        outcome = jvm.fetch(tmp_path / "f")
    assert outcome.error == PLAIN
    assert "closed" in outcome.message


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two self-signed certificates for 127.0.0.1 with their keys."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make certificates")
    directory = tmp_path_factory.mktemp("tls")
    made = {}
    for name in ("ours", "other"):
        made[name], made[f"{name}_key"] = directory / f"{name}.pem", directory / f"{name}.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=tier", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", str(made[f"{name}_key"]), "-out", str(made[name])],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
    return made


def test_tls_trusts_the_named_certificates_only(
    jvm: Harness, segment: Segment, tmp_path: Path, certificates: dict[str, Path]
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates["ours"], certificates["ours_key"])
    with HostileServer(on_each(Log(b"x" * 200_000, b"y")), tls) as server:
        jvm.configure(server.url, tls_trust=certificates["ours"])
        assert jvm.fetch(tmp_path / "f").message == "200001"
        jvm.configure(server.url, tls_trust=certificates["other"])
        assert jvm.fetch(tmp_path / "f").error == PLAIN
        assert jvm.copy().error == "RetriableRemoteStorageException"
        jvm.configure(server.url)
        assert jvm.fetch(tmp_path / "f").error == PLAIN
