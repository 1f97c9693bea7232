"""Rows of a topic's table in the form in which acknowledged records are kept."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from acknowledged import COLUMNS
from pyiceberg.catalog import Catalog
from real_tier import Tier

from tiering.errors import NotFound
from tiering.offset_reader import OffsetReader
from tiering.table.catalog import CatalogConfig, open_catalog

__all__ = ["NAMES", "assert_same", "catalog_of", "compared", "reader_at"]

NAMES = ("kafka_offset", "kafka_timestamp", "kafka_key", "value", "kafka_headers")


def catalog_of(tier: Tier) -> Catalog:
    """The tier's catalog."""
    return open_catalog(
        CatalogConfig(name=tier.config.catalog_name, properties=tier.config.catalog_properties())
    )


def reader_at(
    tier: Tier, catalog: Catalog, topic: str, ends: Mapping[int, int]
) -> OffsetReader | None:
    """A reader of the topic's table once it has every partition up to its end."""
    try:
        reader = OffsetReader.open(catalog, tier.config.namespace, topic)
        reached = {p: reader.end_offset(p) for p in ends}
    except NotFound:
        return None
    return reader if reached == dict(ends) else None


def compared(table: pa.Table) -> pa.Table:
    """Rows with the columns of what was acknowledged: a missing timestamp is -1 again."""
    columns = [table.column(name) for name in NAMES]
    micros = columns[1].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    columns[1] = pc.fill_null(pc.divide(micros, 1000), -1)
    made = pa.table(dict(zip(COLUMNS.names, columns, strict=True)))
    return made.cast(COLUMNS).combine_chunks()


def assert_same(got: pa.Table, wanted: pa.Table, where: str) -> None:
    """Equal by content, or a message that says what differs."""
    if got.equals(wanted):
        return
    seen, due = got.column("offset").to_pylist(), wanted.column("offset").to_pylist()
    missing, extra = sorted(set(due) - set(seen)), sorted(set(seen) - set(due))
    pairs = zip(got.to_pylist(), wanted.to_pylist(), strict=False)
    first = next((f"{one} != {other}" for one, other in pairs if one != other), "")
    raise AssertionError(
        f"{where}: {len(seen)} rows, {len(due)} expected, {len(seen) - len(set(seen))} twice, "
        f"missing {missing[:5]}, unexpected {extra[:5]}; {first[:500]}"
    )
