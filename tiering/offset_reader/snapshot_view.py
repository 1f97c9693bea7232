"""One snapshot of a topic's table as the reader sees it: an immutable view, made on refresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tiering.errors import NotFound
from tiering.offset_reader.deletes import DeletedRows
from tiering.offset_reader.file_index import OFFSET_MAX, FileIndex, FileRef
from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.offset_order import RowGroupPlan
from tiering.offset_reader.parquet_files import FooterCache, ParquetFiles, RowGroup, store_errors
from tiering.offset_reader.row_group_reads import RowGroupSource
from tiering.offset_reader.topic_columns import Projection, TopicColumns
from tiering.watermarks import WATERMARKS_PROPERTY, Watermark, decode_watermarks

__all__ = ["MAIN", "SnapshotView"]

MAIN: Final = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotView:
    """What one snapshot holds.

    Attributes:
        table: the table's name, for messages.
        metadata: the table's metadata as loaded with the snapshot.
        columns: where Kafka's columns are.
        index: which data file may hold which offset.
        deletes: rows that delete files hide.
        files: opens data files; footers are shared with the view before.
        watermarks: per partition, as the snapshot has them.
    """

    table: str
    metadata: TableMetadata
    columns: TopicColumns
    index: FileIndex
    deletes: DeletedRows
    files: ParquetFiles
    watermarks: Mapping[int, Watermark]

    @classmethod
    def of(
        cls, table: Table, branch: str, limits: ReadLimits, previous: SnapshotView | None = None
    ) -> SnapshotView:
        """View the newest snapshot of `branch`.

        What `previous`, a view of the same table, has read already is taken over.

        Raises NotFound for an unknown branch, TransientError when manifests can't be read.
        """
        snapshot = _snapshot(table, branch, ".".join(table.name()))
        return cls._of(table, snapshot, limits, previous)

    @classmethod
    def at(
        cls, table: Table, snapshot_id: int, limits: ReadLimits, previous: SnapshotView
    ) -> SnapshotView:
        """View an older snapshot. Raises NotFound for an unknown one, otherwise as `of`."""
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise NotFound(f"table {'.'.join(table.name())} has no snapshot {snapshot_id}")
        return cls._of(table, snapshot, limits, previous)

    @classmethod
    def _of(
        cls,
        table: Table,
        snapshot: Snapshot | None,
        limits: ReadLimits,
        previous: SnapshotView | None,
    ) -> SnapshotView:
        name = ".".join(table.name())
        columns = TopicColumns.of(table.metadata, table=name)
        io = table.io
        mapping = table.metadata.name_mapping() or table.metadata.schema().name_mapping
        with store_errors(f"the metadata of table {name}"):
            index = FileIndex.load(
                io, snapshot, columns, None if previous is None else previous.index
            )
        return cls(
            table=name,
            metadata=table.metadata,
            columns=columns,
            index=index,
            deletes=DeletedRows(io, index, limits),
            files=ParquetFiles(
                lambda path: io.new_input(path).open(),  # type: ignore[arg-type,return-value]
                columns,
                mapping,
                FooterCache(limits.footer_bytes) if previous is None else previous.files.footers,
                limits.open_files,
            ),
            watermarks=_watermarks(table.metadata, snapshot, name),
        )

    def source(self, projection: Projection, partition: int, limits: ReadLimits) -> RowGroupSource:
        """What decodes the row groups of `partition`."""
        return RowGroupSource(self.files, self.deletes, self.columns, projection, partition, limits)

    def plan(
        self, partition: int, start: int = 0, end: int = OFFSET_MAX, timestamp_us: int | None = None
    ) -> RowGroupPlan:
        """The row groups that may hold offsets in [start, end) of `partition`.

        With a timestamp only those that may hold it or a later one.
        """

        def late(part: FileRef | RowGroup) -> bool:
            last = part.last_timestamp_us
            return timestamp_us is None or last is None or last >= timestamp_us

        return RowGroupPlan(
            self.index.files(partition, start, end, late),
            self.files.row_groups,
            partition=partition,
            start=start,
            end=end,
            keep=late,
        )


def _snapshot(table: Table, branch: str, name: str) -> Snapshot | None:
    snapshot = table.metadata.snapshot_by_name(branch)
    if snapshot is None and branch != MAIN:
        known = ", ".join(table.metadata.refs) or "none"
        raise NotFound(f"table {name} has no branch or tag {branch!r}; it has: {known}")
    return snapshot


def _watermarks(
    metadata: TableMetadata, snapshot: Snapshot | None, name: str
) -> dict[int, Watermark]:
    """The watermarks that belong to `snapshot`: its own, or those of its nearest ancestor.

    The table's property only stands in where no ancestor has any left: after a rollback it is
    ahead of the rows.
    """
    while snapshot is not None:
        summary = snapshot.summary
        text = None if summary is None else summary.additional_properties.get(WATERMARKS_PROPERTY)
        if text is not None:
            return decode_watermarks(text, table=name)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
    return decode_watermarks(metadata.properties.get(WATERMARKS_PROPERTY), table=name)
