"""Segments on disk as a broker leaves them, made of arbitrary bytes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from plugin_harness import Segment

__all__ = ["TOPIC_ID", "aborted", "write_segment", "write_transaction_index"]

TOPIC_ID = "Jb2Wc3VdQ0OVd6C8pTKkDg"
SEGMENT_ID = "_-4fKk0dRFWw8S0HCn1wXA"  # ids may begin with any of base64url's letters


def aborted(producer_id: int, first: int, last: int) -> bytes:
    """One entry of a .txnindex."""
    return struct.pack(">hqqqq", 0, producer_id, first, last, last + 1)


def write_transaction_index(directory: Path, base_offset: int, *entries: bytes) -> None:
    """The .txnindex of the segment that begins at `base_offset`."""
    (directory / f"{base_offset:020d}.txnindex").write_bytes(b"".join(entries))


def write_segment(
    directory: Path,
    *,
    start_offset: int = 100,
    end_offset: int = 199,
    size_bytes: int = 300_000,
    preallocated_bytes: int = 0,
    transaction_index: bytes | None = None,
) -> Segment:
    """Write all files of one segment into `directory` (made if need be)."""
    directory.mkdir(parents=True, exist_ok=True)
    base = f"{start_offset:020d}"
    content = random.Random(start_offset).randbytes(size_bytes)
    (directory / f"{base}.log").write_bytes(content + bytes(preallocated_bytes))
    (directory / f"{base}.index").write_bytes(struct.pack(">iiii", 9, 4096, 50, 200_000))
    (directory / f"{base}.timeindex").write_bytes(struct.pack(">qi", 1234567, 50))
    (directory / f"{end_offset + 1:020d}.snapshot").write_bytes(b"producer snapshot")
    (directory / "leader-epochs").write_bytes(b"0\n2\n0 0\n3 150\n")
    if transaction_index is not None:
        write_transaction_index(directory, start_offset, transaction_index)
    return Segment(
        directory=directory,
        topic="orders.eu_1",
        topic_id=TOPIC_ID,
        partition=7,
        segment_id=SEGMENT_ID,
        start_offset=start_offset,
        end_offset=end_offset,
        size_bytes=size_bytes,
        leader_epochs=((0, start_offset), (3, 150)),
    )
