"""Native segments made by hand (Kafka's message format v2, KIP-98) and put into a store."""

from __future__ import annotations

import base64
import gzip
import random
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import google_crc32c
import pyarrow as pa
import zstandard

from tiering.ledger import Ledger, LedgerEntry
from tiering.segments import CHECKSUMS_PART, SegmentId, SegmentMetadata
from tiering.store import ObjectStore
from tiering.tasks import ConversionTask, TableTarget

CODECS = {"none": 0, "gzip": 1, "zstd": 4}
NO_TIMESTAMP = -1
EPOCH_MS = 1_700_000_000_000


def kafka_uuid() -> str:
    """A random id as Kafka writes it; never beginning with '-'."""
    return base64.urlsafe_b64encode(b"\x10" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


@dataclass(frozen=True, kw_only=True)
class Rec:
    """One record as it is expected back."""

    offset: int
    timestamp_ms: int = EPOCH_MS
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Records that go into one batch, and how."""

    records: Sequence[Rec]
    codec: str = "none"
    epoch: int = 0
    log_append: bool = False
    producer: int = -1
    control: bool = False
    last_offset: int | None = None

    def encode(self) -> bytes:
        """The batch's bytes."""
        first = self.records[0]
        last = self.records[-1].offset if self.last_offset is None else self.last_offset
        times = [r.timestamp_ms for r in self.records]
        body = b"".join(record_bytes(r, first) for r in self.records)
        if self.codec == "gzip":
            body = gzip.compress(body, 1)
        elif self.codec == "zstd":
            body = zstandard.compress(body)
        attributes = CODECS[self.codec] | self.log_append << 3 | self.control << 5
        attributes |= (self.producer >= 0) << 4
        checked = struct.pack(
            ">hiqqqhii",
            *(attributes, last - first.offset, first.timestamp_ms, max(times)),
            *(self.producer, 0 if self.producer >= 0 else -1, 0 if self.producer >= 0 else -1),
            len(self.records),
        )
        checked += body
        crc = google_crc32c.value(checked)
        head = struct.pack(">qiibI", first.offset, 9 + len(checked), self.epoch, 2, crc)
        return head + checked


def record_bytes(record: Rec, first: Rec) -> bytes:
    """A record in the batch that begins with `first`."""
    body = b"\0" + _varint(record.timestamp_ms - first.timestamp_ms)
    body += _varint(record.offset - first.offset) + _bytes(record.key) + _bytes(record.value)
    body += _varint(len(record.headers))
    for key, value in record.headers:
        body += _bytes(key.encode()) + _bytes(value)
    return _varint(len(body)) + body


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def some_records(start: int, count: int, seed: int = 1, value_bytes: int = 60) -> list[Rec]:
    """Records with everything that may be missing missing now and then."""
    chance = random.Random(seed * 7919 + start)
    return [
        Rec(
            offset=start + i,
            timestamp_ms=EPOCH_MS + (start + i) * 37 + chance.randint(-9, 9),
            key=chance.choice([None, b"", b"key-%d" % (start + i)]),
            value=chance.choice(
                [None, b""] + [chance.randbytes(chance.randint(1, value_bytes))] * 6
            ),
            headers=tuple(
                (chance.choice(["a", "b", "grün"]), chance.choice([None, b"", b"x" * 5]))
                for _ in range(chance.choice([0, 0, 0, 1, 3]))
            ),
        )
        for i in range(count)
    ]


def in_batches(
    records: Sequence[Rec], per_batch: int, codecs: Sequence[str] = ("none",)
) -> list[Batch]:
    """Cut records into batches of equal length, codecs in turn."""
    return [
        Batch(records=records[i : i + per_batch], codec=codecs[i // per_batch % len(codecs)])
        for i in range(0, len(records), per_batch)
    ]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Batches with what the broker says of them."""

    batches: Sequence[Batch]
    topic: str = "orders"
    partition: int = 3
    topic_id: str = field(default_factory=kafka_uuid)
    segment_id: str = field(default_factory=kafka_uuid)
    leader_epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    verdicts: bytes = b""
    index_every: int = 1

    @property
    def start_offset(self) -> int:
        return self.batches[0].records[0].offset

    @property
    def end_offset(self) -> int:
        last = self.batches[-1]
        return last.records[-1].offset if last.last_offset is None else last.last_offset

    @property
    def id(self) -> SegmentId:
        return SegmentId(
            topic_id=self.topic_id,
            partition=self.partition,
            base_offset=self.start_offset,
            segment_id=self.segment_id,
        )

    @property
    def log(self) -> bytes:
        return b"".join(batch.encode() for batch in self.batches)

    @property
    def offset_index(self) -> bytes:
        """As the broker writes it: a batch's last offset and start, for every n-th batch."""
        entries, position = [], 0
        for i, batch in enumerate(self.batches):
            if i % self.index_every == self.index_every - 1:
                last = batch.records[-1].offset if batch.last_offset is None else batch.last_offset
                entries.append(struct.pack(">ii", last - self.start_offset, position))
            position += len(batch.encode())
        return b"".join(entries)

    def store(
        self, store: ObjectStore, log: bytes | None = None, *, checksums: bool = True
    ) -> LedgerEntry:
        """Put it there as the service does: log, indexes, then the ledger object.

        Without checksums of the log's blocks, as the service once did, where these aren't wanted.
        """
        log = self.log if log is None else log
        parts = {"offset_index": self.offset_index, "verdicts": self.verdicts}
        if checksums:
            parts[CHECKSUMS_PART] = log_checksums(log)
        store.put(self.id.log_key, log)
        store.put(self.id.indexes_key, b"".join(parts.values()))
        entry = LedgerEntry(
            metadata=SegmentMetadata(
                id=self.id,
                topic=self.topic,
                start_offset=self.start_offset,
                end_offset=self.end_offset,
                max_timestamp_ms=EPOCH_MS,
                broker_id=1,
                size_bytes=len(log),
                leader_epochs=self.leader_epochs,
            ),
            parts=tuple((name, len(data)) for name, data in parts.items()),
            sha256="0" * 64,
            uploaded_at_ms=EPOCH_MS,
        )
        return Ledger(store).create(entry)

    def task(self, store: ObjectStore, target: TableTarget, task_id: int = 0) -> ConversionTask:
        """The task over all of it."""
        return ConversionTask(
            task_id=task_id,
            layout="onecopy",
            store_url=store.url,
            segment_path=self.id.path,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            segment_start_offset=self.start_offset,
            segment_end_offset=self.end_offset,
            leader_epochs=self.leader_epochs,
            index_parts=(
                ("offset_index", len(self.offset_index)),
                ("verdicts", len(self.verdicts)),
            ),
            from_offset=self.start_offset,
            to_offset=self.end_offset + 1,
            start_position=0,
            end_position=None,
            target=target,
        )

    def rows(self) -> list[dict[str, object]]:
        """What the table must hold of it, verdicts left aside."""
        return [
            expected_row(record, self.partition, batch)
            for batch in self.batches
            for record in batch.records
            if not batch.control
        ]


def expected_row(record: Rec, partition: int, batch: Batch) -> dict[str, object]:
    """A record as a row, timestamps as microseconds."""
    milliseconds = record.timestamp_ms
    if batch.log_append:
        milliseconds = max(r.timestamp_ms for r in batch.records)
    missing = milliseconds == NO_TIMESTAMP or abs(milliseconds) > (2**63 - 1) // 1000
    return {
        "kafka_partition": partition,
        "kafka_offset": record.offset,
        "kafka_timestamp": None if missing else milliseconds * 1000,
        "kafka_timestamp_type": int(batch.log_append),
        "kafka_leader_epoch": batch.epoch,
        "kafka_key": record.key,
        "kafka_headers": [{"key": k, "value": v} for k, v in record.headers],
        "value": record.value,
    }


def log_checksums(log: bytes) -> bytes:
    """What the service adds to the indexes: CRC-32C of each 64 KiB, little endian."""
    blocks = [log[i : i + 65536] for i in range(0, len(log), 65536)]
    return struct.pack(f"<{len(blocks)}I", *map(google_crc32c.value, blocks))


def aborted_entry(producer: int, first: int, last: int) -> bytes:
    """A `.txnindex` entry; `last` is the marker's offset."""
    return struct.pack(">hqqqq", 0, producer, first, last, last + 1)


def rows_of(table: pa.Table) -> list[dict[str, object]]:
    """An Arrow table's rows, timestamps as microseconds, in offset order."""
    index = table.schema.get_field_index("kafka_timestamp")
    plain = table.set_column(
        index,
        "kafka_timestamp",
        table.column(index).cast(pa.timestamp("us", "UTC")).cast(pa.int64()),
    )
    return sorted(plain.to_pylist(), key=lambda row: (row["kafka_partition"], row["kafka_offset"]))


def offsets(rows: Iterable[dict[str, object]]) -> list[object]:
    """Only the offsets."""
    return [row["kafka_offset"] for row in rows]
