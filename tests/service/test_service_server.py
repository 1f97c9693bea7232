"""The process: listening, ready file, TLS, kill -9 in the middle of an upload, an S3 store."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from s3_server import S3Server
from service_harness import Serve
from service_samples import TOKEN, RawUpload, make_sample, stored_keys, wait_until

from tiering.errors import BadInput
from tiering.service import ServiceServer, read_token
from tiering.service.__main__ import main
from tiering.store import ObjectStore, open_store


class Process:
    """`python -m tiering.service`, ready to take requests."""

    def __init__(self, tmp_path: Path, store_url: str, *more: str, env: dict[str, str]) -> None:
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        self.ready = tmp_path / "ready.json"
        self.ready.unlink(missing_ok=True)
        self.log = tmp_path / "service.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tiering.service", "--store", store_url,
                 "--token-file", str(tmp_path / "token"), "--ready-file", str(self.ready), *more],
                stderr=log, env={**os.environ, **env},
            )  # fmt: skip
        wait_until(lambda: self.ready.exists() or self.process.poll() is not None, seconds=60)
        assert self.process.poll() is None, self.log.read_text()
        self.url = json.loads(self.ready.read_text())["url"]

    def client(self, **more: ssl.SSLContext) -> httpx.Client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=20,
            trust_env=False,
            **more,  # type: ignore[arg-type]
        )

    def end(self, signal_number: int) -> int:
        self.process.send_signal(signal_number)
        return self.process.wait(20)


@contextmanager
def process(
    tmp_path: Path, store_url: str, *more: str, env: dict[str, str] | None = None
) -> Iterator[Process]:
    started = Process(tmp_path, store_url, *more, env=env or {})
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.process.wait()


def test_ready_file_and_graceful_end(tmp_path: Path) -> None:
    with process(tmp_path, str(tmp_path / "store")) as service:
        assert json.loads(service.ready.read_text()) == {
            "url": service.url,
            "pid": service.process.pid,
        }
        with service.client() as client:
            assert client.get("/v1/health").status_code == 200
        service.end(signal.SIGTERM)
        assert TOKEN not in service.log.read_text()
        assert "Traceback" not in service.log.read_text()


def test_kill_9_in_the_middle_of_an_upload(tmp_path: Path, store: ObjectStore) -> None:
    whole, half = make_sample(1), make_sample(2, sizes=[100_000] * 80)
    body = half.body()
    with process(tmp_path, store.url) as service, service.client() as client:
        assert client.put(whole.path, content=whole.body()).status_code == 201
        upload = RawUpload(client, half.path, len(body))
        upload.send(body[: len(body) - 10])
        temporary = tmp_path / "store" / ".onecopy" / "tmp"
        wait_until(lambda: sum(f.stat().st_size for f in temporary.iterdir()) >= 4 * 2**20)
        assert service.end(signal.SIGKILL) == -signal.SIGKILL
        upload.cut()
    with process(tmp_path, store.url) as service, service.client() as client:
        assert f"ledger/{half.key}.json" not in stored_keys(store)
        assert len(stored_keys(store)) == 3
        assert client.get(f"{half.path}/log?position=0").status_code == 404
        assert client.get(f"{whole.path}/log?position=0&max_bytes=4000000").content == whole.log
        assert client.put(whole.path, content=whole.body()).status_code == 200
        assert client.put(half.path, content=body).status_code == 201
        assert store.get(f"native/{half.key}.log").data == half.log


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--host", "0.0.0.0"], "loopback"),  # noqa: S104 - refused, that is the test
        (["--tls-cert", "/nowhere.pem"], "both"),
        (["--token-file", "/nowhere"], "token"),
        (["--store", "s3://bkt/x?secret=hunter22"], "s3 URL"),
    ],
)
def test_a_setup_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    arguments = ["--store", str(tmp_path / "s"), "--token-file", str(tmp_path / "token")]
    assert main([*arguments, *more]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "hunter22" not in said


def test_where_it_listens(store: ObjectStore) -> None:
    with pytest.raises(BadInput, match="loopback"):
        ServiceServer(store, TOKEN, host="192.0.2.1")
    with pytest.raises(BadInput, match="listen"):
        ServiceServer(store, TOKEN, host="192.0.2.1", allow_plain=True)
    for host in ("127.0.0.1", "127.0.0.2", "localhost"):
        server = ServiceServer(store, TOKEN, host=host)
        assert server.url.startswith("http://127.0.0.")
        server.close()


def test_a_taken_port_is_told(store: ObjectStore) -> None:
    first = ServiceServer(store, TOKEN)
    with pytest.raises(BadInput, match="listen"):
        ServiceServer(store, TOKEN, port=int(first.url.rpartition(":")[2]))
    first.close()


def test_a_token_is_stripped(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"  {TOKEN}\n\n")
    assert read_token(tmp_path / "token") == TOKEN


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    trust = ssl.create_default_context(cafile=str(cert))
    sample = make_sample()
    arguments = ("--tls-cert", str(cert), "--tls-key", str(key))
    with process(tmp_path, str(tmp_path / "store"), *arguments) as service:
        assert service.url.startswith("https://")
        with service.client(verify=trust) as client:
            assert client.put(sample.path, content=sample.body()).status_code == 201
            answer = client.get(f"{sample.path}/log?position=0&max_bytes=4000000")
            assert answer.content == sample.log
        service.end(signal.SIGTERM)


@pytest.mark.s3
def test_over_a_real_s3_server(s3_server: S3Server, serve: Serve) -> None:
    if not s3_server.heeds_conditions:
        pytest.skip("this S3 server ignores conditions: it can't hold a ledger")
    store = open_store(s3_server.url("service"), s3_server.env)
    client = serve(store)
    sample = make_sample(sizes=[100_000] * 200)
    body = sample.body()
    cut = RawUpload(client, sample.path, len(body))
    cut.send(body[:-1])
    cut.cut()
    wait_until(lambda: 'in_flight{kind="put"} 0.0' in client.get("/metrics").text)
    assert stored_keys(store) == []
    assert client.put(sample.path, content=body).status_code == 201
    assert client.put(sample.path, content=body).status_code == 200
    got, query = b"", "position=0"
    while query:
        answer = client.get(f"{sample.path}/log?{query}&max_bytes=3000000")
        got += answer.content
        cursor = answer.headers.get("onecopy-next-cursor")
        query = f"cursor={cursor}" if cursor else ""
    assert got == sample.log
    assert client.delete(sample.path).status_code == 204
    assert stored_keys(store) == [f"ledger/{sample.key}.json"]
    assert client.put(sample.path, content=body).status_code == 410


def test_tls_files_that_cannot_be_used_are_bad_input(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    missing = tmp_path / "missing.pem"
    with pytest.raises(BadInput, match=r"missing\.pem: no such file"):
        ServiceServer(store, TOKEN, tls_cert=missing, tls_key=nonsense)
    with pytest.raises(BadInput, match="not a certificate"):
        ServiceServer(store, TOKEN, tls_cert=nonsense, tls_key=nonsense)
