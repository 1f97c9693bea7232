"""A real Iceberg REST catalog for the tests: Iceberg's own handlers and JDBC catalog, in Java.

Its jars are Iceberg's Spark runtime and the SQLite driver (`tiering.jars`) and the Hadoop client
that PySpark's wheel brings, so nothing is fetched for the tests alone.
"""

from __future__ import annotations

import importlib.util
import select
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiering.jars import class_path, iceberg_jars, java_command

SOURCE = Path(__file__).parent / "rest_server" / "RestCatalogServer.java"
START_S = 60
STOP_S = 10


@dataclass(frozen=True, kw_only=True)
class RestServer:
    """A running catalog without any namespace."""

    uri: str
    warehouse: str
    token: str = "test-token"

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties for it."""
        return {"type": "rest", "uri": self.uri, "token": self.token, "warehouse": self.warehouse}

    def fail_next_commit(self, kind: str) -> None:
        """Make the next table commit go wrong; the kinds are listed in the server's source."""
        request = urllib.request.Request(f"{self.uri}/fault/{kind}", method="POST")  # noqa: S310
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - our own loopback server
            pass


@contextmanager
def run_rest_catalog(directory: Path) -> Iterator[RestServer]:
    """Start a server on a free loopback port and stop it at the end."""
    warehouse = directory / "warehouse"
    log = directory / "rest-catalog.log"
    command = [java_command(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", class_path((*iceberg_jars(), *_hadoop_jars())), str(SOURCE)]
    command += [str(directory / "rest-catalog.db"), str(warehouse)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            port = _port(process, log)
            yield RestServer(uri=f"http://127.0.0.1:{port}", warehouse=str(warehouse))
        finally:
            _stop(process)


def _hadoop_jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    patterns = ("hadoop-client-*.jar", "slf4j-api-*.jar", "commons-logging-*.jar")
    return [jar for pattern in patterns for jar in sorted(jars.glob(pattern))]


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if ready else b""
    if not line.strip().isdigit():
        raise RuntimeError(f"the REST catalog did not start:\n{log.read_text()}")
    return int(line)


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
