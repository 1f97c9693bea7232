"""Two stock consumers that read a partition's history: librdkafka, and Kafka's own in Java."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from confluent_kafka import Consumer, Message, TopicPartition

from tiering.demo.digest import PartitionDigest
from tiering.jars import class_path, java_command, kafka_jars
from tiering.local.child_process import guarded

__all__ = ["History", "HistoryReader", "JavaReader", "LibrdkafkaReader", "first_fetch_s"]

FETCH_BYTES: Final = int(os.environ.get("BENCH_FETCH_BYTES", "0"))
"""max.partition.fetch.bytes of both clients; 0 leaves their default, which is 1 MiB."""

_QUIET_S: Final = 60.0
_MESSAGES: Final = 10_000
_SOURCE: Final = Path(__file__).parent / "java" / "HistoryReader.java"
_LIBRARIES: Final = ("kafka-clients-", "slf4j-api-", "lz4-java-", "snappy-java-", "zstd-jni-")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What one reading gave.

    Attributes:
        first_s, read_s: from the assignment to the first records, and to the last.
        digest: SHA-256 of all records, empty when it was not asked for.
    """

    records: int
    value_bytes: int
    first_s: float
    read_s: float
    digest: str


class HistoryReader(Protocol):
    """A consumer that reads partition 0 from its beginning until it has `records` of them."""

    name: str

    @property
    def pids(self) -> Sequence[int]:
        """Its processes, if it isn't this one."""

    def read(
        self, bootstrap_servers: str, topic: str, isolation: str, records: int, *, digest: bool
    ) -> History:
        """With a new consumer; AssertionError when nothing comes for a minute."""


class LibrdkafkaReader:
    """In this process."""

    name = "librdkafka"
    pids: Sequence[int] = ()

    def read(
        self, bootstrap_servers: str, topic: str, isolation: str, records: int, *, digest: bool
    ) -> History:
        """See HistoryReader."""
        consumer = _consumer(bootstrap_servers, isolation)
        whole = PartitionDigest() if digest else None
        try:
            consumer.list_topics(topic, timeout=30)
            begun = time.perf_counter()
            consumer.assign([TopicPartition(topic, 0, 0)])
            (message,) = _messages(consumer, 1)
            first_s = time.perf_counter() - begun
            found, size = 1, len(message)
            _take([message], whole)
            while found < records:
                messages = _messages(consumer, min(_MESSAGES, records - found))
                found += len(messages)
                size += sum(map(len, messages))
                _take(messages, whole)
            read_s = time.perf_counter() - begun
        finally:
            consumer.close()
        return History(
            records=found,
            value_bytes=size,
            first_s=first_s,
            read_s=read_s,
            digest=whole.hexdigest() if whole else "",
        )


def first_fetch_s(bootstrap_servers: str, topic: str, isolation: str, offset: int) -> float:
    """Seconds from the assignment of a new librdkafka consumer to its first record."""
    consumer = _consumer(bootstrap_servers, isolation)
    try:
        consumer.list_topics(topic, timeout=30)
        begun = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, offset)])
        _messages(consumer, 1)
        return time.perf_counter() - begun
    finally:
        consumer.close()


class JavaReader:
    """In a JVM that stays up (java/HistoryReader.java)."""

    name = "java"

    def __init__(self, directory: Path) -> None:
        classes = _compiled(directory)
        self._log = (directory / "history-reader.log").open("wb")
        self._process = subprocess.Popen(
            guarded([java_command(), "-Xmx512m", "-cp", classes, "HistoryReader"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    @property
    def pids(self) -> Sequence[int]:
        """The JVM."""
        return (self._process.pid,)

    def read(
        self, bootstrap_servers: str, topic: str, isolation: str, records: int, *, digest: bool
    ) -> History:
        """See HistoryReader."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        fields = (bootstrap_servers, topic, isolation, records, FETCH_BYTES, str(digest).lower())
        self._process.stdin.write("\t".join(map(str, fields)) + "\n")
        self._process.stdin.flush()
        status, *said = self._process.stdout.readline().rstrip("\n").split("\t")
        assert status == "ok", said
        found, size, first, nanos = map(int, said[:4])
        return History(
            records=found,
            value_bytes=size,
            first_s=first / 1e9,
            read_s=nanos / 1e9,
            digest=said[4],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def _consumer(bootstrap_servers: str, isolation: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "bench",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        # A full queue would make it pause for a second, which says nothing about the tier.
        "fetch.queue.backoff.ms": 1,
    }
    if FETCH_BYTES:
        settings["max.partition.fetch.bytes"] = FETCH_BYTES
    return Consumer(settings)


def _messages(consumer: Consumer, count: int) -> list[Message]:
    since = time.monotonic()
    while not (messages := consumer.consume(count, 0.2)):
        assert time.monotonic() - since < _QUIET_S, f"nothing came for {_QUIET_S} s"
    assert messages[-1].error() is None, messages[-1].error()
    return messages


def _take(messages: Sequence[Message], whole: PartitionDigest | None) -> None:
    if whole is None:
        return
    for message in messages:
        offset = message.offset()
        assert offset is not None, message.error()
        headers = message.headers() or []
        pairs = list(headers.items()) if isinstance(headers, dict) else headers
        whole.add(offset, message.timestamp()[1], message.key(), message.value(), pairs)


def _compiled(target: Path) -> str:
    """Compile the Java side into `target`; returns the class path to run it with."""
    jars = [jar for jar in kafka_jars() if jar.name.startswith(_LIBRARIES)]
    command = ["javac", "--release", "17", "-cp", class_path(jars), "-d", str(target)]
    subprocess.run([*command, str(_SOURCE)], check=True, capture_output=True, timeout=120)
    return os.pathsep.join((str(target), class_path(jars)))
