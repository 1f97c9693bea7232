"""Taking data files out of a table, or exchanging them: one snapshot, exactly once.

All or nothing: a file that is gone from the table (somebody rewrote it), a watermark that moved or
a delete that came in between mean that the plan must be made again (the protocol:
`commit_protocol`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.utils.concurrent import ExecutorFactory

from tiering.errors import CommitConflict
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.table.commit_protocol import Change, TableCommit
from tiering.table.data_files import data_files
from tiering.table.manifest_merge import entered
from tiering.table.manifests import live_entries
from tiering.table.replace_plan import ReplaceOutcome, TableReplacement
from tiering.table.state import TableState, main_ancestors
from tiering.watermarks import REASON_SUMMARY, REPLAY_SUMMARY

__all__ = ["ReplaceOutcome", "TableReplacement", "replace"]

_NAMED_MAX: Final = 3


def replace(
    catalog: Catalog, plan: TableReplacement, *, pacing: Pacing = SYSTEM_PACING
) -> ReplaceOutcome:
    """Commit a plan. The files that leave stay in the store: older snapshots name them.

    Raises:
        CommitConflict: the table is not the one planned for, a file to remove is gone, a
            watermark moved, rows were deleted since, or other writers were always faster; nothing
            of this plan is in the table, plan again.
        CommitOutcomeUnknown: sent, but the table can't be read to see whether it landed.
        TransientError: nothing was sent, try again later.
        FatalError: the table is flagged (`TableState.flagged`).
    """
    return _Replace(catalog, plan, pacing).run()


class _Replace(TableCommit[TableReplacement, ReplaceOutcome]):
    def _change(self, state: TableState) -> Change:
        for partition, mark in self._plan.expected.items():
            found = state.watermarks.get(partition)
            if found != mark:
                raise CommitConflict(
                    f"{self._plan}: partition {partition} was planned from {mark}, it is at {found}"
                )
        return Change(moved=self._plan.moved, summary={REASON_SUMMARY: self._plan.reason})

    def _stage(
        self, transaction: Transaction, table: Table, change: Change, summary: dict[str, str]
    ) -> int:
        plan = self._plan
        if plan.moved:
            self._check_replays(table.metadata)
        if plan.added:
            self._check_deletes(table.metadata, table.io)
        holding = _holding(table.io, table.current_snapshot(), plan.removed)
        found = {e.data_file.file_path for entries in holding.values() for e in entries}
        if not plan.removed <= found:
            gone = sorted(plan.removed - found)
            raise CommitConflict(
                f"{plan}: {len(gone)} of {len(plan.removed)} data files are not in the table any "
                f"more, somebody has rewritten them: {', '.join(gone[:_NAMED_MAX])} ..."
            )
        producer = _TakeOut(transaction, table.io, summary, holding, plan.removed)
        with producer as staged:
            for file in data_files(plan.added, table.metadata):
                staged.append_data_file(file)
        return producer.snapshot_id

    def _check_replays(self, metadata: TableMetadata) -> None:
        """Rows that came below the old watermarks since the plan was made would stay."""
        for snapshot in main_ancestors(metadata):
            if snapshot.snapshot_id == self._plan.base.snapshot_id:
                return
            summary = snapshot.summary
            if summary is not None and REPLAY_SUMMARY in summary.additional_properties:
                raise CommitConflict(f"{self._plan}: bad records were replayed since it was made")

    def _check_deletes(self, metadata: TableMetadata, io: FileIO) -> None:
        """Rows deleted since the plan read them would come back with the files that are added."""
        base_id = self._plan.base.snapshot_id
        head = metadata.current_snapshot()
        if head is None or head.snapshot_id == base_id:
            return
        base = None if base_id is None else metadata.snapshot_by_id(base_id)
        known = set() if base is None else {m.manifest_path for m in _deletes(io, base)}
        if any(m.manifest_path not in known for m in _deletes(io, head)):
            raise CommitConflict(f"{self._plan}: somebody has deleted rows since it was planned")

    def _landed(self, snapshot: Snapshot) -> ReplaceOutcome:
        summary = snapshot.summary

        def count(key: str) -> int:
            return int((summary[key] if summary is not None else None) or 0)

        return ReplaceOutcome(
            snapshot_id=snapshot.snapshot_id,
            removed_files=count("deleted-data-files"),
            removed_rows=count("deleted-records"),
            added_files=count("added-data-files"),
            added_rows=count("added-records"),
        )

    def _nothing_left(self) -> ReplaceOutcome:
        raise AssertionError  # pragma: no cover - `_change` says what is, or raises


def _deletes(io: FileIO, snapshot: Snapshot) -> Iterable[ManifestFile]:
    return (m for m in snapshot.manifests(io) if m.content == ManifestContent.DELETES)


def _holding(
    io: FileIO, snapshot: Snapshot | None, paths: frozenset[str]
) -> Mapping[str, list[ManifestEntry]]:
    """{manifest path: its live entries} of the data manifests that hold any of `paths`."""
    if snapshot is None or not paths:
        return {}
    listed = [m for m in snapshot.manifests(io) if m.content == ManifestContent.DATA]
    read = ExecutorFactory.get_or_create().map(lambda m: live_entries(io, m), listed)
    return {
        manifest.manifest_path: entries
        for manifest, entries in zip(listed, read, strict=True)
        if any(entry.data_file.file_path in paths for entry in entries)
    }


class _TakeOut(_OverwriteFiles):
    """PyIceberg's overwrite of named files, which would read every manifest twice and slowly.

    Manifests without a file to remove are kept as they are; in the others the remaining files
    are entered again with the snapshot and sequence numbers they had, so that delete files apply
    to them as before.
    """

    def __init__(
        self,
        transaction: Transaction,
        io: FileIO,
        summary: dict[str, str],
        holding: Mapping[str, list[ManifestEntry]],
        removed: frozenset[str],
    ) -> None:
        super().__init__(Operation.OVERWRITE, transaction, io, snapshot_properties=summary)
        self._holding = holding
        self._removed = removed
        self._deleted_data_files = {e.data_file for e in self._entries_to_remove()}

    def append_data_file(self, data_file: DataFile) -> _TakeOut:
        super().append_data_file(data_file)
        return self

    def _commit(self) -> UpdatesAndRequirements:
        """By the specification a snapshot that only takes files out is a delete."""
        if not self._added_data_files:
            self._operation = Operation.DELETE if self._removed else Operation.APPEND
        return super()._commit()

    def _build_delete_files_partition_predicate(self) -> None:
        """Nothing to prune by: where the files are is known."""

    def _entries_to_remove(self) -> list[ManifestEntry]:
        entries = (e for held in self._holding.values() for e in held)
        return [e for e in entries if e.data_file.file_path in self._removed]

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [
            entered(entry, ManifestEntryStatus.DELETED, self._snapshot_id)
            for entry in self._entries_to_remove()
        ]

    def _existing_manifests(self) -> list[ManifestFile]:
        parent = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        kept = []
        for manifest in () if parent is None else parent.manifests(self._io):
            held = self._holding.get(manifest.manifest_path)
            if held is not None:
                kept += self._rest(manifest, held)
            elif manifest.has_added_files() or manifest.has_existing_files():
                kept.append(manifest)
        return kept

    def _rest(self, manifest: ManifestFile, entries: list[ManifestEntry]) -> list[ManifestFile]:
        rest = [e for e in entries if e.data_file.file_path not in self._removed]
        if not rest:
            return []
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in rest:
                writer.add_entry(entered(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id))
        return [writer.to_manifest_file()]
