"""New columns committed to real tables, in both catalogs; rows read by PyIceberg and DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
import pytest
from appends import NO_WAIT
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
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
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from rest_catalog import RestServer, run_rest_catalog
from typed_tables import IDENTIFIER, TOPIC, TOPIC_ID, TypedTable, arrival

from tiering.errors import CommitConflict, FatalError, NotFound, TransientError
from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog
from tiering.table.commit import load_state
from tiering.table.evolve import evolve_table
from tiering.values.stored_schema import stored_schemas

INT, LONG, TEXT = IntegerType(), LongType(), StringType()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with run_rest_catalog(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture(params=["sqlite", "rest"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], TypedTable]]:
    """A factory of views of one new table, each with a catalog of its own."""
    if request.param == "sqlite":
        yield lambda: TypedTable.in_directory(tmp_path)
        return
    rest: RestServer = request.getfixturevalue("server")

    def view() -> TypedTable:
        catalog = open_catalog(CatalogConfig(properties=rest.properties))
        ensure_table(catalog, IDENTIFIER, TOPIC, TOPIC_ID, rest.warehouse)
        return TypedTable(catalog, rest.warehouse)

    yield view
    catalog = view().catalog
    catalog.drop_table(IDENTIFIER)


@pytest.fixture
def table(opened: Callable[[], TypedTable]) -> TypedTable:
    return opened()


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    con = duckdb.connect()
    for extension in ("avro", "iceberg"):
        duckdb_extensions.import_extension(extension, con=con)
        con.load_extension(extension)
    con.execute("SET TimeZone = 'UTC'")
    yield con
    con.close()


def duck_rows(con: duckdb.DuckDBPyConnection, table: TypedTable, *names: str) -> list[Any]:
    location = table.table().metadata_location.removeprefix("file://")
    quoted = ", ".join(f'"{name}"' for name in names)
    query = f"SELECT {quoted} FROM iceberg_scan('{location}') ORDER BY kafka_offset"
    return [tuple(row.values()) for row in con.execute(query).to_arrow_table().to_pylist()]


def ice_rows(table: TypedTable, *names: str) -> list[Any]:
    rows = table.table().scan().to_arrow().sort_by("kafka_offset").select(names).to_pylist()
    return [tuple(row.values()) for row in rows]


EVERY = {
    "b": BooleanType(),
    "i": INT,
    "l": LONG,
    "f": FloatType(),
    "d": DoubleType(),
    "s": TEXT,
    "bin": BinaryType(),
    "day": DateType(),
    "ts": TimestampType(),
    "tz": TimestamptzType(),
    "u": UUIDType(),
    "fx": FixedType(4),
    "dec": DecimalType(9, 2),
    "big": DecimalType(38, 0),
    "st": {"x": INT, "deep": {"y": TEXT}},
    "li": [INT],
    "ls": [{"k": TEXT, "v": UUIDType()}],
    "m": (TEXT, LONG),
}
AT = datetime(2024, 2, 29, 12, 34, 56, 789012, UTC)
ROW: dict[str, Any] = {
    "b": True,
    "i": -5,
    "l": 2**62,
    "f": 1.5,
    "d": 2.25,
    "s": "größe 🐟",
    "bin": b"\x00\xff",
    "day": date(1969, 12, 31),
    "ts": AT.replace(tzinfo=None),
    "tz": AT,
    "u": bytes(range(16)),
    "fx": b"abcd",
    "dec": Decimal("-1234567.89"),
    "big": Decimal(10**38 - 1),
    "st": {"x": 1, "deep": {"y": "z"}},
    "li": [1, None, 3],
    "ls": [{"k": "a", "v": bytes(16)}, None],
    "m": [("a", 1), ("b", None)],
}


def test_every_type_reads_back(table: TypedTable, duck: duckdb.DuckDBPyConnection) -> None:
    table.take(arrival(1, EVERY))
    table.write(1, [ROW, None, dict.fromkeys(EVERY)])
    for rows in (ice_rows(table, *EVERY), duck_rows(duck, table, *EVERY)):
        assert dict(zip(EVERY, rows[0], strict=True)) == ROW
        for empty in rows[1:]:
            # PyIceberg shows a null list of structs as an empty one.
            assert [v for v in empty if v != []] == [None] * sum(v != [] for v in empty)
    assert table.file_rows(1) == [ROW, dict.fromkeys(EVERY), dict.fromkeys(EVERY)]


def test_rows_from_before_and_after_an_evolution(
    table: TypedTable, duck: duckdb.DuckDBPyConnection
) -> None:
    """Add, drop, widen, rename, reorder; and one more record of the first schema, late."""
    table.take(arrival(1, {"a": INT, "gone": TEXT, "s": {"x": FloatType(), "y": TEXT}}))
    table.write(1, [{"a": 1, "gone": "g", "s": {"x": 0.1, "y": "y"}}])
    table.take(
        arrival(
            2, {"s": {"z": [LONG], "x": DoubleType()}, "b": LONG, "n.n": TEXT}, aliases={"b": ["a"]}
        )
    )
    table.write(2, [{"s": {"z": [7], "x": 0.25}, "b": 2**40, "n.n": "n"}])
    table.write(1, [{"a": 3, "gone": None, "s": None}])

    wide = 0.10000000149011612
    want = [
        (1, "g", {"x": wide, "y": "y", "z": None}, None),
        (2**40, None, {"x": 0.25, "y": None, "z": [7]}, "n"),
        (3, None, None, None),
    ]
    assert ice_rows(table, "b", "gone", "s", "n_n") == want
    assert duck_rows(duck, table, "b", "gone", "s", "n_n") == want
    assert [row["a"] for row in table.file_rows(1)] == [1, 3]
    assert table.file_rows(1)[0]["s"]["y"] == "y"
    assert table.file_rows(2) == [{"s": {"z": [7], "x": 0.25}, "b": 2**40, "n.n": "n"}]


@pytest.mark.parametrize(
    "names",
    [["a.b", "a_b"], ["Name", "name"], ["🐟", "größe"], ["kafka_offset", "kafka_value", "value"]],
)
def test_odd_names(table: TypedTable, duck: duckdb.DuckDBPyConnection, names: list[str]) -> None:
    table.take(arrival(1, dict.fromkeys(names, LONG)))
    row = {name: i for i, name in enumerate(names)}
    table.write(1, [row])
    table.take(arrival(2, dict.fromkeys(reversed(names), LONG)))
    table.write(2, [row])
    schema = table.table().schema()
    columns = [schema.find_column_name(1003 + i) or "" for i in range(len(names))]
    assert ice_rows(table, *columns) == [tuple(range(len(names)))] * 2
    assert duck_rows(duck, table, *columns) == [tuple(range(len(names)))] * 2


def test_keys_and_values(table: TypedTable, duck: duckdb.DuckDBPyConnection) -> None:
    table.take(arrival(1, {"id": LONG}, part="key"), arrival(1, {"key": TEXT}))
    table.write(1, [{"id": 5}, None], part="key")
    table.write(1, [{"key": "k"}])
    want = [({"id": 5}, None), (None, None), (None, "k")]
    assert ice_rows(table, "key", "key_2") == want
    assert duck_rows(duck, table, "key", "key_2") == want


def test_a_column_that_the_partition_spec_uses_goes_from_the_schema(table: TypedTable) -> None:
    table.take(arrival(1, {"country": TEXT, "a": INT}))
    with table.table().update_spec() as spec:
        spec.add_identity("country")
    table.take(arrival(2, {"a": LONG, "b": INT, "country_2": INT}))
    found = table.table()
    assert found.schema().find_field("country").field_id == 1003
    assert [f.source_id for f in found.spec().fields] == [1003]
    table.take(arrival(3, {"Country": TEXT}))
    assert table.table().schema().find_column_name(table.columns(3)[1]) == "Country_3"


def test_the_same_again_commits_nothing(table: TypedTable) -> None:
    before = table.take(arrival(1, {"a": INT})).metadata_location
    assert table.take(arrival(1, {"a": INT})).metadata_location == before
    assert evolve_table(table.catalog, IDENTIFIER, TOPIC_ID, []).metadata_location == before


def test_watermarks_and_snapshots_are_left_alone(table: TypedTable) -> None:
    table.take(arrival(1, {"a": INT}))
    table.write(1, [{"a": 1}])
    before = load_state(table.catalog, IDENTIFIER)
    table.take(arrival(2, {"a": INT, "b": INT}))
    after = load_state(table.catalog, IDENTIFIER)
    assert (after.watermarks, after.snapshot_id) == (before.watermarks, before.snapshot_id)
    assert after.flagged is None


def test_evolvers_at_once_keep_each_others_columns(opened: Callable[[], TypedTable]) -> None:
    opened()

    def go(number: int) -> None:
        table = opened()
        for i in range(3):
            fields = {"shared": LONG, f"own_{number}": INT, f"own_{number}_{i}": TEXT}
            table.take(arrival(10 * number + i, fields))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(go, range(3)))
    found = opened().table()
    stored = stored_schemas(found.properties)
    assert len(stored) == 9
    names = [f.name for f in found.schema().fields]
    assert len(names) == len(set(names)) == 9 + 1 + 3 + 9
    for each in stored.values():
        assert found.schema().find_column_name(each.columns[1]) == "shared"
        number, i = divmod(each.schema_id, 10)
        assert found.schema().find_column_name(each.columns[2]) == f"own_{number}"
        assert found.schema().find_column_name(each.columns[3]) == f"own_{number}_{i}"


def test_an_evolver_overtaken_between_load_and_commit(
    opened: Callable[[], TypedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would give id 1003 to their column; only one can."""
    ours, theirs = opened(), opened()
    real = ours.catalog.commit_table

    def overtaken(*request: Any) -> Any:
        monkeypatch.undo()
        theirs.take(arrival(2, {"theirs": TEXT}))
        return real(*request)

    monkeypatch.setattr(ours.catalog, "commit_table", overtaken)
    ours.take(arrival(1, {"ours": INT}))
    assert dict(ours.columns(2)) == {1: 1003}
    assert dict(ours.columns(1)) == {1: 1004}
    assert ours.table().schema().find_type("theirs") == TEXT


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize(
    "error", [CommitFailedException("409"), CommitStateUnknownException("504"), OSError("cut")]
)
def test_whatever_the_answer_the_table_tells(
    table: TypedTable, monkeypatch: pytest.MonkeyPatch, landed: bool, error: Exception
) -> None:
    real, calls = table.catalog.commit_table, 0

    def fails_once(*request: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            return real(*request)
        if landed:
            real(*request)
        raise error

    monkeypatch.setattr(table.catalog, "commit_table", fails_once)
    evolve_table(table.catalog, IDENTIFIER, TOPIC_ID, [arrival(1, {"a": INT})], pacing=NO_WAIT)
    assert calls == (1 if landed else 2)
    assert dict(table.columns(1)) == {1: 1003}
    assert len(table.table().metadata.schemas) == 2


@pytest.mark.parametrize("kind", ["landed-409", "landed-500", "landed-504", "409", "503"])
def test_a_rest_catalog_that_fails(
    request: pytest.FixtureRequest, server: RestServer, kind: str
) -> None:
    catalog = open_catalog(CatalogConfig(properties=server.properties))
    ensure_table(catalog, IDENTIFIER, TOPIC, TOPIC_ID, server.warehouse)
    request.addfinalizer(lambda: catalog.drop_table(IDENTIFIER))
    server.fail_next_commit(kind)
    done = evolve_table(catalog, IDENTIFIER, TOPIC_ID, [arrival(1, {"a": INT})], pacing=NO_WAIT)
    assert done.schema().find_field("a").field_id == 1003


def test_failures_without_end_are_given_up(
    table: TypedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def fails(*request: Any) -> Any:
        nonlocal calls
        calls += 1
        raise CommitFailedException("409")

    monkeypatch.setattr(table.catalog, "commit_table", fails)
    with pytest.raises(TransientError, match=r"kafka\.orders: new columns not landed: .* 409"):
        evolve_table(table.catalog, IDENTIFIER, TOPIC_ID, [arrival(1, {"a": INT})], pacing=NO_WAIT)
    assert calls == NO_WAIT.attempts_max


def test_another_topics_table_is_left_alone(table: TypedTable) -> None:
    with pytest.raises(CommitConflict, match="expected was AAECAwQFBgcICQoLDA0ODw"):
        evolve_table(table.catalog, IDENTIFIER, "AAECAwQFBgcICQoLDA0ODw", [arrival(1, {"a": INT})])
    with pytest.raises(NotFound):
        evolve_table(table.catalog, ("kafka", "none"), TOPIC_ID, [arrival(1, {"a": INT})])
    assert len(table.table().metadata.schemas) == 1


def test_a_schema_id_of_two_meanings_stops_it(table: TypedTable) -> None:
    table.take(arrival(1, {"a": INT}))
    with pytest.raises(FatalError, match="keep its meaning"):
        table.take(arrival(1, {"a": LONG}))


def test_refused_and_kept_raw_schemas_are_kept(table: TypedTable) -> None:
    table.take(arrival(1, {"a": INT}))
    raw = arrival(3, {"x": INT})
    kept = replace(raw, schema=None, stored=replace(raw.stored, kept_raw="recursive"))
    evolve_table(table.catalog, IDENTIFIER, TOPIC_ID, [arrival(2, {"a": TEXT}), kept])
    stored = stored_schemas(table.table().properties)
    assert stored["value", 2].refused == "column a is int, the schema has string"
    assert stored["value", 3].kept_raw == "recursive"
    assert len(table.table().metadata.schemas) == 2


def test_old_metadata_files_go(tmp_path: Path) -> None:
    table = TypedTable.in_directory(tmp_path)
    for i in range(30):
        table.take(arrival(i, {f"a{i}": INT}))
    kept = list((tmp_path / "store").rglob("*.metadata.json"))
    logged = {entry.metadata_file for entry in table.table().metadata.metadata_log}
    assert len(kept) <= len(logged) + 2 < 30
