"""Expiring our own old snapshots, so that a table's metadata doesn't grow with every commit.

Only main's ancestors that we made are expired, compactions among them: never the newest that
carries the watermarks, never one that a branch or tag names, never what others made. How many are
kept, and for how long, is what the table's properties say (Iceberg's `history.expire.*`), so that
other engines and people see it and may set it. Only metadata is changed; files that no snapshot
names any more are leftovers (`leftovers`).
"""

from __future__ import annotations

import logging
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.utils.properties import property_as_int

from tiering.errors import FatalError, TransientError
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.redaction import redact
from tiering.table.loading import load_table, state_of
from tiering.table.snapshot_policy import (
    AGE_MS,
    AGE_MS_MIN,
    AGE_PROPERTY,
    SNAPSHOTS_KEPT,
    SNAPSHOTS_KEPT_PROPERTY,
)
from tiering.table.state import main_ancestors
from tiering.watermarks import COMPACTION_SUMMARY, CYCLE_ID_SUMMARY, WATERMARKS_PROPERTY

__all__ = ["SNAPSHOTS_AT_ONCE_MIN", "expirable", "expire"]

_log: Final = logging.getLogger(__name__)

SNAPSHOTS_AT_ONCE_MIN: Final = 50
"""Fewer are not worth a commit."""


def expirable(metadata: TableMetadata, *, now_ms: int) -> tuple[int, ...]:
    """Ids of the snapshots that may go, newest first. Pure.

    Raises ValueError for a property that is no number.
    """
    properties = metadata.properties
    keep = property_as_int(properties, SNAPSHOTS_KEPT_PROPERTY, SNAPSHOTS_KEPT) or 0
    age_ms = max(AGE_MS_MIN, property_as_int(properties, AGE_PROPERTY, AGE_MS) or 0)
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    found = []
    marked = False
    for place, snapshot in enumerate(main_ancestors(metadata)):
        said = {} if snapshot.summary is None else snapshot.summary.additional_properties
        ours = CYCLE_ID_SUMMARY in said and WATERMARKS_PROPERTY in said
        newest_of_ours, marked = ours and not marked, marked or ours
        old = place >= keep and now_ms - snapshot.timestamp_ms >= age_ms
        if (
            (ours or COMPACTION_SUMMARY in said)
            and old
            and not newest_of_ours
            and snapshot.snapshot_id not in named
        ):
            found.append(snapshot.snapshot_id)
    return tuple(found)


def expire(
    catalog: Catalog,
    identifier: tuple[str, ...],
    *,
    now_ms: int,
    at_once_min: int = SNAPSHOTS_AT_ONCE_MIN,
    pacing: Pacing = SYSTEM_PACING,
) -> int:
    """Expire what `expirable` names, if it is `at_once_min` or more; returns how many went.

    What is to go is worked out afresh for each try, on condition that main has not moved; so an
    answer that was lost does no harm.

    Raises NotFound without the table, FatalError for a flagged one, TransientError when the
    catalog is out or other writers were always faster.
    """
    started = pacing.clock()
    sent: set[int] = set()
    problem: Exception | None = None
    for attempt in range(pacing.faults_max):
        if attempt:
            pacing.pause(attempt)
        table = load_table(catalog, identifier, pacing=pacing)
        flagged = state_of(table).flagged
        if flagged is not None:
            raise FatalError(flagged)
        there = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        ids = expirable(table.metadata, now_ms=now_ms)
        if len(ids) < (1 if sent & there else at_once_min):
            return len(sent - there)
        if pacing.is_out_of_patience(started):
            break
        sent |= set(ids)
        try:
            _send(catalog, table, ids)
        except Exception as error:  # noqa: BLE001 - whatever it was, only the table knows
            problem = error
            _log.info("expiry of %s: looking again after %s", identifier, type(error).__name__)
            continue
        return len(sent)
    text = f"table {'.'.join(identifier)}: snapshots not expired: {type(problem).__name__}"
    raise TransientError(redact(f"{text}: {problem}", catalog.properties))


def _send(catalog: Catalog, table: Table, ids: tuple[int, ...]) -> None:
    """A snapshot that a tag got in this very moment would lose it: nothing can be asked for that.

    Main itself can't be rolled back to one meanwhile.
    """
    main = table.metadata.refs[MAIN_BRANCH].snapshot_id
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        # mypy sees the alias only; PyIceberg's models take the field's own name, too.
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=main),  # type: ignore[call-arg]
    )
    catalog.commit_table(table, requirements, (RemoveSnapshotsUpdate(snapshot_ids=list(ids)),))  # type: ignore[call-arg]
