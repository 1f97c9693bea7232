"""The ledger: one small object per segment id that says how far its copy has come.

The object is written first by the service, once log and indexes are durable: a segment
without a ledger object does not exist. It is changed only by conditional writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tiering.errors import BadInput, FatalError, NotFound, StoreConflict
from tiering.segments import SegmentId, SegmentMetadata
from tiering.store import ObjectStore

__all__ = [
    "Ledger",
    "LedgerEntry",
    "Proof",
    "ProofFault",
    "Quarantine",
    "SegmentState",
    "partition_of_key",
]

_VERSION: Final = 1
_PREFIX: Final = "ledger/"


class SegmentState(StrEnum):
    """How far a segment has come. Only `LedgerEntry.withdrawn` goes back, and never from RETIRED.

    UPLOADED: native only. CONVERTED: its rows are in the table, its side file is written.
    PROVEN: both were read back and gave the native log's records. RETIRED: table and side file
    are the authority; the native objects go, or are gone.
    """

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
class Proof:
    """What was proven of a segment, and when.

    Attributes:
        proven_at_ms: epoch milliseconds; the grace counts from here.
        coverage: digest of the data and delete files that hold the segment's rows
            (`Coverage.digest`): as long as a fresh table has the same, the proof holds for it.
        deleted_rows: rows that somebody had deleted through SQL by then.
    """

    proven_at_ms: int
    coverage: str
    deleted_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFault:
    """A proof that failed: the native log stayed the authority. `count` over the entry's life."""

    reason: str
    offset: int
    count: int = 1


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
        side: keys of the parts of its side file, in offset order; empty before CONVERTED.
        proof: set from PROVEN on.
        fault: the last proof that failed, if any did.
        native_gone: the native objects were removed after RETIRED.
        cut: offset at which an unclean election cut the log that a retired segment is of: its
            batches from there on are no part of the log any more, and have no rows.
    """

    metadata: SegmentMetadata
    parts: tuple[tuple[str, int], ...]
    sha256: str
    uploaded_at_ms: int
    state: SegmentState = SegmentState.UPLOADED
    delete_requested: bool = False
    quarantine: Quarantine | None = None
    side: tuple[str, ...] = ()
    proof: Proof | None = None
    fault: ProofFault | None = None
    native_gone: bool = False
    cut: int | None = None

    def cut_at(self, offset: int) -> LedgerEntry:
        """The entry of a segment whose log was cut at `offset`, or already lower."""
        return replace(self, cut=offset if self.cut is None else min(self.cut, offset))

    def withdrawn(self, fault: ProofFault | None = None) -> LedgerEntry:
        """The entry as it is when its rows have been taken out of the table again: uploaded.

        Raises FatalError for a retired one: its native log is not there to convert from.
        """
        if self.state is SegmentState.RETIRED:
            raise FatalError(f"{self.metadata}: its native log is gone, its rows must stay")
        known = self.fault
        if fault is not None and known is not None:
            fault = replace(fault, count=known.count + 1)
        return replace(self, state=SegmentState.UPLOADED, side=(), proof=None, fault=fault or known)

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
                "side": self.side,
                "proof": self.proof and asdict(self.proof),
                "fault": self.fault and asdict(self.fault),
                "native_gone": self.native_gone,
                "cut": self.cut,
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
            quarantine, proof, fault = raw["quarantine"], raw.get("proof"), raw.get("fault")
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
                side=tuple(str(key) for key in raw.get("side", ())),
                proof=Proof(**proof) if proof else None,
                fault=ProofFault(**fault) if fault else None,
                native_gone=raw.get("native_gone", False),
                cut=raw.get("cut"),
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
