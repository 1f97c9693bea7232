"""The list of manifests stays short, and merging changes nothing that anybody can see."""

from __future__ import annotations

import uuid
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from appends import IDENTIFIER, NO_WAIT, TOPIC, TOPIC_ID, Faults, Tier
from hypothesis import given, settings
from hypothesis import strategies as st
from position_deletes import delete_rows
from pyiceberg.manifest import ManifestContent, ManifestFile

from tiering.errors import FatalError
from tiering.offset_reader.reader import OffsetReader
from tiering.table import manifest_merge
from tiering.table.commit import append
from tiering.table.manifest_merge import ENTRIES_MIN, MANIFESTS_MAX, to_merge
from tiering.table.manifests import live_entries
from tiering.table.replace import TableReplacement, replace


@pytest.fixture
def tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tier:
    monkeypatch.setattr(manifest_merge, "MANIFESTS_MAX", 4)
    monkeypatch.setattr(manifest_merge, "ENTRIES_MIN", 8)
    tier = Tier.open(tmp_path)
    tier.ensure()
    return tier


def manifests(tier: Tier) -> list[ManifestFile]:
    snapshot = tier.table().current_snapshot()
    assert snapshot is not None
    return snapshot.manifests(tier.table().io)


def entries(tier: Tier) -> set[tuple[Any, ...]]:
    """Every live data file as readers see it, by what decides which deletes apply to it."""
    found = [
        (
            entry.data_file.file_path,
            entry.sequence_number,
            entry.file_sequence_number,
            entry.snapshot_id,
            entry.data_file.record_count,
            entry.data_file.spec_id,
            tuple(sorted((entry.data_file.lower_bounds or {}).items())),
        )
        for manifest in manifests(tier)
        if manifest.content == ManifestContent.DATA
        for entry in live_entries(tier.table().io, manifest)
    ]
    assert len(found) == len(set(found))
    return set(found)


def test_files_keep_their_snapshots_and_sequence_numbers(tier: Tier) -> None:
    before: set[tuple[Any, ...]] = set()
    longest = 0
    for end in range(1, 40):
        append(tier.catalog, tier.plan({0: end, 1: 2 * end}))
        now = entries(tier)
        assert before < now
        assert len(now - before) == 2
        assert {e[1] for e in now - before} == {end}
        before = now
        longest = max(longest, len(manifests(tier)))
    assert longest <= 5 + 78 // 8
    assert tier.offsets(0) == list(range(39))
    assert tier.offsets(1) == list(range(78))


def test_older_snapshots_read_as_before(tier: Tier) -> None:
    for end in range(1, 20):
        append(tier.catalog, tier.plan({0: end}))
    for end, snapshot in enumerate(tier.table().snapshots(), start=1):
        assert tier.table().scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == end
        assert snapshot.summary is not None
        assert snapshot.summary["total-data-files"] == str(end)


def test_deletes_go_on_hiding_their_rows(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 10}))
    delete_rows(tier.table(), tier.referenced_files()[0], 3, 4)
    for end in range(11, 25):
        append(tier.catalog, tier.plan({0: end}))
    assert tier.offsets() == [o for o in range(24) if o not in (3, 4)]
    assert sum(m.content == ManifestContent.DELETES for m in manifests(tier)) == 1


def test_the_offset_reader_follows(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 1}))
    reader = OffsetReader.open(tier.catalog, IDENTIFIER[0], TOPIC)
    for end in range(2, 20):
        append(tier.catalog, tier.plan({0: end}))
        reader.refresh()
        read = [o for b in reader.batches(0) for o in b.column("kafka_offset").to_pylist()]
        assert read == list(range(end))


def test_files_removed_from_merged_manifests(tier: Tier) -> None:
    for end in range(1, 20):
        append(tier.catalog, tier.plan({0: end}))
    for path in sorted(tier.referenced_files())[::3]:
        state = tier.state()
        replace(
            tier.catalog,
            TableReplacement(
                identifier=IDENTIFIER, topic=TOPIC, topic_id=TOPIC_ID, cycle_id=uuid.uuid4().hex,
                base=state, expected={}, moved={}, removed=frozenset({path}), reason="test",
            ),
        )  # fmt: skip
    left = entries(tier)
    assert len(left) == 12
    for end in range(20, 30):
        append(tier.catalog, tier.plan({0: end}))
    assert left < entries(tier)
    assert len(entries(tier)) == 22


