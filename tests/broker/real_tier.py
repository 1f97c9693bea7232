"""The real tier in one directory: store, service, engine and broker, each its own process."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from polling import eventually

from tiering.config import EngineConfig, ServiceConfig, TierConfig, TopicConfig, default_config
from tiering.crash_points import CRASH_AT_VARIABLE
from tiering.ledger import Ledger, LedgerEntry
from tiering.local.child_process import guarded
from tiering.local.kafka import LocalKafka, free_port, onecopy_storage
from tiering.local.kafka_node import KafkaNode
from tiering.store import ObjectStore, open_store

__all__ = ["BROKER", "RealTier", "Tier", "TierProcess", "health"]

SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)")
RETIRE_GRACE_MS = 3_600_000
READY_S_MAX = 240  # with kernels to compile, on a busy machine
BROKER = {
    "log.cleaner.backoff.ms": "200",
    "add.partitions.to.txn.retry.backoff.ms": "1",
    "transaction.state.log.num.partitions": "4",
    "log.segment.delete.delay.ms": "100",
}


class TierProcess:
    """One of our processes: started, stopped, killed and started again."""

    def __init__(self, name: str, directory: Path, command: Sequence[str]) -> None:
        self._name = name
        self._command = command
        self._ready = directory / f"{name}.ready"
        self.log_path = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._session = 0

    def relatives(self) -> dict[int, str]:
        """Process id -> command of what runs in the session it was last started in."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                stat = (directory / "stat").read_text().rpartition(")")[2].split()
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has just ended
                continue
            if int(stat[3]) == self._session and stat[0] != "Z":
                found[int(directory.name)] = command
        return found

    @property
    def running(self) -> bool:
        """Whether it is up."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, crash_at: str | None = None, wait: bool = True) -> None:
        """Start it; `crash_at` names the step at which it kills itself."""
        assert not self.running, f"the {self._name} runs already"
        self._ready.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if k != CRASH_AT_VARIABLE}
        if crash_at is not None:
            environment[CRASH_AT_VARIABLE] = crash_at
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                guarded([*self._command, "--ready-file", str(self._ready)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._session = self._process.pid
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until it says that it is at work."""
        process = self._process
        assert process is not None

        def ready() -> bool:
            assert process.poll() is None, f"the {self._name} ended:\n{self.tail()}"
            return self._ready.exists()

        eventually(ready, READY_S_MAX, what=f"the {self._name} is ready", details=self.tail)

    def kill(self) -> None:
        """kill -9, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """In order (SIGTERM); its exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            code = self._process.wait(40)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code

    def wait_crashed(self, timeout_s: float) -> None:
        """Until it has killed itself at the step it was started with."""
        process = self._process
        assert process is not None
        eventually(
            lambda: process.poll() is not None,
            timeout_s,
            what=f"the {self._name} reaches the step",
            details=self.tail,
        )
        assert process.wait() == -9, self.tail()
        self._process = None

    def tail(self) -> str:
        """The end of its log."""
        return self.log_path.read_text(errors="replace")[-4000:]


