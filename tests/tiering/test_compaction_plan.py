"""Which files are worth a rewrite."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.typedef import Record

from tiering.offset_reader.file_index import FileRef
from tiering.upkeep.compaction_plan import CompactionLimits, Rewrite, plan_rewrites

LIMITS = CompactionLimits(target_bytes=1000, files_min=3, rewrite_bytes_max=2000, overlap_max=2)
SMALL = LIMITS.small_bytes - 1


def file(
    first: int, last: int, size: int = SMALL, partition: int = 0, to_partition: int | None = None
) -> FileRef:
    return FileRef(
        path=f"{partition}/{first}-{last}-{size}",
        first_partition=partition,
        last_partition=partition if to_partition is None else to_partition,
        first_offset=first,
        last_offset=last,
        last_timestamp_us=None,
        sequence_number=1,
        spec_id=0,
        partition_tuple=Record(),
        size_bytes=size,
    )


def plan(*files: FileRef) -> list[Rewrite]:
    shuffled = list(files)
    random.Random(len(files)).shuffle(shuffled)
    return plan_rewrites(shuffled, LIMITS)


def ranges(rewrites: list[Rewrite]) -> list[tuple[int, int, int, int]]:
    return [(r.first_partition, r.first_offset, r.last_offset, r.files) for r in rewrites]


def test_an_empty_table() -> None:
    assert plan() == []


def test_small_files_side_by_side() -> None:
    found = plan(*(file(10 * i, 10 * i + 9, size=50) for i in range(4)))
    assert found == [
        Rewrite(
            first_partition=0,
            last_partition=0,
            first_offset=0,
            last_offset=39,
            files=4,
            size_bytes=200,
        )
    ]


def test_too_few_are_left_alone_unless_they_fill_a_file() -> None:
    assert plan(file(0, 9), file(10, 19)) == []
    two = CompactionLimits(target_bytes=1000, files_min=99)
    files = [file(10 * i, 10 * i + 9, size=249) for i in range(5)]
    assert [r.files for r in plan_rewrites(files, two)] == [5]
    assert plan_rewrites(files[:4], two) == []


def test_large_files_part_the_runs() -> None:
    small = [file(10 * i, 10 * i + 9) for i in range(8)]
    large = [file(30, 39, size=LIMITS.small_bytes)]
    assert ranges(plan(*small[:3], *large, *small[4:])) == [(0, 0, 29, 3), (0, 40, 79, 4)]


def test_partitions_are_kept_apart() -> None:
    files = [file(10 * i, 10 * i + 9, partition=p) for p in (0, 1, 7) for i in range(3)]
    assert ranges(plan(*files)) == [(0, 0, 29, 3), (1, 0, 29, 3), (7, 0, 29, 3)]


def test_what_was_merged_comes_again_only_once_as_much_has_come_after_it() -> None:
    merged = file(0, 99, size=240)
    few = [file(100 + i, 100 + i, size=20) for i in range(4)]
    assert ranges(plan(merged, *few)) == [(0, 100, 103, 4)]
    many = [file(100 + i, 100 + i, size=20) for i in range(12)]
    assert ranges(plan(merged, *many)) == [(0, 0, 111, 13)]
    assert plan(merged, *few[:2]) == []


def test_a_rewrite_is_bounded() -> None:
    files = [file(10 * i, 10 * i + 9, size=200) for i in range(25)]
    found = plan(*files)
    assert [r.size_bytes for r in found] == [2000, 2000, 1000]
    assert [r.first_offset for r in found] == [0, 100, 200]


def test_files_that_overlap_deeply_are_sorted_again_also_large_ones() -> None:
    tangled = [file(i, 100 + i, size=5000 + i) for i in range(3)]
    apart = [file(1000 + 10 * i, 1009 + 10 * i) for i in range(3)]
    found = plan(*tangled, *apart)
    assert ranges(found) == [(0, 0, 102, 3), (0, 1000, 1029, 3)]
    assert [r.sort_all for r in found] == [True, False]


def test_neighbours_that_meet_are_no_tangle() -> None:
    """What a sort over several partitions gives: each file ends where the next begins."""
    files = [file(0, 900, size=900, partition=p, to_partition=p + 1) for p in range(20)]
    assert plan(*files) == []


def test_tangles_of_other_partitions_are_rewritten_apart() -> None:
    files = [
        file(0, 100 + i, size=900 + i, partition=p, to_partition=p + 1)
        for p in (0, 10)
        for i in range(3)
    ]
    found = plan(*files)
    assert [(r.first_partition, r.last_partition, r.files) for r in found] == [
        (0, 1, 3),
        (10, 11, 3),
    ]


SIZES = st.lists(st.integers(1, 600), min_size=0, max_size=60)


@given(SIZES)
@settings(max_examples=200, deadline=None)
def test_what_a_rewrite_leaves_is_left_alone(sizes: list[int]) -> None:
    """Carried out, a plan leads to a table that only its ends may give something to do again."""
    files = [file(10 * i, 10 * i + 9, size=size) for i, size in enumerate(sizes)]
    rewrites = plan_rewrites(files, LIMITS)
    assert sum(r.files for r in rewrites) <= len(files)
    for each in rewrites:
        inside = [f for f in files if each.first_offset <= f.first_offset <= each.last_offset]
        assert [f for f in inside if f.size_bytes >= LIMITS.small_bytes] == []
        assert (each.files, each.size_bytes) == (len(inside), sum(f.size_bytes for f in inside))
    kept = [
        f
        for f in files
        if not any(r.first_offset <= f.first_offset <= r.last_offset for r in rewrites)
    ]
    merged = [file(r.first_offset, r.last_offset, size=min(r.size_bytes, 1000)) for r in rewrites]
    again = plan_rewrites([*kept, *merged], LIMITS)
    assert len(again) <= len(rewrites)
