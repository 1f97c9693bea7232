"""Typed columns in Spark SQL: the same values before and after the columns change, by whomever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import SparkSession
from spark_places import SPARK_MARKS, collect_sockets
from typed_tables import TypedTable, arrival

from spark_ext.session import SessionOptions, open_session, stop_spark
from tiering.values.units import MICROS_OF_DAY

pytestmark = SPARK_MARKS

INT, LONG, TEXT = IntegerType(), LongType(), StringType()
CATALOG = "spark.sql.catalog.onecopy"
TABLE = "onecopy.kafka.orders"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    session = open_session(SessionOptions(master="local[2]", with_iceberg=True, conf=conf))
    try:
        yield session
    finally:
        stop_spark()
        collect_sockets()


@pytest.fixture
def table(tmp_path: Path) -> TypedTable:
    return TypedTable.in_directory(tmp_path)


@pytest.fixture
def spark(base: SparkSession, tmp_path: Path, table: TypedTable) -> SparkSession:
    """A session on the catalog of `table`, which shares nothing with other tests'."""
    session = base.newSession()
    for key, value in {
        "spark.sql.session.timeZone": "UTC",
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{CATALOG}.uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        f"{CATALOG}.jdbc.schema-version": "V1",
        f"{CATALOG}.warehouse": f"{tmp_path}/store/warehouse",
        f"{CATALOG}.cache-enabled": "false",
    }.items():
        session.conf.set(key, value)
    return session


def rows(spark: SparkSession, *columns: str) -> list[tuple[Any, ...]]:
    """Python's values of these columns (SQL expressions), in the order of offsets."""
    frame = spark.table(TABLE).orderBy("kafka_offset").selectExpr(*columns)
    return [tuple(plain(v) for v in row) for row in frame.collect()]


def plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {k: plain(v) for k, v in value.asDict().items()}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return bytes(value) if isinstance(value, bytearray) else value


EVERY = {
    "b": BooleanType(), "i": INT, "l": LONG, "f": FloatType(), "d": DoubleType(), "s": TEXT,
    "bin": BinaryType(), "day": DateType(), "ts": TimestampType(), "tz": TimestamptzType(),
    "u": UUIDType(), "fx": FixedType(12), "dec": DecimalType(9, 2), "big": DecimalType(38, 0),
    "st": {"x": INT, "deep": {"y": TEXT}}, "li": [INT], "ls": [{"k": TEXT, "v": UUIDType()}],
    "m": (TEXT, {"n": LONG}),
}  # fmt: skip
AT = datetime(2024, 2, 29, 12, 34, 56, 789012, UTC)
NAIVE = AT.replace(tzinfo=None)


def every(n: int) -> dict[str, Any]:
    """Row number n below 10: uuids and fixed bytes on both sides of 0x80."""
    return {
        "b": n % 2 == 0, "i": n - 5, "l": n * 2**40, "f": n / 2, "d": -n / 4, "s": f"größe 🐟 {n}",
        "bin": bytes([n]), "day": date(2024, 1, 1 + n), "ts": NAIVE.replace(microsecond=n),
        "tz": AT.replace(microsecond=n), "u": bytes([n * 25]) * 16, "fx": bytes([n * 25]) * 12,
        "dec": Decimal(f"{n - 5}.25"), "big": Decimal(10**37 * (n - 5)),
        "st": {"x": n, "deep": {"y": str(n)}}, "li": [n, None],
        "ls": [{"k": "a", "v": bytes([n * 25]) * 16}, None], "m": [("a", {"n": n})],
    }  # fmt: skip


def in_spark(n: int) -> dict[str, Any]:
    """The same as Spark gives it: maps are dicts there."""
    return every(n) | {
        "m": {"a": {"n": n}},
        # Collected times with a zone come without one, in the session's.
        "tz": NAIVE.replace(microsecond=n),
    }