class Tier(ABC):
    """Everything below one directory. Entering starts Kafka and service, not the engine."""

    def __init__(
        self,
        directory: Path,
        *,
        retire_grace_ms: int = RETIRE_GRACE_MS,
        topics: Mapping[str, TopicConfig] | None = None,
        keeps_pulls: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        token_file = directory / "token"
        token_file.write_text(secrets.token_urlsafe(32))
        port = free_port()
        config = default_config(
            directory,
            service=ServiceConfig(port=port, token_file=str(token_file)),
            engine=EngineConfig(
                spark_master="local[2]",
                spark_conf={"spark.ui.enabled": "false"},
                retire_grace_ms=retire_grace_ms,
            ),
        )
        self.config: TierConfig = replace(config, topics=dict(topics or {}))
        self.url = f"http://127.0.0.1:{port}"
        self.token_file = token_file
        config_file = directory / "tier.json"
        config_file.write_text(self.config.to_json())
        self.service = TierProcess(
            "service",
            directory,
            [
                *(sys.executable, "-m", "tiering.service", "--store", self.config.store),
                *("--token-file", str(token_file), "--port", str(port)),
                *("--config", str(config_file)),
            ],
        )
        engine = [sys.executable, "-m", "spark_ext.engine_process", "--config", str(config_file)]
        self.engine = TierProcess("engine", directory, engine)
        self.second_engine = TierProcess("second-engine", directory, engine)
        # Most tests ask what the service has answered now, not what the plug-in has in memory.
        self.remote = onecopy_storage(self.url, token_file)
        if not keeps_pulls:
            settings = {**self.remote.settings, "onecopy.keep.bytes": "0"}
            self.remote = replace(self.remote, settings=settings)

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """For clients."""

    @abstractmethod
    def leader(self, topic: str, partition: int = 0) -> KafkaNode:
        """The broker that leads a partition."""

    @abstractmethod
    def create_tiered_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """With a replica on every broker."""

    @abstractmethod
    def start_kafka(self) -> None:
        """Start every broker."""

    @abstractmethod
    def stop_kafka(self) -> None:
        """Stop every broker."""

    def __enter__(self) -> Self:
        try:
            self.service.start()
            self.start_kafka()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop whatever runs; the broker first, so that it doesn't wait for the service."""
        self.stop_kafka()
        for process in (self.engine, self.second_engine, self.service):
            process.stop()

    @property
    def store(self) -> ObjectStore:
        """The store, opened afresh."""
        return open_store(self.config.store)

    def path_of(self, key: str) -> Path:
        """The file behind an object of the store."""
        return Path(self.config.store) / key

    def entries(self, topic: str) -> list[LedgerEntry]:
        """Live ledger entries of a topic, by partition and offset."""
        found = (e for e in Ledger(self.store).scan() if e.metadata.topic == topic)
        live = (e for e in found if not e.delete_requested)
        return sorted(live, key=lambda e: (e.metadata.id.partition, e.metadata.start_offset))

    def heartbeat(self) -> dict[str, Any]:
        """What the engine last said, empty if nothing."""
        path = self.path_of("engine/heartbeat.json")
        return json.loads(path.read_bytes()) if path.exists() else {}

    def get(self, path: str) -> bytes:
        """What the service answers."""
        headers = {"Authorization": f"Bearer {self.token_file.read_text()}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)  # noqa: S310 - ours
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - as above
            return bytes(answer.read())

    def metrics(self) -> dict[tuple[str, str], float]:
        """(name, labels as written) -> value of the service's /metrics."""
        lines = self.get("/metrics").decode().splitlines()
        matches = (SAMPLE.fullmatch(line) for line in lines if not line.startswith("#"))
        return {(m["name"], m["labels"] or ""): float(m["value"]) for m in matches if m}

    def log_fetches(self) -> int:
        """Pulls of segment logs that the service has answered with bytes."""
        return self.requests("get_log")

    def requests(self, route: str) -> int:
        """Requests of one kind that the service has answered with success."""
        labels = f'route="{route}",status="200"'
        return int(self.metrics().get(("onecopy_requests_total", labels), 0))

    def set_topic_config(self, topic: str, **settings: str) -> None:
        """Change a topic's settings; underscores stand for dots."""
        self._set_config(ResourceType.TOPIC, topic, settings)

    def set_broker_config(self, broker: int, **settings: str) -> None:
        """Change a broker's settings while it runs; underscores stand for dots."""
        self._set_config(ResourceType.BROKER, str(broker), settings)

    def _set_config(self, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
        changes = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=changes)
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(20)

    def watermarks(
        self, topic: str, partition: int, isolation: str = "read_uncommitted"
    ) -> tuple[int, int]:
        """(log start, log end) as the broker answers; the end is the last stable offset for
        read_committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "none",
                "isolation.level": isolation,
            }
        )
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            return int(low), int(high)
        finally:
            consumer.close()

    def wait_tiered(self, topic: str, ends: Mapping[int, int], timeout_s: float) -> None:
        """Until everything below `ends` is in the tier, and only an empty segment is local."""

        def local() -> list[list[int]]:
            return [self.leader(topic, p).local_segments(topic, p) for p in ends]

        eventually(
            lambda: local() == [[end] for end in ends.values()],
            timeout_s,
            what=f"{topic} is off the local disk up to {dict(ends)}",
            details=lambda: (
                f"local segments {local()}, {len(self.entries(topic))} in the ledger\n"
                f"{self.leader(topic).tail()}\n{self.service.tail()}"
            ),
        )
        for partition, end in ends.items():
            covered = _covered(self.entries(topic), partition)
            assert covered == end, f"{topic}-{partition}: the tier ends at {covered} of {end}"


class RealTier(Tier):
    """With one broker."""

    def __init__(
        self,
        directory: Path,
        broker: Mapping[str, str] | None = None,
        *,
        retire_grace_ms: int = RETIRE_GRACE_MS,
        topics: Mapping[str, TopicConfig] | None = None,
        keeps_pulls: bool = False,
    ) -> None:
        super().__init__(
            directory, retire_grace_ms=retire_grace_ms, topics=topics, keeps_pulls=keeps_pulls
        )
        self.kafka = LocalKafka(
            directory / "kafka", remote=self.remote, properties={**BROKER, **(broker or {})}
        )

    @property
    def bootstrap_servers(self) -> str:
        """For clients."""
        return self.kafka.bootstrap_servers

    def leader(self, topic: str, partition: int = 0) -> LocalKafka:
        """The only broker."""
        return self.kafka

    def create_tiered_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """With one replica."""
        self.kafka.create_tiered_topic(name, partitions, configs)

    def start_kafka(self) -> None:
        """Start the broker."""
        self.kafka.start()

    def stop_kafka(self) -> None:
        """Stop the broker."""
        self.kafka.stop()


def _covered(entries: Iterable[LedgerEntry], partition: int) -> int:
    ends = (e.metadata.end_offset + 1 for e in entries if e.metadata.id.partition == partition)
    return max(ends, default=0)


def health(url: str) -> int | None:
    """The status of /v1/health; None when nothing answers."""
    try:
        with urllib.request.urlopen(f"{url}/v1/health", timeout=5) as answer:  # noqa: S310 - ours
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
