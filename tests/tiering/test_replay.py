"""Bad records tried again: rows come to be once, whatever happens, and history stays as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from known_schemas import KnownSchemas, avro_value
from native_segments import Rec, Segment, in_batches
from pyiceberg.table import StaticTable
from sole_copy import SoleCopyTier, assert_served, settled

from tiering.cli import main
from tiering.config import TopicConfig
from tiering.errors import BadInput, CommitConflict, TransientError
from tiering.ledger import SegmentState
from tiering.local.tier_stack import CONFIG_FILE
from tiering.schemas.registry import SchemaRegistry
from tiering.schemas.topic_schemas import TopicSchemas
from tiering.table.topic_tables import CatalogTables
from tiering.upkeep import table_custody
from tiering.upkeep.replay import Replay, ReplayReport
from tiering.upkeep.table_custody import TableCustody

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
WIDER: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "at", "type": "int"}]}
LATE = 7
"""The schema that is registered too late; every eighth record is written with it."""


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def registry() -> KnownSchemas:
    return KnownSchemas(avro={1: ORDER})


@pytest.fixture
def tier(tmp_path: Path, registry: KnownSchemas) -> SoleCopyTier:
    return typed_tier(tmp_path, registry)


def typed_tier(
    directory: Path, registry: KnownSchemas, grace_ms: int = 0, **settings: Any
) -> SoleCopyTier:
    topic = TopicConfig(value="schema_id_prefix", on_unknown_schema="error", **settings)
    return SoleCopyTier(directory, topics={"orders": topic}, registry=registry, grace_ms=grace_ms)


def is_late(offset: int) -> bool:
    return offset % 8 == 5


def is_junk(offset: int) -> bool:
    return offset % 20 == 2


def record(offset: int, word: str) -> Rec:
    if is_junk(offset):
        return Rec(offset=offset, value=b"junk")
    said = {"id": offset, "item": f"{word} {offset}"}
    value = (
        avro_value(LATE, WIDER, {**said, "at": offset})
        if is_late(offset)
        else avro_value(1, ORDER, said)
    )
    return Rec(offset=offset, value=value, key=b"k", headers=(("h", b"%d" % offset),))


def segment(
    start: int, count: int, like: Segment | None = None, *, word: str = "item", **fields: Any
) -> Segment:
    records = [record(i, word) for i in range(start, start + count)]
    made = Segment(batches=in_batches(records, 10, ("none", "zstd")))
    if like is not None:
        made = replace(made, topic=like.topic, topic_id=like.topic_id, partition=like.partition)
    return replace(made, **fields)


def under_epoch(made: Segment, epoch: int) -> Segment:
    epochs = ((epoch, made.start_offset),)
    return replace(
        made, batches=[replace(b, epoch=epoch) for b in made.batches], leader_epochs=epochs
    )


def rows(tier: SoleCopyTier, name: str = "orders") -> list[dict[str, Any]]:
    table = CatalogTables(tier.config).catalog.load_table(("kafka", name))
    order = [("kafka_partition", "ascending"), ("kafka_offset", "ascending")]
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by(order).to_pylist()
    return found


def offsets(tier: SoleCopyTier, name: str = "orders") -> list[int]:
    return [row["kafka_offset"] for row in rows(tier, name)]


def replay(
    tier: SoleCopyTier,
    made: Segment,
    error_class: str | None = None,
    reached: Callable[[str], None] = lambda step: None,
) -> ReplayReport:
    tables = CatalogTables(tier.config)
    return Replay(
        tables,
        TopicSchemas(tier.config, tables, tier.registry, clock=lambda: 0.0),
        topic=made.topic,
        topic_id=made.topic_id,
        store_url=tier.config.store,
        error_class=error_class,
        reached=reached,
    ).run()


def at_step(wanted: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Act when that step is passed for the first time."""
    done: list[str] = []

    def reached(step: str) -> None:
        if step == wanted and not done:
            done.append(step)
            act()

    return reached


def die() -> None:
    raise Crash


