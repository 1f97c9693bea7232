"""Appending to a table: data files and watermarks in one snapshot, exactly once.

The protocol (its reasons: ARCHITECTURE.md, "Committing"):

1. Read the table. Partitions whose watermark is not the one that the plan was made from have been
   moved by somebody else: drop them.
2. Stage the rest as one snapshot, also for zero files, with all watermarks and the cycle id in
   its summary, and the table property beside it.
3. Send it once, on condition that the table is the same and main still stands where it was read.
4. On *any* error delete nothing and start again at 1: if the snapshot or the cycle id is among
   main's ancestors it landed. A request that is still on its way can't land beside the next one,
   for both name the same head of main.

PyIceberg's `Transaction.commit_transaction` is never called: it retries on its own on top of
whatever is there by then, and deletes what it takes for leftovers.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from tiering.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    FatalError,
    NotFound,
    TieringError,
    TransientError,
)
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.redaction import redact
from tiering.table.append_plan import AppendOutcome, TableAppend
from tiering.table.data_files import data_files
from tiering.table.state import TableState, landed_snapshot, moved_partitions, read_state
from tiering.watermarks import (
    CYCLE_ID_SUMMARY,
    MOVED_SUMMARY,
    WATERMARKS_PROPERTY,
    encode_watermarks,
)

__all__ = ["AppendOutcome", "TableAppend", "TableState", "append", "load_state", "state_of"]

_log: Final = logging.getLogger(__name__)


def state_of(table: Table) -> TableState:
    """The state of a table as it was loaded."""
    return read_state(tuple(table.name()), table.metadata)


def load_state(
    catalog: Catalog, identifier: tuple[str, ...], *, pacing: Pacing = SYSTEM_PACING
) -> TableState:
    """Read a table's state. Raises NotFound, or TransientError when the catalog is out."""
    return state_of(load_table(catalog, identifier, pacing=pacing))


def load_table(
    catalog: Catalog, identifier: tuple[str, ...], *, pacing: Pacing = SYSTEM_PACING
) -> Table:
    """Load a table, trying again while the catalog is out.

    Raises NotFound when there is none, TransientError when it can't be known.
    """
    name = ".".join(identifier)
    started = pacing.clock()
    attempt = 0
    while True:
        try:
            return catalog.load_table(identifier)
        except NoSuchTableError as error:
            raise NotFound(f"table {name} does not exist") from error
        except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
            attempt += 1
            if attempt >= pacing.loads_max or pacing.is_out_of_patience(started):
                text = (
                    f"table {'.'.join(identifier)} can't be read: {type(error).__name__}: {error}"
                )
                raise TransientError(redact(text, catalog.properties)) from None
            _log.info("table %s: reading it again (%s)", ".".join(identifier), type(error).__name__)
        pacing.pause(attempt)


def append(catalog: Catalog, plan: TableAppend, *, pacing: Pacing = SYSTEM_PACING) -> AppendOutcome:
    """Commit a plan. Data files are never deleted here, whatever happens.

    Raises:
        CommitConflict: the table was replaced or renamed, its spec changed, or other writers were
            always faster; nothing of this plan is in the table, plan again.
        CommitOutcomeUnknown: sent, but the table can't be read to see whether it landed.
        TransientError: nothing was sent, try again later.
        FatalError: the table is flagged (`TableState.flagged`).
    """
    return _Append(catalog, plan, pacing).run()


