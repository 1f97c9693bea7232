"""The ledger: one small object per segment id that says how far its copy has come.

The object is written first by the service, once log and indexes are durable: a segment
without a ledger object does not exist. It is changed only by conditional writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tiering.errors import BadInput, NotFound, StoreConflict
from tiering.segments import SegmentId, SegmentMetadata
from tiering.store import ObjectStore

__all__ = ["Ledger", "LedgerEntry", "Quarantine", "SegmentState", "partition_of_key"]

_VERSION: Final = 1
_PREFIX: Final = "ledger/"


class SegmentState(StrEnum):
    """How far a segment has come; later states never go back."""

    UPLOADED = "uploaded"
    CONVERTED = "converted"
    PROVEN = "proven"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Why a segment can't be converted; its native copy stays and is served."""

    reason: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The state of one segment id.

    Attributes:
        metadata: what the broker said of it.
        parts: (part name, size in bytes) of the indexes object, in the order they lie there.
        sha256: hex digest of the upload's body, as sender and service computed it.
        uploaded_at_ms: when the copy became durable, epoch milliseconds.
        delete_requested: the broker has asked to delete this id; its native objects go.
        quarantine: set when its bytes can't be converted.
    """

    metadata: SegmentMetadata
    parts: tuple[tuple[str, int], ...]
    sha256: str
    uploaded_at_ms: int
    state: SegmentState = SegmentState.UPLOADED
    delete_requested: bool = False
    quarantine: Quarantine | None = None

    def part_range(self, name: str) -> tuple[int, int] | None:
        """(start, size) of a part in the indexes object, or None when the segment has none."""
        start = 0
        for part, size in self.parts:
            if part == name:
                return start, size
            start += size
        return None

    def to_json(self) -> bytes:
        """Encode as the ledger object's bytes."""
        meta = self.metadata
        return json.dumps(
            {
                "version": _VERSION,
                "topic": meta.topic,
                "topic_id": meta.id.topic_id,
                "partition": meta.id.partition,
                "base_offset": meta.id.base_offset,
                "segment_id": meta.id.segment_id,
                "start_offset": meta.start_offset,
                "end_offset": meta.end_offset,
                "max_timestamp_ms": meta.max_timestamp_ms,
                "broker_id": meta.broker_id,
                "size_bytes": meta.size_bytes,
                "leader_epochs": meta.leader_epochs,
                "parts": self.parts,
                "sha256": self.sha256,
                "uploaded_at_ms": self.uploaded_at_ms,
                "state": self.state.value,
                "delete_requested": self.delete_requested,
                "quarantine": self.quarantine
                and {"reason": self.quarantine.reason, "position": self.quarantine.position},
            }
        ).encode()

    @classmethod
    def from_json(cls, key: str, data: bytes) -> LedgerEntry:
        """Decode a ledger object; raises BadInput naming `key` when it is not one."""
        try:
            raw: dict[str, Any] = json.loads(data)
            if raw["version"] != _VERSION:
                raise BadInput(f"{key}: ledger version {raw['version']} is not {_VERSION}")
            identity = SegmentId(
                topic_id=raw["topic_id"],
                partition=raw["partition"],
                base_offset=raw["base_offset"],
                segment_id=raw["segment_id"],
            )
            quarantine = raw["quarantine"]
            return cls(
                metadata=SegmentMetadata(
                    id=identity,
                    topic=raw["topic"],
                    start_offset=raw["start_offset"],
                    end_offset=raw["end_offset"],
                    max_timestamp_ms=raw["max_timestamp_ms"],
                    broker_id=raw["broker_id"],
                    size_bytes=raw["size_bytes"],
                    leader_epochs=tuple((int(e), int(o)) for e, o in raw["leader_epochs"]),
                ),
                parts=tuple((str(name), int(size)) for name, size in raw["parts"]),
                sha256=raw["sha256"],
                uploaded_at_ms=raw["uploaded_at_ms"],
                state=SegmentState(raw["state"]),
                delete_requested=raw["delete_requested"],
                quarantine=Quarantine(**quarantine) if quarantine else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{key}: not a ledger object: {error!r}") from error


class Ledger:
    """The ledger objects of one store, with a cache by version so that a scan reads only news."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._cache: dict[str, tuple[str, LedgerEntry]] = {}
        self._damaged: dict[str, str] = {}

    @property
    def damaged(self) -> Mapping[str, str]:
        """{key: what is wrong} of what the last scan found below `ledger/` and could not read."""
        return self._damaged

    def create(self, entry: LedgerEntry) -> LedgerEntry:
        """Write a new entry; returns the one already there if the id exists."""
        try:
            self._store.put_if(entry.metadata.id.ledger_key, entry.to_json(), expected=None)
        except StoreConflict:
            return self.load(entry.metadata.id)
        return entry

    def load(self, segment: SegmentId) -> LedgerEntry:
        """Read one entry; NotFound if there is none."""
        stored = self._store.get(segment.ledger_key)
        return LedgerEntry.from_json(segment.ledger_key, stored.data)

    def update(
        self, segment: SegmentId, change: Callable[[LedgerEntry], LedgerEntry]
    ) -> LedgerEntry:
        """Apply `change` to the current entry by compare-and-set, again on each conflict."""
        while True:
            stored = self._store.get(segment.ledger_key)
            entry = LedgerEntry.from_json(segment.ledger_key, stored.data)
            changed = change(entry)
            if changed == entry:
                return entry
            try:
                self._store.put_if(segment.ledger_key, changed.to_json(), expected=stored.version)
            except StoreConflict:
                continue
            return changed

    def advance(self, segment: SegmentId, state: SegmentState) -> LedgerEntry:
        """Move an entry forward to `state`; nothing happens if it is there or beyond."""
        order = list(SegmentState)

        def change(entry: LedgerEntry) -> LedgerEntry:
            if order.index(entry.state) >= order.index(state):
                return entry
            return replace(entry, state=state)

        return self.update(segment, change)

    def scan(self) -> Iterator[LedgerEntry]:
        """Every entry in the store, by key; unchanged ones come from memory.

        An object that is no entry is left out and named in `damaged`: it must not stop the others.
        """
        seen: dict[str, tuple[str, LedgerEntry]] = {}
        damaged: dict[str, str] = {}
        for info in self._store.list(_PREFIX):
            cached = self._cache.get(info.key)
            if cached is None or cached[0] != info.version:
                try:
                    stored = self._store.get(info.key)
                    entry = LedgerEntry.from_json(info.key, stored.data)
                except NotFound:
                    continue
                except BadInput as error:
                    damaged[info.key] = str(error)
                    continue
                cached = (stored.version, entry)
            seen[info.key] = cached
            yield cached[1]
        self._cache, self._damaged = seen, damaged


def partition_of_key(key: str) -> tuple[str, int] | None:
    """(topic id, partition) that a key below `ledger/` names; None if it isn't one of ours."""
    try:
        segment = SegmentId.parse(key.removeprefix(_PREFIX).removesuffix(".json"))
    except BadInput:
        return None
    return segment.topic_id, segment.partition
