"""What is special about a store in S3: URLs, credentials, outages, parts, conditions."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from s3_server import S3Server

from tiering.errors import BadInput, FatalError, NotFound, TransientError
from tiering.store import open_store
from tiering.store.conditional import PROBE_KEY, check_conditional_writes
from tiering.store.s3_location import parse_s3_url

ENV = {"AWS_ACCESS_KEY_ID": "an-access-key", "AWS_SECRET_ACCESS_KEY": "a-secret-key"}


class TestUrls:
    def test_everything_named(self) -> None:
        location = parse_s3_url("s3://bkt/a/b/?endpoint=http://127.0.0.1:9000&region=eu-x-1", {})
        assert (location.bucket, location.prefix) == ("bkt", "a/b/")
        assert (location.host, location.secure) == ("127.0.0.1:9000", False)
        assert location.region == "eu-x-1"

    def test_aws_by_default(self) -> None:
        location = parse_s3_url("s3://bkt", {"AWS_REGION": "eu-x-1"})
        assert (location.prefix, location.host, location.secure) == ("", "s3.amazonaws.com", True)
        assert location.region == "eu-x-1"

    @pytest.mark.parametrize(
        "url",
        [
            "s3://",
            "s3://Bucket_/x",
            "s3://bkt/../x",
            "s3://bkt/x#y",
            "s3://bkt/x?endpoint=127.0.0.1:9000",
            "s3://bkt/x?endpoint=ftp://host",
            "s3://bkt/x?endpoint=http://host/path",
            "s3://bkt/x?path_style=true",
        ],
    )
    def test_what_is_refused(self, url: str) -> None:
        with pytest.raises(BadInput):
            open_store(url, ENV)

    @pytest.mark.parametrize(
        "url",
        [
            "s3://key:hunter22@bkt/x",
            "s3://bkt/x?endpoint=http://key:hunter22@host:9000",
            "s3://bkt/x?secret_key=hunter22",
        ],
    )
    def test_credentials_in_a_url_are_refused_and_not_repeated(self, url: str) -> None:
        with pytest.raises(BadInput) as refusal:
            open_store(url, ENV)
        assert "hunter22" not in str(refusal.value)

    def test_half_credentials_are_refused(self) -> None:
        with pytest.raises(BadInput, match="both"):
            open_store("s3://bkt/x", {"AWS_ACCESS_KEY_ID": "only"})

    def test_no_credentials_in_what_is_shown(self) -> None:
        store = open_store("s3://bkt/x", ENV)
        assert "secret" not in repr(store) + store.url + repr(vars(store))


@contextmanager
def fake_server(status: int, body: bytes = b"", etag: str = '"e"') -> Iterator[str]:
    """Answers every request alike."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("ETag", etag)
            if status == 503:
                self.send_header("Retry-After", "60")  # must not be waited for
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"s3://bkt/x?region=r&endpoint=http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()


class TestOutages:
    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (500, b""),
            (503, error("SlowDown")),
            (503, b"<html>not S3</html>"),
            (403, error("AccessDenied")),
            (400, error("ExpiredToken")),
            (404, error("NoSuchBucket")),
            (404, b"<html>not S3</html>"),
        ],
    )
    def test_an_outage_is_never_not_found(self, status: int, body: bytes) -> None:
        with fake_server(status, body) as url:
            store = open_store(url, ENV)
            for call in (
                lambda: store.get("k"),
                lambda: store.size("k"),
                lambda: store.get_range("k", 0, 1),
                lambda: store.get_tail("k", 1),
                lambda: store.put("k", b"x"),
                lambda: store.put_if("k", b"x", expected="v"),
                lambda: store.delete("k"),
                lambda: list(store.list("")),
            ):
                with pytest.raises(TransientError):
                    call()

    def test_nobody_listens(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"s3://bkt/x?region=r&endpoint=http://127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(TransientError) as refusal:
                open_store(url, ENV).get("k")
        assert ENV["AWS_SECRET_ACCESS_KEY"] not in str(refusal.value)


class TestConditions:
    @pytest.mark.parametrize("status", [200, 501])
    def test_a_server_without_them_is_told(self, status: int) -> None:
        with fake_server(status, error("NotImplemented") if status == 501 else b"") as url:
            store = open_store(url, ENV)
            with pytest.raises(FatalError, match="conditional"):
                store.put_if("k", b"x", expected=None)

    @pytest.mark.s3
    def test_shown_for_a_real_server(self, s3_server: S3Server) -> None:
        if not s3_server.heeds_conditions:
            pytest.skip("this S3 server ignores conditions")
        store = open_store(s3_server.url("conditions"), s3_server.env)
        check_conditional_writes(store.put_if, store.url)
        check_conditional_writes(store.put_if, store.url)
        assert store.size(PROBE_KEY) > 0


@pytest.mark.s3
class TestRealServer:
    def test_wrong_credentials_are_an_outage(self, s3_server: S3Server) -> None:
        store = open_store(s3_server.url("t"), {**s3_server.env, "AWS_SECRET_ACCESS_KEY": "wrong"})
        with pytest.raises(TransientError) as refusal:
            store.get("k")
        assert "wrong" not in str(refusal.value)

    def test_a_missing_bucket_is_an_outage(self, s3_server: S3Server) -> None:
        store = open_store(s3_server.url("t").replace("onecopy", "nobucket"), s3_server.env)
        for call in (store.get, store.size):
            with pytest.raises(TransientError):
                call("k")

    def test_an_aborted_upload_leaves_no_parts(self, s3_server: S3Server) -> None:
        if not s3_server.heeds_conditions:
            pytest.skip("s3proxy does not list uploads by prefix: it answers 501")
        store = open_store(s3_server.url("parts"), s3_server.env)
        upload = store.open_upload("k")
        upload.write(b"x" * (9 * 2**20))
        client = s3_server.client()
        pending = client._list_multipart_uploads("onecopy", prefix="parts/k").uploads
        assert len(pending) == 1
        upload.abort()
        assert client._list_multipart_uploads("onecopy", prefix="parts/k").uploads == []
        with pytest.raises(NotFound):
            store.size("k")

    def test_two_prefixes_are_two_stores(self, s3_server: S3Server) -> None:
        one = open_store(s3_server.url("one"), s3_server.env)
        two = open_store(s3_server.url("one-two"), s3_server.env)
        one.put("k", b"1")
        two.put("k", b"2")
        assert one.get("k").data == b"1"
        assert [info.key for info in one.list("")] == ["k"]
