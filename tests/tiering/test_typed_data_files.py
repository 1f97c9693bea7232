"""Entries of files with typed columns: what PyIceberg would say, and what it may not say."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from appends import Tier, columns
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from typed_tables import TypedTable, arrival

from tiering.table.catalog import table_target
from tiering.table.data_files import entry_from_parquet
from tiering.table.schema import raw_schema
from tiering.tasks import DataFileEntry, TableTarget
from tiering.values.arrow_fields import arrow_field

COLUMN = 1003
NAN = float("nan")
AT = datetime(2024, 2, 29, 12, 34, 56, 789012, UTC)


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    tier = Tier.open(tmp_path)
    tier.ensure()
    return table_target(tier.table())


def schema_with(kind: IcebergType) -> Schema:
    return Schema(*raw_schema().fields, NestedField(COLUMN, "typed", kind, required=False))


def entry(
    target: TableTarget, directory: Path, kind: IcebergType, values: list[Any], group_rows: int = 2
) -> tuple[DataFileEntry, Path]:
    """A file of one typed column, and its entry."""
    schema = schema_with(kind)
    fields = pa.schema([arrow_field(f) for f in schema.fields])
    field = fields.field("typed")
    if isinstance(kind, UUIDType):
        typed = pa.ExtensionArray.from_storage(field.type, pa.array(values, pa.binary(16)))
    else:
        typed = values if isinstance(values, pa.Array) else pa.array(values, field.type)
    kafka = columns(0, range(len(typed)))
    arrays = [pa.array(kafka[f.name], f.type) for f in fields if f.name in kafka]
    path = directory / "typed.parquet"
    rows = pa.Table.from_arrays([*arrays, typed], schema=fields)
    pq.write_table(rows, path, row_group_size=group_rows, store_schema=False)
    target = replace(target, schema_json=schema.model_dump_json())
    made = entry_from_parquet(
        pq.read_metadata(path), path=str(path), size_bytes=path.stat().st_size, target=target
    )
    return made, path


def bounds(made: DataFileEntry, kind: PrimitiveType) -> tuple[Any, Any]:
    return tuple(
        from_bytes(kind, side[COLUMN]) if COLUMN in side else None
        for side in (made.lower_bounds, made.upper_bounds)
    )  # type: ignore[return-value]


CASES: list[tuple[PrimitiveType, list[Any], Any, Any]] = [
    (BooleanType(), [True, None, False, True], False, True),
    (BooleanType(), [True, True, None], True, True),
    (IntegerType(), [5, None, -7, 3], -7, 5),
    (LongType(), [2**62, -(2**63), None], -(2**63), 2**62),
    (FloatType(), [1.5, NAN, -0.25, None], -0.25, 1.5),
    (DoubleType(), [NAN, 2.5, -1e300, None], -1e300, 2.5),
    (DoubleType(), [float("inf"), 1.0, float("-inf")], float("-inf"), float("inf")),
    (StringType(), ["b", None, "ä", "a"], "a", "ä"),
    (BinaryType(), [b"\xff", None, b"", b"a"], b"", b"\xff"),
    (FixedType(4), [b"\xff\x00\x00\x00", b"\x00abc", None], b"\x00abc", b"\xff\x00\x00\x00"),
    (DateType(), [date(2024, 2, 29), date(1900, 1, 1), None], -25567, 19782),
    (TimeType(), pa.array([5, 86_399_999_999, None], pa.time64("us")), 5, 86_399_999_999),
    (TimestampType(), [AT.replace(tzinfo=None), None, datetime(1960, 1, 1)], -315619200000000,
     1709210096789012),
    (TimestamptzType(), [AT, None], 1709210096789012, 1709210096789012),
    (DecimalType(9, 2), [Decimal("-0.01"), Decimal("1.00"), Decimal("-1234567.89"), None],
     Decimal("-1234567.89"), Decimal("1.00")),
    (DecimalType(20, 0), [Decimal(2**64 - 1), Decimal(0)], Decimal(0), Decimal(2**64 - 1)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values", "low", "high"), CASES, ids=lambda v: str(v)[:20])
@pytest.mark.parametrize("group_rows", [1, 2, 100])
def test_bounds_of_every_type(
    target: TableTarget,
    tmp_path: Path,
    kind: PrimitiveType,
    values: list[Any],
    low: Any,
    high: Any,
    group_rows: int,
) -> None:
    made, path = entry(target, tmp_path, kind, values, group_rows)
    has_lonely_nan = group_rows == 1 and any(v != v for v in values if isinstance(v, float))
    wanted = (None, None) if has_lonely_nan else (low, high)
    assert bounds(made, kind) == wanted
    nulls = sum(v is None for v in (values if isinstance(values, list) else values.to_pylist()))
    assert made.null_value_counts[COLUMN] == nulls
    assert made.value_counts[COLUMN] == len(values)
    if not has_lonely_nan and not isinstance(kind, FixedType):
        schema = schema_with(kind)
        theirs = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(path),
            compute_statistics_plan(schema, {}),
            parquet_path_to_id_mapping(schema),
        ).to_serialized_dict()
        for side in ("lower_bounds", "upper_bounds"):
            assert getattr(made, side)[COLUMN] == theirs[side][COLUMN], side


def test_numbers_that_python_has_no_date_for(target: TableTarget, tmp_path: Path) -> None:
    days = pa.array([2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32())
    made, _ = entry(target, tmp_path, DateType(), days)
    assert struct.unpack("<i", made.upper_bounds[COLUMN]) == (2**31 - 1,)
    assert struct.unpack("<i", made.lower_bounds[COLUMN]) == (-(2**31),)
    micros = pa.array([2**63 - 1, -(2**63)], pa.int64()).view(pa.timestamp("us"))
    made, _ = entry(target, tmp_path, TimestampType(), micros)
    assert struct.unpack("<q", made.upper_bounds[COLUMN]) == (2**63 - 1,)


def test_the_largest_decimals_are_exact(target: TableTarget, tmp_path: Path) -> None:
    most = 10**38 - 1
    made, _ = entry(target, tmp_path, DecimalType(38, 0), [Decimal(most), Decimal(-most), None])
    assert int.from_bytes(made.upper_bounds[COLUMN], "big", signed=True) == most
    assert int.from_bytes(made.lower_bounds[COLUMN], "big", signed=True) == -most
    for number, raw in ((127, b"\x7f"), (128, b"\x00\x80"), (-128, b"\x80"), (-129, b"\xff\x7f")):
        made, _ = entry(target, tmp_path, DecimalType(38, 0), [Decimal(number)])
        assert made.lower_bounds[COLUMN] == raw


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()])
def test_columns_of_nan_alone_have_no_bounds(
    target: TableTarget, tmp_path: Path, kind: PrimitiveType
) -> None:
    made, _ = entry(target, tmp_path, kind, [NAN, NAN, None, None, NAN])
    assert bounds(made, kind) == (None, None)


def test_uuids_have_counts_and_no_bounds(target: TableTarget, tmp_path: Path) -> None:
    made, _ = entry(target, tmp_path, UUIDType(), [bytes(16), b"\xff" * 16, None])
    assert COLUMN not in made.lower_bounds.keys() | made.upper_bounds.keys()
    assert made.null_value_counts[COLUMN] == 1


def test_long_texts_and_fixed_bytes_are_cut(target: TableTarget, tmp_path: Path) -> None:
    made, _ = entry(target, tmp_path, StringType(), ["ä" * 40, "🐟" * 40])
    low, high = bounds(made, StringType())
    assert low == "ä" * 16
    assert high > "🐟" * 40
    assert len(high) == 16
    made, _ = entry(target, tmp_path, FixedType(40), [b"a" * 40, b"b" * 40])
    low, high = made.lower_bounds[COLUMN], made.upper_bounds[COLUMN]
    assert (low, high) == (b"a" * 16, b"b" * 15 + b"c")


EVERY: dict[str, Any] = {
    "b": BooleanType(), "i": IntegerType(), "l": LongType(), "f": FloatType(), "d": DoubleType(),
    "s": StringType(), "bin": BinaryType(), "fx": FixedType(4), "day": DateType(),
    "tz": TimestamptzType(), "dec": DecimalType(9, 2), "big": DecimalType(38, 0), "u": UUIDType(),
    "nested": {"x": IntegerType(), "l": [{"y": StringType()}]}, "m": (StringType(), LongType()),
}  # fmt: skip


def row(n: int) -> dict[str, Any]:
    return {
        "b": n > 5, "i": n, "l": n * 2**40, "f": n / 2, "d": -n / 2, "s": f"s{n:02}",
        "bin": bytes([n]), "fx": bytes([0, 0, 0, n * 20]), "day": date(2024, 1, 1 + n),
        "tz": AT.replace(year=2000 + n, day=28), "dec": Decimal(f"{n - 5}.00"),
        "big": Decimal(10**37 * (n - 5)),
        "u": bytes([n * 20]) * 16, "nested": {"x": n, "l": [{"y": str(n)}]}, "m": [("k", n)],
    }  # fmt: skip


def test_files_are_pruned_and_no_row_is_lost(tmp_path: Path) -> None:
    """PyIceberg leaves out the files that can't have a value, and finds each in its own."""
    table = TypedTable.in_directory(tmp_path)
    table.take(arrival(1, EVERY))
    for n in range(10):
        table.write(1, [row(n), dict.fromkeys(EVERY)])
    for name in ("i", "l", "f", "d", "s", "bin", "day", "dec", "big"):
        value = row(3)[name]
        value = value.isoformat() if isinstance(value, date) else value
        files = list(table.table().scan(row_filter=EqualTo(name, value)).plan_files())
        assert len(files) == 1, name
        scan = table.table().scan(row_filter=EqualTo(name, value), selected_fields=("i",))
        assert scan.to_arrow()["i"].to_pylist() == [3], name
    below = table.table().scan(row_filter=LessThan("d", -1.0)).plan_files()
    assert len(list(below)) == 7
    after = table.table().scan(row_filter=GreaterThanOrEqual("tz", "2008-01-01T00:00:00+00:00"))
    assert len(list(after.plan_files())) == 2


def test_duckdb_finds_every_value(tmp_path: Path) -> None:
    table = TypedTable.in_directory(tmp_path)
    table.take(arrival(1, EVERY))
    for n in range(10):
        table.write(1, [row(n), dict.fromkeys(EVERY)])
    location = table.table().metadata_location.removeprefix("file://")
    with duckdb.connect() as con:
        for extension in ("avro", "iceberg"):
            duckdb_extensions.import_extension(extension, con=con)
            con.load_extension(extension)
        for name in ("i", "l", "f", "d", "s", "bin", "fx", "day", "tz", "dec", "big", "u"):
            for n in range(10):
                query = f"SELECT i FROM iceberg_scan('{location}') WHERE {name} = ?"
                value = row(n)[name]
                assert con.execute(query, [value]).fetchall() == [(n,)], name
