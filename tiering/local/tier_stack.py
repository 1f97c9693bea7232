"""A whole tier on this machine: service and engine, and a local Kafka if one is wanted.

Everything lives in one directory: `tier.json` (the configuration in use), `token`, `logs/`, `run/`
(ready files), and what the configuration puts there (`store/`, `catalog.db`, `kafka/`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from tiering.config import TierConfig
from tiering.errors import BadInput, TransientError
from tiering.local.kafka import LocalKafka, free_port, onecopy_storage
from tiering.local.supervisor import Child, ChildSpec, Supervisor
from tiering.redaction import is_secret

__all__ = ["CONFIG_FILE", "TierStack", "ensure_token"]

CONFIG_FILE: Final = "tier.json"
"""In a tier's directory: its TierConfig as JSON, with the port that the service listens on."""

_TEND_S: Final = 0.1
_TOKEN_BYTES: Final = 32


class TierStack:
    """Starts, watches and stops the processes of one tier. A context manager, too.

    Start it from a thread that lives as long as it does: on Linux children die with that thread.
    """

    def __init__(
        self,
        config: TierConfig,
        directory: Path,
        *,
        with_kafka: bool = False,
        with_engine: bool = True,
        kafka_port: int = 0,
        kafka_properties: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing starts yet.

        Args:
            directory: of logs, ready files and the local Kafka; made if needed.
            kafka_properties: broker properties that win over LocalKafka's own.
            environment: variables for service and engine beside those of this process.
        """
        self.directory = directory.resolve()
        self.config = config
        self.kafka: LocalKafka | None = None
        self.service_url = ""
        self.service: Child | None = None
        self.engine: Child | None = None
        self._with_kafka = with_kafka
        self._with_engine = with_engine
        self._kafka_port = kafka_port
        self._kafka_properties = dict(kafka_properties or {})
        self._environment = dict(environment or {})
        self._supervisor = Supervisor()
        self._lock: TextIO | None = None

    @property
    def token_file(self) -> Path:
        """The file with the service's token."""
        named = self.config.service.token_file
        return Path(named).resolve() if named else self.directory / "token"

    def start(self, announce: Callable[[str], None] = lambda _: None) -> Self:
        """Start everything and wait until it is at work; `announce` is told what comes next.

        When one part doesn't start, the others are stopped and the error is raised: BadInput for
        settings that can't work or a directory in use, TransientError otherwise.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_directory()
        except OSError as error:
            raise BadInput(
                f"{self.directory}: can't be used as a directory: {error.strerror}"
            ) from error
        try:
            self._start(announce)
        except BaseException:
            self.stop()
            raise
        return self

    def run(self, stop: threading.Event | None = None) -> None:
        """Keep service and engine running until `stop` is set; TransientError if Kafka ends."""
        stop = stop or threading.Event()
        while not stop.wait(_TEND_S):
            self.tend()

    def tend(self) -> None:
        """Start again what has ended; for callers with a loop of their own."""
        self._supervisor.tend()
        if self.kafka is not None and self.kafka.pid is None:
            raise TransientError(
                f"the broker has ended; see {self.kafka.log_path}:\n{self.kafka.tail()}"
            )

    def stop(self, announce: Callable[[str], None] = lambda _: None) -> None:
        """Stop all in order. The service goes last: the broker copies and deletes until its end."""
        announce("stopping the engine")
        self._supervisor.stop("engine")
        if self.kafka is not None:
            announce("stopping Kafka")
            self.kafka.stop()
        announce("stopping the service")
        self._supervisor.stop()
        self._release_directory()

    def kill(self) -> None:
        """Kill all at once."""
        self._supervisor.kill()
        if self.kafka is not None:
            self.kafka.kill()

    def describe(self) -> dict[str, Any]:
        """Where everything is, for people and scripts; without secrets.

        `catalog` can be handed to `pyiceberg.catalog.load_catalog(**catalog)`.
        """
        properties = self.config.catalog_properties()
        catalog = {"name": self.config.catalog_name}
        catalog.update((k, v) for k, v in properties.items() if not is_secret(k))
        return {
            "bootstrap_servers": self.kafka.bootstrap_servers if self.kafka else None,
            "service_url": self.service_url,
            "catalog": catalog,
            "namespace": self.config.namespace,
            "warehouse": self.config.warehouse,
            "store": self.config.store,
            "token_file": str(self.token_file),
            "dir": str(self.directory),
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, announce: Callable[[str], None]) -> None:
        # A fixed port: a service that is started again must be where the broker looks for it.
        service = replace(
            self.config.service,
            port=self.config.service.port or free_port(),
            token_file=str(self.token_file),
        )
        self.config = replace(self.config, service=service)
        ensure_token(self.token_file)
        config_file = self.directory / CONFIG_FILE
        _write_private(config_file, self.config.to_json())
        announce("starting the service")
        self.service = self._supervisor.start(self._service_spec(config_file))
        if self._with_engine:
            # It takes seconds to be ready, which the broker's start can use.
            self.engine = self._supervisor.start(self._engine_spec(config_file))
        self.service_url = str(self.service.await_ready()["url"])
        if self._with_kafka:
            announce("starting Kafka (the first time, its parts are fetched)")
            self.kafka = LocalKafka(
                self.directory / "kafka",
                remote=onecopy_storage(self.service_url, self.token_file),
                properties=self._kafka_properties,
                port=self._kafka_port,
                log_path=self.directory / "logs" / "kafka.log",
            ).start()
        if self.engine is not None:
            announce("starting the engine")
            self.engine.await_ready()

    def _service_spec(self, config_file: Path) -> ChildSpec:
        service = self.config.service
        options = ["--store", self.config.store, "--token-file", service.token_file]
        options += ["--config", str(config_file)]
        options += ["--host", service.host, "--port", str(service.port)]
        if service.tls_cert:
            options += ["--tls-cert", service.tls_cert, "--tls-key", service.tls_key]
        if service.allow_plain:
            options.append("--allow-plain")
        return self._spec("service", "tiering.service", options)

    def _engine_spec(self, config_file: Path) -> ChildSpec:
        return self._spec("engine", "spark_ext.engine_process", ["--config", str(config_file)])

    def _spec(self, name: str, module: str, options: list[str]) -> ChildSpec:
        ready_file = self.directory / "run" / f"{name}.json"
        ready_file.parent.mkdir(exist_ok=True)
        return ChildSpec(
            name=name,
            command=[sys.executable, "-m", module, *options, "--ready-file", str(ready_file)],
            log_file=self.directory / "logs" / f"{name}.log",
            ready_file=ready_file,
            environment=self._environment,
        )

    def _take_directory(self) -> None:
        lock = (self.directory / ".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise BadInput(f"{self.directory} is in use by another process") from None
        self._lock = lock

    def _release_directory(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def ensure_token(path: Path) -> None:
    """Make a random token unless the file is there; only its owner can read it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_private(path, secrets.token_urlsafe(_TOKEN_BYTES) + "\n")


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
