"""Planning is pure: every rule is shown on ledger entries made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.ledger import LedgerEntry, Quarantine, SegmentState
from tiering.planning import PartitionPlan, plan_partition
from tiering.segments import SegmentId, SegmentMetadata
from tiering.watermarks import Watermark

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def entry(
    start: int,
    end: int,
    number: int = 0,
    *,
    epochs: tuple[tuple[int, int], ...] | None = None,
    deleted: bool = False,
    quarantined: bool = False,
    size_bytes: int = 100,
) -> LedgerEntry:
    identity = SegmentId(
        topic_id=TOPIC_ID, partition=0, base_offset=start, segment_id=f"{number:022d}"
    )
    return LedgerEntry(
        metadata=SegmentMetadata(
            id=identity,
            topic="t",
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=0,
            broker_id=1,
            size_bytes=size_bytes,
            leader_epochs=epochs if epochs is not None else ((0, start),),
        ),
        parts=(),
        sha256="",
        uploaded_at_ms=0,
        delete_requested=deleted,
        quarantine=Quarantine(reason="bad crc", position=61) if quarantined else None,
    )


def plan(
    entries: list[LedgerEntry],
    offset: int | None = None,
    *,
    epochs: tuple[tuple[int, int], ...] = ((0, 0),),
    unseen: tuple[LedgerEntry, ...] = (),
    bytes_max: int = 10**9,
) -> PartitionPlan:
    mark = None if offset is None else Watermark(offset=offset, leader_epochs=epochs)
    seen = {e.metadata.id for e in entries} - {e.metadata.id for e in unseen}
    return plan_partition(0, entries, mark, seen_before=seen, bytes_max=bytes_max)


def ranges(made: PartitionPlan) -> list[tuple[int, int, int]]:
    return [(r.entry.metadata.start_offset, r.from_offset, r.to_offset) for r in made.ranges]


def test_segments_are_taken_in_offset_order() -> None:
    assert ranges(plan([entry(10, 19, 2), entry(0, 9, 1), entry(20, 29, 3)], 0)) == [
        (0, 0, 10),
        (10, 10, 20),
        (20, 20, 30),
    ]


def test_nothing_below_the_watermark_is_taken_again() -> None:
    assert ranges(plan([entry(0, 9, 1), entry(10, 19, 2)], 15)) == [(10, 15, 20)]
    assert ranges(plan([entry(0, 9, 1), entry(10, 19, 2)], 20)) == []


def test_a_copy_with_other_boundaries_gives_only_its_new_offsets() -> None:
    first, second = entry(10, 90, 1), entry(5, 100, 2)
    assert ranges(plan([first, second], 91)) == [(5, 91, 101)]
    assert ranges(plan([first, second], 10)) == [(5, 10, 101)]


def test_the_first_segment_waits_until_a_second_look_has_confirmed_it() -> None:
    only = entry(40, 49, 1)
    assert ranges(plan([only], None, unseen=(only,))) == []
    assert ranges(plan([only], None)) == [(40, 40, 50)]


def test_a_hole_is_stepped_over_only_to_a_segment_seen_before() -> None:
    low, high = entry(0, 9, 1), entry(20, 29, 2)
    assert ranges(plan([low, high], 0, unseen=(high,))) == [(0, 0, 10)]
    assert ranges(plan([low, high], 0)) == [(0, 0, 10), (20, 20, 30)]


def test_a_deleted_copy_is_a_hole() -> None:
    assert ranges(plan([entry(0, 9, 1, deleted=True), entry(10, 19, 2)], 0)) == [(10, 10, 20)]


def test_a_quarantined_segment_stops_its_partition_and_says_where() -> None:
    made = plan([entry(0, 9, 1), entry(10, 19, 2, quarantined=True), entry(20, 29, 3)], 0)
    assert ranges(made) == [(0, 0, 10)]
    assert made.stall is not None
    assert made.stall.offset == 10
    assert "byte 61: bad crc" in made.stall.reason


def test_another_copy_of_a_quarantined_segment_is_taken_instead() -> None:
    made = plan([entry(0, 9, 1, quarantined=True), entry(0, 9, 2)], 0)
    assert [r.entry.metadata.id.segment_id for r in made.ranges] == [f"{2:022d}"]
    assert made.stall is None


def test_a_cycle_takes_one_segment_even_over_the_byte_limit() -> None:
    made = plan([entry(0, 9, 1), entry(10, 19, 2)], 0, bytes_max=1)
    assert ranges(made) == [(0, 0, 10)]


def test_epochs_that_cut_the_tables_lineage_short_ask_for_a_withdrawal() -> None:
    made = plan([entry(80, 150, 1, epochs=((0, 80), (2, 90)))], 100, epochs=((0, 0),))
    assert made.ranges == ()
    assert made.withdrawal is not None
    assert (made.withdrawal.offset, made.withdrawal.newest_epoch) == (90, 2)
    assert "leader epoch 2 at offset 90" in made.withdrawal.reason


def test_the_lowest_dead_row_is_withdrawn_first() -> None:
    high = entry(80, 100, 1, epochs=((2, 80),))
    low = entry(60, 79, 2, epochs=((2, 60),))
    made = plan([high, low], 120, epochs=((1, 0),))
    assert made.withdrawal is not None
    assert made.withdrawal.offset == 60


@pytest.mark.parametrize("epochs", [((0, 80), (3, 100)), ((0, 80), (3, 120)), ((0, 80),)])
def test_epochs_that_continue_the_lineage_go_on(epochs: tuple[tuple[int, int], ...]) -> None:
    made = plan([entry(80, 150, 1, epochs=epochs)], 100, epochs=((0, 0),))
    assert ranges(made) == [(80, 100, 151)]


def test_a_copy_below_the_watermark_that_shows_rows_to_be_dead_asks_for_a_withdrawal() -> None:
    # Offsets 0..100 came under epoch 1. Then a leader without 50..100 was elected; its next
    # segments lie below the watermark, and the first one above it begins under epoch 2 quietly.
    behind = entry(50, 100, 2, epochs=((2, 50),))
    above = entry(101, 120, 3, epochs=((2, 101),))
    made = plan([behind, above], 101, epochs=((1, 0),))
    assert made.ranges == ()
    assert made.withdrawal is not None
    assert "leader epoch 2 at offset 50" in made.withdrawal.reason


def test_of_two_lineages_the_newer_one_is_taken_from_where_its_copy_begins() -> None:
    dead = entry(0, 100, 1, epochs=((1, 0),))
    alive = entry(30, 60, 2, epochs=((1, 30), (2, 50)))
    after = entry(61, 80, 3, epochs=((2, 61),))
    made = plan([dead, alive, after], 0, epochs=())
    assert ranges(made) == [(0, 0, 30), (30, 30, 61), (61, 61, 81)]
    assert made.stall is None


def test_a_late_copy_of_a_dead_lineage_is_passed_over() -> None:
    late = entry(40, 150, 1, epochs=((1, 40),))
    alive = entry(101, 120, 2, epochs=((2, 101),))
    made = plan([late, alive], 101, epochs=((1, 0), (2, 50)))
    assert ranges(made) == [(101, 101, 121)]
    assert plan([late], 101, epochs=((1, 0), (2, 50))).stall is None


def test_copies_of_one_newest_epoch_never_contradict() -> None:
    # A hole below 100 was stepped over, so the table knows epoch 2 from 100 on only.
    wider = entry(90, 150, 1, epochs=((2, 90),))
    made = plan([wider], 120, epochs=((0, 0), (2, 100)))
    assert ranges(made) == [(90, 120, 151)]


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 20), st.booleans(), st.booleans()),
        max_size=12,
    ),
    st.one_of(st.none(), st.integers(0, 80)),
)
def test_ranges_never_overlap_and_always_lie_in_a_live_copy(
    shapes: list[tuple[int, int, bool, bool]], offset: int | None
) -> None:
    entries = [
        replace(
            entry(start, start + length, number, epochs=((0, 0),)),
            delete_requested=deleted,
            quarantine=Quarantine(reason="x", position=0) if bad else None,
        )
        for number, (start, length, deleted, bad) in enumerate(shapes)
    ]
    made = plan(entries, offset)
    reached = offset if offset is not None else 0
    for each in made.ranges:
        meta = each.entry.metadata
        assert reached <= each.from_offset < each.to_offset == meta.end_offset + 1
        assert meta.start_offset <= each.from_offset
        assert not each.entry.delete_requested
        assert each.entry.quarantine is None
        reached = each.to_offset
    if made.stall is None:
        usable = [e for e in entries if not e.delete_requested]
        assert reached > max((e.metadata.end_offset for e in usable), default=-1)


def test_a_hole_is_not_stepped_over_into_a_log_that_was_cut() -> None:
    # Offsets 0..259 are in the table, from 200 on under epoch 2. What epoch 0 had written behind
    # is of the log that was cut, though nothing below the watermark says so.
    dead = entry(280, 329, 1, epochs=((0, 280),))
    assert plan([dead], 260, epochs=((0, 0), (2, 200))).ranges == ()
    alive = entry(260, 300, 2, epochs=((2, 260),))
    assert ranges(plan([dead, alive], 260, epochs=((0, 0), (2, 200)))) == [(260, 260, 301)]


def test_a_retired_segment_is_never_converted_again() -> None:
    retired = replace(entry(0, 99, 1), state=SegmentState.RETIRED)
    made = plan([retired], 0)
    assert made.ranges == ()
    assert made.stall is not None
    assert "is retired" in made.stall.reason
