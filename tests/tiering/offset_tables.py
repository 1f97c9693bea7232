"""Topic tables made by plain PyIceberg, with content that follows from partition and offset."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from tiering.offset_reader import Record
from tiering.table.catalog import CatalogConfig, open_catalog
from tiering.table.schema import raw_schema, table_name
from tiering.watermarks import TOPIC_PROPERTY, WATERMARKS_PROPERTY, Watermark, encode_watermarks

NAMESPACE = "kafka"
TOPIC = "orders"
EPOCH_MS = 1_700_000_000_000
ROW_GROUP_ROWS = 16


def record(partition: int, offset: int) -> Record:
    """The record that lies at that offset in every table made here."""
    chance = random.Random(partition * 1_000_003 + offset)
    key = None if chance.random() < 0.2 else b"" if chance.random() < 0.1 else b"k%d" % offset
    value = (
        None if chance.random() < 0.1 else b"v%d-%d" % (partition, offset) * chance.randint(1, 9)
    )
    headers = tuple(
        (f"h{chance.randint(0, 2)}", None if chance.random() < 0.3 else b"%d" % i)
        for i in range(chance.choice([0, 0, 1, 3]))
    )
    jitter = chance.randint(-40, 40)
    return Record(
        topic=TOPIC,
        partition=partition,
        offset=offset,
        timestamp_ms=-1 if chance.random() < 0.05 else EPOCH_MS + offset * 10 + jitter,
        timestamp_type=chance.randint(0, 1),
        leader_epoch=offset // 100,
        key=key,
        value=value,
        headers=headers,
    )


def rows(positions: Iterable[tuple[int, int]]) -> pa.Table:
    """Arrow rows of (partition, offset) in the order given."""
    records = [record(partition, offset) for partition, offset in positions]
    return pa.Table.from_pylist(
        [
            {
                "kafka_partition": r.partition,
                "kafka_offset": r.offset,
                "kafka_timestamp": None if r.timestamp_ms < 0 else r.timestamp_ms * 1000,
                "kafka_timestamp_type": r.timestamp_type,
                "kafka_leader_epoch": r.leader_epoch,
                "kafka_key": r.key,
                "kafka_headers": [{"key": k, "value": v} for k, v in r.headers],
                "value": r.value,
            }
            for r in records
        ],
        schema=ARROW,
    )


ARROW = pa.schema(
    [
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("kafka_offset", pa.int64(), nullable=False),
        pa.field("kafka_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("kafka_timestamp_type", pa.int32()),
        pa.field("kafka_leader_epoch", pa.int32()),
        pa.field("kafka_key", pa.binary()),
        pa.field(
            "kafka_headers",
            pa.list_(
                pa.field(
                    "element",
                    pa.struct(
                        [
                            pa.field("key", pa.string(), nullable=False),
                            pa.field("value", pa.binary()),
                        ]
                    ),
                    nullable=False,
                )
            ),
        ),
        pa.field("value", pa.binary()),
    ]
)


def make_catalog(directory: Path, name: str = "onecopy", **properties: str) -> Catalog:
    return open_catalog(
        CatalogConfig(
            name=name,
            properties={
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": f"file://{directory}/warehouse",
                **properties,
            },
        )
    )


def make_table(
    catalog: Catalog, topic: str = TOPIC, row_group_rows: int = ROW_GROUP_ROWS, **properties: str
) -> Table:
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog.create_table(
        (NAMESPACE, table_name(topic)),
        raw_schema(),
        properties={
            "write.parquet.row-group-limit": str(row_group_rows),
            TOPIC_PROPERTY: topic,
            **properties,
        },
    )


def append(
    table: Table,
    positions: Iterable[tuple[int, int]],
    watermarks: dict[int, int] | None = None,
) -> None:
    """One commit of one file; with `watermarks` as the tier commits them."""
    marks = {p: Watermark(offset=o) for p, o in (watermarks or {}).items()}
    summary = {WATERMARKS_PROPERTY: encode_watermarks(marks)} if marks else {}
    table.append(rows(positions), snapshot_properties=summary)


def gappy(count: int, seed: int, *, gap: float = 0.3, start: int = 0) -> list[int]:
    """Rising offsets with gaps."""
    chance = random.Random(seed)
    return [offset for offset in range(start, start + count) if chance.random() >= gap]


def offsets_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for b in batches for offset in b.column("kafka_offset").to_pylist()]


@dataclass
class ReadLog:
    """Every read of every file: (path, start, length)."""

    reads: list[tuple[str, int, int]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def clear(self) -> None:
        self.reads.clear()
        self.opened.clear()

    def data_files(self) -> set[str]:
        return {path for path, _, _ in self.reads if path.endswith(".parquet")}

    def bytes_of(self, path: str) -> int:
        return sum(length for name, _, length in self.reads if name == path)


class _LoggedStream:
    """A seekable stream that writes down what is read from it."""

    def __init__(self, stream: Any, path: str, log: ReadLog) -> None:
        self._stream, self._path, self._log = stream, path, log

    def read(self, size: int = -1) -> bytes:
        start = self._stream.tell()
        data: bytes = self._stream.read(None if size < 0 else size)
        with self._log.lock:
            self._log.reads.append((self._path, start, len(data)))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("read"):
            raise AttributeError(name)  # the ways around `read`
        return getattr(self._stream, name)

    def __enter__(self) -> _LoggedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class LoggedFileIO(PyArrowFileIO):
    """PyIceberg's own FileIO, with a log; `broken` makes the store fail for matching paths."""

    log: ClassVar[ReadLog] = ReadLog()
    broken: ClassVar[str | None] = None

    def new_input(self, location: str) -> Any:
        if self.broken is not None and self.broken in location:
            raise OSError(f"injected outage for {location}")
        file = super().new_input(location)
        opening = file.open

        def open_logged(seekable: bool = True) -> _LoggedStream:
            self.log.opened.append(location)
            return _LoggedStream(opening(seekable), location, self.log)

        file.open = open_logged  # type: ignore[method-assign,assignment]
        return file


@contextmanager
def outage(of: str) -> Iterator[None]:
    LoggedFileIO.broken = of
    try:
        yield
    finally:
        LoggedFileIO.broken = None


def logged_io() -> dict[str, str]:
    """Catalog properties that make tables use LoggedFileIO."""
    return {"py-io-impl": f"{LoggedFileIO.__module__}.{LoggedFileIO.__qualname__}"}


def table_offsets(table: Table, partition: int) -> list[int]:
    """What SQL sees: the partition's offsets, ascending."""
    scanned = table.scan(selected_fields=("kafka_partition", "kafka_offset")).to_arrow()
    found: Sequence[tuple[int, int]] = list(
        zip(*(scanned.column(i).to_pylist() for i in range(2)), strict=True)
    )
    return sorted(offset for p, offset in found if p == partition)
