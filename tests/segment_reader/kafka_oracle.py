"""What Kafka's own classes make of a log, for comparison with what we make of it."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from segment_reader import BytesSource, SegmentBounds

_SOURCES = Path(__file__).parent / "java"
_NEEDED = (
    "kafka-clients-",
    "kafka-storage-4",
    "kafka-server-common-",
    "slf4j-api-",
    "lz4-java-",
    "snappy-java-",
    "zstd-jni-",
)

Row = tuple[int, int, int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
"""Offset, timestamp, timestamp type, leader epoch, key, value, headers."""


@dataclass(frozen=True)
class Oracle:
    """The compiled Java sources beside this file."""

    classpath: str

    @classmethod
    def compile(cls, jars: Sequence[Path], classes: Path) -> Oracle:
        libraries = [str(jar) for jar in jars if jar.name.startswith(_NEEDED)]
        classpath = ":".join([str(classes), *libraries])
        sources = sorted(str(path) for path in _SOURCES.glob("*.java"))
        command = ["javac", "--release", "17", "-cp", classpath, "-d", str(classes), *sources]
        _run(command)
        return cls(classpath)

    def run(self, main: str, *arguments: str) -> None:
        _run(["java", "-Xmx512m", "-cp", self.classpath, main, *arguments])

    def read(self, log: bytes, directory: Path) -> KafkaLog:
        """What Kafka reads from `log`."""
        path = directory / "some.log"
        path.write_bytes(log)
        self.run("Dump", str(path))
        return KafkaLog.load(path)


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


@dataclass(frozen=True)
class KafkaLog:
    """A log and Kafka's reading of it: one dict per batch."""

    name: str
    data: bytes
    batches: list[dict[str, Any]]

    @classmethod
    def load(cls, path: Path) -> KafkaLog:
        lines = Path(f"{path}.json").read_text().splitlines()
        return cls(path.stem, path.read_bytes(), [json.loads(line) for line in lines])

    @property
    def source(self) -> BytesSource:
        return BytesSource(self.name, self.data)

    @property
    def bounds(self) -> SegmentBounds:
        epochs: dict[int, int] = {}
        for batch in self.batches:
            epochs.setdefault(batch["leader_epoch"], batch["base_offset"])
        return SegmentBounds(
            start_offset=self.batches[0]["base_offset"],
            end_offset=self.batches[-1]["last_offset"],
            leader_epochs=tuple(epochs.items()),
        )

    def rows(self) -> list[Row]:
        """All data records."""
        return [row for batch in self.batches if not batch["control"] for row in batch_rows(batch)]


def batch_rows(batch: dict[str, Any]) -> list[Row]:
    return [
        (
            offset,
            timestamp,
            batch["timestamp_type"],
            batch["leader_epoch"],
            _bytes(key),
            _bytes(value),
            tuple((_bytes(name) or b"", _bytes(content)) for name, content in headers),
        )
        for offset, timestamp, key, value, headers in batch["records"]
    ]


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    """Decoded Arrow batches as rows, after a full validation of their buffers."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        for record in batch.to_pylist():
            headers = tuple((h["key"].encode(), h["value"]) for h in record["headers"])
            fixed = ("offset", "timestamp_ms", "timestamp_type", "leader_epoch", "key", "value")
            rows.append((*(record[name] for name in fixed), headers))
    return rows


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
