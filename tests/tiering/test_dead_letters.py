"""Upkeep of the table of bad records: what leaves the topic's own table leaves it, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_schemas import KnownSchemas, avro_value
from native_segments import Rec, Segment, in_batches
from sole_copy import SoleCopyTier, assert_served, settled

from tiering.config import TopicConfig
from tiering.errors import NotFound
from tiering.ledger import Ledger, SegmentState
from tiering.table.snapshot_policy import SNAPSHOTS_KEPT_PROPERTY
from tiering.table.topic_tables import CatalogTables
from tiering.upkeep import table_custody
from tiering.upkeep.expiry import expire
from tiering.upkeep.withdrawal import Withdrawal

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
BAD_EVERY = 17
DAY_MS = 86_400_000
PRODUCED_MS = 1_700_000_000_000


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def tier(tmp_path: Path) -> SoleCopyTier:
    return typed_tier(tmp_path)


def typed_tier(directory: Path, **settings: Any) -> SoleCopyTier:
    topic = TopicConfig(value="schema_id_prefix", **settings)
    registry = KnownSchemas(avro={1: ORDER})
    return SoleCopyTier(directory, topics={"orders": topic}, registry=registry)


def segment(
    start: int, count: int, like: Segment | None = None, *, word: str = "item", **fields: Any
) -> Segment:
    """Every 17th record is bad, so some batches have none; all values say `word`."""

    def value(i: int) -> bytes:
        whole = avro_value(1, ORDER, {"id": i, "item": f"{word} {i}"})
        return whole[:-1] if is_bad(i) else whole

    records = [Rec(offset=i, value=value(i)) for i in range(start, start + count)]
    made = Segment(batches=in_batches(records, 10, ("none", "zstd")))
    if like is not None:
        made = replace(made, topic=like.topic, topic_id=like.topic_id, partition=like.partition)
    return replace(made, **fields)


def is_bad(offset: int) -> bool:
    return offset % BAD_EVERY == 3


def under_epoch(made: Segment, epoch: int) -> Segment:
    epochs = ((epoch, made.start_offset),)
    return replace(
        made, batches=[replace(b, epoch=epoch) for b in made.batches], leader_epochs=epochs
    )


def stored(tier: SoleCopyTier, *segments: Segment) -> None:
    for each in segments:
        each.store(tier.store)


def retired(tier: SoleCopyTier, *segments: Segment) -> None:
    """They are the sole copy, every record has one row, and is served as it was produced."""
    for each in segments:
        assert tier.entry(each).state is SegmentState.RETIRED
        assert_served(tier, each)
    produced = {r.offset: r.value for s in segments for b in s.batches for r in b.records}
    assert [r["kafka_offset"] for r in rows(tier)] == sorted(o for o in produced if not is_bad(o))
    bad = rows(tier, "orders__dlq")
    assert [r["kafka_offset"] for r in bad] == sorted(filter(is_bad, produced))
    assert [r["kafka_value"] for r in bad] == [produced[r["kafka_offset"]] for r in bad]


def rows(tier: SoleCopyTier, name: str = "orders") -> list[dict[str, Any]]:
    table = CatalogTables(tier.config).catalog.load_table(("kafka", name))
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("kafka_offset").to_pylist()
    return found


def dead_mark(tier: SoleCopyTier, made: Segment) -> int:
    state = CatalogTables(tier.config).dead_letters(made.topic, made.topic_id)
    assert state is not None
    return state.watermarks[made.partition].offset


def names(tier: SoleCopyTier) -> set[str]:
    return {name for _, name in CatalogTables(tier.config).catalog.list_tables("kafka")}


def ask_delete(tier: SoleCopyTier, *segments: Segment) -> None:
    for each in segments:
        Ledger(tier.store).update(each.id, lambda e: replace(e, delete_requested=True))


def tamper(path: Path) -> None:
    """Change the text at one offset of a batch without bad records, and nothing else."""
    table = pq.read_table(path)
    texts = table.column("item").to_pylist()
    texts[table.column("kafka_offset").to_pylist().index(12)] = "changed"
    at = table.column_names.index("item")
    table = table.set_column(at, table.schema.field("item"), pa.array(texts))
    pq.write_table(table, path, store_schema=False, compression="zstd")


def data_files(tier: SoleCopyTier, made: Segment) -> list[Path]:
    place = tier.directory / "store" / "warehouse" / f"orders-{made.topic_id}" / "data"
    return sorted(place.glob("*.parquet"))


class TestWithdrawal:
    def test_bad_records_of_a_cut_log_go_with_its_rows(self, tier: SoleCopyTier) -> None:
        dead = under_epoch(segment(0, 101, word="dead"), 1)
        stored(tier, dead)
        tier.settle()
        below = [r for r in rows(tier, "orders__dlq") if r["kafka_offset"] < 49]
        behind = under_epoch(segment(49, 51, dead), 2)
        above = under_epoch(segment(100, 30, dead), 2)
        stored(tier, behind, above)
        reports = tier.settle(6)
        assert sum(r.withdrawn for r in reports) == 1
        assert reports[-1].problems == {}
        found = rows(tier, "orders__dlq")
        assert [r["kafka_offset"] for r in found] == [o for o in range(130) if is_bad(o)]
        assert found[: len(below)] == below
        assert all(b"item" in r["kafka_value"] for r in found[len(below) :])
        assert [r["kafka_offset"] for r in rows(tier)] == [o for o in range(130) if not is_bad(o)]
        for each in (behind, above):
            assert tier.entry(each).state is SegmentState.RETIRED
            assert_served(tier, each)

    def test_the_watermark_goes_back_so_that_they_are_buried_again(
        self, tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dead = under_epoch(segment(0, 101), 1)
        stored(tier, dead)
        tier.settle()
        assert dead_mark(tier, dead) == 101
        stored(tier, under_epoch(segment(49, 81, dead), 2))
        crash_at_withdrawal(monkeypatch, 2)
        with pytest.raises(Crash):
            settled(tier.engine())
        assert dead_mark(tier, dead) == 49
        assert [r["kafka_offset"] for r in rows(tier, "orders__dlq")][-1] == 37
        assert len(rows(tier)) == 95

    @pytest.mark.parametrize("call", [1, 2, 3])
    def test_a_crash_before_or_between_or_after_heals(
        self, tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch, call: int
    ) -> None:
        dead = under_epoch(segment(0, 101, word="dead"), 1)
        stored(tier, dead)
        tier.settle()
        alive = under_epoch(segment(0, 130, dead), 2)
        stored(tier, alive)
        with monkeypatch.context() as patched:
            crash_at_withdrawal(patched, call)
            with pytest.raises(Crash):
                settled(tier.engine(reached=crash_when("withdrawn") if call == 3 else nothing))
        tier.settle(6)
        retired(tier, alive)

    @pytest.mark.parametrize("call", [None, 1, 2])
    def test_after_a_proof_that_failed(
        self, tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch, call: int | None
    ) -> None:
        first = segment(0, 100)
        later = segment(100, 60, first)
        stored(tier, first, later)
        tampered: list[Path] = []

        def at_step(step: str) -> None:
            if step == "committed" and not tampered:
                tampered.append(data_files(tier, first)[0])
                tamper(tampered[0])

        if call is None:
            reports = settled(tier.engine(reached=at_step), 5)
            assert sum(r.proof_faults for r in reports) == 1
        else:
            with monkeypatch.context() as patched:
                crash_at_withdrawal(patched, call)
                with pytest.raises(Crash):
                    settled(tier.engine(reached=at_step))
            tier.settle(6)
        retired(tier, first, later)

    def test_bad_records_that_somebody_dropped_are_buried_again_before_the_proof(
        self, tier: SoleCopyTier
    ) -> None:
        made = segment(0, 100)
        stored(tier, made)
        dropped: list[str] = []

        def drop(step: str) -> None:
            if step == "committed" and not dropped:
                dropped.append("orders__dlq")
                CatalogTables(tier.config).catalog.drop_table(("kafka", "orders__dlq"))

        settled(tier.engine(reached=drop), 5)
        retired(tier, made)

    def test_after_the_proof_they_are_gone_and_nothing_stops(self, tier: SoleCopyTier) -> None:
        dead = under_epoch(segment(0, 101), 1)
        stored(tier, dead)
        tier.settle()
        CatalogTables(tier.config).catalog.drop_table(("kafka", "orders__dlq"))
        alive = under_epoch(segment(49, 81, dead), 2)
        stored(tier, alive)
        reports = tier.settle(6)
        assert reports[-1].problems == {}
        assert_served(tier, alive)
        found = [r["kafka_offset"] for r in rows(tier, "orders__dlq")]
        assert found == [o for o in range(49, 130) if is_bad(o)]


def crash_at_withdrawal(patched: pytest.MonkeyPatch, call: int) -> None:
    """Die in front of the n-th table that rows are withdrawn from: the first is of bad records."""
    real: Callable[..., object] = table_custody.withdraw
    seen: list[Withdrawal] = []

    def counted(catalog: object, table: Any, store: object, request: Withdrawal, **more: object):  # type: ignore[no-untyped-def]
        seen.append(request)
        assert tuple(table.name())[-1].endswith("__dlq") is (len(seen) == 1)
        if len(seen) == call:
            raise Crash
        return real(catalog, table, store, request, **more)

    patched.setattr(table_custody, "withdraw", counted)


def crash_when(wanted: str) -> Callable[[str], None]:
    def reached(step: str) -> None:
        if step == wanted:
            raise Crash

    return reached


def nothing(step: str) -> None:
    """Go on."""


class TestRetention:
    def test_what_kafka_deletes_leaves_both_tables(self, tier: SoleCopyTier) -> None:
        first = segment(0, 60)
        made = [first, segment(60, 60, first), segment(120, 60, first)]
        for each in made:
            stored(tier, each)
            tier.settle()
        ask_delete(tier, first)
        tier.settle()
        retired(tier, *made[1:])

    def test_bad_records_alone_go_too(self, tier: SoleCopyTier) -> None:
        junk = [Rec(offset=i, value=b"junk") for i in range(20)]
        first = Segment(batches=in_batches(junk, 5))
        later = segment(20, 30, first)
        for each in (first, later):
            stored(tier, each)
            tier.settle()
        assert len(rows(tier, "orders__dlq")) == 20 + 2
        ask_delete(tier, first)
        tier.settle()
        retired(tier, later)

    def test_they_are_kept_as_long_as_rows_are(self, tmp_path: Path) -> None:
        tier = typed_tier(tmp_path, retention="1d")
        first = segment(0, 60)
        later = segment(60, 60, first)
        tier.clock.at_ms = PRODUCED_MS + 3_600_000
        engine = tier.engine()
        for each in (first, later):
            stored(tier, each)
            settled(engine)
        ask_delete(tier, first)
        settled(engine)
        assert rows(tier, "orders__dlq")[0]["kafka_offset"] == 3
        tier.clock.at_ms += DAY_MS
        settled(engine)
        retired(tier, later)

    def test_a_copy_that_is_made_again_is_buried_again(self, tier: SoleCopyTier) -> None:
        """The broker deletes its only copy of some offsets, and makes another one of them."""
        first = segment(0, 100)
        stored(tier, first)
        tier.settle()
        ask_delete(tier, first)
        tier.settle()
        assert rows(tier) == rows(tier, "orders__dlq") == []
        again = segment(0, 130, first)
        stored(tier, again)
        reports = tier.settle()
        assert sum(r.proof_faults for r in reports) == 0
        retired(tier, again)


class TestFormerTopics:
    def remade(self, tier: SoleCopyTier, **fields: Any) -> tuple[Segment, Segment]:
        former = segment(0, 60)
        stored(tier, former)
        tier.settle()
        tier.clock.at_ms += 60_000
        new = segment(0, 40, topic=former.topic, **fields)
        stored(tier, new)
        settled(tier.engine(), 3)
        return former, new

    def test_bad_records_take_the_former_name_with_their_topics_rows(
        self, tier: SoleCopyTier
    ) -> None:
        good = [Rec(offset=0, value=avro_value(1, ORDER, {"id": 0, "item": "x"}))]
        former, new = self.remade(tier, batches=in_batches(good, 5))
        tables = CatalogTables(tier.config)
        own = tables.table(former.topic, former.topic_id).name()[-1]
        dead = tables.dead_letters(former.topic, former.topic_id)
        assert dead is not None
        assert dead.identifier[-1] == own.replace("orders__", "orders__dlq__")
        assert names(tier) == {"orders", own, dead.identifier[-1]}
        assert tables.dead_letters(new.topic, new.topic_id) is None

    def test_they_go_with_its_last_segment(self, tier: SoleCopyTier) -> None:
        former, new = self.remade(tier)
        assert len(names(tier)) == 4
        ask_delete(tier, former)
        tier.settle()
        with pytest.raises(NotFound):
            CatalogTables(tier.config).table(former.topic, former.topic_id)
        assert names(tier) == {"orders", "orders__dlq"}
        left = [i.key for i in tier.store.list("warehouse/") if "/.onecopy/" not in i.key]
        assert not [key for key in left if former.topic_id in key]
        retired(tier, new)

    def test_a_crash_between_the_two_leaves_nothing_behind(
        self, tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        former, new = self.remade(tier)
        ask_delete(tier, former)
        real: Callable[..., int] = table_custody.drop_former
        dropped: list[str] = []

        def once(catalog: object, table: Any, *more: object, **named: object) -> int:
            if dropped:
                raise Crash
            dropped.append(table.name()[-1])
            return real(catalog, table, *more, **named)

        with monkeypatch.context() as patched:
            patched.setattr(table_custody, "drop_former", once)
            with pytest.raises(Crash):
                tier.settle()
        assert "__dlq__" in dropped[0]
        tier.settle()
        assert names(tier) == {"orders", "orders__dlq"}
        retired(tier, new)


class TestTidying:
    def test_leftovers_and_old_snapshots_go(
        self, tier: SoleCopyTier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_custody, "expire", partial(expire, at_once_min=3))
        made = segment(0, 20)
        stored(tier, made)
        engine = tier.engine()
        settled(engine)
        for i in range(1, 5):
            stored(tier, segment(20 * i, 20, made))
            settled(engine, 1)
        state = CatalogTables(tier.config).dead_letters(made.topic, made.topic_id)
        assert state is not None
        loaded = CatalogTables(tier.config).catalog.load_table(state.identifier)
        assert len(loaded.metadata.snapshots) == 5
        with loaded.transaction() as change:
            change.set_properties({SNAPSHOTS_KEPT_PROPERTY: "1"})
        orphan = Path(loaded.location()) / "data" / f"3-{0:020d}-{'a' * 32}.parquet"
        orphan.write_bytes(b"nobody's")
        tier.clock.at_ms += 10 * DAY_MS
        settled(engine, 1)
        tier.clock.at_ms += DAY_MS
        settled(engine, 1)
        assert not orphan.exists()
        after = CatalogTables(tier.config).catalog.load_table(state.identifier)
        assert len(after.metadata.snapshots) == 1
        assert len(rows(tier, "orders__dlq")) == sum(is_bad(o) for o in range(5 * 20))
