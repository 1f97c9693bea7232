"""Adding rows below the watermarks to a table: one snapshot, exactly once.

Which rows are missing was seen in one snapshot, so they are added on top of that one only: after
any other commit somebody must look again (the protocol: `commit_protocol`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot

from tiering.errors import CommitConflict, FatalError
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.table.commit_protocol import Change, TableCommit
from tiering.table.data_files import data_files
from tiering.table.manifest_merge import MergingAppend
from tiering.table.state import TableState
from tiering.tasks import DataFileEntry
from tiering.watermarks import REPLAY_SUMMARY

__all__ = ["LateRows", "add_late_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """Rows of offsets that a table's watermarks have passed already.

    Attributes:
        identifier: (namespace..., table name).
        topic, topic_id: whose table it must be.
        cycle_id: unique among all commits, ever; the replay's id, too.
        base: the reading of the table in whose snapshot the rows were seen to be missing.
        files: the data files that bring them.

    Raises FatalError for rows at or above a watermark: conversion would bring them again.
    """

    identifier: tuple[str, ...]
    topic: str
    topic_id: str
    cycle_id: str
    base: TableState
    files: tuple[DataFileEntry, ...]

    def __post_init__(self) -> None:
        for entry in self.files:
            mark = self.base.watermarks.get(entry.kafka_partition)
            if mark is None or entry.last_offset >= mark.offset:
                raise FatalError(
                    f"{self}: data file {entry.path} holds offset {entry.last_offset} of partition "
                    f"{entry.kafka_partition}, whose watermark is {mark.offset if mark else 'none'}"
                )

    def __str__(self) -> str:
        return f"replay {self.cycle_id} into {'.'.join(self.identifier)} ({self.topic})"


def add_late_rows(catalog: Catalog, plan: LateRows, *, pacing: Pacing = SYSTEM_PACING) -> int:
    """Commit a plan; returns the id of its snapshot. Data files are never deleted here.

    Raises:
        CommitConflict: the table is another one, or has moved on; nothing of this plan is in it.
        CommitOutcomeUnknown: sent, but the table can't be read to see whether it landed.
        TransientError: nothing was sent, try again later.
        FatalError: the table is flagged (`TableState.flagged`).
    """
    return _LateRows(catalog, plan, pacing).run()


class _LateRows(TableCommit[LateRows, int]):
    def _change(self, state: TableState) -> Change:
        if state.snapshot_id != self._plan.base.snapshot_id:
            raise CommitConflict(
                f"{self._plan}: planned on snapshot {self._plan.base.snapshot_id}, the table is at "
                f"{state.snapshot_id}"
            )
        return Change(moved={}, summary={REPLAY_SUMMARY: self._plan.cycle_id})

    def _stage(
        self, transaction: Transaction, table: Table, change: Change, summary: dict[str, str]
    ) -> int:
        append = MergingAppend(transaction, summary)
        with append as staged:
            for file in data_files(self._plan.files, table.metadata):
                staged.append_data_file(file)
        return append.snapshot_id

    def _landed(self, snapshot: Snapshot) -> int:
        return snapshot.snapshot_id

    def _nothing_left(self) -> int:
        raise AssertionError  # pragma: no cover - `_change` says what is, or raises
