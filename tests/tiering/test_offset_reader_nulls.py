"""Rows that another writer has put into the table without a partition or an offset."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from offset_tables import NAMESPACE, TOPIC, append, make_catalog, make_table, offsets_of, rows
from pyiceberg.catalog import Catalog

from tiering.offset_reader import OffsetReader

FAR = 2**60 + 1
"""An offset that a float does not hold."""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = make_catalog(tmp_path)
    table = make_table(catalog)
    append(table, [(1, 5), (1, 6), (2, 8)], {1: 7, 2: 9})
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("kafka_partition")
        update.make_column_optional("kafka_offset")
    _insert(table, [None, None, 1], [1, 2, FAR])
    _insert(table, [1, 1], [None, FAR + 2])
    _insert(table, [1, 2, None], [-7, None, None])
    _insert(table, [None], [3])
    _insert(table, [1], [None])
    return catalog


def _insert(table: object, partitions: list[int | None], offsets: list[int | None]) -> None:
    made = rows([(1, i) for i in range(len(offsets))])
    for name, values in (("kafka_partition", partitions), ("kafka_offset", offsets)):
        place = made.schema.get_field_index(name)
        kind = made.schema.field(place).type
        made = made.set_column(place, pa.field(name, kind), pa.array(values, kind))
    table.append(made)  # type: ignore[attr-defined]


def test_are_nobodys(catalog: Catalog) -> None:
    reader = OffsetReader.open(catalog, NAMESPACE, TOPIC)
    assert offsets_of(reader.batches(1)) == [5, 6, FAR, FAR + 2]
    assert offsets_of(reader.batches(2)) == [8]
    assert [r.offset for r in reader.records(1, offset=6)] == [6, FAR, FAR + 2]
    assert reader.beginning_offset(1) == 5
    assert reader.beginning_offset(2) == 8
    assert reader.partitions() == (1, 2)
