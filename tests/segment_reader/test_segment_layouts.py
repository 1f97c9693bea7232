"""Native layouts: what is listed, what each segment's verdicts are, and where they end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kafka_oracle import KafkaLog, rows_of

from segment_reader import (
    CorruptSegment,
    IndexKind,
    LocalTieredStorageLayout,
    NativeLayout,
    NativeSegment,
    OnecopyLayout,
    RecordFilter,
    SegmentReader,
    StoredSegment,
    Verdicts,
    parse_transaction_index,
)

TOPIC_ID = "9zRY-_0sQlq-_b1nIgSuUw"
DIRECTORY = f"a-b.c_1-12-{TOPIC_ID}"
SEGMENTS = [
    (10, "-AAAAAAAAAAAAAAAAAAA-A"),
    (20, "BBBBBBBBBBBBBBBBBB-1-B"),
    (26, "CCCCCCCCCCCCCCCCCCCCCC"),
]


@pytest.fixture
def root(tiered_storage: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "kafka-tiered-storage"
    shutil.copytree(tiered_storage, copy)
    return copy


def of_topic(layout: NativeLayout) -> list[NativeSegment]:
    return [segment for segment in layout.segments() if segment.topic == "a-b.c_1"]


def read(layout: NativeLayout, segment: NativeSegment) -> list[bytes]:
    verdicts = Verdicts.from_entries(layout.verdicts(segment))
    reader = SegmentReader(layout.log(segment), layout.bounds(segment), verdicts)
    rows = rows_of(list(reader.record_batches(to_offset=layout.first_undecided_offset(segment))))
    return [row[5] or b"" for row in rows]


def test_names_are_read_from_the_right(root: Path) -> None:
    segments = list(LocalTieredStorageLayout(root).segments())
    expected = [
        NativeSegment(
            topic="a-b.c_1", topic_id=TOPIC_ID, partition=12, base_offset=base, segment_id=uuid
        )
        for base, uuid in SEGMENTS
    ]
    assert segments[:-1] == expected
    assert (segments[-1].topic, segments[-1].partition) == ("plain", 0)


def test_what_is_no_whole_segment_is_passed_over(root: Path, tmp_path: Path) -> None:
    directory = root / DIRECTORY
    before = list(LocalTieredStorageLayout(root).segments())
    for name in ("..", ".", "a b", "ü"):
        shutil.copytree(directory, root / f"{name}-0-{TOPIC_ID}")
    (root / f"topic-{TOPIC_ID}").mkdir()
    (root / f"topic-x-{TOPIC_ID}").mkdir()
    (root / "file").write_text("")
    shutil.copytree(directory, tmp_path / "outside")
    (root / f"linked-0-{TOPIC_ID}").symlink_to(tmp_path / "outside")
    stem = directory / f"{40:020d}-EEEEEEEEEEEEEEEEEEEEEE"
    Path(f"{stem}.log").write_bytes(b"")  # its indexes are not there yet
    (directory / "00000000000000000050-short.log").write_bytes(b"")
    assert list(LocalTieredStorageLayout(root).segments()) == before


def test_verdicts_lie_in_later_segments(root: Path) -> None:
    layout = LocalTieredStorageLayout(root)
    first, second, third = of_topic(layout)
    found = [
        [
            (entry[0], entry[1], entry[2])
            for entry in zip(
                index.producer_id.tolist(),
                index.first_offset.tolist(),
                index.last_offset.tolist(),
                strict=True,
            )
        ]
        for index in (
            parse_transaction_index(layout.verdicts(segment)) for segment in (first, second, third)
        )
    ]
    assert found == [[(1, 10, 22)], [(1, 10, 22), (3, 23, 28)], [(3, 23, 28)]]
    assert layout.index(first, IndexKind.TRANSACTION) is None
    assert read(layout, first) == [b"p2-13", b"p2-14", b"p-1-15", b"p-1-16", b"p-1-17", b"p-1-18"]


def test_reading_stops_at_the_first_open_transaction(root: Path) -> None:
    layout = LocalTieredStorageLayout(root)
    segments = of_topic(layout)
    assert [layout.first_undecided_offset(segment) for segment in segments] == [25, 25, 25]
    assert [read(layout, segment) for segment in segments[1:]] == [[], []]


def test_a_damaged_snapshot_is_replaced_by_a_look_at_the_logs(root: Path) -> None:
    for path in (root / DIRECTORY).glob("*.snapshot"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(bytes(data))
    layout = LocalTieredStorageLayout(root)
    assert layout.first_undecided_offset(of_topic(layout)[0]) == 25


@pytest.mark.parametrize(("kept", "undecided"), [(1, 10), (2, 23)])
@pytest.mark.parametrize("damage", [False, True], ids=["snapshot", "logs"])
def test_a_tier_that_lacks_later_segments(
    root: Path, kept: int, undecided: int, damage: bool
) -> None:
    for base, uuid in SEGMENTS[kept:]:
        for path in (root / DIRECTORY).glob(f"{base:020d}-{uuid}.*"):
            path.unlink()
    if damage:
        for path in (root / DIRECTORY).glob("*.snapshot"):
            path.write_bytes(b"")
    layout = LocalTieredStorageLayout(root)
    for segment in of_topic(layout):
        assert layout.first_undecided_offset(segment) == undecided


def test_bounds_come_from_the_tail_and_the_checkpoint(root: Path) -> None:
    layout = LocalTieredStorageLayout(root)
    bounds = [layout.bounds(segment) for segment in layout.segments()]
    assert [(b.start_offset, b.end_offset) for b in bounds] == [
        (10, 19),
        (20, 25),
        (26, 32),
        (0, 4),
    ]
    assert bounds[0].leader_epochs == ((0, 0), (7, 10))


def test_logs_and_indexes_agree_with_kafka(root: Path) -> None:
    layout = LocalTieredStorageLayout(root)
    for segment in layout.segments():
        log = KafkaLog.load(Path(layout.log(segment).name))
        reader = SegmentReader(layout.log(segment), layout.bounds(segment))
        batches = list(reader.record_batches(include=RecordFilter.ALL_DATA))
        assert rows_of(batches) == log.rows()
        for kind in IndexKind:
            data = layout.index(segment, kind)
            assert data is not None or kind is IndexKind.TRANSACTION


def test_segments_of_elsewhere_name_no_path(root: Path) -> None:
    layout = LocalTieredStorageLayout(root)
    evil = NativeSegment(
        topic="../../etc", topic_id=TOPIC_ID, partition=0, base_offset=0, segment_id="x"
    )
    with pytest.raises(ValueError, match="names no directory"):
        layout.log(evil)


def test_a_file_that_shrinks_is_noticed(root: Path) -> None:
    layout = LocalTieredStorageLayout(root)
    source = layout.log(of_topic(layout)[0])
    Path(source.name).write_bytes(b"x" * 10)
    with pytest.raises(CorruptSegment, match="ends here"):
        source.read(0, source.size_bytes)
    with pytest.raises(CorruptSegment, match="asked of"):
        source.read(0, source.size_bytes + 1)


def test_onecopys_own_layout_over_any_store(root: Path) -> None:
    foreign = LocalTieredStorageLayout(root)
    objects: dict[str, bytes] = {}
    stored: dict[NativeSegment, StoredSegment] = {}
    for segment in of_topic(foreign):
        log, key = foreign.log(segment), f"native/{segment.segment_id}"
        parts = {kind.value: foreign.index(segment, kind) for kind in IndexKind}
        parts["verdicts"] = foreign.verdicts(segment)
        kept = {name: data for name, data in parts.items() if data is not None}
        objects[f"{key}.log"] = log.read(0, log.size_bytes)
        objects[f"{key}.indexes"] = b"".join(kept.values())
        stored[segment] = StoredSegment(
            segment=segment,
            bounds=foreign.bounds(segment),
            log_key=f"{key}.log",
            log_bytes=log.size_bytes,
            indexes_key=f"{key}.indexes",
            parts=tuple((name, len(data)) for name, data in kept.items()),
        )
    own = OnecopyLayout(stored, lambda key, start, length: objects[key][start : start + length])
    assert list(own.segments()) == of_topic(foreign)
    for segment in own.segments():
        for kind in IndexKind:
            assert own.index(segment, kind) == foreign.index(segment, kind)
        assert own.verdicts(segment) == foreign.verdicts(segment)
        assert own.bounds(segment) == foreign.bounds(segment)
        assert own.first_undecided_offset(segment) is None
    assert read(own, next(own.segments()))[0] == b"p2-13"
