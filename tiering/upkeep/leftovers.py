"""Objects that nothing names any more: found, remembered, and deleted after a grace.

Stores tell no time of an object, so a leftover's age counts from when it was first seen without a
use; a process that starts anew counts anew. Right before something is deleted, ledger or table
are read again. What can't be read keeps everything that it might name.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from tiering.errors import FatalError, TieringError
from tiering.ledger import Ledger, LedgerEntry
from tiering.store import ObjectStore
from tiering.table.manifests import live_entries

__all__ = [
    "Graces",
    "Leftovers",
    "Swept",
    "superfluous_entries",
    "unnamed_native",
    "unnamed_side_files",
]

_log: Final = logging.getLogger(__name__)
_SIDE: Final = "side/"
_NATIVE: Final = "native/"
_HEX: Final = "[0-9a-f]{32}"
_UUID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OURS: Final = re.compile(
    rf"data/(\d+-\d{{20}}|kept)-{_HEX}\.parquet"
    rf"|metadata/({_UUID}-m\d+|snap-\d+-\d+-{_UUID})\.avro"
)
_ENGINES: Final = re.compile(rf"data/\d{{5}}-\d+-{_UUID}-\d+-\d{{5}}\.parquet")
"""As Iceberg's Java writers name data files: Spark's, when it compacts the table."""
_MANIFESTS_KNOWN_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Graces:
    """How long leftovers are kept once seen, in milliseconds.

    Attributes:
        side_ms: side files. A conversion writes them before the ledger names them.
        native_ms: native objects that no ledger object names. An upload writes them before it.
        ledger_ms: ledger objects of deleted segments; also at least so long after the upload.
        table_ms: files of a table that no snapshot references. A conversion writes them
            before they are committed, and so do other engines.
        engines_ms: data files that Spark or another Java engine has written and no snapshot
            references; as long as Iceberg's own `remove_orphan_files` leaves them.
        every_ms: pause between two listings of the same place.
    """

    side_ms: int = 3_600_000
    native_ms: int = 86_400_000
    ledger_ms: int = 86_400_000
    table_ms: int = 86_400_000
    engines_ms: int = 259_200_000
    every_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How many objects a sweep deleted."""

    side_files: int = 0
    native_objects: int = 0
    ledger_objects: int = 0
    table_files: int = 0


def unnamed_side_files(listed: Iterable[str], entries: Iterable[LedgerEntry]) -> set[str]:
    """Those of the keys `listed` that no entry needs. A deleted segment needs none."""
    named = {key for entry in entries if not entry.delete_requested for key in entry.side}
    return set(listed) - named


def unnamed_native(listed: Iterable[str], entries: Iterable[LedgerEntry]) -> set[str]:
    """Those of the keys `listed` whose upload never came to its ledger object."""
    ids = [entry.metadata.id for entry in entries]
    return set(listed) - {key for i in ids for key in (i.log_key, i.indexes_key)}


def superfluous_entries(
    entries: Sequence[LedgerEntry], side_files: Iterable[str]
) -> list[LedgerEntry]:
    """Entries of deleted segments that say nothing any more.

    The one that ends last in its partition is kept: without a live segment it says up to
    where Kafka has given up the rows (`retention.floors`). So is one whose side files are not
    gone yet.

    Args:
        side_files: every key that was listed below `side/`.
    """
    last: dict[tuple[str, int], LedgerEntry] = {}
    for entry in entries:
        place = _place(entry)
        if place not in last or _end(last[place]) < _end(entry):
            last[place] = entry
    segments = {key.partition(".")[0] for key in side_files}
    return [
        entry
        for entry in entries
        if entry.delete_requested
        and last[_place(entry)] is not entry
        and entry.metadata.id.side_prefix not in segments
    ]


