"""A real S3 server for the tests: MinIO, or s3proxy where MinIO can't be had.

MinIO is looked for in ONECOPY_MINIO, on PATH and in the cache directory, then built by Go if
there is one. s3proxy comes as a jar through `tiering.jars`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import urllib3
from minio import Minio
from minio.error import MinioException

MINIO_MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
S3PROXY = "s3proxy"  # the set in tiering/jars.lock
BUILD_S = 900
START_S = 60


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A running server with one empty bucket.

    `heeds_conditions` is False for s3proxy, which overwrites whatever If-None-Match says: it can
    hold tables and native segments, but no ledger.
    """

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str = "onecopy"
    region: str = "us-east-1"
    heeds_conditions: bool = True

    @property
    def env(self) -> dict[str, str]:
        """The credentials as a store takes them."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def url(self, prefix: str) -> str:
        """The store URL of a prefix in the bucket."""
        endpoint = quote(self.endpoint, safe=":/")
        return f"s3://{self.bucket}/{prefix}?endpoint={endpoint}&region={self.region}"

    def client(self) -> Minio:
        """A client for looking at what is in the bucket."""
        return Minio(
            self.endpoint.removeprefix("http://"),
            self.access_key,
            self.secret_key,
            secure=False,
            region=self.region,
            # One try: a starting server would make the client wait a minute otherwise.
            http_client=urllib3.PoolManager(timeout=5, retries=False),
        )


def cache_directory() -> Path:
    """Where binaries and jars are kept between runs."""
    home = os.environ.get("ONECOPY_HOME")
    return Path(home) if home else Path.home() / ".cache" / "onecopy"


def find_minio() -> Path | None:
    """MinIO's binary; built and kept when it is nowhere but Go is there."""
    if named := os.environ.get("ONECOPY_MINIO"):
        return Path(named)
    if on_path := shutil.which("minio"):
        return Path(on_path)
    cached = cache_directory() / "bin" / "minio"
    if cached.is_file():
        return cached
    go = shutil.which("go")
    return build_minio(go, cached) if go else None


def build_minio(go: str, target: Path) -> Path | None:
    """Build the pinned version into the cache; None when that fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    place = target.parent / f".build-{os.getpid()}"
    try:
        subprocess.run(
            [go, "install", MINIO_MODULE],
            env={**os.environ, "GOBIN": str(place)},
            check=True,
            timeout=BUILD_S,
            capture_output=True,
        )
        (place / "minio").replace(target)
    except (OSError, subprocess.SubprocessError):
        return None
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return target


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def run_s3_server(directory: Path) -> Iterator[S3Server]:
    """Start a server that keeps its data below `directory`; stopped at the end.

    Raises RuntimeError when no server can be had on this machine.
    """
    minio = find_minio()
    server = S3Server(
        endpoint=f"http://127.0.0.1:{free_port()}",
        access_key="test-" + secrets.token_hex(4),
        secret_key=secrets.token_hex(16),
        heeds_conditions=minio is not None,
    )
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / "data"
    data.mkdir()
    command, env = (
        _minio_command(minio, data, server)
        if minio is not None
        else _s3proxy_command(directory, data, server)
    )
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    try:
        _make_bucket(process, server, directory / "server.log")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _minio_command(
    minio: Path, data: Path, server: S3Server
) -> tuple[list[str], Mapping[str, str]]:
    address = server.endpoint.removeprefix("http://")
    env = {
        **os.environ,
        "MINIO_ROOT_USER": server.access_key,
        "MINIO_ROOT_PASSWORD": server.secret_key,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    return [str(minio), "server", "--quiet", "--address", address, str(data)], env


def _s3proxy_command(
    directory: Path, data: Path, server: S3Server
) -> tuple[list[str], Mapping[str, str]]:
    from tiering.jars import fetch  # only where it is needed: it may download

    java = shutil.which("java")
    if java is None:
        raise RuntimeError("no S3 server: neither MinIO, Go nor Java is there")
    settings = directory / "s3proxy.properties"
    settings.write_text(
        f"s3proxy.endpoint={server.endpoint}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        f"s3proxy.identity={server.access_key}\n"
        f"s3proxy.credential={server.secret_key}\n"
        "jclouds.provider=transient-nio2\n"
        "jclouds.identity=unused\n"
        "jclouds.credential=unused\n"
        f"jclouds.filesystem.basedir={data}\n"
    )
    return [java, "-jar", str(fetch(S3PROXY)[0]), "--properties", str(settings)], os.environ


def _make_bucket(process: subprocess.Popen[bytes], server: S3Server, log: Path) -> None:
    """Ask for the bucket until the server has started and grants it."""
    client = server.client()
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(MinioException, urllib3.exceptions.HTTPError, OSError):
            client.make_bucket(server.bucket)
            return
        time.sleep(0.05)
    raise RuntimeError(f"the S3 server didn't start: {log.read_text(errors='replace')[-2000:]}")
