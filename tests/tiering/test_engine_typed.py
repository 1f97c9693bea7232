"""The engine with schemas: typed columns, exact history, dead letters. Only Spark is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from known_schemas import KnownSchemas, avro_value
from native_segments import Batch, Rec, Segment, in_batches
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import StringType
from sole_copy import SoleCopyTier, assert_served, settled

from segment_reader.batch_table import Kept
from tiering.config import TopicConfig
from tiering.ledger import Ledger, SegmentState
from tiering.offset_reader import OffsetReader
from tiering.side_files import SideFile
from tiering.table.topic_tables import CatalogTables

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
WIDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        *ORDER["fields"],
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
OTHER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}],
}


def order(i: int, **more: Any) -> dict[str, Any]:
    price = None if i % 3 == 0 else i / 4
    return {"id": i, "item": f"item {i}", "price": price, "tags": ["a"] * (i % 3), **more}


def orders(first: int, count: int, schema_id: int = 1) -> list[Rec]:
    return [
        Rec(offset=i, value=avro_value(schema_id, ORDER, order(i)))
        for i in range(first, first + count)
    ]


@pytest.fixture
def registry() -> KnownSchemas:
    return KnownSchemas(avro={1: ORDER, 2: WIDER, 3: OTHER}, subjects={"orders-value": 1})


@pytest.fixture
def tier(tmp_path: Path, registry: KnownSchemas) -> SoleCopyTier:
    return SoleCopyTier(tmp_path, registry=registry)


def rows(tier: SoleCopyTier, name: str = "orders") -> list[dict[str, Any]]:
    table = CatalogTables(tier.config).catalog.load_table(("kafka", name))
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("kafka_offset").to_pylist()
    return found


def has_table(tier: SoleCopyTier, name: str) -> bool:
    return CatalogTables(tier.config).catalog.table_exists(("kafka", name))


def segment(records: list[Rec], like: Segment | None = None) -> Segment:
    made = Segment(batches=in_batches(records, 10, ("none", "zstd")))
    return made if like is None else replace(made, topic=like.topic, topic_id=like.topic_id)


def retired(tier: SoleCopyTier, *segments: Segment) -> None:
    """Run the engine until all of them are, and compare what is served with what was produced."""
    reports = settled(tier.engine())
    for each in segments:
        assert tier.entry(each).state is SegmentState.RETIRED, reports[-1].problems
        assert_served(tier, each)


def problems(tier: SoleCopyTier) -> str:
    return "; ".join(f"{k}: {v}" for k, v in settled(tier.engine())[-1].problems.items())


def test_values_become_columns_and_come_back(tier: SoleCopyTier) -> None:
    made = segment(orders(0, 100))
    made.store(tier.store)
    retired(tier, made)
    found = rows(tier)
    for i, row in enumerate(found):
        assert {k: row[k] for k in ("id", "item", "price", "tags")} == order(i)
        assert row["kafka_schema_id"] == 1
        assert row["kafka_value"] is None
    assert len(found) == 100


def test_nothing_is_kept_twice_of_what_comes_back(tier: SoleCopyTier) -> None:
    made = segment(orders(0, 100))
    made.store(tier.store)
    (counts,) = (c for report in settled(tier.engine()) for c in report.values.values())
    assert (counts.typed_rows, counts.raw_rows, dict(counts.bad_records)) == (100, 0, {})
    (entry,) = Ledger(tier.store).scan()
    side = SideFile.open(tier.store, entry.metadata.id, entry.side)
    assert side.batches.kept.tolist() == [Kept.ROWS] * 10


def test_the_offset_reader_gives_what_was_produced(tier: SoleCopyTier) -> None:
    made = segment([*orders(0, 10), Rec(offset=10, key=b"k", value=None), *orders(11, 10)])
    made.store(tier.store)
    retired(tier, made)
    reader = OffsetReader.open(CatalogTables(tier.config).catalog, "kafka", "orders")
    found = [(r.offset, r.key, r.value) for r in reader.records(made.partition)]
    assert found == [(r.offset, r.key, r.value) for r in all_records(made)]


def test_tombstones_and_other_schemas_in_one_batch(tier: SoleCopyTier) -> None:
    """A newer schema first, then older records, and a tombstone between."""
    made = segment(
        [
            Rec(offset=0, value=avro_value(2, WIDER, order(0, at=1_700_000_000_123))),
            *orders(1, 5),
            Rec(offset=6, key=b"gone", value=None),
            Rec(offset=7, value=avro_value(2, WIDER, order(7, at=-1))),
        ]
    )
    made.store(tier.store)
    retired(tier, made)
    found = rows(tier)
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4, 5, None, 7]
    assert [row["kafka_schema_id"] for row in found] == [2, 1, 1, 1, 1, 1, None, 2]
    assert [row["at"] is not None for row in found] == [True, *[False] * 6, True]
    assert [row["kafka_value"] for row in found] == [None] * 8


def test_schemas_that_come_later(tier: SoleCopyTier) -> None:
    first = segment(orders(0, 20))
    first.store(tier.store)
    retired(tier, first)
    ids = {f.name: f.field_id for f in schema_of(tier).fields}
    later = [Rec(offset=20, value=avro_value(2, WIDER, order(20, at=5))), *orders(21, 5)]
    second = segment(later, like=first)
    second.store(tier.store)
    retired(tier, first, second)
    now = {f.name: f.field_id for f in schema_of(tier).fields}
    assert ids.items() <= now.items()
    assert set(now) - set(ids) == {"at"}
    assert len(rows(tier)) == 26


def schema_of(tier: SoleCopyTier) -> Any:
    return CatalogTables(tier.config).catalog.load_table(("kafka", "orders")).schema()


def test_bytes_that_do_not_come_back_are_kept(tier: SoleCopyTier) -> None:
    """A long varint and an array in two blocks are legal, but no serializer's own."""
    long_varint = b"\0\0\0\0\x01" + b"\x82\x00" + b"\x02x" + b"\0" + b"\0"
    blocks = b"\0\0\0\0\x01" + b"\x02" + b"\x02x" + b"\0" + b"\x02\x02a\x02\x02b\0"
    made = segment([Rec(offset=0, value=long_varint), *orders(1, 3), Rec(offset=4, value=blocks)])
    made.store(tier.store)
    retired(tier, made)
    found = rows(tier)
    assert [row["kafka_value"] for row in found] == [long_varint, None, None, None, blocks]
    assert (found[0]["id"], found[0]["item"]) == (1, "x")
    assert found[4]["tags"] == ["a", "b"]


