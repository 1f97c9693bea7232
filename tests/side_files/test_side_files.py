"""Side files written and read back: whole, in parts, in bundles, on both kinds of stores."""

from __future__ import annotations

import itertools
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from side_samples import (
    INDEXES,
    CountingStore,
    Sample,
    assert_holds,
    assert_same_batches,
    extremes,
    keys,
    make_sample,
    segment,
    write,
    writer,
)

from segment_reader.batch_table import BatchTable, Kept
from tiering.errors import FatalError, NotFound
from tiering.side_files import SideFile, bundle, objects
from tiering.side_files import writer as writing

# Kept for as long as the process lives: buffers that came from it give themselves back to it.
OWN_POOL = pa.proxy_memory_pool(pa.default_memory_pool())


class TestRoundTrip:
    @pytest.mark.parametrize("count", [1, 2, 500, 3000])
    def test_everything_comes_back(self, store: CountingStore, count: int) -> None:
        sample = make_sample(count)
        (written,) = write(store, segment(), sample)
        assert written.key.startswith("side/AAECAwQFBgcICQoLDA0ODw/3/00000000000000000000-")
        assert written.key.endswith(".00000000000000000000-try0.puffin")
        assert written.size_bytes == store.size(written.key)
        assert written.batches == count
        assert written.kept_bytes == sum(len(data or b"") for data in sample.kept_bytes)
        assert_holds(SideFile.open(store, segment(), [written.key]), sample)

    def test_many_blobs_of_each_kind(
        self, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writing, "_BATCHES_MAX", 100)
        monkeypatch.setattr(writing, "_KEPT_BYTES_MAX", 1000)
        sample = make_sample(2000)
        written = write(store, segment(), sample, cuts=(700, 701))
        assert_holds(SideFile.open(store, segment(), keys(written)), sample)

    def test_the_ends_of_every_columns_range(self, local_store: CountingStore) -> None:
        side = writer(local_store, segment())
        side.add(extremes(), [None] * 3)
        found = SideFile.open(local_store, segment(), [side.finish().key]).batches
        assert_same_batches(found, extremes())

    def test_buffers_may_be_used_again(self, local_store: CountingStore) -> None:
        """A reader's headers are good until its next step only."""
        sample = make_sample(50, kept_share=0)
        headers = sample.batches.headers.copy()
        side = writer(local_store, segment())
        side.add(replace(sample.batches, headers=headers), sample.kept_bytes)
        headers.base_offset[:] = 7
        found = SideFile.open(local_store, segment(), [side.finish().key]).batches
        assert_same_batches(found, sample.batches)

    def test_a_part_without_batches(self, local_store: CountingStore) -> None:
        sample = make_sample(20)
        first, second = write(local_store, segment(), sample, cuts=(12,))
        empty = writer(local_store, segment(), 999)
        none = empty.finish()
        assert none.batches == 0
        parts = [first.key, none.key, second.key]
        assert_holds(SideFile.open(local_store, segment(), parts), sample)
        assert len(SideFile.open(local_store, segment(), parts, part=1).batches) == 0

    def test_one_part_of_many(self, store: CountingStore) -> None:
        sample = make_sample(300)
        parts = keys(write(store, segment(), sample, cuts=(100, 180)))
        for part, (first, stop) in enumerate(itertools.pairwise((0, 100, 180, 300))):
            side = SideFile.open(store, segment(), parts, part=part)
            assert_holds(side, sample.cut(first, stop), {} if part else INDEXES)

    def test_nothing_is_seen_of_an_aborted_one(
        self, local_store: CountingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writing, "_KEPT_BYTES_MAX", 1000)
        sample = make_sample(100)
        side = writer(local_store, segment())
        side.add(sample.batches, sample.kept_bytes)
        side.abort()
        assert list(local_store.list("")) == []
        assert list((tmp_path / "store" / ".onecopy" / "tmp").iterdir()) == []


