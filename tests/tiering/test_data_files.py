"""Data file entries: what a footer says is what the manifest says, and engines prune by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from appends import Tier, columns, write_rows
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.types import BinaryType, LongType

from tiering.errors import CommitConflict, FatalError
from tiering.table.commit import append
from tiering.table.data_files import data_files, entry_from_parquet
from tiering.tasks import DataFileEntry, TableTarget


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    tier = Tier.open(tmp_path)
    tier.ensure()
    return tier


def write(target: TableTarget, rows: pa.Table, directory: Path, **options: object) -> DataFileEntry:
    path = directory / "data.parquet"
    pq.write_table(rows, path, **options)
    metadata = pq.read_metadata(path)
    size = path.stat().st_size
    return entry_from_parquet(metadata, path=str(path), size_bytes=size, target=target)


def rows(tier: Tier, partition: int, offsets: range, **replaced: list[object]) -> pa.Table:
    values = {**columns(partition, offsets), **replaced}
    return pa.Table.from_pydict(values, schema=schema_to_pyarrow(tier.table().schema()))


def test_an_entry_says_what_pyiceberg_itself_would_say(tier: Tier) -> None:
    schema = tier.table().schema()
    entry = write_rows(tier.target(), 7, range(1000, 1500))
    theirs = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(entry.path),
        compute_statistics_plan(schema, {}),
        parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()
    assert entry.record_count == theirs["record_count"]
    assert entry.column_sizes == theirs["column_sizes"]
    assert entry.value_counts == theirs["value_counts"]
    assert entry.null_value_counts == theirs["null_value_counts"]
    assert entry.lower_bounds == theirs["lower_bounds"]
    assert entry.upper_bounds == theirs["upper_bounds"]
    assert list(entry.split_offsets) == theirs["split_offsets"]
    assert (entry.kafka_partition, entry.first_offset, entry.last_offset) == (7, 1000, 1499)


def test_the_manifest_carries_the_entry_unchanged(tier: Tier) -> None:
    plan = tier.plan({0: 300})
    append(tier.catalog, plan)
    (entry,) = plan.files[0]
    snapshot = tier.table().current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(tier.table().io)
    (found,) = manifest.fetch_manifest_entry(tier.table().io)
    file = found.data_file
    assert file.file_path == entry.path
    assert file.file_size_in_bytes == entry.size_bytes == Path(entry.path).stat().st_size
    assert file.record_count == 300
    assert file.column_sizes == entry.column_sizes
    assert file.value_counts == entry.value_counts
    assert file.null_value_counts == entry.null_value_counts
    assert file.lower_bounds == entry.lower_bounds
    assert file.upper_bounds == entry.upper_bounds
    assert file.split_offsets == list(entry.split_offsets)
    assert len(entry.split_offsets) == 5
    assert file.sort_order_id == tier.table().metadata.default_sort_order_id


def test_a_scan_by_offset_opens_only_the_files_that_hold_it(tier: Tier) -> None:
    for end in (100, 200, 300):
        append(tier.catalog, tier.plan({0: end, 1: end}))
    scan = tier.table().scan(row_filter="kafka_partition = 1 and kafka_offset = 150")
    assert len(list(scan.plan_files())) == 1
    assert scan.to_arrow()["value"].to_pylist() == [b"value-150"]


def test_bounds_of_long_keys_are_cut_and_still_bounds(tier: Tier, tmp_path: Path) -> None:
    keys = [b"\x00" * 40, b"a" * 40, b"\xff" * 3 + b"z" * 40]
    entry = write(tier.target(), rows(tier, 0, range(3), kafka_key=keys), tmp_path)
    key_id = tier.table().schema().find_field("kafka_key").field_id
    low = from_bytes(BinaryType(), entry.lower_bounds[key_id])
    high = from_bytes(BinaryType(), entry.upper_bounds[key_id])
    assert low == b"\x00" * 16
    assert len(high) == 16
    assert high > keys[2]


def test_keys_without_an_upper_bound_have_none(tier: Tier, tmp_path: Path) -> None:
    entry = write(tier.target(), rows(tier, 0, range(1), kafka_key=[b"\xff" * 40]), tmp_path)
    key_id = tier.table().schema().find_field("kafka_key").field_id
    assert key_id in entry.lower_bounds
    assert key_id not in entry.upper_bounds


def test_columns_of_nulls_have_counts_and_no_bounds(tier: Tier, tmp_path: Path) -> None:
    entry = write(
        tier.target(), rows(tier, 0, range(4), kafka_key=[None] * 4, value=[None] * 4), tmp_path
    )
    for name in ("kafka_key", "value"):
        field_id = tier.table().schema().find_field(name).field_id
        assert entry.null_value_counts[field_id] == 4
        assert field_id not in entry.lower_bounds


def test_row_groups_of_nulls_between_others_do_not_hide_bounds(tier: Tier, tmp_path: Path) -> None:
    keys = [b"b", b"c", None, None, b"a", None]
    entry = write(
        tier.target(), rows(tier, 0, range(6), kafka_key=keys), tmp_path, row_group_size=2
    )
    key_id = tier.table().schema().find_field("kafka_key").field_id
    assert (entry.lower_bounds[key_id], entry.upper_bounds[key_id]) == (b"a", b"c")
    assert entry.null_value_counts[key_id] == 3


def test_columns_written_without_statistics_have_no_bounds(tier: Tier, tmp_path: Path) -> None:
    table = rows(tier, 0, range(4))
    entry = write(
        tier.target(), table, tmp_path, write_statistics=["kafka_partition", "kafka_offset"]
    )
    value_id = tier.table().schema().find_field("value").field_id
    assert value_id not in entry.lower_bounds
    assert entry.value_counts[value_id] == 4
    offset_id = tier.table().schema().find_field("kafka_offset").field_id
    assert from_bytes(LongType(), entry.upper_bounds[offset_id]) == 3


def test_a_file_without_rows_or_statistics_is_refused(tier: Tier, tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="no rows"):
        write(tier.target(), rows(tier, 0, range(0)), tmp_path)
    with pytest.raises(FatalError, match="no statistics"):
        write(tier.target(), rows(tier, 0, range(3)), tmp_path, write_statistics=False)


def test_a_file_of_several_kafka_partitions_is_refused(tier: Tier, tmp_path: Path) -> None:
    both = pa.concat_tables([rows(tier, 0, range(3)), rows(tier, 1, range(3))])
    with pytest.raises(FatalError, match="several Kafka partitions"):
        write(tier.target(), both, tmp_path)


def test_another_spec_or_place_than_the_tables_is_refused(tier: Tier) -> None:
    entry = write_rows(tier.target(), 0, range(3))
    metadata = tier.table().metadata
    assert data_files([entry], metadata)[0].spec_id == 0
    with pytest.raises(CommitConflict, match="partition spec 1"):
        data_files([replace(entry, spec_id=1)], metadata)
    with pytest.raises(CommitConflict):
        data_files([replace(entry, partition=(1,))], metadata)
    with pytest.raises(FatalError, match="below"):
        data_files([replace(entry, path=metadata.location + "-other/x.parquet")], metadata)


def test_a_partition_tuple_reaches_the_manifest(tier: Tier) -> None:
    with tier.table().update_spec() as update:
        update.add_identity("kafka_partition")
    spec = tier.table().spec()
    entry = replace(write_rows(tier.target(), 3, range(5)), spec_id=spec.spec_id, partition=(3,))
    plan = replace(tier.plan({3: 5}, empty=True), files={3: (entry,)})
    append(tier.catalog, plan)
    (task,) = tier.table().scan().plan_files()
    assert task.file.partition[0] == 3
    assert list(tier.table().scan(row_filter="kafka_partition = 4").plan_files()) == []
    assert tier.offsets(3) == list(range(5))