def test_odd_but_legal_batches(tier: SoleCopyTier) -> None:
    """Gaps, nulls, log-append time, repeated headers, a value of a megabyte, every codec."""
    huge = order(40, item="x" * 1_000_000)
    odd = (("h", None), ("h", b""), ("h", b"again"))
    batches = [
        Batch(records=[orders(0, 1)[0], orders(5, 1)[0], *orders(9, 2)], last_offset=14),
        Batch(records=[replace(r, headers=odd, key=b"") for r in orders(15, 5)], log_append=True),
        Batch(records=[replace(r, timestamp_ms=-1) for r in orders(20, 5)], codec="gzip"),
        Batch(records=[Rec(offset=30, value=b""), Rec(offset=31, value=None), *orders(32, 2)]),
        Batch(records=[Rec(offset=40, value=avro_value(1, ORDER, huge))], codec="zstd"),
        Batch(records=orders(50, 4), producer=7),
    ]
    made = Segment(batches=batches)
    made.store(tier.store)
    retired(tier, made)
    found = rows(tier)
    wanted = [r.offset for r in all_records(made) if r.value != b""]
    assert [r["kafka_offset"] for r in found] == wanted
    assert [r["id"] for r in found] == [None if o == 31 else o for o in wanted]
    assert {r["kafka_value"] for r in found} == {None}
    assert len(next(r for r in found if r["kafka_offset"] == 40)["item"]) == 1_000_000
    (dead,) = rows(tier, "orders__dlq")
    assert (dead["kafka_offset"], dead["kafka_value"]) == (30, b"")
    assert dead["error_class"] == "no_schema_id"


