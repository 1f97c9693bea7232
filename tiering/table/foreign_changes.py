"""What a table's snapshots tell of changes that somebody else has made. Pure."""

from __future__ import annotations

from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation

from tiering.watermarks import CYCLE_ID_SUMMARY

__all__ = ["changed_by_others"]

_TAKES_ROWS: Final = (Operation.OVERWRITE, Operation.DELETE)


def changed_by_others(metadata: TableMetadata) -> bool:
    """Whether a snapshot that isn't ours took rows out: SQL's DELETE, UPDATE, MERGE, overwrite.

    Rewrites by other engines (`replace`) take none. Snapshots that have expired tell nothing.
    """
    return any(
        s.summary is not None
        and s.summary.operation in _TAKES_ROWS
        and CYCLE_ID_SUMMARY not in s.summary.additional_properties
        for s in metadata.snapshots
    )
