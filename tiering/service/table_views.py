"""The tables as the service reads them: one view per topic id.

A table is opened where its pointer in the store says. The pointer is looked at again now and then
and for every segment that is new here; the catalog is asked only where the pointer doesn't lead to
what must be there. So reads need the store alone.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tiering.errors import BadInput, FatalError, NotFound, TieringError, TransientError
from tiering.history import TableRecords
from tiering.offset_reader.parquet_files import MissingFile
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.service.limits import ServiceLimits
from tiering.store import ObjectStore
from tiering.table.foreign_changes import changed_by_others
from tiering.table.pointers import TablePointer, open_at_metadata

__all__ = ["LoadTable", "TableView", "TableViews"]

_log: Final = logging.getLogger("onecopy.service")

LoadTable = Callable[[str, str], Table]
"""(topic, topic id) -> its table as the catalog has it now; raises NotFound, TransientError."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableView:
    """One snapshot of a topic's table, ready to be read.

    Attributes:
        metadata_location: which one it is.
        rows_may_miss: somebody has deleted or rewritten rows through SQL, as far as the pointer
            or this table's snapshots tell.
        accepted: the pointer's.
        token: no other view has the same; may outlive the view.
    """

    metadata_location: str
    snapshot: SnapshotView
    records: TableRecords
    rows_may_miss: bool
    accepted: tuple[tuple[int, int, int], ...]
    token: object = field(default_factory=object)

    def may_miss(self, partition: int, end: int) -> bool:
        """Whether rows of offsets below `end` that aren't there can only have been deleted: a
        table that doesn't reach as far has never had them."""
        mark = self.snapshot.watermarks.get(partition)
        return self.rows_may_miss and mark is not None and mark.offset >= end

    def accepted_in(self, partition: int) -> list[tuple[int, int]]:
        """Accepted ranges (first offset, offset after the last) of one partition."""
        return [(start, end) for p, start, end in self.accepted if p == partition]

    def flagged_as(self, pointer: TablePointer | None) -> TableView:
        """This view with what `pointer` says beside the place; itself where that is the same."""
        if pointer is None:
            return self
        rows_may_miss = self.rows_may_miss or pointer.rows_may_miss
        if (rows_may_miss, pointer.accepted) == (self.rows_may_miss, self.accepted):
            return self
        return replace(self, rows_may_miss=rows_may_miss, accepted=pointer.accepted, token=object())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A view, the pointer as it was looked at last, and when that was."""

    view: TableView
    pointer: TablePointer | None
    looked_at: float


class TableViews:
    """Views by topic id. Blocking; for several threads, of which one at a time opens a table."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        limits: ServiceLimits,
        monotonic: Callable[[], float],
        load_table: LoadTable | None = None,
    ) -> None:
        """Open tables through the pointers in `store`; `load_table` asks the catalog where these
        don't lead any further."""
        self._store = store
        self._limits = limits
        self._monotonic = monotonic
        self._load_table = load_table
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def current(self, topic_id: str) -> TableView | None:
        """The view in use; looks at nothing."""
        known = self._known.get(topic_id)
        return None if known is None else known.view

    def is_due(self, topic_id: str) -> bool:
        """Whether it's time for a look at the topic id's pointer."""
        known = self._known.get(topic_id)
        return known is None or not self._is_recent(known)

    def view(self, topic: str, topic_id: str, *, since: float) -> TableView:
        """The view in use: what the pointer said at the time `since` or later.

        Raises TransientError, never NotFound: a retired segment's table exists, whatever is known
        of it here. An older view does while looking fails, unless it is older than `since`.
        """
        known = self._known.get(topic_id)
        if known is not None and known.looked_at >= since and self._is_recent(known):
            return known.view
        lock = self._lock_of(topic_id)
        if not lock.acquire(blocking=known is None or known.looked_at < since):
            assert known is not None  # noqa: S101 - the lock is waited for without one
            return known.view  # another thread is looking
        try:
            known = self._known.get(topic_id)
            if known is not None and known.looked_at >= since and self._is_recent(known):
                return known.view
            return self._look(topic, topic_id, known)
        except TieringError as error:
            if known is None or known.looked_at < since:
                raise
            _log.warning("%s", error)
            return known.view
        finally:
            lock.release()

    def newer(self, topic: str, topic_id: str, than: TableView) -> TableView:
        """A newer view than `than`, for that one lacks what must be there; `than` itself when the
        newest snapshot is the one it has. Raises TransientError when that can't be known."""
        with self._lock_of(topic_id):
            known = self._known.get(topic_id)
            if known is not None and known.view is not than:
                return known.view
            view = self._look(topic, topic_id, known)
            if view is not than or self._load_table is None:
                return view
            return self._keep(topic_id, self._from_catalog(topic, topic_id, known, None))

    def _is_recent(self, known: _Known) -> bool:
        return self._monotonic() - known.looked_at < self._limits.view_check_s

    def _lock_of(self, topic_id: str) -> threading.Lock:
        with self._lock:
            return self._opening.setdefault(topic_id, threading.Lock())

    def _look(self, topic: str, topic_id: str, known: _Known | None) -> TableView:
        """Go where the pointer leads now."""
        looked_at = self._monotonic()
        pointer = self._pointer(topic_id)
        problem: Exception | None = None
        found: _Known | None = None
        if pointer is not None:
            try:
                view = self._at_pointer(pointer, known)
                found = _Known(view=view, pointer=pointer, looked_at=looked_at)
            except (NotFound, MissingFile) as error:
                # Newer metadata has pushed it out, or its manifests were expired.
                problem = error
        elif known is not None:
            found = replace(known, looked_at=looked_at)
        if found is None:
            found = self._from_catalog(topic, topic_id, known, problem, pointer)
        return self._keep(topic_id, found)

    def _keep(self, topic_id: str, known: _Known) -> TableView:
        with self._lock:
            self._known[topic_id] = known
            self._known.move_to_end(topic_id)
            while len(self._known) > self._limits.views_max:
                self._known.popitem(last=False)
        return known.view

    def _at_pointer(self, pointer: TablePointer, known: _Known | None) -> TableView:
        if known is None:
            return self._view(_table_at(pointer), pointer, None)
        before = known.pointer
        followed = {known.view.metadata_location, before.metadata_location if before else ""}
        if pointer.metadata_location in followed:
            return known.view.flagged_as(pointer)
        table = _table_at(pointer)
        if not _is_newer(table.metadata, known.view.snapshot.metadata):
            return known.view.flagged_as(pointer)  # the catalog has led further than that
        return self._view(table, pointer, known.view)

    def _from_catalog(
        self,
        topic: str,
        topic_id: str,
        known: _Known | None,
        problem: Exception | None,
        pointer: TablePointer | None = None,
    ) -> _Known:
        """What the catalog has; `pointer` is the one of now, None where that is the known one."""
        if pointer is None and known is not None:
            pointer = known.pointer
        looked_at = self._monotonic()
        before = None if known is None else known.view
        if self._load_table is not None:
            try:
                table = self._load_table(topic, topic_id)
                if before is not None and table.metadata_location == before.metadata_location:
                    view = before.flagged_as(pointer)
                else:
                    view = self._view(table, pointer, before)
                return _Known(view=view, pointer=pointer, looked_at=looked_at)
            except (TieringError, MissingFile) as error:
                problem = error
        raise TransientError(f"topic {topic} (id {topic_id}): its table can't be read: {problem}")

    def _pointer(self, topic_id: str) -> TablePointer | None:
        try:
            return TablePointer.load(self._store, topic_id)
        except NotFound:
            return None
        except BadInput as error:
            _log.warning("%s", error)
            return None

    def _view(
        self, table: Table, pointer: TablePointer | None, before: TableView | None
    ) -> TableView:
        """Open the newest snapshot of `table`; what `before` has read of it is taken over."""
        if before is not None and (
            before.snapshot.metadata.table_uuid != table.metadata.table_uuid
        ):
            before = None
        limits = self._limits.table_reads
        previous = None if before is None else before.snapshot
        try:
            snapshot = SnapshotView.of(table, MAIN, limits, previous)
        except BadInput as error:  # not this request's: the table has become one we can't read
            raise FatalError(str(error)) from error
        return TableView(
            metadata_location=table.metadata_location,
            snapshot=snapshot,
            records=TableRecords(snapshot, limits),
            rows_may_miss=(before is not None and before.rows_may_miss)
            or (pointer is not None and pointer.rows_may_miss)
            or changed_by_others(table.metadata),
            accepted=() if pointer is None else pointer.accepted,
        )


def _table_at(pointer: TablePointer) -> Table:
    return open_at_metadata(pointer.metadata_location, pointer.identifier, pointer.io_properties)


def _is_newer(one: TableMetadata, than: TableMetadata) -> bool:
    def age(metadata: TableMetadata) -> tuple[int, int]:
        return getattr(metadata, "last_sequence_number", 0), metadata.last_updated_ms

    return one.table_uuid != than.table_uuid or age(one) > age(than)