class TestBadRecords:
    def bad(self) -> Segment:
        whole = avro_value(1, ORDER, order(3))
        return segment(
            [
                *orders(0, 3),
                Rec(offset=3, value=whole[:-3], key=b"cut"),
                Rec(offset=4, value=b"no prefix"),
                *orders(5, 15),
                Rec(offset=20, value=avro_value(3, OTHER, {"id": "text"})),
                *orders(21, 10),
            ]
        )

    def test_they_go_to_a_table_of_their_own_and_are_served(self, tier: SoleCopyTier) -> None:
        made = self.bad()
        made.store(tier.store)
        retired(tier, made)
        assert [r["kafka_offset"] for r in rows(tier)] == [
            o for o in range(31) if o not in (3, 4, 20)
        ]
        dead = rows(tier, "orders__dlq")
        assert [r["kafka_offset"] for r in dead] == [3, 4, 20]
        assert [r["error_class"] for r in dead] == [
            "truncated", "no_schema_id", "incompatible_schema",
        ]  # fmt: skip
        assert [r["kafka_schema_id"] for r in dead] == [1, None, 3]
        assert [r["kafka_value"] for r in dead] == [
            rec.value for rec in all_records(made) if rec.offset in (3, 4, 20)
        ]
        assert [r["kafka_key"] for r in dead] == [b"cut", None, None]
        assert "id" in dead[2]["error_reason"]

    def test_none_means_no_table(self, tier: SoleCopyTier) -> None:
        made = segment(orders(0, 30))
        made.store(tier.store)
        retired(tier, made)
        assert not has_table(tier, "orders__dlq")

    def test_all_of_them(self, tmp_path: Path, registry: KnownSchemas) -> None:
        topics = {"orders": TopicConfig(value="schema_id_prefix")}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        made = segment([Rec(offset=i, value=b"junk %d" % i) for i in range(25)])
        made.store(tier.store)
        retired(tier, made)
        assert rows(tier) == []
        assert len(rows(tier, "orders__dlq")) == 25

    def test_kept_as_they_are(self, tmp_path: Path, registry: KnownSchemas) -> None:
        topics = {"orders": TopicConfig(on_error="raw")}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        made = self.bad()
        made.store(tier.store)
        retired(tier, made)
        found = rows(tier)
        assert len(found) == 31
        assert [r["kafka_offset"] for r in found if r["kafka_value"] is not None] == [3, 4, 20]
        assert not has_table(tier, "orders__dlq")

    def test_the_topic_stops_where_it_was_told_to(
        self, tmp_path: Path, registry: KnownSchemas
    ) -> None:
        topics = {"orders": TopicConfig(on_error="suspend")}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        made = self.bad()
        made.store(tier.store)
        other = replace(segment(orders(0, 5)), topic="other")
        other.store(tier.store)
        assert "offset 3" in problems(tier)
        assert tier.entry(made).state is SegmentState.UPLOADED
        assert tier.entry(other).state is SegmentState.RETIRED
        (tmp_path / "again").mkdir()
        lifted = SoleCopyTier(tmp_path, topics={}, registry=registry)
        retired(lifted, made)

    @pytest.mark.parametrize("step", ["buried", "committed"])
    def test_a_crash_puts_none_there_twice(self, tier: SoleCopyTier, step: str) -> None:
        made = self.bad()
        made.store(tier.store)

        def crash(reached: str) -> None:
            if reached == step:
                raise Crash

        with pytest.raises(Crash):
            settled(tier.engine(reached=crash))
        retired(tier, made)
        assert [r["kafka_offset"] for r in rows(tier, "orders__dlq")] == [3, 4, 20]
        assert len(rows(tier)) == 28


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it."""


def all_records(made: Segment) -> list[Rec]:
    return [record for batch in made.batches for record in batch.records]


class TestRegistry:
    def test_a_topic_waits_while_it_is_down_and_others_go_on(
        self, tmp_path: Path, registry: KnownSchemas
    ) -> None:
        topics = {"plain": TopicConfig(value="raw")}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        made = segment(orders(0, 20))
        made.store(tier.store)
        plain = replace(segment(orders(0, 20)), topic="plain")
        plain.store(tier.store)
        registry.is_down = True
        assert "doesn't answer" in problems(tier)
        assert tier.entry(made).state is SegmentState.UPLOADED
        assert tier.entry(plain).state is SegmentState.RETIRED
        registry.is_down = False
        retired(tier, made)

    def test_it_is_not_needed_once_a_schema_is_known(
        self, tmp_path: Path, registry: KnownSchemas
    ) -> None:
        topics = {"orders": TopicConfig(value="schema_id_prefix")}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        first = segment(orders(0, 20))
        first.store(tier.store)
        retired(tier, first)
        registry.is_down = True
        second = segment(orders(20, 20), like=first)
        second.store(tier.store)
        retired(tier, first, second)
        assert registry.asked == [1]

    def test_nor_to_know_that_there_are_schemas(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        """The first time it has to be asked. Then it may be away, or lose the subject."""
        first = segment(orders(0, 20))
        first.store(tier.store)
        retired(tier, first)
        registry.is_down = True
        second = segment(orders(20, 20), like=first)
        second.store(tier.store)
        retired(tier, first, second)
        registry.is_down, registry.subjects = False, {}
        third = segment(orders(40, 20), like=first)
        third.store(tier.store)
        retired(tier, first, second, third)
        assert [row["id"] for row in rows(tier)] == list(range(60))

    def test_an_unknown_id_makes_the_topic_wait(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        made = segment([*orders(0, 5), *orders(5, 5, schema_id=77)])
        made.store(tier.store)
        assert "schema 77" in problems(tier)
        assert tier.entry(made).state is SegmentState.UPLOADED
        registry.avro[77] = ORDER
        retired(tier, made)
        assert len(rows(tier)) == 10

    def test_or_its_records_are_bad(self, tmp_path: Path, registry: KnownSchemas) -> None:
        topics = {"orders": TopicConfig(on_unknown_schema="error")}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        made = segment([*orders(0, 5), *orders(5, 5, schema_id=77)])
        made.store(tier.store)
        retired(tier, made)
        assert [r["error_class"] for r in rows(tier, "orders__dlq")] == ["unknown_schema"] * 5

    def test_without_a_subject_values_stay_as_they_are(self, tier: SoleCopyTier) -> None:
        made = replace(segment(orders(0, 20)), topic="plain")
        made.store(tier.store)
        retired(tier, made)
        assert set(rows(tier, "plain")[0]) >= {"value"}


class TestModes:
    def test_the_latest_schema_of_a_subject(self, tmp_path: Path, registry: KnownSchemas) -> None:
        topics = {"orders": TopicConfig(value="schema_latest", value_subject="shop.Order")}
        registry.subjects = {"shop.Order": 1}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        made = segment([Rec(offset=i, value=avro_value(None, ORDER, order(i))) for i in range(40)])
        made.store(tier.store)
        retired(tier, made)
        assert [r["id"] for r in rows(tier)] == list(range(40))
        registry.subjects = {"shop.Order": 2}
        later = segment([Rec(offset=40, value=avro_value(None, WIDER, order(40, at=9)))], like=made)
        later.store(tier.store)
        retired(tier, made, later)
        assert rows(tier)[-1]["at"] is not None

    def test_json_text(self, tmp_path: Path) -> None:
        tier = SoleCopyTier(tmp_path, topics={"orders": TopicConfig(value="json")})
        values = [b'{"a": 1}', b" [1,2] ", b"not json", None, b'"x"']
        made = segment([Rec(offset=i, value=v) for i, v in enumerate(values)])
        made.store(tier.store)
        retired(tier, made)
        assert [r["value"] for r in rows(tier)] == ['{"a": 1}', " [1,2] ", None, '"x"']
        assert [r["kafka_value"] for r in rows(tier, "orders__dlq")] == [b"not json"]

    def test_keys_too(self, tmp_path: Path, registry: KnownSchemas) -> None:
        topics = {"orders": TopicConfig(key="schema_id_prefix", value="schema_id_prefix")}
        key = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}
        registry.avro[9] = key
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        plain = orders(0, 12)
        made = segment([replace(r, key=avro_value(9, key, {"id": r.offset})) for r in plain])
        made.store(tier.store)
        retired(tier, made)
        found = rows(tier)
        assert [r["key"] for r in found] == [{"id": i} for i in range(12)]
        assert [r["id"] for r in found] == list(range(12))
        assert {r["kafka_key"] for r in found} == {None}

    def test_a_raw_topic_becomes_typed(self, tier: SoleCopyTier, registry: KnownSchemas) -> None:
        registry.subjects = {}
        first = segment(orders(0, 20))
        first.store(tier.store)
        retired(tier, first)
        registry.subjects = {"orders-value": 1}
        second = segment(orders(20, 20), like=first)
        second.store(tier.store)
        retired(tier, first, second)
        found = rows(tier)
        assert [r["id"] for r in found] == [None] * 20 + list(range(20, 40))
        assert [r["kafka_value"] is None for r in found] == [False] * 20 + [True] * 20

    def test_a_recursive_schema_is_kept_raw(
        self, tier: SoleCopyTier, registry: KnownSchemas
    ) -> None:
        node = {
            "type": "record",
            "name": "Node",
            "fields": [{"name": "next", "type": ["null", "Node"]}],
        }
        registry.avro[1] = node
        made = segment([Rec(offset=0, value=avro_value(1, node, {"next": {"next": None}}))])
        made.store(tier.store)
        retired(tier, made)
        (row,) = rows(tier)
        assert (row["kafka_schema_id"], row["kafka_value"]) == (1, made.batches[0].records[0].value)
        (said,) = CatalogTables(tier.config).state("orders", made.topic_id).untyped
        assert said.startswith("values of schema 1 are kept as they are: ")
        assert "recursive" in said


class TestLayout:
    def test_partitioned_by_typed_columns(self, tmp_path: Path, registry: KnownSchemas) -> None:
        terms = ("bucket(4, id)", "truncate(6, item)", "day(at)", "hour(kafka_timestamp)")
        topics = {"orders": TopicConfig(partition_by=terms)}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        first = segment(orders(0, 10))
        first.store(tier.store)
        retired(tier, first)
        made = [
            Rec(offset=i, value=avro_value(2, WIDER, order(i, at=86_400_000 * (i % 3))))
            for i in range(10, 40)
        ]
        second = segment(made, like=first)
        second.store(tier.store)
        retired(tier, first, second)
        assert [r["id"] for r in rows(tier)] == list(range(40))
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders"))
        assert [str(f.transform) for f in table.spec().fields] == [
            "bucket[4]", "truncate[6]", "day", "hour",
        ]  # fmt: skip
        chosen = table.scan(row_filter="item == 'item 31' and at < '1970-01-03T00:00:00+00:00'")
        assert chosen.to_arrow()["id"].to_pylist() == [31]
        # PyIceberg computes the partition of each row anew: the files agree.
        for task in table.scan().plan_files():
            if task.file.spec_id != table.spec().spec_id:
                continue
            with table.io.new_input(task.file.file_path).open() as data:
                held = pq.read_table(data, columns=["id", "item"]).to_pylist()
            spec, schema = table.spec(), table.schema()
            for row in held:
                for at, name in ((0, "id"), (1, "item")):
                    field = spec.fields[at]
                    of = field.transform.transform(schema.find_type(name))
                    assert task.file.partition[at] == of(row[name])

    def test_somebody_elses_spec_stays(self, tmp_path: Path, registry: KnownSchemas) -> None:
        topics = {"orders": TopicConfig(partition_by=("kafka_partition",))}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        first = segment(orders(0, 10))
        first.store(tier.store)
        retired(tier, first)
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders"))
        with table.update_spec() as update:
            update.remove_field(table.spec().fields[0].name)
        second = segment(orders(10, 10), like=first)
        second.store(tier.store)
        retired(tier, first, second)
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders"))
        assert not table.spec().fields or table.spec().fields[0].transform == VoidTransform()

    def test_columns_that_are_left_out(self, tmp_path: Path, registry: KnownSchemas) -> None:
        topics = {"orders": TopicConfig(metadata_columns=("kafka_timestamp", "kafka_key"))}
        tier = SoleCopyTier(tmp_path, topics=topics, registry=registry)
        made = segment([replace(r, key=b"k", headers=(("h", b"x"),)) for r in orders(0, 20)])
        made.store(tier.store)
        retired(tier, made)
        names = set(rows(tier)[0])
        assert {"kafka_timestamp", "kafka_key", "id"} <= names
        assert not names & {"kafka_headers", "kafka_leader_epoch", "kafka_timestamp_type"}

    def test_a_name_of_its_own(self, tmp_path: Path, registry: KnownSchemas) -> None:
        tier = SoleCopyTier(
            tmp_path, topics={"orders": TopicConfig(table="sales")}, registry=registry
        )
        made = segment(orders(0, 20))
        made.store(tier.store)
        retired(tier, made)
        assert len(rows(tier, "sales")) == 20
        other = replace(segment(orders(0, 5)), topic="sales")
        other.store(tier.store)
        assert "is of topic orders" in problems(tier)


class TestOthers:
    def altered(
        self, tier: SoleCopyTier, *, drop: str = "", rename: tuple[str, str] = ("", "")
    ) -> None:
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders"))
        with table.update_schema(allow_incompatible_changes=True) as update:
            if drop:
                update.delete_column(drop)
            if rename[0]:
                update.rename_column(*rename)

    @pytest.mark.parametrize("column", ["item", "tags", "kafka_value", "kafka_schema_id"])
    def test_a_dropped_column_costs_space_but_no_bytes(
        self, tier: SoleCopyTier, column: str
    ) -> None:
        first = segment(orders(0, 30))
        first.store(tier.store)
        retired(tier, first)
        self.altered(tier, drop=column)
        second = segment([*orders(30, 20), Rec(offset=50, value=None)], like=first)
        second.store(tier.store)
        retired(tier, first, second)
        third = segment(orders(60, 20), like=first)
        third.store(tier.store)
        retired(tier, first, second, third)
        assert column not in {f.name for f in schema_of(tier).fields}

    def test_a_renamed_column_is_followed(self, tier: SoleCopyTier) -> None:
        first = segment(orders(0, 30))
        first.store(tier.store)
        retired(tier, first)
        self.altered(tier, rename=("item", "article"))
        second = segment(orders(30, 20), like=first)
        second.store(tier.store)
        retired(tier, first, second)
        assert [r["article"] for r in rows(tier)] == [f"item {i}" for i in range(50)]
        assert {r["kafka_value"] for r in rows(tier)} == {None}

    def test_a_column_of_somebody_elses_is_left_alone(self, tier: SoleCopyTier) -> None:
        first = segment(orders(0, 30))
        first.store(tier.store)
        retired(tier, first)
        table = CatalogTables(tier.config).catalog.load_table(("kafka", "orders"))
        with table.update_schema() as update:
            update.add_column("at", StringType())
        second = segment(
            [Rec(offset=i, value=avro_value(2, WIDER, order(i, at=i))) for i in range(30, 40)],
            like=first,
        )
        second.store(tier.store)
        retired(tier, first, second)
        found = rows(tier)
        assert {r["at"] for r in found} == {None}
        assert sum(r["at_2"] is not None for r in found) == 10
