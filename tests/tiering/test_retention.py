"""Which files may leave: no row that Kafka still has, ever. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.typedef import Record

from tiering.ledger import LedgerEntry
from tiering.offset_reader.file_index import FileIndex, FileRef, _Manifest
from tiering.segments import SegmentId, SegmentMetadata
from tiering.table.state import TableState
from tiering.upkeep.retention import Expulsion, floors, plan_expulsion
from tiering.watermarks import Watermark

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def entry(start: int, end: int, *, deleted: bool = False, partition: int = 0) -> LedgerEntry:
    """A segment of offsets start..end."""
    number = f"{start}x{end}x{deleted}".rjust(22, "A")
    return LedgerEntry(
        metadata=SegmentMetadata(
            id=SegmentId(
                topic_id=TOPIC_ID, partition=partition, base_offset=start, segment_id=number
            ),
            topic="t",
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=0,
            broker_id=1,
            size_bytes=1,
            leader_epochs=((0, 0),),
        ),
        parts=(),
        sha256="",
        uploaded_at_ms=0,
        delete_requested=deleted,
    )


def file(
    first: int,
    last: int,
    *,
    partitions: tuple[int, int] = (0, 0),
    age_days: int | None = 0,
) -> FileRef:
    """A file of offsets first..last (over all its partitions) and this old."""
    last_us = None if age_days is None else (NOW_MS - age_days * DAY_MS) * 1000
    return FileRef(
        path=f"{partitions[0]}-{partitions[1]}/{first}-{last}",
        first_partition=partitions[0],
        last_partition=partitions[1],
        first_offset=first,
        last_offset=last,
        last_timestamp_us=last_us,
        sequence_number=1,
        spec_id=0,
        partition_tuple=Record(),
    )


def mark(offset: int) -> Watermark:
    return Watermark(offset=offset, leader_epochs=((0, 0), (3, 50)))


def plan(
    files: Iterable[FileRef],
    entries: Iterable[LedgerEntry],
    marks: dict[int, int],
    outlive_ms: int | None = 0,
) -> Expulsion:
    return plan_expulsion(
        FileIndex({"m": _Manifest(files=tuple(files))}),
        tuple(entries),
        {p: mark(offset) for p, offset in marks.items()},
        outlive_ms=outlive_ms,
        now_ms=NOW_MS,
    )


def ranges(expulsion: Expulsion) -> list[tuple[int, int]]:
    return sorted((f.first_offset, f.last_offset) for f in expulsion.files)


def test_files_below_the_lowest_live_segment_leave_and_a_straddling_one_waits() -> None:
    files = [file(0, 9), file(10, 24), file(25, 40)]
    made = plan(files, [entry(0, 19, deleted=True), entry(20, 40)], {0: 41})
    assert ranges(made) == [(0, 9)]
    assert made.moved == {}


def test_the_last_row_before_the_floor_counts() -> None:
    live = [entry(0, 9, deleted=True), entry(10, 19)]
    assert ranges(plan([file(0, 9)], live, {0: 20})) == [(0, 9)]
    assert ranges(plan([file(0, 10)], live, {0: 20})) == []


def test_nothing_deleted_nothing_leaves() -> None:
    assert ranges(plan([file(0, 9)], [entry(0, 9)], {0: 10})) == []
    assert ranges(plan([file(0, 9)], [], {0: 10})) == []


def test_a_superseded_copy_takes_no_row_with_it() -> None:
    """S0 10-90, then S1 5-100, then S0 deleted: its rows are S1's, too."""
    entries = [entry(10, 90, deleted=True), entry(5, 100)]
    assert ranges(plan([file(0, 4), file(5, 90), file(91, 100)], entries, {0: 101})) == [(0, 4)]


def test_rows_above_the_watermark_never_leave() -> None:
    """A segment that was deleted before it was converted raises no floor above the table."""
    assert floors([entry(0, 99, deleted=True)], {0: mark(10)})[0].offset == 10
    assert ranges(plan([file(0, 50)], [entry(0, 99, deleted=True)], {0: 10})) == []