class Leftovers:
    """Sweeps a store and its tables. For one thread.

    Args:
        store: the tier's.
        now_ms: epoch milliseconds.
    """

    def __init__(
        self, store: ObjectStore, *, now_ms: Callable[[], int], graces: Graces | None = None
    ) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._now_ms = now_ms
        self._graces = graces or Graces()
        self._side = _Sightings()
        self._native = _Sightings()
        self._entries = _Sightings()
        self._table_files: dict[str, tuple[_Sightings, _Sightings]] = {}
        self._manifests: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._swept_at_ms: dict[str, int] = {}

    def sweep(self, entries: Sequence[LedgerEntry]) -> Swept:
        """Delete side files that no entry needs, native objects of uploads that never ended, and
        entries that say nothing any more.

        Never raises for a store that fails: it is tidying, and the next sweep goes on.
        """
        if not self._is_due(_SIDE):
            return Swept()
        try:
            return self._sweep(entries)
        except (TieringError, OSError) as error:
            _log.warning("leftovers of the store stay for now: %s", error)
            return Swept()

    def sweep_table(self, table: Table, store: ObjectStore, *, warehouse: str) -> Swept:
        """Delete a table's data files and manifests that no snapshot of it references.

        Only files that are named as we name ours, or as Iceberg's Java writers name theirs (these
        after a longer grace). Never raises for a store or catalog that fails.

        Args:
            table: freshly loaded.
            store: opened at the table's location.
            warehouse: the location below which the table must lie.

        Raises FatalError for a table outside of it: nothing is deleted on its word.
        """
        location = table.metadata.location
        if not location.startswith(warehouse.rstrip("/") + "/"):
            raise FatalError(f"table {'.'.join(table.name())}: {location} is not in the warehouse")
        if not self._is_due(location):
            return Swept()
        try:
            return Swept(table_files=self._sweep_table(table, store))
        except Exception as error:  # noqa: BLE001 - catalogs and file systems have their own
            _log.warning("leftovers in %s stay for now: %s", location, error)
            return Swept()

    def _is_due(self, place: str) -> bool:
        now = self._now_ms()
        before = self._swept_at_ms.get(place)
        if before is not None and now - before < self._graces.every_ms:
            return False
        self._swept_at_ms[place] = now
        return True

    def _sweep(self, entries: Sequence[LedgerEntry]) -> Swept:
        now, graces = self._now_ms(), self._graces
        listed = [info.key for info in self._store.list(_SIDE)]
        side = self._side.due(unnamed_side_files(listed, entries), now, graces.side_ms)
        said = {
            entry.metadata.id.ledger_key
            for entry in superfluous_entries(entries, listed)
            if now - entry.uploaded_at_ms >= graces.ledger_ms
        }
        ledger = self._entries.due(said, now, graces.ledger_ms)
        stored = [info.key for info in self._store.list(_NATIVE)]
        native = self._native.due(unnamed_native(stored, entries), now, graces.native_ms)
        if not side and not ledger and not native:
            return Swept()
        fresh = list(self._ledger.scan())
        if self._ledger.damaged:
            _log.warning("leftovers stay: %d ledger objects are damaged", len(self._ledger.damaged))
            return Swept()
        side &= unnamed_side_files(side, fresh)
        native &= unnamed_native(native, fresh)
        for key in sorted(side | native):
            self._store.delete(key)
        gone = 0
        for entry in superfluous_entries(fresh, listed):
            if entry.metadata.id.ledger_key in ledger:
                self._forget(entry)
                gone += 1
        return Swept(side_files=len(side), native_objects=len(native), ledger_objects=gone)

    def _forget(self, entry: LedgerEntry) -> None:
        """The native objects first: whoever was to delete them may have died half-way."""
        segment = entry.metadata.id
        for key in (segment.log_key, segment.indexes_key, segment.ledger_key):
            self._store.delete(key)

    def _sweep_table(self, table: Table, store: ObjectStore) -> int:
        listed = {i.key for place in ("data/", "metadata/") for i in store.list(place)}
        known = {key for key in listed if _OURS.fullmatch(key) or _ENGINES.fullmatch(key)}
        unused = known - {_key_of(n) for n in self._referenced(table)} if known else set()
        theirs = {key for key in unused if _ENGINES.fullmatch(key)}
        location, now, graces = table.metadata.location, self._now_ms(), self._graces
        ours_seen, theirs_seen = self._table_files.setdefault(
            location, (_Sightings(), _Sightings())
        )
        due = ours_seen.due(unused - theirs, now, graces.table_ms)
        due |= theirs_seen.due(theirs, now, graces.engines_ms)
        if not due:
            return 0
        again = table.catalog.load_table(tuple(table.name()))
        if again.metadata.table_uuid != table.metadata.table_uuid:
            return 0
        due -= {_key_of(name) for name in self._referenced(again)}
        for key in sorted(due):
            store.delete(key)
        return len(due)

    def _referenced(self, table: Table) -> Iterator[str]:
        """Locations of all manifest lists, manifests and files that any snapshot names."""
        read: set[str] = set()
        for snapshot in table.metadata.snapshots:
            yield snapshot.manifest_list
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path not in read:
                    read.add(manifest.manifest_path)
                    yield manifest.manifest_path
                    yield from self._files(table.io, manifest)

    def _files(self, io: FileIO, manifest: ManifestFile) -> frozenset[str]:
        """What a manifest names; manifests never change, so each is read once."""
        known = self._manifests.get(manifest.manifest_path)
        if known is None:
            known = frozenset(e.data_file.file_path for e in live_entries(io, manifest))
            self._manifests[manifest.manifest_path] = known
        self._manifests.move_to_end(manifest.manifest_path)
        while len(self._manifests) > _MANIFESTS_KNOWN_MAX:
            self._manifests.popitem(last=False)
        return known


class _Sightings:
    """When each key was first seen without a use."""

    def __init__(self) -> None:
        self._first_ms: dict[str, int] = {}

    def due(self, keys: Iterable[str], now_ms: int, grace_ms: int) -> set[str]:
        """Those of `keys` that were there `grace_ms` ago already; what isn't there is forgotten."""
        self._first_ms = {key: self._first_ms.get(key, now_ms) for key in keys}
        return {key for key, first in self._first_ms.items() if now_ms - first >= grace_ms}


def _key_of(location: str) -> str:
    """`<directory>/<file name>`: how a file is named in lists, whatever the scheme before it.

    Every name of ours has a random part, so this never makes two files one.
    """
    return "/".join(location.rsplit("/", 2)[-2:])


def _place(entry: LedgerEntry) -> tuple[str, int]:
    return entry.metadata.id.topic_id, entry.metadata.id.partition


def _end(entry: LedgerEntry) -> int:
    return entry.metadata.end_offset
