"""Typed tables as PyIceberg, DuckDB and Spark read them, and what they must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import pyarrow as pa
from acknowledged import WrittenTopic
from pyiceberg.table import Table
from table_rows import catalog_of
from typed_tier import TypedTier
from typed_values import Said

from tiering.demo.readings import metadata_path

__all__ = ["READERS", "Rows", "check_rows", "expected_rows", "rows_in", "table_of"]

Rows = dict[tuple[int, int], dict[str, Any]]
"""Columns by partition and offset."""

NOT_COMPARED = ("kafka_timestamp", "kafka_timestamp_type", "kafka_leader_epoch", "kafka_headers")


def table_of(tier: TypedTier, name: str) -> Table:
    """A table of the tier, by its own name."""
    return catalog_of(tier).load_table((tier.config.namespace, name))


def by_pyiceberg(tier: TypedTier, name: str, spark: Any, duckdb: Any) -> pa.Table:
    """All rows."""
    return table_of(tier, name).scan().to_arrow()


def by_duckdb(tier: TypedTier, name: str, spark: Any, duckdb: Any) -> pa.Table:
    """All rows."""
    place = metadata_path(table_of(tier, name).metadata_location)
    return duckdb.execute(f"SELECT * FROM iceberg_scan('{place}')").to_arrow_table()


def by_spark(tier: TypedTier, name: str, spark: Any, duckdb: Any) -> pa.Table:
    """All rows."""
    return spark.table(f"{tier.config.catalog_name}.{tier.config.namespace}.{name}").toArrow()


READERS: Mapping[str, Callable[[TypedTier, str, Any, Any], pa.Table]] = {
    "pyiceberg": by_pyiceberg,
    "duckdb": by_duckdb,
    "spark": by_spark,
}


def rows_in(table: pa.Table) -> Rows:
    """Rows of any reader, their values as Python has them."""
    found: Rows = {}
    for row in table.to_pylist(maps_as_pydicts="strict"):
        place = row.pop("kafka_partition"), row.pop("kafka_offset")
        assert place not in found, f"{place} is there twice"
        found[place] = {k: _plain(v) for k, v in row.items() if k not in NOT_COMPARED}
    return found


def expected_rows(
    topic: WrittenTopic, said: Said, columns: Iterable[str], *, key: str = "kafka_key"
) -> Rows:
    """What the typed table of a topic must hold.

    Args:
        columns: all typed columns of values.
        key: where keys are: as bytes, or in the typed column `key`.
    """
    empty = dict.fromkeys(columns)
    rows: Rows = {}
    for number, partition in enumerate(topic.partitions):
        for offset, _, record_key, value, _ in partition.committed:
            if value is not None and value in said.bad:
                continue
            row = {**empty, "kafka_value": None, "kafka_schema_id": None, "kafka_key": record_key}
            if value is not None:
                row |= said.rows[value]
                row["kafka_schema_id"] = schema_id_of(value)
                row["kafka_value"] = value if value in said.kept else None
            if key == "key":
                row["kafka_key"] = row["key"] = row["kafka_key_schema_id"] = None
                if record_key is not None:
                    row["key"] = said.keys[record_key]
                    row["kafka_key_schema_id"] = schema_id_of(record_key)
            rows[number, offset] = {name: _plain(cell) for name, cell in row.items()}
    return rows


def schema_id_of(framed: bytes) -> int:
    """The id in front of a value in the wire format."""
    return int.from_bytes(framed[1:5], "big")


def check_rows(found: Rows, wanted: Rows, where: str) -> None:
    """Equal, or a message that says what differs."""
    if found == wanted:
        return
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = [place for place in wanted if place in found and found[place] != wanted[place]]
    told = ""
    if other:
        one, due = found[other[0]], wanted[other[0]]
        names = [n for n in {**one, **due} if one.get(n, ...) != due.get(n, ...)]
        told = "; ".join(f"{n}: {one.get(n, ...)!r}, not {due.get(n, ...)!r}" for n in names)
    raise AssertionError(
        f"{where}: {len(found)} rows, {len(wanted)} expected; missing {missing[:5]}, unexpected "
        f"{extra[:5]}, different {len(other)} {other[:5]}: {told}"
    )


def _plain(value: Any) -> Any:
    """UUIDs are text in a table, as they are in the values."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
