"""Bad records tried again, after what was wrong has been set right.

Those that give rows now go into the topic's table, then leave the table of bad records: two
commits, in this order. Whoever dies in between has left records in both, so before anything is
added it is looked up which of their offsets are rows already; and it is added only on top of the
snapshot that was looked at. An engine may be at work meanwhile: where it was faster, all is looked
at again.

Only records below the topic's watermarks are tried: of those above conversion makes rows itself.
Batches with bad records are kept whole in their side files, so Kafka's clients are given the same
as before.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from tiering.conversion.record_columns import TableColumns
from tiering.conversion.task_files import warehouse_url
from tiering.conversion.typed_rows import UnknownSchemas
from tiering.errors import BadInput, CommitConflict, FatalError
from tiering.history.table_records import SCAN_LIMITS
from tiering.offset_reader.file_index import FileRef
from tiering.offset_reader.offset_order import in_offset_order
from tiering.offset_reader.parquet_files import MissingFile
from tiering.offset_reader.row_group_reads import RowGroupReads
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.offset_reader.topic_columns import Projection
from tiering.store import open_store
from tiering.table.catalog import table_target
from tiering.table.late_rows import LateRows, add_late_rows
from tiering.table.replace import TableReplacement, replace
from tiering.table.state import TableState
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import DataFileEntry, TableTarget, TypedValues
from tiering.upkeep.replay_rows import RecordsAgain
from tiering.upkeep.row_files import KEPT, RowFiles
from tiering.upkeep.withdrawal import partitions_in
from tiering.values.stored_schema import Part

__all__ = ["Replay", "ReplayReport", "ReplaySchemas"]

_log: Final = logging.getLogger(__name__)
_TRIES: Final = 10
_ROUNDS_MAX: Final = 1000
"""Each brings at least one schema into the topic's table."""

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


class ReplaySchemas(Protocol):
    """How values and keys become columns (`schemas.TopicSchemas`)."""

    def plan(self, topic: str, state: TableState) -> TypedValues | None:
        """What is to be made of a topic's values; raises TransientError, BadInput."""

    def learn(self, topic: str, state: TableState, schemas: Collection[tuple[Part, int]]) -> None:
        """Bring schemas into the topic's table, or note that they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay did.

    Attributes:
        replayed: bad records that have become rows of the topic's table.
        already: those that were rows of it before, for instance by a replay that was cut off.
        left: what the table of bad records holds now, by error class.
    """

    replayed: int = 0
    already: int = 0
    left: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Found:
    """What one look at the tables came to."""

    rows: list[DataFileEntry] = field(default_factory=list)
    row_count: int = 0
    already: int = 0
    removed: set[str] = field(default_factory=set)
    kept: list[DataFileEntry] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """A topic's two tables as they were read: its own first."""

    state: TableState
    view: SnapshotView
    dead: Table
    dead_state: TableState
    dead_view: SnapshotView