class _Append:
    """One plan on its way into the table."""

    def __init__(self, catalog: Catalog, plan: TableAppend, pacing: Pacing) -> None:
        self._catalog = catalog
        self._plan = plan
        self._pacing = pacing
        self._sent: set[int] = set()
        self._problem: Exception | None = None
        self._faults = 0

    def run(self) -> AppendOutcome:
        started = self._pacing.clock()
        for attempt in range(self._pacing.attempts_max + 1):
            if attempt:
                self._pacing.pause(attempt)
            table = self._load()
            outcome = self._outcome(table.metadata) if self._sent else None
            if outcome is not None:
                return outcome
            state = self._checked(table)
            keep = {p for p, mark in self._plan.expected.items() if state.watermarks.get(p) == mark}
            if not keep:
                return self._dropped_all()
            if self._is_enough(attempt, started):
                break
            outcome = self._try(table, state, keep)
            if outcome is not None:
                return outcome
        raise self._given_up()

    def _is_enough(self, attempt: int, started: float) -> bool:
        """Losing against other writers may go on for long, other errors not."""
        return (
            attempt >= self._pacing.attempts_max
            or self._faults >= self._pacing.faults_max
            or self._pacing.is_out_of_patience(started)
        )

    def _load(self) -> Table:
        try:
            return load_table(self._catalog, self._plan.identifier, pacing=self._pacing)
        except NotFound as error:
            raise CommitConflict(f"{self._plan}: the table is gone") from error
        except TransientError as error:
            if self._sent:
                raise CommitOutcomeUnknown(
                    f"{self._plan}: sent, outcome unknown: {error}"
                ) from None
            raise

    def _checked(self, table: Table) -> TableState:
        state = state_of(table)
        base = self._plan.base
        if state.uuid != base.uuid or state.topic_id != self._plan.topic_id:
            raise CommitConflict(
                f"{self._plan}: planned for table {base.uuid} of topic id {self._plan.topic_id}, "
                f"found {state.uuid} of topic id {state.topic_id or 'none'}"
            )
        if state.flagged is not None:
            raise FatalError(state.flagged)
        return state

    def _try(self, table: Table, state: TableState, keep: set[int]) -> AppendOutcome | None:
        """One commit; None when it failed, or when it can't be told without looking."""
        try:
            response = self._send(table, state, keep)
        except TieringError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, only the table knows
            self._problem = error
            self._faults += not isinstance(error, CommitFailedException)
            _log.info("%s: looking at the table after %s", self._plan, type(error).__name__)
            return None
        outcome = self._outcome(response.metadata)
        if outcome is not None:
            _delete_old_metadata(table, response.metadata)
        return outcome

    def _send(self, table: Table, state: TableState, keep: set[int]) -> CommitTableResponse:
        plan = self._plan
        moved = {p: plan.moved[p] for p in keep}
        text = encode_watermarks({**state.watermarks, **moved})
        entries = [e for p in sorted(keep) for e in plan.files.get(p, ())]
        transaction = _head_only(table).transaction()
        update = transaction.update_snapshot(
            snapshot_properties={
                WATERMARKS_PROPERTY: text,
                CYCLE_ID_SUMMARY: plan.cycle_id,
                MOVED_SUMMARY: ",".join(map(str, sorted(keep))),
            }
        )
        with update.fast_append() as staged:
            for file in data_files(entries, table.metadata):
                staged.append_data_file(file)
        transaction.set_properties({WATERMARKS_PROPERTY: text})
        # Staging keeps one requirement per type, so they are stated here and not taken from it.
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            # mypy sees the alias only; PyIceberg's models take the field's own name, too.
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=state.snapshot_id),  # type: ignore[call-arg]
        )
        self._sent.add(staged.snapshot_id)
        return self._catalog.commit_table(table, requirements, transaction._updates)

    def _outcome(self, metadata: TableMetadata) -> AppendOutcome | None:
        snapshot = landed_snapshot(metadata, self._sent, self._plan.cycle_id)
        if snapshot is None:
            return None
        landed = moved_partitions(snapshot)
        return AppendOutcome(
            snapshot_id=snapshot.snapshot_id,
            landed=landed,
            dropped=frozenset(self._plan.moved) - landed,
        )

    def _dropped_all(self) -> AppendOutcome:
        _log.info("%s: every partition has been moved by somebody else", self._plan)
        return AppendOutcome(
            snapshot_id=None, landed=frozenset(), dropped=frozenset(self._plan.moved)
        )

    def _given_up(self) -> TieringError:
        problem = self._problem
        text = f"{self._plan}: not landed after {len(self._sent)} tries"
        if problem is not None:
            text = redact(f"{text}: {type(problem).__name__}: {problem}", self._catalog.properties)
        if not self._sent:
            return TransientError(text)
        if isinstance(problem, CommitFailedException):
            return CommitConflict(text)
        return CommitOutcomeUnknown(text + " (the last one may still land)")


def _head_only(table: Table) -> Table:
    """The table without its history, to stage on.

    PyIceberg's transaction copies all metadata a dozen times; with hundreds of snapshots that
    would cost more than the rest of the commit. Staging an append reads main's head only.
    """
    metadata = table.metadata
    main = metadata.refs.get(MAIN_BRANCH)
    head = None if main is None else metadata.snapshot_by_id(main.snapshot_id)
    short = metadata.model_copy(
        update={
            "snapshots": [] if head is None else [head],
            "refs": {} if main is None else {MAIN_BRANCH: main},
            "snapshot_log": [],
            "metadata_log": [],
            "statistics": [],
            "partition_statistics": [],
        }
    )
    return Table(table.name(), short, table.metadata_location, table.io, table.catalog)


def _delete_old_metadata(table: Table, committed: TableMetadata) -> None:
    """Delete metadata files that fell out of the metadata log, as the table's properties ask.

    Only where the commit is written by this client; a REST catalog looks after its own files.
    """
    asked = committed.properties.get("write.metadata.delete-after-commit.enabled", "false")
    if asked.lower() != "true" or not isinstance(table.catalog, MetastoreCatalog):
        return
    for path in _logged(table.metadata) - _logged(committed):
        with suppress(Exception):  # it is only tidying; the next reader of the log won't miss it
            table.io.delete(path)


def _logged(metadata: TableMetadata) -> set[str]:
    return {entry.metadata_file for entry in metadata.metadata_log}
