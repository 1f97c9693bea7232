"""A schema registry of one's own: Apicurio, with Confluent's API, on loopback and in memory."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import requests

from tiering.errors import FatalError, TransientError
from tiering.jars import java_command, schema_registry_archive
from tiering.local.child_process import guarded
from tiering.local.kafka_node import free_port, wait_until
from tiering.local.supervisor import log_tail

__all__ = ["LocalSchemaRegistry"]

_API: Final = "/apis/ccompat/v7"
_RUNNER: Final = "*-runner.jar"
_LOG: Final = "registry.log"
_ASKED_S_MAX: Final = 2.0
_JVM: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)


class LocalSchemaRegistry:
    """One process in a directory of its own, which goes with it.

    What is registered lives as long as the process. Usable as a context manager.
    """

    def __init__(self, *, port: int = 0) -> None:
        """Nothing starts yet. Port 0: one that is free."""
        self._wanted_port = port
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """Of its Confluent API."""
        return f"http://127.0.0.1:{self._port}{_API}"

    @property
    def pid(self) -> int | None:
        """Its process id, None while it doesn't run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, timeout_s: float = 90.0) -> Self:
        """Start and wait until it answers. Fetches it before, where it isn't in the cache.

        Raises TransientError with its log's tail if it ends or doesn't answer in time.
        """
        if self.pid is not None:
            raise FatalError(f"the schema registry runs already (process {self.pid})")
        self.stop()
        with ExitStack() as running:
            directory = Path(
                running.enter_context(tempfile.TemporaryDirectory(prefix="onecopy-registry-"))
            )
            running.callback(self._end)
            self._launch(directory)
            log = directory / _LOG
            wait_until(
                lambda: self._answers(log),
                timeout_s,
                lambda: f"the schema registry isn't up after {timeout_s} s:\n{log_tail(log)}",
            )
            self._running = running.pop_all()
        return self

    def stop(self) -> None:
        """End it, and remove its directory. Does nothing if it's down.

        It can be started again, empty, on the same port.
        """
        self._running.close()
        self._wanted_port = self._port or self._wanted_port

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    def _launch(self, directory: Path) -> None:
        with tarfile.open(schema_registry_archive()) as archive:
            archive.extractall(directory, filter="data")
        (runner,) = directory.glob(_RUNNER)
        self._port = self._wanted_port or free_port()
        command = [
            java_command(),
            *_JVM,
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self._port}",
            *("-jar", str(runner)),
        ]
        with (directory / _LOG).open("wb") as log:
            self._process = subprocess.Popen(
                guarded(command),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers(self, log: Path) -> bool:
        process = self._process
        assert process is not None  # noqa: S101
        if process.poll() is not None:
            raise TransientError(
                f"the schema registry ended with code {process.returncode}:\n{log_tail(log)}"
            )
        with requests.Session() as session:
            session.trust_env = False  # loopback needs no proxy
            try:
                answer = session.get(f"{self.url}/subjects", timeout=_ASKED_S_MAX)
            except requests.RequestException:
                return False
        return answer.status_code == 200

    def _end(self) -> None:
        """Nothing in it outlives it, so there is nothing to wait for."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
