"""Appending to a table: data files and watermarks in one snapshot, exactly once.

Partitions whose watermark is not the one that the plan was made from have been moved by somebody
else: they are dropped, and the rest lands (the protocol: `commit_protocol`).
"""

from __future__ import annotations

import logging
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot

from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.table.append_plan import AppendOutcome, TableAppend
from tiering.table.commit_protocol import Change, TableCommit
from tiering.table.data_files import data_files
from tiering.table.loading import load_state, load_table, state_of
from tiering.table.manifest_merge import MergingAppend
from tiering.table.state import TableState, moved_partitions

__all__ = [
    "AppendOutcome",
    "TableAppend",
    "TableState",
    "append",
    "load_state",
    "load_table",
    "state_of",
]

_log: Final = logging.getLogger(__name__)


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


class _Append(TableCommit[TableAppend, AppendOutcome]):
    def _change(self, state: TableState) -> Change | None:
        plan = self._plan
        keep = {p for p, mark in plan.expected.items() if state.watermarks.get(p) == mark}
        return Change(moved={p: plan.moved[p] for p in keep}, summary={}) if keep else None

    def _stage(
        self, transaction: Transaction, table: Table, change: Change, summary: dict[str, str]
    ) -> int:
        entries = [e for p in sorted(change.moved) for e in self._plan.files.get(p, ())]
        append = MergingAppend(transaction, summary)
        with append as staged:
            for file in data_files(entries, table.metadata):
                staged.append_data_file(file)
        return append.snapshot_id

    def _landed(self, snapshot: Snapshot) -> AppendOutcome:
        landed = moved_partitions(snapshot)
        return AppendOutcome(
            snapshot_id=snapshot.snapshot_id,
            landed=landed,
            dropped=frozenset(self._plan.moved) - landed,
        )

    def _nothing_left(self) -> AppendOutcome:
        _log.info("%s: every partition has been moved by somebody else", self._plan)
        return AppendOutcome(
            snapshot_id=None, landed=frozenset(), dropped=frozenset(self._plan.moved)
        )