def test_a_partition_without_watermark_has_no_floor() -> None:
    assert floors([entry(0, 9, deleted=True)], {}) == {}


def test_forever() -> None:
    assert plan([file(0, 9)], [entry(0, 9, deleted=True)], {0: 10}, None).files == ()


def test_a_duration_needs_kafkas_delete_and_the_age() -> None:
    files = [file(0, 9, age_days=40), file(10, 19, age_days=20), file(20, 29, age_days=40)]
    entries = [entry(0, 19, deleted=True), entry(20, 29)]
    assert ranges(plan(files, entries, {0: 30}, 30 * DAY_MS)) == [(0, 9)]
    assert ranges(plan(files, entries, {0: 30}, 41 * DAY_MS)) == []
    assert ranges(plan(files, entries, {0: 30}, 40 * DAY_MS)) == [], "40 days old are not older"
    no_timestamps = [file(0, 9, age_days=None)]
    assert ranges(plan(no_timestamps, entries, {0: 30}, DAY_MS)) == []
    assert ranges(plan(no_timestamps, entries, {0: 30}, 0)) == [(0, 9)]


def test_a_file_of_several_partitions_leaves_when_dead_in_each() -> None:
    wide = file(0, 9, partitions=(0, 2))
    gone = [entry(0, 9, deleted=True, partition=p) for p in range(3)]
    live = [entry(10, 19, partition=p) for p in range(3)]
    assert ranges(plan([wide], gone + live, dict.fromkeys(range(3), 20))) == [(0, 9)]
    assert ranges(plan([wide], gone + live, {0: 20, 2: 20})) == [], "1 is not known to be dead"
    low = entry(5, 9, partition=1)
    assert ranges(plan([wide], [*gone, *live, low], dict.fromkeys(range(3), 20))) == []
    unbounded = file(0, 9, partitions=(0, 2**31 - 1))
    assert ranges(plan([unbounded], gone + live, dict.fromkeys(range(3), 20))) == []


def test_without_a_live_segment_the_watermark_goes_back_with_the_rows() -> None:
    """It may have been a failed copy that the broker deleted to make it again."""
    made = plan([file(0, 59), file(60, 99)], [entry(0, 99, deleted=True)], {0: 100})
    assert ranges(made) == [(0, 59), (60, 99)]
    assert made.moved == {0: Watermark(offset=0, leader_epochs=())}


def test_without_a_live_segment_it_goes_back_to_the_last_row_that_stays() -> None:
    files = [file(0, 59, age_days=1), file(60, 79, age_days=9), file(80, 99, age_days=9)]
    gone = [entry(0, 99, deleted=True)]
    made = plan(files, gone, {0: 100}, 5 * DAY_MS)
    assert ranges(made) == [(60, 79), (80, 99)]
    assert made.moved[0] == Watermark(offset=60, leader_epochs=((0, 0), (3, 50)))
    files = [file(0, 59, age_days=9), file(60, 99, age_days=1)]
    made = plan(files, gone, {0: 100}, 5 * DAY_MS)
    assert (ranges(made), made.moved) == ([(0, 59)], {})


def test_the_commit_names_files_and_marks() -> None:
    made = plan([file(0, 99)], [entry(0, 99, deleted=True)], {0: 100, 1: 7})
    base = TableState(
        identifier=("kafka", "t"), uuid="u", snapshot_id=1, topic_id=TOPIC_ID,
        watermarks={0: mark(100), 1: mark(7)},
    )  # fmt: skip
    sent = made.replacement(base, topic="t", cycle_id="c", reason="retention")
    assert sent is not None
    assert sent.removed == {"0-0/0-99"}
    assert (sent.expected, sent.moved) == ({0: mark(100)}, {0: Watermark(offset=0)})
    nothing = plan([], [], {})
    assert nothing.replacement(base, topic="t", cycle_id="c", reason="retention") is None


