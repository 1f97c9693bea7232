"""Taking all rows of a partition from an offset on out of a table, in one commit.

Needed when part of a log was replaced after an unclean leader election, and when a proof found
rows that the native log doesn't have. A file with no other rows is removed; one that has others,
below the offset or of other partitions, is written again without them. The watermark goes back in
the same commit, and leader epochs that start at the offset or above are forgotten.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tiering.errors import CommitConflict
from tiering.offset_reader.file_index import OFFSET_MAX, FileRef
from tiering.offset_reader.limits import DEFAULT_LIMITS, ReadLimits
from tiering.offset_reader.offset_order import RowGroupPlan, in_offset_order
from tiering.offset_reader.parquet_files import MissingFile
from tiering.offset_reader.row_group_reads import RowGroupReads
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.offset_reader.topic_columns import Projection
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.store import ObjectStore
from tiering.table.catalog import table_target
from tiering.table.commit import state_of
from tiering.table.replace import ReplaceOutcome, TableReplacement, replace
from tiering.tasks import DataFileEntry
from tiering.upkeep.row_files import KEPT, RowFiles, all_columns

__all__ = ["Withdrawal", "partitions_in", "withdraw"]

_SCAN_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """Rows to take out: those of `partition` with offsets from `offset` on; `reason` in words."""

    topic: str
    partition: int
    offset: int
    reason: str


def withdraw(
    catalog: Catalog,
    table: Table,
    store: ObjectStore,
    request: Withdrawal,
    *,
    cycle_id: str,
    new_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    limits: ReadLimits = DEFAULT_LIMITS,
    pacing: Pacing = SYSTEM_PACING,
) -> ReplaceOutcome | None:
    """Withdraw the rows; None when the partition doesn't reach that far.

    Args:
        table: freshly loaded.
        store: opened at the table's location.
        cycle_id: unique among all commits, ever.
        new_name: gives the random part of new files' names.

    Raises as `replace`. After CommitConflict load the table again and repeat; files written for
    a commit that failed are orphans.
    """
    base = state_of(table)
    mark = base.watermarks.get(request.partition)
    if mark is None or mark.offset <= request.offset:
        return None
    target = table_target(table)
    removed: set[str] = set()
    added: list[DataFileEntry] = []
    try:
        view = SnapshotView.of(table, MAIN, limits)
        for file in view.index.files(request.partition, request.offset):
            rows = _Rows(view, file, request, limits)
            if rows.all_go:
                removed.add(file.path)
            elif rows.any_goes():
                removed.add(file.path)
                with RowFiles(store, target, all_columns(target), new_name) as files:
                    for partition in partitions_in(view, file):
                        for batch in rows.kept(partition):
                            files.add(batch, KEPT)
                        added += files.finish()
    except MissingFile as error:
        raise CommitConflict(f"data file {error} is gone: somebody has rewritten it") from error
    return replace(
        catalog,
        TableReplacement(
            identifier=base.identifier,
            topic=request.topic,
            topic_id=base.topic_id,
            cycle_id=cycle_id,
            base=base,
            expected={request.partition: mark},
            moved={request.partition: mark.until(request.offset)},
            removed=frozenset(removed),
            added=tuple(added),
            reason=request.reason,
        ),
        pacing=pacing,
    )


def partitions_in(view: SnapshotView, file: FileRef) -> list[int]:
    """The Kafka partitions that a file has rows of, ascending. Raises MissingFile."""
    if file.first_partition == file.last_partition:
        return [file.first_partition]
    found: set[int] = set()
    for group in view.files.row_groups(file):
        for batch, _ in view.files.decode(group, (view.columns.partition,), _SCAN_ROWS):
            found.update(batch.column(0).unique().to_pylist())
    return sorted(found)


class _Rows:
    """The rows of one file, without those that delete files hide: which go and which are kept."""

    def __init__(
        self, view: SnapshotView, file: FileRef, request: Withdrawal, limits: ReadLimits
    ) -> None:
        self._view = view
        self._file = file
        self._request = request
        self._limits = limits

    @property
    def all_go(self) -> bool:
        """Whether the bounds alone say that no row is kept."""
        file, request = self._file, self._request
        return (
            file.first_partition == file.last_partition == request.partition
            and file.first_offset >= request.offset
        )

    def any_goes(self) -> bool:
        """Whether a row is to go: bounds only say where rows may be."""
        request = self._request
        projection = Projection.of_field(self._view.metadata, self._view.columns.offset)
        source = self._view.source(projection, request.partition, self._limits)
        return any(
            bool(np.any(source.offsets(group).offsets >= request.offset))
            for group in self._view.files.row_groups(self._file)
            if group.last_offset >= request.offset
        )

    def kept(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows of `partition` that stay, all columns of the table, in offset order."""
        end = self._request.offset if partition == self._request.partition else OFFSET_MAX
        projection = Projection.of(self._view.metadata, None)
        source = self._view.source(projection, partition, self._limits)
        plan = RowGroupPlan(
            iter((self._file,)), self._view.files.row_groups, partition=partition, start=0, end=end
        )
        with RowGroupReads(source, self._limits) as reads:
            for ordered in in_offset_order(plan, reads, self._limits):
                yield ordered.batch