class TestKeptBytes:
    def test_any_range(self, store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "_KEPT_BYTES_MAX", 2000)
        sample = make_sample(400)
        side = SideFile.open(store, segment(), keys(write(store, segment(), sample, cuts=(150,))))
        chance = np.random.default_rng(2)
        ranges = [(0, 0), (0, 1), (149, 151), (399, 400), (400, 400), (390, 999)]
        ranges += [tuple(sorted(pair)) for pair in chance.integers(0, 401, (60, 2)).tolist()]
        for first, stop in ranges:
            assert side.kept_bytes(first, stop) == sample.kept_bytes[first:stop]

    def test_only_what_is_needed_is_read(
        self, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writing, "_KEPT_BYTES_MAX", 100_000)
        sample = make_sample(4000, kept_share=1, kept_bytes=2000)
        (written,) = write(store, segment(), sample)
        side = SideFile.open(store, segment(), [written.key])
        store.taken()
        side.kept_bytes(2000, 2001)
        ((method, _, size),) = store.taken()
        assert method == "get_range"
        assert size < 150_000 < written.size_bytes / 20
        side.kept_bytes(2000, 2300)
        assert len(store.taken()) == 1

    def test_without_any_nothing_is_read(self, local_store: CountingStore) -> None:
        sample = make_sample(4000, kept_share=0)
        side = SideFile.open(local_store, segment(), keys(write(local_store, segment(), sample)))
        local_store.taken()
        assert side.kept_bytes(0, 4000) == [None] * 4000
        assert local_store.taken() == []

    def test_by_several_threads(
        self, local_store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writing, "_KEPT_BYTES_MAX", 1000)
        sample = make_sample(500)
        side = SideFile.open(local_store, segment(), keys(write(local_store, segment(), sample)))
        wrong: list[int] = []

        def read(shift: int) -> None:
            for at in range(shift, 480, 7):
                if side.kept_bytes(at, at + 20) != sample.kept_bytes[at : at + 20]:
                    wrong.append(at)

        threads = [threading.Thread(target=read, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestRequests:
    def test_a_small_one_is_read_in_one(self, store: CountingStore) -> None:
        sample = make_sample(500, kept_share=0)
        parts = keys(write(store, segment(), sample))
        store.taken()
        side = SideFile.open(store, segment(), parts)
        assert [side.index(name) for name in INDEXES] == list(INDEXES.values())
        assert [method for method, _, _ in store.taken()] == ["get_tail"]

    def test_a_large_one_in_two(self, store: CountingStore) -> None:
        sample = make_sample(100_000, kept_share=0)
        parts = keys(write(store, segment(), sample, step=30_000))
        store.taken()
        side = SideFile.open(store, segment(), parts)
        assert len(side.batches) == 100_000
        assert [method for method, _, _ in store.taken()] == ["get_tail", "get_range"]
        assert side.batches.nbytes < side.nbytes < 1.01 * side.batches.nbytes

    def test_a_footer_longer_than_the_tail(
        self, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writing, "_BATCHES_MAX", 1)
        monkeypatch.setattr(objects, "TAIL_BYTES", 4000)
        sample = make_sample(60, kept_share=0)
        parts = keys(write(store, segment(), sample, step=1))
        store.taken()
        assert_holds(SideFile.open(store, segment(), parts), sample)
        assert [method for method, _, _ in store.taken()][:3] == ["get_tail"] + ["get_range"] * 2


class TestBundles:
    def test_many_segments_in_one_object(self, store: CountingStore) -> None:
        samples = [make_sample(50 + 30 * i, seed=i) for i in range(6)]
        sides = [
            (segment(i), keys(write(store, segment(i), sample, cuts=(20, 40))))
            for i, sample in enumerate(samples)
        ]
        bundle(store, sides, "side/bundles/one.puffin")
        for _, parts in sides:
            for key in parts:
                store.delete(key)
        store.taken()
        for i, sample in enumerate(samples):
            side = SideFile.open(store, segment(i), ["side/bundles/one.puffin"])
            assert_holds(side, sample)
        assert {method for method, _, _ in store.taken()} <= {"get_tail", "get_range"}

    def test_bundles_of_bundles(self, local_store: CountingStore) -> None:
        samples = [make_sample(60, seed=i) for i in range(4)]
        for i, sample in enumerate(samples):
            own = keys(write(local_store, segment(i), sample, cuts=(30,)))
            bundle(local_store, [(segment(i), own)], f"side/b{i}.puffin")
        pairs = [(segment(i), [f"side/b{i}.puffin"]) for i in range(4)]
        bundle(local_store, pairs[:2], "side/first.puffin")
        halves = [(of, ["side/first.puffin"]) for of, _ in pairs[:2]] + pairs[2:]
        bundle(local_store, halves, "side/all.puffin")
        for i, sample in enumerate(samples):
            assert_holds(SideFile.open(local_store, segment(i), ["side/all.puffin"]), sample)

    def test_an_incomplete_segment_is_not_bundled(self, local_store: CountingStore) -> None:
        parts = keys(write(local_store, segment(), make_sample(60), cuts=(20, 40)))
        for wrong in (parts[1:], [parts[0], parts[2]], parts[::-1]):
            with pytest.raises(FatalError, match="comes next"):
                bundle(local_store, [(segment(), wrong)], "side/b.puffin")
        with pytest.raises(NotFound):
            bundle(local_store, [(segment(), ["side/gone.puffin"])], "side/b.puffin")
        with pytest.raises(FatalError, match="holds nothing of segment"):
            bundle(local_store, [(segment(2), parts)], "side/b.puffin")
        with pytest.raises(NotFound):
            local_store.get("side/b.puffin")


class TestWhatIsRefused:
    def test_parts_that_are_not_the_whole_segment(self, local_store: CountingStore) -> None:
        parts = keys(write(local_store, segment(), make_sample(60), cuts=(20, 40)))
        one, two, three = parts
        for wrong in ([two, three], [one, three], [two, one, three], [one, one, two, three]):
            with pytest.raises(FatalError, match="doesn't follow the batch before it"):
                SideFile.open(local_store, segment(), wrong)
        with pytest.raises(FatalError, match="no side file"):
            SideFile.open(local_store, segment(), [])

    def test_another_segments(self, local_store: CountingStore) -> None:
        parts = keys(write(local_store, segment(), make_sample(60)))
        for other in (
            segment(2),
            replace(segment(), partition=4),
            replace(segment(), base_offset=1),
            replace(segment(), topic_id="A" * 22),
        ):
            with pytest.raises(FatalError, match="holds nothing of segment"):
                SideFile.open(local_store, other, parts)

    def test_what_is_gone_is_not_found(self, store: CountingStore) -> None:
        sample = make_sample(3000, kept_share=0.9)
        parts = keys(write(store, segment(), sample, cuts=(20,)))
        side = SideFile.open(store, segment(), parts)
        store.delete(parts[1])
        with pytest.raises(NotFound):
            side.kept_bytes(0, 3000)
        with pytest.raises(NotFound):
            SideFile.open(store, segment(), parts)

    def test_batches_that_do_not_follow(self, local_store: CountingStore) -> None:
        sample = make_sample(30)
        side = writer(local_store, segment())
        side.add(sample.cut(0, 10).batches, sample.kept_bytes[:10])
        for first in (0, 9, 11):
            with pytest.raises(FatalError, match="don't follow"):
                side.add(sample.cut(first, 20).batches, sample.kept_bytes[first:20])
        torn = BatchTable.concat([sample.batches.slice(slice(10, 12)), sample.batches])
        with pytest.raises(FatalError, match="don't follow"):
            side.add(torn, [*sample.kept_bytes[10:12], *sample.kept_bytes])

    def test_kept_bytes_that_do_not_fit_their_kind(self, local_store: CountingStore) -> None:
        sample = make_sample(30)
        side = writer(local_store, segment())
        with pytest.raises(FatalError, match="kept for 30 batches"):
            side.add(sample.batches, sample.kept_bytes[1:])
        nothing: list[bytes | None] = [None] * 30
        with pytest.raises(FatalError, match="is kept as"):
            side.add(sample.batches, nothing)
        plain = replace(sample.batches, kept=np.full(30, Kept.ROWS, np.int64))
        with pytest.raises(FatalError, match="is kept as ROWS"):
            side.add(plain, sample.kept_bytes)
        side.add_index("verdicts", b"")
        with pytest.raises(FatalError, match="twice"):
            side.add_index("verdicts", b"")


class TestSize:
    @pytest.mark.parametrize(("records", "most"), [(32, 14.5), (1, 8.8)])
    def test_bytes_per_batch(self, local_store: CountingStore, records: int, most: float) -> None:
        """Batches of ordinary producers: 16 KiB of 512-byte records, or one record each."""
        (written,) = write(local_store, segment(), ordinary(40_000, records), indexes={})
        assert written.size_bytes / written.batches < most

    def test_a_tiny_segment(self, local_store: CountingStore) -> None:
        (written,) = write(local_store, segment(), ordinary(20, 10), indexes={})
        assert written.size_bytes < 2600

    def test_memory_is_bounded_while_writing(self, local_store: CountingStore) -> None:
        """120 MB of an aborted transaction, then a million batches of one record."""
        big = bytes(range(251)) * 4000
        one = make_sample(1, kept_share=0).batches
        usual = pa.default_memory_pool()
        # Arrow's high-water mark is the process's: a pool of its own counts this test alone.
        pa.set_memory_pool(OWN_POOL)
        tracemalloc.start()
        side = writer(local_store, segment())
        position = 0
        for _ in range(120):
            side.add(moved(one, position, len(big), Kept.RAW), [big])
            position += int(one.headers.size[0])
        step = ordinary(10_000, 1)
        for _ in range(60):
            side.add(moved(step.batches, position), step.kept_bytes)
            position += int(step.batches.headers.size.sum())
        side.finish()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        pa.set_memory_pool(usual)
        assert OWN_POOL.max_memory() > 0
        assert peak + OWN_POOL.max_memory() < 64 * 2**20


def moved(
    batches: BatchTable, position: int, records_size: int | None = None, kept: Kept = Kept.ROWS
) -> BatchTable:
    """The same batches at another place of the log, and kept otherwise."""
    headers = replace(batches.headers, position=batches.headers.position + position)
    size = batches.records_size if records_size is None else np.full(len(batches), records_size)
    return replace(
        batches, headers=headers, records_size=size, kept=np.full(len(batches), kept, np.int64)
    )


def ordinary(count: int, records: int) -> Sample:
    """Batches as four idempotent producers make them at 20,000 records a second."""
    chance = np.random.default_rng(4)
    table = make_sample(count, kept_share=0).batches
    counts = chance.poisson(records, count).clip(1) if records > 1 else np.ones(count, np.int64)
    records_size = (counts * 527 + chance.normal(0, 15 * np.sqrt(counts))).astype(np.int64)
    size = 61 + (records_size * chance.normal(0.5, 0.01, count)).astype(np.int64)
    times = 1_700_000_000_000 + np.cumsum(chance.exponential(records / 20, count)).astype(np.int64)
    producer = chance.integers(0, 4, count)
    sequence = np.zeros(count, np.int64)
    for each in range(4):
        own = np.where(producer == each, counts, 0)
        sequence += np.where(producer == each, np.cumsum(own) - own, 0)
    headers = replace(
        table.headers,
        position=np.cumsum(size) - size,
        size=size,
        base_offset=np.cumsum(counts) - counts,
        leader_epoch=np.full(count, 5),
        attributes=np.full(count, 4),
        last_offset_delta=counts - 1,
        base_timestamp=times,
        max_timestamp=times + (chance.integers(0, 6, count) if records > 1 else 0),
        producer_id=1000 + producer,
        producer_epoch=np.zeros(count, np.int64),
        base_sequence=sequence,
        count=counts,
    )
    batches = replace(table, headers=headers, records_size=records_size)
    return Sample(batches=batches, kept_bytes=[None] * count)
