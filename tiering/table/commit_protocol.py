"""The way of one plan into a table: one snapshot, exactly once, whatever the catalog answers.

The protocol (its reasons: ARCHITECTURE.md, "Committing"):

1. Read the table and compare it with the plan.
2. Stage one snapshot, also for zero files, with all watermarks and the cycle id in its summary,
   and the table property beside it.
3. Send it once, on condition that the table is the same and main still stands where it was read.
4. On *any* error delete nothing and start again at 1: if the snapshot or the cycle id is among
   main's ancestors it landed. A request that is still on its way can't land beside the next one,
   for both name the same head of main.

PyIceberg's `Transaction.commit_transaction` is never called: it retries on its own on top of
whatever is there by then, and deletes what it takes for leftovers.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from tiering.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    FatalError,
    NotFound,
    TieringError,
    TransientError,
)
from tiering.pacing import Pacing
from tiering.redaction import redact
from tiering.table.loading import load_table, state_of
from tiering.table.state import TableState, landed_snapshot
from tiering.watermarks import (
    CYCLE_ID_SUMMARY,
    MOVED_SUMMARY,
    WATERMARKS_PROPERTY,
    Watermark,
    encode_watermarks,
)

__all__ = ["Change", "TableCommit"]

_log: Final = logging.getLogger(__name__)


class CommitPlan(Protocol):
    """What every plan says; `str(plan)` names it in messages."""

    @property
    def identifier(self) -> tuple[str, ...]:
        """(namespace..., table name)."""

    @property
    def topic_id(self) -> str:
        """Whose table it must be."""

    @property
    def cycle_id(self) -> str:
        """Unique among all plans, ever."""

    @property
    def base(self) -> TableState:
        """The reading of the table that the plan was made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one try sends besides its files.

    Attributes:
        moved: the new watermarks, without their `rewinds`.
        summary: further keys of the snapshot's summary.
    """

    moved: Mapping[int, Watermark]
    summary: Mapping[str, str]


_Plan = TypeVar("_Plan", bound=CommitPlan)
_Outcome = TypeVar("_Outcome")


class TableCommit(ABC, Generic[_Plan, _Outcome]):
    """One plan on its way into the table. Data files are never deleted here.

    `run` raises:
        CommitConflict: nothing of this plan is in the table, plan again.
        CommitOutcomeUnknown: sent, but the table can't be read to see whether it landed.
        TransientError: nothing was sent, try again later.
        FatalError: the table is flagged (`TableState.flagged`).
    """

    def __init__(self, catalog: Catalog, plan: _Plan, pacing: Pacing) -> None:
        self._catalog = catalog
        self._plan = plan
        self._pacing = pacing
        self._sent: set[int] = set()
        self._problem: Exception | None = None
        self._faults = 0

    @abstractmethod
    def _change(self, state: TableState) -> Change | None:
        """What of the plan still fits the table; None when nothing does.

        Raises CommitConflict where the plan must be made again.
        """

    @abstractmethod
    def _stage(
        self, transaction: Transaction, table: Table, change: Change, summary: dict[str, str]
    ) -> int:
        """Stage the snapshot and return its id; raises CommitConflict as `_change` does."""

    @abstractmethod
    def _landed(self, snapshot: Snapshot) -> _Outcome:
        """The outcome of a plan that made `snapshot`."""

    @abstractmethod
    def _nothing_left(self) -> _Outcome:
        """The outcome of a plan of which nothing fits the table any more."""

    def run(self) -> _Outcome:
        started = self._pacing.clock()
        for attempt in range(self._pacing.attempts_max + 1):
            if attempt:
                self._pacing.pause(attempt)
            table = self._load()
            outcome = self._outcome(table.metadata) if self._sent else None
            if outcome is not None:
                return outcome
            state = self._checked(table)
            change = self._change(state)
            if change is None:
                return self._nothing_left()
            if self._is_enough(attempt, started):
                break
            outcome = self._try(table, state, change)
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

    def _try(self, table: Table, state: TableState, change: Change) -> _Outcome | None:
        """One commit; None when it failed, or when it can't be told without looking."""
        try:
            response = self._send(table, state, change)
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

    def _send(self, table: Table, state: TableState, change: Change) -> CommitTableResponse:
        moved = {p: _counted(mark, state.watermarks.get(p)) for p, mark in change.moved.items()}
        text = encode_watermarks({**state.watermarks, **moved})
        summary = {
            WATERMARKS_PROPERTY: text,
            CYCLE_ID_SUMMARY: self._plan.cycle_id,
            MOVED_SUMMARY: ",".join(map(str, sorted(moved))),
            **change.summary,
        }
        transaction = _Staging(_head_only(table))
        staged = self._stage(transaction, table, change, summary)
        transaction.set_properties({WATERMARKS_PROPERTY: text})
        # Staging keeps one requirement per type, so they are stated here and not taken from it.
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            # mypy sees the alias only; PyIceberg's models take the field's own name, too.
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=state.snapshot_id),  # type: ignore[call-arg]
        )
        self._sent.add(staged)
        return self._catalog.commit_table(table, requirements, transaction._updates)

    def _outcome(self, metadata: TableMetadata) -> _Outcome | None:
        snapshot = landed_snapshot(metadata, self._sent, self._plan.cycle_id)
        return None if snapshot is None else self._landed(snapshot)

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


class _Staging(Transaction):
    """A transaction that doesn't copy the metadata for each question before anything is staged."""

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata


def _counted(mark: Watermark, before: Watermark | None) -> Watermark:
    """`mark` with the number of rewinds that it has in the table, this one included."""
    if before is None:
        return replace(mark, rewinds=0)
    return replace(mark, rewinds=before.rewinds + (mark.offset < before.offset))


def _head_only(table: Table) -> Table:
    """The table without its history, to stage on.

    PyIceberg's transaction copies all metadata a dozen times; with hundreds of snapshots that
    would cost more than the rest of the commit. Staging reads main's head only.
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