def test_every_type(spark: SparkSession, table: TypedTable) -> None:
    table.take(arrival(1, EVERY))
    table.write(1, [every(n) for n in range(10)])
    table.write(1, [dict.fromkeys(EVERY)])

    def check() -> None:
        found = [r for r in rows(spark, *EVERY) if any(v is not None for v in r)]
        wanted = [tuple(in_spark(n).values()) for n in range(10)]
        assert [r[:9] + r[10:] for r in found] == [w[:9] + w[10:] for w in wanted]
        micros = [r[0] for r in rows(spark, "unix_micros(tz)", "i") if r[1] is not None]
        assert micros == [1709210096000000 + n for n in range(10)]
        assert len(rows(spark, "i")) == 11
        for n in range(10):
            # The filters go down to manifests and row groups: nothing may be left out wrongly.
            for where in (
                f"u = X'{bytes([n * 25] * 16).hex()}'", f"i = {n - 5}",
                f"dec = {n - 5}.25", f"s = 'größe 🐟 {n}'",
                f"big = {10**37 * (n - 5)}BD", f"d = {-n / 4}", f"f = {n / 2}", f"l = {n * 2**40}",
                f"day = DATE'2024-01-{n + 1:02}'", f"bin = X'{n:02X}'", f"st.x = {n}",
                f"fx = X'{bytes([n * 25] * 12).hex()}'",
                f"tz = TIMESTAMP'2024-02-29 12:34:56.{n:06}'",
                f"ts = TIMESTAMP_NTZ'2024-02-29 12:34:56.{n:06}'",
            ):  # fmt: skip
                hits = spark.sql(f"SELECT i FROM {TABLE} WHERE {where}").collect()
                assert [hit[0] for hit in hits] == [n - 5], where

    check()
    spark.sql(
        "CALL onecopy.system.rewrite_data_files(table => 'kafka.orders', strategy => 'sort', "
        "options => map('rewrite-all', 'true'))"
    )
    assert spark.sql(f"SELECT count(*) FROM {TABLE}.files").collect()[0][0] == 1
    check()
    found = [row for row in table.file_rows(1) if row["i"] is not None]
    assert found == [every(n) for n in range(10)], "and back to the codec from Spark's file"


def test_evolution(spark: SparkSession, table: TypedTable) -> None:
    table.take(arrival(1, {"a": INT, "gone": TEXT, "s": {"x": FloatType(), "y": TEXT}}))
    table.write(1, [{"a": 1, "gone": "g", "s": {"x": 0.5, "y": "y"}}])
    assert rows(spark, "a", "gone", "s") == [(1, "g", {"x": 0.5, "y": "y"})]
    new = {"s": {"z": [LONG], "x": DoubleType()}, "b": LONG, "n.n": TEXT, "B.b": DecimalType(9, 2)}
    table.take(arrival(2, new, aliases={"b": ["a"]}))
    table.write(2, [{"s": {"z": [7], "x": 0.1}, "b": 2**40, "n.n": "n", "B.b": Decimal("1.50")}])
    table.write(1, [{"a": 3, "gone": None, "s": None}])
    found = rows(spark, "b", "gone", "s", "n_n", "B_b")
    assert found == [
        (1, "g", {"x": 0.5, "y": "y", "z": None}, None, None),
        (2**40, None, {"x": 0.1, "y": None, "z": [7]}, "n", Decimal("1.50")),
        (3, None, None, None, None),
    ]
    table.take(arrival(3, {"b": TEXT}))
    assert table.columns(3) == {}, "refused"
    table.take(arrival(4, {"B.b": DecimalType(20, 2)}))
    table.write(4, [{"B.b": Decimal("123456789012345678.25")}])
    assert rows(spark, "B_b")[-1] == (Decimal("123456789012345678.25"),)
    assert rows(spark, "b", "gone", "s", "n_n", "B_b")[:3] == found


@pytest.mark.parametrize(
    "names",
    [["a.b", "a_b"], ["Name", "name", "NAME"], ["🐟", "größe"], ["_file", "_pos", "kafka_value"]],
)
def test_odd_names(spark: SparkSession, table: TypedTable, names: list[str]) -> None:
    table.take(arrival(1, {**dict.fromkeys(names, LONG), "s": dict.fromkeys(names, LONG)}))
    row: dict[str, Any] = {name: i for i, name in enumerate(names)}
    table.write(1, [{**row, "s": dict(row)}])
    schema = table.table().schema()
    listed = [f"`{schema.find_column_name(1003 + i)}`" for i in range(len(names))]
    assert rows(spark, *listed) == [tuple(range(len(names)))]
    nested = [f.name for f in schema.find_type("s").fields]  # type: ignore[union-attr]
    assert rows(spark, *(f"s.`{name}`" for name in nested)) == [tuple(range(len(names)))]
    assert len(spark.sql(f"SELECT *, _file, _pos AS at FROM {TABLE}").collect()) == 1
    spark.sql(
        "CALL onecopy.system.rewrite_data_files(table => 'kafka.orders', "
        "options => map('rewrite-all', 'true'))"
    )
    assert rows(spark, *listed) == [tuple(range(len(names)))]
    assert table.file_rows(1) == [{**row, "s": row}]


