"""Kafka's own Java client in a JVM that stays up (java/StockClient.java)."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from acknowledged import HASH_BYTES, Found, Record

from tiering.jars import class_path, java_command, kafka_jars
from tiering.local.child_process import guarded

__all__ = ["LogOffsets", "StockClient", "compile_client"]

SOURCE = Path(__file__).parent / "java" / "StockClient.java"
LIBRARIES = ("kafka-clients-", "slf4j-api-", "lz4-java-", "snappy-java-", "zstd-jni-")
FOUND = struct.Struct(f">q{HASH_BYTES}s")


def compile_client(target: Path) -> str:
    """Compile the Java side into `target`; returns the class path to run it with."""
    jars = [jar for jar in kafka_jars() if jar.name.startswith(LIBRARIES)]
    command = ["javac", "--release", "17", "-cp", class_path(jars), "-d", str(target), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return os.pathsep.join((str(target), class_path(jars)))


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """What ListOffsets says; -1 where there is none.

    Attributes:
        earliest_local: of what the leader has on its disk (-4).
        latest_tiered: the last one in the tier (-5).
        of_latest_time: the record with the highest timestamp, of the local ones (-3).
    """

    earliest: int
    earliest_local: int
    latest_tiered: int
    latest: int
    of_latest_time: int


class StockClient:
    """One JVM; one command at a time."""

    def __init__(self, classpath: str, bootstrap_servers: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="stock-client-")
        self._stderr = (Path(self._directory.name) / "stderr").open("wb")
        self._process = subprocess.Popen(
            guarded(
                [java_command(), "-Xmx512m", "-cp", classpath, "StockClient", bootstrap_servers]
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
        )
        self._turn = threading.Lock()

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
        self._stderr.close()
        self._directory.cleanup()

    def read(
        self, topic: str, partition: int, end: int, isolation: str, *, start: int = 0, fetch: int
    ) -> list[Found]:
        """All records from `start` until the position reaches `end`."""
        with self._turn, self._file("read") as out:
            self._call("read", topic, partition, start, end, isolation, fetch, out)
            return list(FOUND.iter_unpack(out.read_bytes()))

    def seek(
        self,
        topic: str,
        partition: int,
        targets: Sequence[int],
        isolation: str,
        *,
        fetches: Sequence[int],
    ) -> Iterator[tuple[int, list[Found]]]:
        """For every target the records that the first poll after the seek gave.

        One consumer for each of the fetch sizes; they take turns with the targets.
        """
        with self._turn, self._file("targets") as wanted, self._file("seek") as out:
            wanted.write_bytes(struct.pack(f">{len(targets)}q", *targets))
            sizes = ",".join(map(str, fetches))
            self._call("seek", topic, partition, isolation, sizes, wanted, out)
            data = out.read_bytes()
        at = 0
        while at < len(data):
            target, count = struct.unpack_from(">qi", data, at)
            at += 12
            yield target, list(FOUND.iter_unpack(data[at : at + count * FOUND.size]))
            at += count * FOUND.size

    def offsets_for_times(
        self, topic: str, partition: int, timestamps: Sequence[int], isolation: str
    ) -> list[tuple[int, int]]:
        """(offset, timestamp of the record there) for each timestamp, (-1, -1) where none."""
        with self._turn, self._file("targets") as wanted, self._file("times") as out:
            wanted.write_bytes(struct.pack(f">{len(timestamps)}q", *timestamps))
            self._call("times", topic, partition, isolation, wanted, out)
            return list(struct.iter_unpack(">qq", out.read_bytes()))

    def log_offsets(self, topic: str, partition: int = 0) -> LogOffsets:
        """Where the partition's log begins and ends, here and in the tier."""
        with self._turn:
            return LogOffsets(*map(int, self._call("offsets", topic, partition).split()))

    def produce(
        self, topic: str, codec: str, records: Sequence[tuple[int, Record]], *, batch_bytes: int
    ) -> list[tuple[int, int]]:
        """Send (partition, record) pairs (offsets unused); (offset, timestamp) of each."""
        with self._turn, self._file("records") as sent, self._file("acknowledged") as out:
            sent.write_bytes(b"".join(_encode(p, r) for p, r in records))
            self._call("produce", topic, codec, batch_bytes, sent, out)
            return list(struct.iter_unpack(">qq", out.read_bytes()))

    def transactions(
        self, topic: str, partition: int, *, threads: int, count: int
    ) -> list[tuple[Record, bool]]:
        """One-record transactions, most of them aborted: (record, committed)."""
        with self._turn, self._file("transactions") as out:
            self._call("transactions", topic, partition, threads, count, out)
            rows = struct.iter_unpack(">qqiib", out.read_bytes())
            return [
                ((offset, at, None, b"%d/%d" % (thread, n), []), committed == 1)
                for offset, at, thread, n, committed in rows
            ]

    def _call(self, *fields: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, fields)) + "\n")
        self._process.stdin.flush()
        status, _, said = self._process.stdout.readline().rstrip("\n").partition("\t")
        assert status == "ok", f"{fields[:5]}: {said}"
        return said

    def _file(self, name: str) -> _File:
        return _File(Path(self._directory.name) / name)


class _File:
    """A path whose file is gone afterwards."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)


def _encode(partition: int, record: Record) -> bytes:
    _, timestamp_ms, key, value, headers = record
    parts = [struct.pack(">iq", partition, timestamp_ms), _item(key), _item(value)]
    parts.append(struct.pack(">i", len(headers)))
    for name, content in headers:
        parts += [_item(name.encode()), _item(content)]
    return b"".join(parts)


def _item(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else struct.pack(">i", len(data)) + data
