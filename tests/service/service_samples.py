"""Segments and upload bodies made by hand, for the service's tests."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from tiering.store import ObjectStore

HEADER_BYTES = 61
TOKEN = "a-token-for-tests"


def wait_until(condition: Callable[[], object], *, seconds: float = 20) -> None:
    """Poll until `condition` holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.005)


class RawUpload:
    """A PUT written byte by byte over a socket, to be cut or held up anywhere."""

    def __init__(self, client: httpx.Client, path: str, length: int, *, extra: str = "") -> None:
        url = client.base_url
        self.socket = socket.create_connection((url.host, url.port or 80), timeout=20)
        self.socket.sendall(
            f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Length: {length}\r\n{extra}\r\n".encode()
        )

    def send(self, data: bytes) -> None:
        """Send some of the body."""
        self.socket.sendall(data)

    def status(self) -> int:
        """The answer's status."""
        return int(self.socket.recv(65536).split(b" ", 2)[1])

    def cut(self) -> None:
        """Close the connection."""
        self.socket.close()


def stored_keys(store: ObjectStore) -> list[str]:
    """Keys of the objects that belong to segments."""
    return [i.key for prefix in ("ledger/", "native/") for i in store.list(prefix)]


def uuid_text(rng: random.Random) -> str:
    """A Kafka Uuid's text form."""
    return base64.urlsafe_b64encode(rng.randbytes(16)).rstrip(b"=").decode()


def batch(base_offset: int, records: int, size: int, rng: random.Random) -> bytes:
    """A v2 batch of `size` bytes; only its head is real, the service reads no further."""
    head = struct.pack(
        ">qiibIhiqqqhii",
        base_offset, size - 12, 0, 2, 0, 0, records - 1, 0, 0, -1, -1, -1, records,
    )  # fmt: skip
    return head + rng.randbytes(size - HEADER_BYTES)


@dataclass(kw_only=True)
class Sample:
    """One segment: its log, its parts, and the starts of its batches in the log."""

    topic_id: str
    segment_id: str
    log: bytes
    starts: list[int]
    indexes: dict[str, bytes]
    base_offset: int = 0
    end_offset: int = 0
    topic: str = "orders"
    partition: int = 3
    changes: dict[str, object] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Path of the segment's requests."""
        name = f"{self.base_offset:020d}-{self.segment_id}"
        return f"/v1/segments/{self.topic_id}/{self.partition}/{name}"

    @property
    def key(self) -> str:
        """What the segment's object keys have in common."""
        return self.path.removeprefix("/v1/segments/")

    @property
    def served_starts(self) -> list[int]:
        """Each batch's served position."""
        return [start // 4 for start in self.starts]

    def manifest(self) -> dict[str, object]:
        """The manifest as the plug-in writes it, with `changes` laid over."""
        return {
            "version": 1,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition": self.partition,
            "segment_id": self.segment_id,
            "start_offset": self.base_offset,
            "end_offset": self.end_offset,
            "max_timestamp_ms": 1_700_000_000_000,
            "broker_id": 1,
            "segment_size_bytes": len(self.log),
            "leader_epochs": [[0, self.base_offset]],
            "parts": [
                {"name": name, "size": len(data)}
                for name, data in [*self.indexes.items(), ("log", self.log)]
            ],
            **self.changes,
        }

    def body(self) -> bytes:
        """The whole upload."""
        return frame(
            json.dumps(self.manifest()).encode(), b"".join(self.indexes.values()) + self.log
        )


def frame(manifest: bytes, parts: bytes) -> bytes:
    """Length, manifest, parts and digest."""
    content = struct.pack(">I", len(manifest)) + manifest + parts
    return content + hashlib.sha256(content).digest()


def make_sample(
    seed: int = 1,
    *,
    sizes: Sequence[int] | None = None,
    index_every: int = 4096,
    transactions: bool = True,
    topic_id: str | None = None,
) -> Sample:
    """A segment of batches of the given sizes, indexed as the broker does it."""
    rng = random.Random(seed)
    if sizes is None:
        sizes = [rng.choice([61, 62, 70, 75, 200, 1000, 5000, 20_000]) for _ in range(120)]
    base = rng.randrange(10**6)
    log, starts, index, offset, since = bytearray(), [], bytearray(), base, 0
    for size in sizes:
        records = rng.randrange(1, 9)
        if since > index_every:
            index += struct.pack(">ii", offset + records - 1 - base, len(log))
            since = 0
        starts.append(len(log))
        log += batch(offset, records, size, rng)
        since += size
        offset += records
    indexes = {
        "offset_index": bytes(index),
        "time_index": rng.randbytes(12 * 5),
        "transaction_index": rng.randbytes(34 * 2),
        "producer_snapshot": rng.randbytes(100),
        "leader_epochs": f"0\n1\n0 {base}\n".encode(),
        "verdicts": rng.randbytes(34),
    }
    if not transactions:
        del indexes["transaction_index"]
        indexes["verdicts"] = b""
    return Sample(
        topic_id=topic_id or uuid_text(rng),
        segment_id=uuid_text(rng),
        log=bytes(log),
        starts=starts,
        indexes=indexes,
        base_offset=base,
        end_offset=offset - 1,
    )