def test_spark_alters_the_table_between_two_evolutions(
    spark: SparkSession, table: TypedTable
) -> None:
    table.take(arrival(1, {"a": INT, "b": TEXT, "w": INT, "s": {"x": INT, "y": INT}}))
    first = {"a": 1, "b": "b", "w": 5, "s": {"x": 1, "y": 2}}
    table.write(1, [first])
    for change in (
        "RENAME COLUMN a TO mine",
        "DROP COLUMN b",
        "ALTER COLUMN w TYPE bigint",
        "ADD COLUMN theirs STRING",
        "ADD COLUMN s.c INT",
        "RENAME COLUMN s.x TO x1",
        "DROP COLUMN s.y",
        "ADD COLUMN b INT",
    ):
        spark.sql(f"ALTER TABLE {TABLE} {change}")
    table.write(1, [first])
    new = {
        "a": LONG, "b": TEXT, "w": INT, "s": {"x": INT, "y": INT, "c": TEXT}, "theirs": INT,
        "n": INT,
    }  # fmt: skip
    table.take(arrival(2, new))
    second = {"a": 2**40, "b": "B", "w": 6, "s": {"x": 3, "y": 4, "c": "c"}, "theirs": 7, "n": 8}
    table.write(2, [second])
    spark.sql(f"UPDATE {TABLE} SET theirs = 'set' WHERE w = 6")

    found = rows(spark, "mine", "b", "w", "s", "theirs", "theirs_2", "n")
    assert found == [
        (1, None, 5, {"x1": 1, "c": None, "c_2": None}, None, None, None),
        (1, None, 5, {"x1": 1, "c": None, "c_2": None}, None, None, None),
        (2**40, None, 6, {"x1": 3, "c": None, "c_2": "c"}, "set", 7, 8),
    ]
    assert table.file_rows(2) == [
        {**second, "b": None, "s": {"x": 3, "y": None, "c": "c"}},
    ], "what has no column any more comes back as null"
    newest = table.file_rows(1)[-1]
    assert newest == {"a": 1, "b": None, "w": 5, "s": {"x": 1, "y": None}}


def test_a_column_that_the_partition_spec_uses(spark: SparkSession, table: TypedTable) -> None:
    """The writers drop it, Spark partitions by it; the files go on being readable."""
    table.take(arrival(1, {"country": TEXT, "w": INT}))
    table.write(1, [{"country": "at", "w": 1}])
    spark.sql(f"ALTER TABLE {TABLE} ADD PARTITION FIELD country")
    spark.sql(f"ALTER TABLE {TABLE} ADD PARTITION FIELD bucket(4, w)")
    table.take(arrival(2, {"w": LONG, "w_bucket": INT, "w_bucket_4": INT}))
    assert rows(spark, "country", "w", "w_bucket") == [("at", 1, None)]
    spark.sql(
        f"INSERT INTO {TABLE} (kafka_partition, kafka_offset, w) VALUES (9, 5, 1099511627776)"
    )
    assert rows(spark, "country", "w")[1:] == [(None, 2**40)]
    spark.sql(f"ALTER TABLE {TABLE} DROP PARTITION FIELD country")
    spark.sql(f"ALTER TABLE {TABLE} DROP COLUMN country")
    table.take(arrival(3, {"country": TEXT, "more": INT}))
    assert rows(spark, "w", "more") == [(1, None), (2**40, None)]


def test_times_of_day_are_numbers(spark: SparkSession, table: TypedTable) -> None:
    """Spark can't open a table that has a column of type time."""
    field = NestedField(1, "at", LONG, required=False, doc=MICROS_OF_DAY)
    table.take(arrival(1, Schema(field)))
    table.write(1, [{"at": 86_399_999_999}])
    assert rows(spark, "at") == [(86_399_999_999,)]
    described = spark.sql(f"DESCRIBE TABLE {TABLE}").collect()
    assert ("at", "bigint", MICROS_OF_DAY) in [tuple(row) for row in described]
