"""One Kafka process (KRaft) in a directory of its own: broker, controller, or both."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tiering.errors import BadInput, FatalError, TransientError
from tiering.jars import class_path, java_command, kafka_jars
from tiering.local.broker_properties import to_text
from tiering.local.child_process import guarded
from tiering.local.supervisor import log_tail

__all__ = [
    "STARTED",
    "TIERING_READY",
    "KafkaNode",
    "free_port",
    "is_listening",
    "new_cluster_id",
    "wait_until",
]

STARTED: Final = b"Kafka Server started"
TIERING_READY: Final = b"Initialized topic-based RLMM resources successfully"
"""A broker that is stopped before its log says so takes half a minute to stop."""

_META: Final = "meta.properties"
_POLL_S: Final = 0.05
_BRIEF_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # for tools: start quickly
_LOG_TAIL_LINES: Final = 25
_FORMAT_S_MAX: Final = 120.0
_LOGGING: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.values.name = org.apache.kafka.common.config
logger.values.level = warn
"""


class KafkaNode:
    """One process. Start, stop, kill and start again on the same ports and data.

    Usable as a context manager: starts on entering, stops on leaving.

    Attributes:
        properties: as they are written at each start; change them while it is down.
    """

    def __init__(
        self,
        directory: Path,
        *,
        properties: Mapping[str, str],
        port: int,
        ready: Sequence[bytes] = (STARTED,),
        cluster_id: str = "",
        heap: str = "768m",
        jvm_options: Sequence[str] = (),
        log_path: Path | None = None,
    ) -> None:
        """Nothing starts yet.

        Args:
            directory: made if needed; holds logs and properties.
            properties: all of the node's; `log.dirs` is one directory.
            port: the one it is at work on when it listens there.
            ready: what its log says when it is at work.
            cluster_id: for formatting its storage; a new one by default.
            heap: the JVM's largest heap.
            jvm_options: further ones for the node's JVM.
            log_path: the node's own log; `kafka.log` in `directory` by default.
        """
        self.directory = directory.resolve()
        self.port = port
        self.log_path = log_path or self.directory / "kafka.log"
        self.properties = dict(properties)
        self._ready = tuple(ready)
        self._cluster_id = cluster_id or new_cluster_id()
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # its log may hold earlier runs

    @property
    def bootstrap_servers(self) -> str:
        """For clients' configuration."""
        return f"127.0.0.1:{self.port}"

    @property
    def data_directory(self) -> Path:
        """Where partitions' directories are."""
        return Path(self.properties["log.dirs"])

    @property
    def pid(self) -> int | None:
        """Its process id, None while it doesn't run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, timeout_s: float = 90.0) -> Self:
        """Format the storage if that wasn't done, start, and wait until it is at work.

        Raises BadInput when its port is taken, TransientError with the log's tail if it ends or
        doesn't serve in time.
        """
        self.launch()
        self.await_ready(timeout_s)
        return self

    def format(self) -> None:
        """Format the storage if that wasn't done; `start` does it, too."""
        if (self.data_directory / _META).exists():
            return
        config = self._write_properties()
        shutil.rmtree(self.data_directory, ignore_errors=True)  # half formatted
        self.run_tool(
            "kafka.tools.StorageTool",
            *("format", "-t", self._cluster_id, "-c", str(config)),
            timeout_s=_FORMAT_S_MAX,
        )

    def launch(self) -> None:
        """Format the storage if that wasn't done and start; doesn't wait. Errors as `start`."""
        if self.pid is not None:
            raise FatalError(f"the broker in {self.directory} runs already (process {self.pid})")
        if is_listening(self.port):
            raise BadInput(
                f"port {self.port} is in use: choose another for Kafka, or 0 for one that is free"
            )
        self.format()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        config = self._write_properties()
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                guarded(self._java("kafka.Kafka", str(config))),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def await_ready(self, timeout_s: float = 90.0) -> None:
        """Wait until it is at work; when it isn't in time it's killed. Errors as `start`."""
        try:
            wait_until(
                self._is_ready,
                timeout_s,
                lambda: f"the broker doesn't serve after {timeout_s} s:\n{self.tail()}",
            )
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop it in order (SIGTERM), by force after `timeout_s`. Does nothing if it's down."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill it at once (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, timeout_s: float = 90.0) -> None:
        """Stop in order and start again: same ports, same data."""
        self.stop()
        self.start(timeout_s)

    def wipe(self) -> None:
        """Remove all data of a node that is down, but not what formatting has written: it comes
        back under the same ids, with an empty disk."""
        self._must_be_down()
        for path in self.data_directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _META:
                path.unlink()

    def move_data(self, to: Path) -> None:
        """Rename the data directory of a node that is down; it starts with the new one."""
        self._must_be_down()
        self.data_directory.rename(to)
        self.properties["log.dirs"] = str(to)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    def local_segments(self, topic: str, partition: int = 0) -> list[int]:
        """Base offsets of the log files on its disk, in order (a cheap directory look)."""
        directory = self.data_directory / f"{topic}-{partition}"
        return sorted(int(path.stem) for path in directory.glob("*.log"))

    def run_tool(self, main_class: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run one of Kafka's command-line tools; its standard output.

        Raises TransientError with what it said when it fails.
        """
        done = subprocess.run(
            self._java(main_class, *arguments, heap="256m"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise TransientError(f"{main_class} failed ({done.returncode}):\n{said}")
        return done.stdout

    def tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """The last lines of its log."""
        return log_tail(self.log_path, lines)

    def _must_be_down(self) -> None:
        if self.pid is not None:
            raise FatalError(f"the broker in {self.directory} runs (process {self.pid})")

    def _java(self, main_class: str, *arguments: str, heap: str | None = None) -> list[str]:
        return [
            java_command(),
            f"-Xmx{heap or self._heap}",
            *(_BRIEF_JVM if heap else self._jvm_options),
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            *("-cp", class_path(kafka_jars())),
            main_class,
            *arguments,
        ]

    def _write_properties(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(_LOGGING)
        path = self.directory / "server.properties"
        # The token file's path is in here, and a token itself may be.
        path.touch(mode=0o600)
        path.write_text(to_text(self.properties))
        return path

    def _is_ready(self) -> bool:
        process = self._process
        assert process is not None  # noqa: S101
        if process.poll() is not None:
            raise TransientError(
                f"the broker ended with code {process.returncode}; see {self.log_path}:\n"
                f"{self.tail()}"
            )
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            said = log.read()
        return all(phrase in said for phrase in self._ready) and is_listening(self.port)


def new_cluster_id() -> str:
    """A random one, in Kafka's form."""
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def free_port() -> int:
    """A loopback port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether something takes connections on this loopback port."""
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(
    condition: Callable[[], bool], timeout_s: float, complaint: str | Callable[[], str]
) -> None:
    """Poll until the condition holds; TransientError with the complaint when time is up."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TransientError(complaint if isinstance(complaint, str) else complaint())
        time.sleep(_POLL_S)