class Replay:
    """Tries a topic's bad records again. For one thread.

    Args:
        store_url: of the tier, whose endpoint tables in the same kind of store have.
        error_class: only these; None: all.
        reached: called with the name of each step as it is passed.
    """

    def __init__(
        self,
        tables: CatalogTables,
        schemas: ReplaySchemas,
        *,
        topic: str,
        topic_id: str,
        store_url: str,
        error_class: str | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._tables = tables
        self._schemas = schemas
        self._topic = topic
        self._topic_id = topic_id
        self._store_url = store_url
        self._error_class = error_class
        self._new_id = new_id
        self._reached = reached
        self._replayed = 0

    def run(self) -> ReplayReport:
        """Safe to run again, whatever became of it, and at any time.

        Raises:
            NotFound: the topic has no table.
            BadInput: its settings can't be followed, or a column that is needed was dropped.
            TransientError: catalog, store or registry are out.
            CommitConflict: others were always faster.
            FatalError: a table is flagged.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                return self._pass()
            except (CommitConflict, MissingFile) as error:
                if attempt == _TRIES:
                    raise CommitConflict(f"replay of {self._topic}: {error}") from error
                _log.info("replay of %s: looking again: %s", self._topic, error)
        raise AssertionError  # pragma: no cover - the loop returns or raises

    def _pass(self) -> ReplayReport:
        tables = self._read()
        if tables is None:
            return ReplayReport()
        found = self._look(tables)
        before = self._replayed
        self._reached("looked")
        if found.rows:
            self._add(tables, found)
            self._replayed += found.row_count
        self._reached("replayed")
        if found.removed:
            self._take_out(tables, found)
        return ReplayReport(
            replayed=self._replayed, already=found.already - before, left=dict(found.left)
        )

    def _read(self) -> _Tables | None:
        """The topic's own table first: what leaves it leaves the other one before, so nothing
        that is found there is of a log that was cut, unless its head has moved."""
        state = self._tables.state(self._topic, self._topic_id)
        view = SnapshotView.of(self._tables.loaded(state), MAIN, SCAN_LIMITS)
        dead_state = self._tables.dead_letters(self._topic, self._topic_id)
        if dead_state is None:
            return None
        for each in (state, dead_state):
            if each.flagged is not None:
                raise FatalError(each.flagged)
        dead = self._tables.loaded(dead_state)
        dead_view = SnapshotView.of(dead, MAIN, SCAN_LIMITS)
        columns = dead_view.columns
        if None in (columns.key, columns.value, columns.headers, columns.timestamp_type):
            raise BadInput(
                f"table {'.'.join(dead_state.identifier)} has lost a column of Kafka's: its "
                "records are not whole any more and can't be replayed"
            )
        return _Tables(
            state=state,
            view=view,
            dead=dead,
            dead_state=dead_state,
            dead_view=dead_view,
        )

    def _look(self, tables: _Tables) -> _Found:
        """Try the records, and write the files of both tables."""
        for _ in range(_ROUNDS_MAX):
            typed = self._schemas.plan(self._topic, tables.state)
            try:
                return self._written(tables, typed)
            except UnknownSchemas as error:
                self._schemas.learn(self._topic, tables.state, error.schemas)
        raise FatalError(f"replay of {self._topic}: its schemas can't be brought into its table")

    def _written(self, tables: _Tables, typed: TypedValues | None) -> _Found:
        target, dead_target = self._tables.target(tables.state), table_target(tables.dead)
        again = RecordsAgain(target, typed, dead_target)
        found = _Found()
        files = tables.dead_view.index.all_files
        together = any(file.first_partition != file.last_partition for file in files)
        held: dict[int, tuple[DataFileEntry, ...]] = {}
        changed: set[int] = set()
        with (
            self._files(target, again.columns) as rows,
            self._files(dead_target, again.dead_columns) as kept,
        ):
            for partition in _partitions(tables.dead_view):
                if self._retry(tables, partition, again, rows, kept, found):
                    changed.add(partition)
                found.rows += rows.finish()
                held[partition] = kept.finish()
            for partition, entries in held.items():
                if partition in changed or (changed and together):
                    found.kept += entries
                else:
                    kept.discard(entries)
        found.removed = {f.path for f in files if changed and (together or _is_of(f, changed))}
        return found

    def _retry(
        self,
        tables: _Tables,
        partition: int,
        again: RecordsAgain,
        rows: RowFiles,
        kept: RowFiles,
        found: _Found,
    ) -> bool:
        """One partition, in offset order; returns whether anything has changed."""
        mark = tables.state.watermarks.get(partition)
        below = mark.offset if mark is not None else 0
        changed, last = False, -1
        prefix = ""
        with closing(_batches(tables.dead_view, partition)) as batches:
            for batch, offsets in batches:
                tried = self._is_tried(again.classes(batch)) & (offsets < below)
                there = _rows_there(tables.view, partition, offsets, tried)
                duplicate = np.concatenate(([last], offsets[:-1])) == offsets
                last = int(offsets[-1])
                done = again.of(batch, partition, tried, there, duplicate)
                changed |= done.changed
                found.already += done.already
                found.row_count += done.rows.num_rows
                prefix = prefix or f"{partition}-{int(offsets[0]):020d}"
                if done.rows.num_rows:
                    rows.add(done.rows, prefix)
                if done.stays.num_rows:
                    kept.add(done.stays, KEPT)
                    found.left.update(_counts(again.classes(done.stays)))
        return changed

    def _is_tried(self, classes: pa.Array) -> Bools:
        if self._error_class is None:
            return np.ones(len(classes), np.bool_)
        equal: Bools = (
            pc.equal(classes, self._error_class).fill_null(False).to_numpy(zero_copy_only=False)
        )
        return equal

    def _add(self, tables: _Tables, found: _Found) -> None:
        state = tables.state
        add_late_rows(
            self._tables.catalog,
            LateRows(
                identifier=state.identifier,
                topic=self._topic,
                topic_id=self._topic_id,
                cycle_id=self._new_id(),
                base=state,
                files=tuple(found.rows),
            ),
        )

    def _take_out(self, tables: _Tables, found: _Found) -> None:
        state = tables.dead_state
        replace(
            self._tables.catalog,
            TableReplacement(
                identifier=state.identifier,
                topic=self._topic,
                topic_id=self._topic_id,
                cycle_id=self._new_id(),
                base=state,
                expected={},
                moved={},
                removed=frozenset(found.removed),
                added=tuple(found.kept),
                reason="replay",
            ),
        )

    def _files(self, target: TableTarget, columns: TableColumns) -> RowFiles:
        place = open_store(warehouse_url(target, self._store_url))
        return RowFiles(place, target, columns, self._new_id)


def _batches(
    view: SnapshotView, partition: int
) -> Generator[tuple[pa.RecordBatch, Int64s], None, None]:
    """All columns of a partition's rows, in offset order, and the offsets."""
    source = view.source(Projection.of(view.metadata, None), partition, SCAN_LIMITS)
    with RowGroupReads(source, SCAN_LIMITS) as reads:
        for ordered in in_offset_order(view.plan(partition), reads, SCAN_LIMITS):
            if ordered.batch.num_rows:
                yield ordered.batch, ordered.offsets


def _partitions(view: SnapshotView) -> list[int]:
    """Those that the table may have rows of."""
    known = set(view.watermarks)
    for file in view.index.all_files:
        known.update(partitions_in(view, file))
    return sorted(known)


def _is_of(file: FileRef, partitions: Collection[int]) -> bool:
    return file.first_partition in partitions


def _rows_there(view: SnapshotView, partition: int, offsets: Int64s, wanted: Bools) -> Bools:
    """Which of the offsets that are `wanted` have a row; they rise."""
    there = np.zeros(len(offsets), np.bool_)
    looked = offsets[wanted]
    if not len(looked):
        return there
    source = view.source(
        Projection.of_field(view.metadata, view.columns.offset), partition, SCAN_LIMITS
    )
    for file in view.index.files(partition, int(looked[0]), int(looked[-1]) + 1):
        for group in view.files.row_groups(file):
            first, end = np.searchsorted(looked, (group.first_offset, group.last_offset + 1))
            if first < end:
                there |= np.isin(offsets, source.offsets(group).offsets)
    return there & wanted


def _counts(classes: pa.Array) -> dict[str, int]:
    counted = pc.value_counts(classes).to_pylist()
    return {str(each["values"]): each["counts"] for each in counted}