def test_manifests_of_an_older_spec_are_merged_among_themselves(tier: Tier) -> None:
    for end in range(1, 4):
        append(tier.catalog, tier.plan({0: end}))
    with tier.table().update_spec() as update:
        update.add_identity("kafka_partition")
    before = entries(tier)
    for end in range(4, 16):
        plan = tier.plan({0: end})
        files = tuple(changed(f, spec_id=1, partition=(0,)) for f in plan.files[0])
        append(tier.catalog, changed(plan, files={0: files}))
    assert before < entries(tier)
    assert {m.partition_spec_id for m in manifests(tier)} == {0, 1}
    assert tier.offsets() == list(range(15))


def test_a_commit_that_failed_merges_again(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    for end in range(1, 6):
        append(tier.catalog, tier.plan({0: end}))
    Faults(tier, monkeypatch, "409", "landed-then-5xx")
    append(tier.catalog, tier.plan({0: 6}), pacing=NO_WAIT)
    assert tier.offsets() == list(range(6))
    assert len(manifests(tier)) == 2


def test_a_list_that_says_other_than_the_manifests_is_not_built_upon(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for end in range(1, 6):
        append(tier.catalog, tier.plan({0: end, 1: end}))
    monkeypatch.setattr(
        manifest_merge, "live_entries", lambda io, manifest: live_entries(io, manifest)[1:]
    )
    with pytest.raises(FatalError, match="hold other files than their list says"):
        append(tier.catalog, tier.plan({0: 6}), pacing=NO_WAIT)
    monkeypatch.undo()
    assert tier.offsets() == list(range(5))


def listed(count: int, number: int, spec_id: int = 0, content: int = 0) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=f"m{number}", manifest_length=1, partition_spec_id=spec_id,
        content=ManifestContent(content), sequence_number=number, min_sequence_number=number,
        added_snapshot_id=number, added_files_count=count, existing_files_count=0,
        deleted_files_count=0, added_rows_count=0, existing_rows_count=0, deleted_rows_count=0,
    )  # fmt: skip


SIZES = st.integers(0, 3 * ENTRIES_MIN) | st.integers(0, 9)


@settings(deadline=None)
@given(st.lists(st.tuples(SIZES, st.integers(0, 1), st.sampled_from([0, 0, 0, 1])), max_size=150))
def test_what_is_chosen(found: list[tuple[int, int, int]]) -> None:
    newest_first = [listed(n, i, spec, kind) for i, (n, spec, kind) in enumerate(found)]
    chosen = to_merge(newest_first)
    small = [
        m
        for m in reversed(newest_first)
        if m.content == ManifestContent.DATA and (m.added_files_count or 0) < ENTRIES_MIN
    ]
    crowds = [sum(m.partition_spec_id == spec for m in small) for spec in (0, 1)]
    assert bool(chosen) == (max(crowds) > MANIFESTS_MAX)
    if chosen:
        spec = chosen[0].partition_spec_id
        assert chosen == [m for m in small if m.partition_spec_id == spec][: len(chosen)]
        assert sum(m.added_files_count or 0 for m in chosen) < 2 * ENTRIES_MIN


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 200), min_size=700, max_size=700))
def test_a_list_stays_short_however_many_files_each_commit_brings(sizes: list[int]) -> None:
    manifests: list[ManifestFile] = []
    rewritten = 0
    for number, size in enumerate(sizes):
        chosen = to_merge(manifests)
        if len(chosen) > 1:
            count = sum(m.added_files_count or 0 for m in chosen)
            rewritten += count
            rest = [m for m in manifests if m not in chosen]
            manifests = [*rest, listed(count, 10_000 + number)]
        manifests = [listed(size, number), *manifests]
    assert sum(m.added_files_count or 0 for m in manifests) == sum(sizes)
    assert len(manifests) <= MANIFESTS_MAX + 2 + sum(sizes) // ENTRIES_MIN
    assert rewritten <= (1 + ENTRIES_MIN // MANIFESTS_MAX // 2) * sum(sizes)
