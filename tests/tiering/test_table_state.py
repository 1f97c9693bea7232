"""Reading a table's metadata: which watermarks count, and when a table is flagged. Pure."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from tiering.table.schema import raw_schema, sort_order
from tiering.table.state import landed_snapshot, moved_partitions, read_state
from tiering.watermarks import (
    CYCLE_ID_SUMMARY,
    MOVED_SUMMARY,
    WATERMARKS_PROPERTY,
    Watermark,
    encode_watermarks,
)

NAME = ("kafka", "t")


def marks(offset: int) -> str:
    return encode_watermarks({0: Watermark(offset=offset)})


def snapshot(number: int, parent: int | None, offset: int | None = None) -> Snapshot:
    """Snapshot `number` (id and sequence number); ours if it carries an offset."""
    ours: dict[str, Any] = {}
    if offset is not None:
        ours = {
            WATERMARKS_PROPERTY: marks(offset),
            CYCLE_ID_SUMMARY: f"cycle-{number}",
            MOVED_SUMMARY: "0,7",
        }
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        manifest_list=f"/m/{number}",
        timestamp_ms=number,
        summary=Summary(Operation.APPEND, **ours),
    )


def metadata(
    *snapshots: Snapshot, main: int | None, stated: str | None, **refs: int
) -> TableMetadata:
    heads = dict(refs) if main is None else {"main": main, **refs}
    return new_table_metadata(
        schema=raw_schema(),
        partition_spec=UNPARTITIONED_PARTITION_SPEC,
        sort_order=sort_order(),
        location="/t",
        properties={} if stated is None else {WATERMARKS_PROPERTY: stated},
        table_uuid=uuid.UUID(int=1),
    ).model_copy(
        update={
            "snapshots": list(snapshots),
            "current_snapshot_id": main,
            "refs": {n: _ref(n, i) for n, i in heads.items()},
        }
    )


def _ref(name: str, snapshot_id: int) -> SnapshotRef:
    kind = SnapshotRefType.TAG if name.startswith("tag") else SnapshotRefType.BRANCH
    return SnapshotRef(snapshot_id=snapshot_id, snapshot_ref_type=kind)


def offset_of(table: TableMetadata) -> int | None:
    mark = read_state(NAME, table).watermarks.get(0)
    return None if mark is None else mark.offset


def flag(table: TableMetadata) -> str:
    return read_state(NAME, table).flagged or ""


def test_a_new_table() -> None:
    state = read_state(NAME, metadata(main=None, stated="{}"))
    assert (state.snapshot_id, state.watermarks, state.flagged) == (None, {}, None)


def test_a_property_on_a_table_without_snapshots_is_not_believed() -> None:
    table = metadata(main=None, stated=marks(5))
    assert "has partition 0 at offset 5, main's snapshots have it at none" in flag(table)


def test_the_newest_of_ours_below_foreign_ones_counts() -> None:
    table = metadata(
        snapshot(1, None, 10), snapshot(2, 1, 20), snapshot(3, 2), main=3, stated=marks(20)
    )
    assert (offset_of(table), flag(table)) == (20, "")


def test_rolled_back() -> None:
    table = metadata(snapshot(1, None, 10), snapshot(2, 1, 20), main=1, stated=marks(20))
    assert offset_of(table) == 10
    assert "snapshot 2 of cycle cycle-2 is not an ancestor of main" in flag(table)


def test_rolled_back_and_written_by_somebody_since() -> None:
    table = metadata(
        snapshot(1, None, 10), snapshot(2, 1, 20), snapshot(3, 1), main=3, stated=marks(20)
    )
    assert "not an ancestor" in flag(table)


def test_rolled_back_to_a_foreign_snapshot_before_all_of_ours() -> None:
    table = metadata(snapshot(1, None), snapshot(2, 1, 20), main=1, stated=marks(20))
    assert (offset_of(table), "not an ancestor" in flag(table)) == (None, True)


def test_rolled_back_and_the_lost_snapshot_expired() -> None:
    table = metadata(snapshot(1, None, 10), main=1, stated=marks(20))
    assert "rolled back or the property edited" in flag(table)


def test_rolled_back_and_the_lost_snapshot_kept_by_a_tag() -> None:
    table = metadata(
        snapshot(1, None, 10), snapshot(2, 1, 20), main=1, stated=marks(20), **{"tag-x": 2}
    )
    assert "not an ancestor" in flag(table)


def test_a_rollback_that_was_settled_by_a_newer_snapshot_of_ours() -> None:
    table = metadata(
        snapshot(1, None, 10), snapshot(2, 1, 20), snapshot(3, 1, 10), main=3, stated=marks(10)
    )
    assert (offset_of(table), flag(table)) == (10, "")


def test_main_removed() -> None:
    table = metadata(snapshot(1, None, 10), main=None, stated=marks(10))
    assert "not an ancestor" in flag(table)


def test_expiry_of_older_ones_cuts_the_chain_above_them() -> None:
    table = metadata(snapshot(4, 3, 40), snapshot(5, 4), main=5, stated=marks(40))
    assert (offset_of(table), flag(table)) == (40, "")


def test_expiry_of_all_of_ours_leaves_the_property() -> None:
    for parent in (4, None):  # PyIceberg cuts the parent, Java leaves it
        table = metadata(snapshot(5, parent), main=5, stated=marks(40))
        assert (offset_of(table), flag(table)) == (40, "")


def test_expiry_of_all_of_ours_but_one_that_a_tag_keeps() -> None:
    table = metadata(
        snapshot(2, 1, 20), snapshot(5, 4), main=5, stated=marks(40), **{"tag-audit": 2}
    )
    assert (offset_of(table), flag(table)) == (40, "")


def test_expiry_of_all_of_ours_and_the_property_removed() -> None:
    table = metadata(snapshot(5, 4), main=5, stated=None)
    assert "set the property again" in flag(table)


def test_foreign_rows_before_our_first_commit() -> None:
    table = metadata(snapshot(1, None), main=1, stated="{}")
    assert (offset_of(table), flag(table)) == (None, "")


def test_a_property_that_lags_or_is_missing_does_not_matter() -> None:
    for stated in (marks(5), "{}", None):
        table = metadata(snapshot(1, None, 10), main=1, stated=stated)
        assert (offset_of(table), flag(table)) == (10, "")


def test_a_damaged_property_is_flagged() -> None:
    for snapshots, main in (((snapshot(1, None, 10),), 1), ((snapshot(5, 4),), 5), ((), None)):
        table = metadata(*snapshots, main=main, stated="{broken")
        assert "property onecopy.watermarks is damaged" in flag(table)


def test_landed_is_found_by_snapshot_or_by_cycle_among_ancestors_only() -> None:
    table = metadata(
        snapshot(1, None, 10), snapshot(2, 1, 20), snapshot(3, 1, 30), main=3, stated=marks(30)
    )
    assert landed_snapshot(table, {1}, "none") is table.snapshots[0]
    assert landed_snapshot(table, (), "cycle-3") is table.snapshots[2]
    assert landed_snapshot(table, {2}, "cycle-2") is None
    assert moved_partitions(table.snapshots[0]) == {0, 7}
    assert moved_partitions(snapshot(9, None)) == frozenset()


def test_parents_in_a_circle_end() -> None:
    table = metadata(snapshot(1, 2), snapshot(2, 1), main=2, stated="{}")
    assert landed_snapshot(table, {9}, "x") is None


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(["ours", "foreign", "expire", "expire-java"]), max_size=12))
def test_no_order_of_appends_rewrites_and_expiries_is_taken_for_a_rollback(
    events: list[str],
) -> None:
    kept: list[Snapshot] = []
    number, offset = 0, 0
    for event in events:
        if event.startswith("expire"):
            kept = kept[-1:]
            if kept and event == "expire":
                kept = [kept[0].model_copy(update={"parent_snapshot_id": None})]
            continue
        parent = number or None
        number += 1
        offset += event == "ours"
        kept.append(snapshot(number, parent, offset if event == "ours" else None))
    table = metadata(
        *kept, main=number or None, stated=marks(offset) if offset else encode_watermarks({})
    )
    assert flag(table) == ""
    assert (offset_of(table) or 0) == offset


@settings(deadline=None, max_examples=200)
@given(st.lists(st.booleans(), min_size=2, max_size=10), st.data())
def test_every_rollback_that_loses_a_commit_of_ours_is_flagged(
    chain: list[bool], data: st.DataObject
) -> None:
    """Also where the lost snapshots have been expired since."""
    snapshots = [
        snapshot(i, i - 1 if i > 1 else None, i if ours else None)
        for i, ours in enumerate(chain, start=1)
    ]
    to = data.draw(st.integers(1, len(chain)))
    expired = data.draw(st.booleans())
    newest = max((i for i, ours in enumerate(chain, start=1) if ours), default=0)
    kept = snapshots[:to] if expired else snapshots
    table = metadata(*kept, main=to, stated=marks(newest) if newest else encode_watermarks({}))
    assert (flag(table) != "") == (newest > to)