OFFSETS = st.integers(0, 30)
PARTITIONS = st.integers(0, 2)
SPANS = st.tuples(OFFSETS, st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1]))
ENTRIES = st.builds(
    lambda span, deleted, partition: entry(*span, deleted=deleted, partition=partition),
    SPANS, st.booleans(), PARTITIONS,
)  # fmt: skip
FILES = st.builds(
    lambda span, first, more, age: file(*span, partitions=(first, first + more), age_days=age),
    SPANS, PARTITIONS, st.integers(0, 2), st.sampled_from([None, 0, 5, 50]),
)  # fmt: skip


def rows(ref: FileRef) -> set[tuple[int, int]]:
    """Every (partition, offset) that the file may hold."""
    partitions = range(ref.first_partition, ref.last_partition + 1)
    return {(p, o) for p in partitions for o in range(ref.first_offset, ref.last_offset + 1)}


@settings(deadline=None, max_examples=300)
@given(
    st.lists(FILES, max_size=8),
    st.lists(ENTRIES, max_size=8),
    st.dictionaries(PARTITIONS, OFFSETS),
    st.sampled_from([0, 10 * DAY_MS, None]),
)
@example([file(0, 9)], [entry(0, 9, deleted=True)], {0: 10}, 0)
def test_no_live_row_is_ever_removed(
    files: list[FileRef], entries: list[LedgerEntry], marks: dict[int, int], outlive: int | None
) -> None:
    made = plan(files, entries, marks, outlive)
    live = {
        (e.metadata.id.partition, o)
        for e in entries
        if not e.delete_requested
        for o in range(e.metadata.start_offset, e.metadata.end_offset + 1)
    }
    gone = {row for f in made.files for row in rows(f)}
    stay = {row for f in files if f.path not in {d.path for d in made.files} for row in rows(f)}
    assert gone.isdisjoint(live)
    assert all(offset < marks.get(partition, 0) for partition, offset in gone)
    assert all(not any(p == partition for p, _ in live) for partition in made.moved)
    for partition, back in made.moved.items():
        assert back.offset < marks[partition]
        assert not any(p == partition and o >= back.offset for p, o in stay), "no row comes twice"
    if outlive is None:
        assert not made.files
    elif outlive:
        assert all(f.last_timestamp_us is not None for f in made.files)
        oldest = (NOW_MS - outlive) * 1000
        assert all((f.last_timestamp_us or 0) < oldest for f in made.files)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(FILES, max_size=8),
    st.lists(ENTRIES, max_size=8),
    st.dictionaries(PARTITIONS, OFFSETS),
)
def test_what_is_dead_leaves_and_a_copy_made_again_finds_its_rows_wanted(
    files: list[FileRef], entries: list[LedgerEntry], marks: dict[int, int]
) -> None:
    made = plan(files, entries, marks)
    left = {f.path for f in made.files}
    starts: dict[int, int] = {}
    for e in entries:
        if not e.delete_requested:
            p = e.metadata.id.partition
            starts[p] = min(starts.get(p, 99), e.metadata.start_offset)
    deleted_to = {
        p: max(e.metadata.end_offset + 1 for e in entries if e.metadata.id.partition == p)
        for p in {e.metadata.id.partition for e in entries}
    }
    dead = {
        f.path
        for f in files
        if all(
            p in marks and o < marks[p] and o < starts.get(p, deleted_to.get(p, 0))
            for p, o in rows(f)
        )
    }
    assert left == dead
    for f in made.files:
        for p, o in rows(f) - {row for s in files if s.path not in left for row in rows(s)}:
            above = any(
                s.first_partition <= p <= s.last_partition and s.last_offset > o
                for s in files
                if s.path not in left
            )
            back = made.moved[p].offset if p in made.moved else marks[p]
            assert p in starts or above or o >= back, "rows of a failed copy are converted again"
