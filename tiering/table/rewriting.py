"""What a table must have so that Spark's rewrites of it come out well."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, UNSORTED_SORT_ORDER_ID
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableUpdate,
)

__all__ = ["REWRITE_PROPERTIES", "make_ready_for_rewrites"]

_ROW_GROUP_BYTES: Final = 8 * 1024 * 1024  # compressed, as Parquet's Java writer counts: 32 or so
_RECORDS_BETWEEN_CHECKS: Final = 10
REWRITE_PROPERTIES: Final[Mapping[str, str]] = {
    "write.parquet.compression-codec": "zstd",
    "write.parquet.row-group-size-bytes": str(_ROW_GROUP_BYTES),
    "write.parquet.row-group-check-min-record-count": str(_RECORDS_BETWEEN_CHECKS),
    "commit.retry.num-retries": "30",
    "commit.retry.max-wait-ms": "2000",
}
"""For other engines. A seek reads one row group, so these are small in files that they write, also
where records are large. And their commits meet those of a tier that commits every second: with
Iceberg's default of four retries a rewrite often loses all it has done."""


def make_ready_for_rewrites(table: Table) -> None:
    """Give a table what new ones have; what somebody has set otherwise stays. Best effort.

    The sort order with id 0 (unsorted) is reserved and always legal, but a table made with an
    order of its own doesn't list it, and Iceberg's Spark runtime (1.11, 1.12) then refuses to
    rewrite it in any other order (z-order too).
    """
    updates: list[TableUpdate] = []
    if UNSORTED_SORT_ORDER_ID not in table.sort_orders():
        # mypy sees the alias only; PyIceberg's models take the field's own name, too.
        updates.append(AddSortOrderUpdate(sort_order=UNSORTED_SORT_ORDER))  # type: ignore[call-arg]
    missing = {k: v for k, v in REWRITE_PROPERTIES.items() if k not in table.properties}
    if missing:
        updates.append(SetPropertiesUpdate(updates=missing))
    if not updates:
        return
    with suppress(Exception):
        requirements = (AssertTableUUID(uuid=table.metadata.table_uuid),)
        table.catalog.commit_table(table, requirements, tuple(updates))
        table.refresh()
