"""The engine's `Custody` over real tables and a real store.

A topic's bad records have a table of their own, which goes the way of the topic's: what leaves the
one leaves the other, and there first. So a crash in between is seen in the topic's own table, and
what was asked for is asked for again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from pyiceberg.table import Table

from tiering.config import TierConfig, retention_ms
from tiering.conversion.task_files import warehouse_url
from tiering.errors import BadInput, FatalError, NotFound, TieringError, TransientError
from tiering.history import coverage, dropped_columns
from tiering.ledger import LedgerEntry
from tiering.offset_reader.limits import DEFAULT_LIMITS
from tiering.offset_reader.parquet_files import MissingFile
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.segments import SegmentId
from tiering.store import ObjectStore, open_store
from tiering.table.catalog import table_target
from tiering.table.foreign_changes import changed_by_others
from tiering.table.pointers import TablePointer
from tiering.table.reading import TableReading
from tiering.table.replace import replace as replace_files
from tiering.table.state import TableState
from tiering.table.topic_tables import CatalogTables
from tiering.upkeep.expiry import expire
from tiering.upkeep.former_tables import drop_former, is_over, rename_with
from tiering.upkeep.leftovers import Leftovers
from tiering.upkeep.retention import plan_expulsion
from tiering.upkeep.withdrawal import Withdrawal, withdraw
from tiering.values.stored_schema import schema_properties_of
from tiering.watermarks import TOPIC_ID_PROPERTY

__all__ = ["TableCustody"]

_log: Final = logging.getLogger(__name__)


class TableCustody:
    """Reads and changes topic tables on the engine's behalf. For one thread."""

    def __init__(
        self,
        store: ObjectStore,
        tables: CatalogTables,
        config: TierConfig,
        *,
        now_ms: Callable[[], int],
        new_cycle_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._store = store
        self._tables = tables
        self._config = config
        self._now_ms = now_ms
        self._new_cycle_id = new_cycle_id
        self._views: dict[str, tuple[str, SnapshotView]] = {}
        self._pointers: dict[str, TablePointer] = {}
        self._held: frozenset[str] = frozenset()
        self._leftovers = Leftovers(store, now_ms=now_ms)

    def read(self, topic: str, topic_id: str) -> TableReading:
        """Read the table afresh; NotFound if there is none, TransientError when it can't be."""
        state = self._tables.state(topic, topic_id)
        dead = self._dead_letters(topic, self._tables.loaded(state))
        if dead is not None:
            # A replay moves rows from there to here: read in this order none is in neither.
            state = self._tables.state(topic, topic_id)
        table = self._tables.loaded(state)
        before = self._pointer(topic, topic_id, table)
        changed = before.rows_may_miss or changed_by_others(table.metadata)
        if dead is not None:
            changed |= changed_by_others(dead.metadata)
        # An operator accepts changes at any time: asked anew, but only where there are any.
        stored = self._stored_pointer(topic_id) if changed else None
        return TableReading(
            state=state,
            metadata_location=table.metadata_location,
            io_properties=self._tables.target(state).io_properties,
            changed_by_others=changed,
            accepted=() if stored is None else stored.accepted,
            dropped=dropped_columns(table.metadata),
            dead_letters_location="" if dead is None else dead.metadata_location,
        )

    def hold(self, topic_ids: Collection[str]) -> None:
        """Let no snapshot of these topic ids' tables expire: rows are saved from old ones."""
        self._held = frozenset(topic_ids)

    def coverage(self, reading: TableReading, partition: int, start: int, end: int) -> str:
        """Digest of the files that hold offsets [start, end), each of which was seen to exist."""
        table = self._tables.loaded(reading.state)
        try:
            view = self._view(table)
            digest = coverage(view, partition, start, end)
        except MissingFile as error:
            raise TransientError(f"{error} is gone; read the table again") from error
        self._check_exist(table, [file.path for file in view.index.files(partition, start, end)])
        return digest

    def announce(self, reading: TableReading, topic_id: str) -> None:
        """Tell readers of the history which metadata file to start from."""
        known = self._pointers[topic_id]

        def announced(stored: TablePointer | None) -> TablePointer:
            pointer = stored or known
            return replace(
                pointer,
                metadata_location=reading.metadata_location,
                identifier=reading.state.identifier,
                io_properties=dict(reading.io_properties),
                rows_may_miss=pointer.rows_may_miss or reading.changed_by_others,
            )

        self._pointers[topic_id] = TablePointer.update(self._store, topic_id, announced)

    def withdraw(
        self, reading: TableReading, topic: str, partition: int, offset: int, reason: str
    ) -> None:
        """Take all rows of `partition` from `offset` on out of the topic's tables."""
        request = Withdrawal(topic=topic, partition=partition, offset=offset, reason=reason)
        dead = self._tables.dead_letters(topic, reading.state.topic_id)
        if dead is not None:
            self._withdraw(self._tables.loaded(dead), request)
        self._withdraw(self._tables.loaded(reading.state), request)

    def _withdraw(self, table: Table, request: Withdrawal) -> None:
        place = self._place(table)
        withdraw(self._tables.catalog, table, place, request, cycle_id=self._new_cycle_id())

    def expel(self, reading: TableReading, topic: str, entries: Sequence[LedgerEntry]) -> int:
        """Remove the files all of whose rows Kafka and the topic's policy have given up; a former
        topic's tables go as a whole with its last segment."""
        if reading.state.flagged is not None:
            return 0
        table, topic_id = self._tables.loaded(reading.state), reading.state.topic_id
        dead = self._tables.dead_letters(topic, topic_id)
        states = [reading.state] if dead is None else [dead, reading.state]
        if retention_ms(self._config.topic(topic).retention) == 0 and is_over(
            table, self._tables.identifier(topic), topic_id, entries
        ):
            return self._drop([self._tables.loaded(state) for state in states], topic_id)
        return sum(self._expel(state, topic, entries) for state in states)

    def _expel(self, state: TableState, topic: str, entries: Sequence[LedgerEntry]) -> int:
        if state.flagged is not None:
            return 0
        plan = plan_expulsion(
            self._view(self._tables.loaded(state)).index,
            entries,
            state.watermarks,
            outlive_ms=retention_ms(self._config.topic(topic).retention),
            now_ms=self._now_ms(),
        )
        replacement = plan.replacement(
            state, topic=topic, cycle_id=self._new_cycle_id(), reason="retention"
        )
        if replacement is None:
            return 0
        return replace_files(self._tables.catalog, replacement).removed_files

    def _drop(self, tables: Sequence[Table], topic_id: str) -> int:
        gone = 0
        for table in tables:
            gone += drop_former(
                self._tables.catalog,
                table,
                topic_id,
                self._place(table),
                warehouse=self._config.warehouse,
            )
            self._views.pop(str(table.metadata.table_uuid), None)
        self._store.delete(TablePointer.key(topic_id))
        self._pointers.pop(topic_id, None)
        return gone

    def delete_native(self, segment: SegmentId) -> None:
        """Delete the native objects of one segment; nothing happens where there are none."""
        self._store.delete(segment.log_key)
        self._store.delete(segment.indexes_key)

    def sweep(self, entries: Sequence[LedgerEntry]) -> None:
        """Remove leftovers that nothing names any more and whose grace is over."""
        self._leftovers.sweep(entries)
        for topic, topic_id in sorted(
            {(e.metadata.topic, e.metadata.id.topic_id) for e in entries}
        ):
            try:
                tables = self._tables_of(topic, topic_id)
            except (TieringError, OSError):
                continue  # not made yet, or out of reach: the next sweep is as good
            for table in tables:
                self._tidy(table, topic_id)

    def _tables_of(self, topic: str, topic_id: str) -> list[Table]:
        """The topic id's table and, if there is one, that of its bad records, which takes the
        name of a former topic's with it."""
        table = self._tables.table(topic, topic_id)
        dead = self._dead_letters(topic, table)
        if dead is None:
            return [table]
        rename_with(self._tables.catalog, table, dead, self._tables.identifier(topic), topic_id)
        return [table, self._dead_letters(topic, table) or dead]

    def _tidy(self, table: Table, topic_id: str) -> None:
        try:
            self._leftovers.sweep_table(table, self._place(table), warehouse=self._config.warehouse)
            if topic_id not in self._held:
                expire(self._tables.catalog, tuple(table.name()), now_ms=self._now_ms())
        except (TieringError, ValueError) as error:
            _log.warning("table %s isn't tidied up: %s", ".".join(table.name()), error)

    def _place(self, table: Table) -> ObjectStore:
        """The store at the table's location."""
        return open_store(warehouse_url(table_target(table), self._config.store))

    def _dead_letters(self, topic: str, table: Table) -> Table | None:
        """The table of the topic's bad records; only where values have schemas there can be one."""
        config = self._config.topic(topic)
        is_typed = self._config.registry.url or {config.value, config.key} - {"auto", "raw"}
        if not is_typed and not schema_properties_of(table.properties):
            return None
        state = self._tables.dead_letters(topic, table.properties[TOPIC_ID_PROPERTY])
        return None if state is None else self._tables.loaded(state)

    def _view(self, table: Table) -> SnapshotView:
        uuid = str(table.metadata.table_uuid)
        location, known = self._views.get(uuid, ("", None))
        if known is not None and location == table.metadata_location:
            return known
        view = SnapshotView.of(table, MAIN, DEFAULT_LIMITS, known)
        self._views[uuid] = table.metadata_location, view
        return view

    def _check_exist(self, table: Table, paths: Sequence[str]) -> None:
        for path in paths:
            if not table.io.new_input(path).exists():
                raise FatalError(
                    f"table {'.'.join(table.name())}: {path} is part of the newest snapshot, but "
                    "does not exist: nothing that it holds is retired"
                )

    def _pointer(self, topic: str, topic_id: str, table: Table) -> TablePointer:
        found = self._pointers.get(topic_id) or self._stored_pointer(topic_id)
        if found is None:
            found = TablePointer(
                topic=topic,
                topic_id=topic_id,
                metadata_location=table.metadata_location,
                identifier=tuple(table.name()),
            )
        self._pointers[topic_id] = found
        return found

    def _stored_pointer(self, topic_id: str) -> TablePointer | None:
        try:
            return TablePointer.load(self._store, topic_id)
        except (NotFound, BadInput):
            return None
