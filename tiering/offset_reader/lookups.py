"""Single answers from a snapshot: a partition's first offset, an offset for a time, partitions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiering.offset_reader.limits import ReadLimits
from tiering.offset_reader.parquet_files import RowGroup
from tiering.offset_reader.row_group_reads import RowGroupSource
from tiering.offset_reader.snapshot_view import SnapshotView
from tiering.offset_reader.topic_columns import Projection

__all__ = ["first_offset", "partitions"]

_BEFORE_ALL_TIMES = np.iinfo(np.int64).min


def first_offset(
    view: SnapshotView, partition: int, limits: ReadLimits, timestamp_us: int | None = None
) -> int | None:
    """The lowest offset of `partition`, or the lowest with that timestamp or a later one.

    Opens row groups by first offset until none can hold a lower one: one, in a sorted table.
    Raises MissingFile, TransientError, FatalError.
    """
    source = view.source(
        Projection.of_field(view.metadata, view.columns.timestamp), partition, limits
    )
    plan = view.plan(partition, timestamp_us=timestamp_us)
    best: int | None = None
    while (lowest := plan.next_offset()) is not None and (best is None or lowest < best):
        pending = plan.pop()
        if pending is None:
            break
        found = _first_in(source, pending.row_group, timestamp_us)
        if found is not None and (best is None or found < best):
            best = found
    return best


def _first_in(source: RowGroupSource, row_group: RowGroup, timestamp_us: int | None) -> int | None:
    chosen = source.offsets(row_group)
    offsets = chosen.offsets
    if timestamp_us is not None and len(offsets):
        times = np.concatenate([_microseconds(batch) for batch in source.batches(row_group)])
        offsets = offsets[times[chosen.rows] >= timestamp_us]
    return int(offsets.min()) if len(offsets) else None


def _microseconds(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The timestamps of a batch of that one column; those that are null come before all."""
    column = batch.column(0).cast(pa.int64()).fill_null(int(_BEFORE_ALL_TIMES))
    return np.asarray(column, dtype=np.int64)


def partitions(view: SnapshotView, limits: ReadLimits) -> tuple[int, ...]:
    """Partitions with a watermark or with rows, ascending.

    Only files that bounds give to several partitions are opened, and only for that one column.
    """
    found = set(view.watermarks) | set(view.index.sure_partitions)
    projection = Projection.of_field(view.metadata, view.columns.partition)
    source = view.source(projection, -1, limits)
    for file in view.index.wide_files:
        spanned = range(file.first_partition, file.last_partition + 1)
        if len(spanned) <= len(found) and found.issuperset(spanned):
            continue
        for row_group in view.files.row_groups(file):
            for batch in source.batches(row_group):
                found.update(pc.unique(batch.column(0).drop_null()).to_pylist())
    return tuple(sorted(found))