def assert_replayed(tier: SoleCopyTier, *segments: Segment) -> None:
    """One row for each record but junk, of what was produced; junk is where it was."""
    produced = {(s.partition, r.offset): r for s in segments for b in s.batches for r in b.records}
    found = rows(tier)
    places = [(r["kafka_partition"], r["kafka_offset"]) for r in found]
    assert places == sorted(p for p in produced if not is_junk(p[1]))
    for place, row in zip(places, found, strict=True):
        record, offset = produced[place], place[1]
        schema, schema_id = (WIDER, LATE) if is_late(offset) else (ORDER, 1)
        said = {k: row[k] for k in (f["name"] for f in schema["fields"])}
        assert avro_value(schema_id, schema, said) == record.value
        assert row["kafka_schema_id"] == schema_id
        assert row["kafka_value"] is None
        assert row["kafka_key"] == record.key
        assert [(h["key"], h["value"]) for h in row["kafka_headers"]] == list(record.headers)
    dead = [(r["kafka_partition"], r["kafka_offset"]) for r in rows(tier, "orders__dlq")]
    assert dead == sorted(p for p in produced if is_junk(p[1]))
    for each in segments:
        assert tier.entry(each).state is SegmentState.RETIRED
        assert_served(tier, each)


def tiered(tier: SoleCopyTier, *segments: Segment) -> Segment:
    for each in segments:
        each.store(tier.store)
    tier.settle()
    return segments[0]


