"""A real single-node Kafka broker (KRaft) in one directory, on loopback, with tiering set up.

It is what `onecopy up`, the demonstration and the tests run against. The properties are those that
make tiering quick to watch; they aren't advice for a production broker (`onecopy doctor` is).
"""

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
from tiering.local.broker_properties import (
    QUICK_BROKER,
    QUICK_TIERING,
    RemoteStorage,
    local_tiered_storage,
    onecopy_settings,
    onecopy_storage,
    to_text,
)
from tiering.local.child_process import guarded
from tiering.local.supervisor import log_tail

__all__ = [
    "LocalKafka",
    "RemoteStorage",
    "free_port",
    "local_tiered_storage",
    "onecopy_settings",
    "onecopy_storage",
]

_READY: Final = b"Kafka Server started"
_TIERING_READY: Final = b"Initialized topic-based RLMM resources successfully"
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


class LocalKafka:
    """One broker process. Start, stop, kill and start again on the same ports and data.

    Usable as a context manager: starts on entering, stops on leaving.
    """

    def __init__(
        self,
        directory: Path,
        *,
        remote: RemoteStorage | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "768m",
        jvm_options: Sequence[str] = (),
        port: int = 0,
        log_path: Path | None = None,
    ) -> None:
        """Nothing starts yet.

        Args:
            directory: made if needed; holds data, logs and properties.
            remote: where segments are tiered to; without it tiering is off.
            properties: broker properties that win over this class's own.
            heap: the JVM's largest heap.
            jvm_options: further ones for the broker's JVM.
            port: of the listener for clients; 0 takes a free one.
            log_path: the broker's own log; `kafka.log` in `directory` by default.
        """
        self.directory = directory.resolve()
        self.port = port or free_port()
        self.log_path = log_path or self.directory / "kafka.log"
        self._controller_port = free_port()
        self._remote = remote
        self._properties = dict(properties or {})
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """For clients' configuration."""
        return f"127.0.0.1:{self.port}"

    @property
    def data_directory(self) -> Path:
        """Where partitions' directories are."""
        return self.directory / "data"

    @property
    def pid(self) -> int | None:
        """The broker's process id, None while it doesn't run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, timeout_s: float = 90.0) -> Self:
        """Format the storage if that wasn't done, start, and wait until clients are served.

        Raises BadInput when its port is taken, TransientError with the log's tail if the broker
        ends or doesn't serve in time.
        """
        if self.pid is not None:
            raise FatalError(f"the broker in {self.directory} runs already (process {self.pid})")
        if is_listening(self.port):
            raise BadInput(
                f"port {self.port} is in use: choose another for Kafka, or 0 for one that is free"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(_LOGGING)
        config = self._write_properties()
        if not (self.data_directory / "meta.properties").exists():
            self._format(config)
        seen = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                guarded(self._java("kafka.Kafka", str(config))),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._await_ready(seen, timeout_s)
        except BaseException:
            self.kill()
            raise
        return self

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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> None:
        """Create a topic and wait until all its partitions have a leader."""
        # An extra: only those who call this need it. Its types don't list NewTopic as exported.
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=1, config=dict(configs or {})
        )
        admin.create_topics([topic], operation_timeout=timeout_s)[name].result(timeout_s)

        def has_leaders() -> bool:
            found = admin.list_topics(name, timeout=timeout_s).topics[name].partitions
            return len(found) == partitions and all(p.leader >= 0 for p in found.values())

        _await(has_leaders, timeout_s, f"topic {name} has no leaders after {timeout_s} s")

    def create_tiered_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """A topic that is tiered, its local segments going as soon as they are; 1 MiB segments."""
        tiered = {
            "remote.storage.enable": "true",
            "local.retention.ms": "1000",
            "retention.ms": "-1",
            "segment.bytes": str(1024 * 1024),
        }
        self.create_topic(name, partitions, {**tiered, **(configs or {})})

    def delete_topic(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Delete a topic; its remote segments go in the background."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.delete_topics([name], operation_timeout=timeout_s)[name].result(timeout_s)

    def local_segments(self, topic: str, partition: int = 0) -> list[int]:
        """Base offsets of the log files on the broker's disk, in order (a cheap directory look)."""
        directory = self.data_directory / f"{topic}-{partition}"
        return sorted(int(path.stem) for path in directory.glob("*.log"))

    def offset(self, topic: str, partition: int = 0, *, time: str = "earliest-local") -> int | None:
        """Ask the broker for an offset with Kafka's own tool; takes about 2 s (a JVM).

        Args:
            time: earliest, latest, earliest-local, latest-tiered, max-timestamp or epoch ms.

        Returns:
            None where the broker knows none.
        """
        said = self.run_tool(
            "org.apache.kafka.tools.GetOffsetShell",
            *("--bootstrap-server", self.bootstrap_servers, "--time", time),
            *("--topic-partitions", f"{topic}:{partition}"),
        )
        for line in said.splitlines():
            name, _, rest = line.strip().rpartition(f":{partition}:")
            if name == topic:
                return int(rest) if rest not in ("", "unknown") else None
        raise TransientError(f"offset {time} of {topic}-{partition}: {said.strip()}")

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
        """The last lines of the broker's log."""
        return log_tail(self.log_path, lines)

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
        clients, controller = self.bootstrap_servers, f"127.0.0.1:{self._controller_port}"
        properties = {
            **QUICK_BROKER,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{clients},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{clients}",
            "log.dirs": str(self.data_directory),
            **(QUICK_TIERING if self._remote else {}),
            **(self._remote.properties() if self._remote else {}),
            **self._properties,
        }
        path = self.directory / "server.properties"
        # The token file's path is in here, and a token itself may be.
        path.touch(mode=0o600)
        path.write_text(to_text(properties))
        return path

    def _format(self, config: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        shutil.rmtree(self.data_directory, ignore_errors=True)  # half formatted
        self.run_tool(
            "kafka.tools.StorageTool",
            *("format", "-t", cluster, "-c", str(config)),
            timeout_s=_FORMAT_S_MAX,
        )

    def _await_ready(self, seen: int, timeout_s: float) -> None:
        process = self._process
        assert process is not None  # noqa: S101

        def is_ready() -> bool:
            if process.poll() is not None:
                raise TransientError(
                    f"the broker ended with code {process.returncode}; see {self.log_path}:\n"
                    f"{self.tail()}"
                )
            with self.log_path.open("rb") as log:
                log.seek(seen)
                said = log.read()
            # A broker that is stopped before its tiering is ready takes half a minute to stop.
            if _READY not in said or (self._remote and _TIERING_READY not in said):
                return False
            return is_listening(self.port)

        _await(
            is_ready,
            timeout_s,
            lambda: f"the broker doesn't serve after {timeout_s} s:\n{self.tail()}",
        )


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


def _await(
    condition: Callable[[], bool], timeout_s: float, complaint: str | Callable[[], str]
) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TransientError(complaint if isinstance(complaint, str) else complaint())
        time.sleep(_POLL_S)