class TestRows:
    def test_a_schema_that_was_registered_late(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        first = segment(0, 60)
        made = [first, segment(60, 40, first), segment(0, 50, partition=9, topic_id=first.topic_id)]
        tiered(tier, *made)
        bad = offsets(tier, "orders__dlq")
        late, junk = (sum(map(f, bad)) for f in (is_late, is_junk))
        assert late + junk == len(bad) > 0
        registry.avro[LATE] = WIDER
        assert replay(tier, first) == ReplayReport(replayed=late, left={"no_schema_id": junk})
        assert_replayed(tier, *made)
        tier.settle()
        assert_replayed(tier, *made)
        later = segment(100, 30, first)
        tiered(tier, later)
        assert_replayed(tier, *made, later)

    def test_one_file_for_each_partition_in_offset_order(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        first = segment(0, 60)
        other = segment(0, 50, partition=9, topic_id=first.topic_id)
        tiered(tier, first, segment(60, 40, first), other)
        before = files(tier, "orders")
        registry.avro[LATE] = WIDER
        replay(tier, first)
        added = files(tier, "orders") - before
        assert sorted(Path(path).name.split("-")[:2] for path in added) == [
            ["3", f"{2:020d}"],
            ["9", f"{2:020d}"],
        ]

    def test_it_may_be_typed_no_more(self, tmp_path: Path, registry: KnownSchemas) -> None:
        tier = typed_tier(tmp_path, registry)
        made = tiered(tier, segment(0, 60))
        assert tier.config.topics
        raw = SoleCopyTier(tmp_path, topics={"orders": TopicConfig(value="raw")})
        assert replay(raw, made).left == {}
        assert offsets(tier) == list(range(60))
        assert offsets(tier, "orders__dlq") == []
        kept = {r["kafka_offset"]: r["kafka_value"] for r in rows(tier) if r["kafka_value"]}
        assert kept == {
            r.offset: r.value
            for b in made.batches
            for r in b.records
            if is_late(r.offset) or is_junk(r.offset)
        }
        assert_served(tier, made)

    def test_bad_ones_may_be_kept_with_the_rows(
        self, tmp_path: Path, registry: KnownSchemas
    ) -> None:
        made = tiered(typed_tier(tmp_path, registry), segment(0, 60))
        tier = typed_tier(tmp_path, registry, on_error="raw")
        assert replay(tier, made).left == {}
        assert offsets(tier) == list(range(60))

    def test_what_is_still_bad_stays_with_the_newest_reason(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        made = tiered(tier, segment(0, 60))
        before = rows(tier, "orders__dlq")
        registry.avro[LATE] = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
        report = replay(tier, made)
        after = rows(tier, "orders__dlq")
        assert report.replayed == 0
        assert {r["error_class"] for r in after if is_late(r["kafka_offset"])} == {
            "incompatible_schema"
        }
        said = ("error_class", "error_reason")
        assert [{k: v for k, v in r.items() if k not in said} for r in after] == [
            {k: v for k, v in r.items() if k not in said} for r in before
        ]
        assert [r for r in after if is_junk(r["kafka_offset"])] == [
            r for r in before if is_junk(r["kafka_offset"])
        ]
        head = snapshot(tier, "orders__dlq")
        assert replay(tier, made) == report
        assert snapshot(tier, "orders__dlq") == head

    def test_only_those_of_a_class(self, tmp_path: Path, registry: KnownSchemas) -> None:
        made = tiered(typed_tier(tmp_path, registry), segment(0, 60))
        tier = typed_tier(tmp_path, registry, on_error="raw")
        registry.avro[LATE] = WIDER
        before = rows(tier, "orders__dlq")
        late = [o for o in offsets(tier, "orders__dlq") if is_late(o)]
        assert replay(tier, made, "unknown_schema").replayed == len(late)
        assert rows(tier, "orders__dlq") == [r for r in before if is_junk(r["kafka_offset"])]
        assert_replayed(tier, made)
        assert replay(tier, made, "nonsense").replayed == 0

    def test_files_of_several_partitions(self, tier: SoleCopyTier, registry: KnownSchemas) -> None:
        """As another engine's rewrite leaves them, sorted by nothing."""
        first = segment(0, 60)
        other = segment(0, 50, partition=9, topic_id=first.topic_id)
        tiered(tier, first, other)
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders__dlq"))
        table.overwrite(table.scan().to_arrow().sort_by([("kafka_offset", "descending")]))
        assert len(files(tier, "orders__dlq")) == 1
        registry.avro[LATE] = WIDER
        replay(tier, first)
        assert_replayed(tier, first, other)

    def test_columns_that_somebody_added_stay(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        from pyiceberg.types import StringType

        made = tiered(tier, segment(0, 60))
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders__dlq"))
        with table.update_schema() as change:
            change.add_column("ticket", StringType())
        registry.avro[LATE] = WIDER
        replay(tier, made)
        assert set(rows(tier, "orders__dlq")[0]) >= {"ticket", "error_reason"}
        assert_replayed(tier, made)

    def test_records_that_lost_a_column_are_left_alone(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        made = tiered(tier, segment(0, 60))
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders__dlq"))
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("kafka_headers")
        registry.avro[LATE] = WIDER
        with pytest.raises(BadInput, match="lost a column"):
            replay(tier, made)


def files(tier: SoleCopyTier, name: str) -> set[str]:
    table = CatalogTables(tier.config).catalog.load_table(("kafka", name))
    return {task.file.file_path for task in table.scan().plan_files()}


def snapshot(tier: SoleCopyTier, name: str) -> int | None:
    table = CatalogTables(tier.config).catalog.load_table(("kafka", name))
    return table.metadata.current_snapshot_id


class TestNothingToDo:
    def test_without_a_table_of_bad_records(self, tier: SoleCopyTier) -> None:
        good = [Rec(offset=0, value=avro_value(1, ORDER, {"id": 1, "item": "x"}))]
        made = tiered(tier, Segment(batches=in_batches(good, 1)))
        assert replay(tier, made) == ReplayReport()

    def test_with_nothing_that_has_become_good(self, tier: SoleCopyTier) -> None:
        made = tiered(tier, segment(0, 60))
        heads = snapshot(tier, "orders"), snapshot(tier, "orders__dlq")
        stored = {info.key for info in tier.store.list("warehouse/")}
        report = replay(tier, made)
        assert (report.replayed, report.already) == (0, 0)
        assert report.left == {"unknown_schema": 7, "no_schema_id": 3}
        assert (snapshot(tier, "orders"), snapshot(tier, "orders__dlq")) == heads
        parquet = {key for key in stored if key.endswith(".parquet")}
        assert {
            i.key for i in tier.store.list("warehouse/") if i.key.endswith(".parquet")
        } == parquet

    def test_a_second_time(self, tier: SoleCopyTier, registry: KnownSchemas) -> None:
        made = tiered(tier, segment(0, 60))
        registry.avro[LATE] = WIDER
        replay(tier, made)
        head = snapshot(tier, "orders")
        assert replay(tier, made) == ReplayReport(left={"no_schema_id": 3})
        assert snapshot(tier, "orders") == head

    def test_while_the_registry_is_down(self, tier: SoleCopyTier, registry: KnownSchemas) -> None:
        made = tiered(tier, segment(0, 60))
        registry.is_down = True
        head = snapshot(tier, "orders")
        with pytest.raises(TransientError, match="doesn't answer"):
            replay(tier, made)
        assert snapshot(tier, "orders") == head


class TestCrashes:
    @pytest.mark.parametrize("step", ["looked", "replayed"])
    def test_before_or_between_the_commits(
        self, tier: SoleCopyTier, registry: KnownSchemas, step: str
    ) -> None:
        made = tiered(tier, segment(0, 60))
        registry.avro[LATE] = WIDER
        with pytest.raises(Crash):
            replay(tier, made, reached=at_step(step, die))
        assert_served(tier, made)
        between = step == "replayed"
        assert len(rows(tier)) == (57 if between else 50)
        assert len(rows(tier, "orders__dlq")) == 10
        report = replay(tier, made)
        assert (report.replayed, report.already) == ((0, 7) if between else (7, 0))
        assert_replayed(tier, made)

    def test_what_is_in_both_tables_is_proven(self, tmp_path: Path, registry: KnownSchemas) -> None:
        """The table's files have changed, so what isn't retired yet is proven again."""
        tier = typed_tier(tmp_path, registry, grace_ms=1000)
        made = segment(0, 60)
        made.store(tier.store)
        engine = tier.engine()
        settled(engine)
        assert tier.entry(made).state is SegmentState.PROVEN
        registry.avro[LATE] = WIDER
        with pytest.raises(Crash):
            replay(tier, made, reached=at_step("replayed", die))
        for _ in range(3):
            tier.clock.at_ms += 1000
            assert sum(r.proof_faults for r in settled(engine, 2)) == 0
        assert tier.entry(made).state is SegmentState.RETIRED
        replay(tier, made)
        assert_replayed(tier, made)

    def test_what_has_left_is_proven(self, tmp_path: Path, registry: KnownSchemas) -> None:
        tier = typed_tier(tmp_path, registry, grace_ms=1000)
        made = segment(0, 60)
        made.store(tier.store)
        engine = tier.engine()
        settled(engine)
        registry.avro[LATE] = WIDER
        replay(tier, made)
        for _ in range(3):
            tier.clock.at_ms += 1000
            assert sum(r.proof_faults for r in settled(engine, 2)) == 0
        assert_replayed(tier, made)

    def test_a_reading_in_between_misses_nothing(
        self, tier: SoleCopyTier, registry: KnownSchemas, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The engine reads the two tables one after the other, while records move over."""
        made = tiered(tier, segment(0, 60))
        tables = CatalogTables(tier.config)
        custody = TableCustody(tier.store, tables, tier.config, now_ms=tier.clock)
        real = tables.dead_letters

        def moved_first(topic: str, topic_id: str) -> Any:
            registry.avro[LATE] = WIDER
            replay(tier, made)
            return real(topic, topic_id)

        monkeypatch.setattr(tables, "dead_letters", moved_first)
        reading = custody.read(made.topic, made.topic_id)
        seen = [
            offset
            for location in (reading.metadata_location, reading.dead_letters_location)
            for offset in StaticTable.from_metadata(location)
            .scan()
            .to_arrow()["kafka_offset"]
            .to_pylist()
        ]
        assert sorted(seen) == list(range(60))

    def test_a_row_that_is_there_twice_is_still_noticed(
        self, tmp_path: Path, registry: KnownSchemas
    ) -> None:
        tier = typed_tier(tmp_path, registry)
        made = segment(0, 60)
        made.store(tier.store)

        def double() -> None:
            table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders"))
            table.append(table.scan("kafka_offset = 7").to_arrow())

        reports = settled(tier.engine(reached=at_step("committed", double)))
        assert sum(r.proof_faults for r in reports) == 1


class TestOthersAtWork:
    def test_records_above_the_watermark_are_conversions(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        made = segment(0, 60)
        made.store(tier.store)
        with pytest.raises(Crash):
            settled(tier.engine(reached=at_step("buried", die)))
        assert len(rows(tier, "orders__dlq")) == 10
        registry.avro[LATE] = WIDER
        assert replay(tier, made).replayed == 0
        tier.settle()
        replay(tier, made)
        assert_replayed(tier, made)

    @pytest.mark.parametrize("step", ["looked", "replayed"])
    def test_the_engine_commits_in_between(
        self, tier: SoleCopyTier, registry: KnownSchemas, step: str
    ) -> None:
        first = tiered(tier, segment(0, 60))
        later = segment(60, 40, first)
        registry.avro[LATE] = WIDER
        report = replay(tier, first, reached=at_step(step, lambda: tiered(tier, later)))
        assert (report.replayed, report.already) == (7, 0)
        replay(tier, first)
        assert_replayed(tier, first, later)

    @pytest.mark.parametrize("step", ["looked", "replayed"])
    def test_two_replays_at_once(
        self, tier: SoleCopyTier, registry: KnownSchemas, step: str
    ) -> None:
        made = tiered(tier, segment(0, 60))
        registry.avro[LATE] = WIDER
        reports: list[ReplayReport] = []
        reports.append(
            replay(tier, made, reached=at_step(step, lambda: reports.append(replay(tier, made))))
        )
        assert sum(r.replayed for r in reports) == 7
        assert_replayed(tier, made)

    @pytest.mark.parametrize("step", ["looked", "replayed"])
    def test_a_log_is_cut_in_between(
        self, tier: SoleCopyTier, registry: KnownSchemas, step: str
    ) -> None:
        dead = under_epoch(segment(0, 101, word="dead"), 1)
        tiered(tier, dead)
        alive = under_epoch(segment(0, 130, dead), 2)
        registry.avro[LATE] = WIDER

        def cut() -> None:
            alive.store(tier.store)
            tier.settle(6)

        replay(tier, dead, reached=at_step(step, cut))
        tier.settle()
        replay(tier, dead)
        assert_replayed(tier, alive)

    def test_a_cut_is_under_way(
        self, tier: SoleCopyTier, registry: KnownSchemas, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The engine has withdrawn bad records, and dies before it comes to the rows."""
        dead = under_epoch(segment(0, 101, word="dead"), 1)
        tiered(tier, dead)
        alive = under_epoch(segment(0, 130, dead), 2)
        registry.avro[LATE] = WIDER
        real: Callable[..., object] = table_custody.withdraw

        def first_only(catalog: object, table: Any, *more: object, **named: object) -> object:
            if not table.name()[-1].endswith("__dlq"):
                raise Crash
            return real(catalog, table, *more, **named)

        def cut() -> None:
            alive.store(tier.store)
            with monkeypatch.context() as patched:
                patched.setattr(table_custody, "withdraw", first_only)
                with pytest.raises(Crash):
                    tier.settle()

        replay(tier, dead, reached=at_step("looked", cut))
        assert any(b"dead" in (r["item"] or "").encode() for r in rows(tier))
        tier.settle(6)
        replay(tier, dead)
        assert_replayed(tier, alive)

    def test_a_withdrawal_planned_before_a_replay_is_planned_again(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        made = tiered(tier, segment(0, 60))
        tables = CatalogTables(tier.config)
        custody = TableCustody(tier.store, tables, tier.config, now_ms=tier.clock)
        reading = custody.read(made.topic, made.topic_id)
        registry.avro[LATE] = WIDER
        replay(tier, made)
        before = offsets(tier)
        with pytest.raises(CommitConflict, match="replayed"):
            custody.withdraw(reading, made.topic, made.partition, 30, "test")
        assert offsets(tier) == before
        reading = custody.read(made.topic, made.topic_id)
        custody.withdraw(reading, made.topic, made.partition, 30, "test")
        assert offsets(tier) == [o for o in before if o < 30]
        assert offsets(tier, "orders__dlq") == [2, 22]


class TestCommand:
    @pytest.fixture
    def where(self, tier: SoleCopyTier, registry: KnownSchemas, monkeypatch: Any) -> list[str]:
        """The tier's directory as `--dir` takes it, and its registry."""
        url = replace(tier.config.registry, url="http://registry.invalid")
        config = replace(tier.config, registry=url)
        (tier.directory / CONFIG_FILE).write_text(config.to_json())
        monkeypatch.setattr(SchemaRegistry, "from_config", lambda *_: registry)
        return ["--dir", str(tier.directory)]

    def test_list(
        self, tier: SoleCopyTier, where: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = segment(0, 60)
        tiered(tier, first, segment(0, 50, partition=9, topic_id=first.topic_id))
        assert main(["dlq", "list", "--json", *where]) == 0
        (told,) = json.loads(capsys.readouterr().out)["topics"]
        assert (told["topic"], told["table"], told["records"]) == (
            "orders", "kafka.orders__dlq", 19,
        )  # fmt: skip
        late, junk = told["groups"]
        assert (late["error_class"], late["schema_id"], late["records"]) == (
            "unknown_schema", LATE, 13,
        )  # fmt: skip
        assert late["partitions"] == [
            {"partition": 3, "records": 7, "first_offset": 5, "last_offset": 53},
            {"partition": 9, "records": 6, "first_offset": 5, "last_offset": 45},
        ]
        assert (junk["error_class"], junk["schema_id"], junk["records"]) == (
            "no_schema_id", None, 6,
        )  # fmt: skip
        assert "no schema id" in junk["reason"]
        assert main(["dlq", "list", "orders", *where]) == 0
        text = capsys.readouterr().out
        assert "3: 5 to 53, 9: 5 to 45" in text

    def test_replay(
        self,
        tier: SoleCopyTier,
        registry: KnownSchemas,
        where: list[str],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        made = tiered(tier, segment(0, 60))
        registry.avro[LATE] = WIDER
        assert main(["dlq", "replay", "orders", "--class", "no_schema_id", *where]) == 0
        assert "0 bad records have become rows" in capsys.readouterr().out
        assert main(["dlq", "replay", "orders", "--json", *where]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "topic": "orders", "replayed": 7, "already": 0, "left": {"no_schema_id": 3},
        }  # fmt: skip
        assert_replayed(tier, made)

    def test_one_schema_that_is_unknown_still_stops_no_other(
        self, tier: SoleCopyTier, registry: KnownSchemas, where: list[str]
    ) -> None:
        """Also of a topic that waits for such since then."""
        records = [record(i, "item") for i in range(8)]
        records.append(Rec(offset=8, value=avro_value(99, ORDER, {"id": 8, "item": "x"})))
        made = tiered(tier, Segment(batches=in_batches(records, 3)))
        assert offsets(tier, "orders__dlq") == [2, 5, 8]
        file = tier.directory / CONFIG_FILE
        file.write_text(file.read_text().replace('"error"', '"wait"'))
        registry.avro[LATE] = WIDER
        assert main(["dlq", "replay", "orders", *where]) == 0
        assert offsets(tier, "orders__dlq") == [2, 8]
        assert offsets(tier) == [0, 1, 3, 4, 5, 6, 7]
        assert_served(tier, made)

    def test_where_bad_ones_are_kept_unknown_schemas_are_waited_for(
        self,
        tier: SoleCopyTier,
        registry: KnownSchemas,
        where: list[str],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        made = tiered(tier, segment(0, 60))
        file = tier.directory / CONFIG_FILE
        settings = file.read_text().replace('"error"', '"wait"').replace('"dlq"', '"raw"')
        file.write_text(settings)
        assert main(["dlq", "replay", "orders", *where]) == 3
        assert f"schema {LATE}" in capsys.readouterr().err
        assert main(["dlq", "replay", "orders", "--class", "no_schema_id", *where]) == 0
        assert offsets(tier, "orders__dlq") == [o for o in range(60) if is_late(o)]
        registry.avro[LATE] = WIDER
        assert main(["dlq", "replay", "orders", *where]) == 0
        assert offsets(tier) == list(range(60))
        assert_served(tier, made)

    @pytest.mark.parametrize(
        ("arguments", "code", "says"),
        [
            (["replay", "nothing"], 2, "topic nothing has no table"),
            (["list", "nothing"], 2, "topic nothing has no table"),
            (["replay"], 2, "name the topic"),
            (["list", "--class", "x"], 2, "--class goes with replay"),
        ],
    )
    def test_what_can_not_be(
        self,
        where: list[str],
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
        code: int,
        says: str,
    ) -> None:
        assert main(["dlq", *arguments, *where]) == code
        assert says in capsys.readouterr().err

    def test_a_registry_that_is_down(
        self,
        tier: SoleCopyTier,
        registry: KnownSchemas,
        where: list[str],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        tiered(tier, segment(0, 60))
        registry.is_down = True
        assert main(["dlq", "replay", "orders", *where]) == 3
        assert "doesn't answer" in capsys.readouterr().err

    def test_no_bad_records(
        self, tier: SoleCopyTier, where: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["dlq", "list", *where]) == 0
        assert "The tier has no bad records" in capsys.readouterr().out
        good = [Rec(offset=0, value=avro_value(1, ORDER, {"id": 1, "item": "x"}))]
        tiered(tier, Segment(batches=in_batches(good, 1)))
        assert main(["dlq", "list", "orders", *where]) == 0
        assert "orders has no bad records" in capsys.readouterr().out
        assert main(["dlq", "replay", "orders", *where]) == 0
        assert "orders: 0 bad records" in capsys.readouterr().out
