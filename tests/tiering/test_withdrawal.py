"""Withdrawing rows: what goes is gone, and every row that stays is what it was, in all columns."""

from __future__ import annotations

import uuid
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from appends import IDENTIFIER, NO_WAIT, TOPIC, Faults, Tier, head
from position_deletes import delete_rows
from pyiceberg.io.pyarrow import _pyarrow_schema_ensure_small_types
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, StringType, StructType
from pyiceberg.types import NestedField as Field

from tiering.errors import CommitConflict
from tiering.offset_reader.reader import OffsetReader
from tiering.store import ObjectStore, open_store
from tiering.table.commit import append
from tiering.table.replace import ReplaceOutcome
from tiering.upkeep.withdrawal import Withdrawal, withdraw
from tiering.watermarks import Watermark

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
"""PyIceberg, standing in for another writer, knows fewer table properties than Spark."""


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    """Partition 0: [0,100) [100,200) [200,300), partition 1: [0,50) in the second commit."""
    tier = Tier.open(tmp_path)
    tier.ensure()
    for moves in ({0: 100}, {0: 200, 1: 50}, {0: 300}):
        plan = tier.plan(moves)
        epochs = ((0, 0), (2, 100), (4, 200))
        marks = {
            p: Watermark(offset=m.offset, leader_epochs=tuple(e for e in epochs if e[1] < m.offset))
            for p, m in plan.moved.items()
        }
        append(tier.catalog, changed(plan, moved=marks))
    return tier


def store_of(tier: Tier) -> ObjectStore:
    return open_store(tier.target().location)


def withdrawn(tier: Tier, partition: int, offset: int) -> ReplaceOutcome | None:
    request = Withdrawal(topic=TOPIC, partition=partition, offset=offset, reason="test")
    return withdraw(
        tier.catalog, tier.table(), store_of(tier), request,
        cycle_id=uuid.uuid4().hex, pacing=NO_WAIT,
    )  # fmt: skip


def rows(tier: Tier) -> pa.Table:
    """What SQL sees, in a set order; types don't tell who wrote the file."""
    order = [("kafka_partition", "ascending"), ("kafka_offset", "ascending")]
    found = tier.table().scan().to_arrow().sort_by(order)
    return found.cast(_pyarrow_schema_ensure_small_types(found.schema))


def without(found: pa.Table, partition: int, offset: int) -> pa.Table:
    mine = pc.equal(found["kafka_partition"], partition)
    return found.filter(pc.invert(pc.and_(mine, pc.greater_equal(found["kafka_offset"], offset))))


def check(tier: Tier, partition: int, offset: int) -> ReplaceOutcome:
    """Withdraw, and compare every cell of the table with what was there before."""
    expected = without(rows(tier), partition, offset)
    outcome = withdrawn(tier, partition, offset)
    assert outcome is not None
    assert rows(tier).equals(expected)
    assert tier.state().flagged is None
    assert tier.marks()[partition] == offset
    return outcome


def compacted(tier: Tier, *, shuffled: bool = False) -> None:
    """One file of all rows, as another engine's rewrite leaves it."""
    found = tier.table().scan().to_arrow()
    if shuffled:
        found = found.take(pa.array([(i * 37) % found.num_rows for i in range(found.num_rows)]))
    tier.table().overwrite(found)
    assert len(tier.referenced_files()) == 1


def test_whole_files_go_and_the_straddling_one_is_written_again(tier: Tier) -> None:
    before = set(tier.referenced_files())
    outcome = check(tier, 0, 150)
    assert (outcome.removed_files, outcome.removed_rows) == (2, 200)
    assert (outcome.added_files, outcome.added_rows) == (1, 50)
    assert len(before & set(tier.referenced_files())) == 2
    mark = tier.state().watermarks[0]
    assert mark == Watermark(offset=150, leader_epochs=((0, 0), (2, 100)), rewinds=1)


def test_on_a_file_border_nothing_is_written_again(tier: Tier) -> None:
    written = tier.data_files()
    outcome = check(tier, 0, 200)
    assert (outcome.removed_files, outcome.added_files) == (1, 0)
    assert tier.data_files() == written
    assert tier.state().watermarks[0].leader_epochs == ((0, 0), (2, 100))


def test_all_rows_of_a_partition(tier: Tier) -> None:
    check(tier, 0, 0)
    assert tier.state().watermarks[0] == Watermark(offset=0, rewinds=1)
    assert tier.offsets(1) == list(range(50))


def test_the_file_that_is_written_again_is_one_of_ours(tier: Tier) -> None:
    old = set(tier.referenced_files())
    check(tier, 0, 150)
    (path,) = set(tier.referenced_files()) - old
    footer = pq.read_metadata(path)
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert footer.row_group(0).sorting_columns[1].column_index == 1
    (task,) = [t for t in tier.table().scan().plan_files() if t.file.file_path == path]
    assert task.file.lower_bounds[2] == (100).to_bytes(8, "little")
    assert task.file.upper_bounds[2] == (149).to_bytes(8, "little")
    assert task.file.sort_order_id == tier.target().sort_order_id
    assert task.file.null_value_counts[8] == 0


def test_conversion_goes_on_from_there(tier: Tier) -> None:
    check(tier, 0, 150)
    append(tier.catalog, tier.plan({0: 320}))
    assert tier.offsets(0) == list(range(320))


def test_nothing_reaches_that_far(tier: Tier) -> None:
    before = head(tier)
    assert withdrawn(tier, 0, 300) is None
    assert withdrawn(tier, 7, 0) is None
    assert head(tier) == before


def test_offsets_that_are_gone_anyway_only_move_the_watermark(tier: Tier) -> None:
    append(tier.catalog, tier.plan({0: 350}, empty=True))
    outcome = check(tier, 0, 320)
    assert (outcome.removed_files, outcome.added_files) == (0, 0)
    append(tier.catalog, tier.plan({0: 330}))
    assert tier.offsets(0) == [*range(300), *range(320, 330)]


def test_deleted_rows_stay_deleted(tier: Tier) -> None:
    for file in tier.referenced_files():
        delete_rows(tier.table(), file, 3, 44, 45)
    assert 103 not in tier.offsets(0)
    outcome = check(tier, 0, 150)
    assert outcome.added_rows == 47
    assert tier.offsets(0) == [o for o in range(150) if o % 100 not in (3, 44, 45)]
    assert tier.offsets(1) == [o for o in range(50) if o not in (3, 44, 45)]


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_file_of_several_partitions_keeps_the_others(tier: Tier, shuffled: bool) -> None:
    compacted(tier, shuffled=shuffled)
    delete_rows(tier.table(), tier.referenced_files()[0], 0, 99)
    outcome = check(tier, 0, 150)
    assert (outcome.removed_files, outcome.added_files) == (1, 2), "one for each Kafka partition"
    for path in tier.referenced_files():
        offsets = pq.read_table(path)["kafka_offset"].to_pylist()
        assert offsets == sorted(offsets)


def test_a_file_of_several_partitions_without_any_such_row_is_left_alone(tier: Tier) -> None:
    compacted(tier)
    append(tier.catalog, tier.plan({1: 400}))
    compacted_path = tier.referenced_files()
    outcome = check(tier, 1, 300)
    assert outcome.removed_files == 1
    assert outcome.added_rows == 250
    kept = set(compacted_path) & set(tier.referenced_files())
    assert len(kept) == 1


def test_columns_of_others_are_kept(tier: Tier) -> None:
    with tier.table().update_schema() as update:
        update.add_column("note", StringType())
        update.add_column("tags", ListType(100, StringType(), element_required=False))
        update.add_column(
            "more",
            StructType(
                Field(101, "a", StringType(), required=False),
                Field(
                    102,
                    "b",
                    MapType(103, StringType(), 104, StringType(), value_required=False),
                    required=False,
                ),
            ),
        )
        update.rename_column("kafka_key", "k")
        update.delete_column("kafka_leader_epoch")
    found = tier.table().scan().to_arrow()
    count = found.num_rows
    found = found.drop_columns(["note", "tags", "more"]).append_column(
        "note", pa.array([f"n{i}" for i in range(count)])
    )
    found = found.append_column("tags", pa.array([[f"t{i}", None] for i in range(count)]))
    more = [{"a": f"a{i}", "b": [("x", f"{i}")]} if i % 3 else None for i in range(count)]
    kind = pa.struct([("a", pa.string()), ("b", pa.map_(pa.string(), pa.string()))])
    tier.table().overwrite(found.append_column("more", pa.array(more, kind)))
    assert "n7" in rows(tier)["note"].to_pylist()
    outcome = check(tier, 0, 150)
    assert outcome.added_rows == 200


def test_in_a_partitioned_table(tier: Tier) -> None:
    with tier.table().update_spec() as update:
        update.add_field("kafka_partition", IdentityTransform(), "p")
        update.add_identity("kafka_timestamp_type")
    compacted_rows = tier.table().scan().to_arrow()
    tier.table().overwrite(compacted_rows)
    assert len(tier.referenced_files()) == 2
    outcome = check(tier, 0, 150)
    assert (outcome.removed_files, outcome.added_files) == (1, 1)
    assert tier.table().scan(row_filter="kafka_partition = 0").to_arrow().num_rows == 150


def test_the_offset_reader_agrees(tier: Tier) -> None:
    check(tier, 0, 150)
    reader = OffsetReader.open(tier.catalog, IDENTIFIER[0], TOPIC)
    read = [o for b in reader.batches(0) for o in b.column("kafka_offset").to_pylist()]
    assert read == list(range(150))
    assert reader.end_offset(0) == 150


def test_a_file_rewritten_meanwhile_is_a_conflict_and_then_works(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tier.open(tmp_path)
    Faults(tier, monkeypatch, lambda: compacted(other))
    with pytest.raises(CommitConflict, match="not in the table any more"):
        withdrawn(tier, 0, 150)
    monkeypatch.undo()
    check(tier, 0, 150)


def test_a_file_that_is_gone_is_a_conflict(tier: Tier) -> None:
    stale = tier.table()
    compacted(tier)
    for snapshot_file in tier.data_files() - set(tier.referenced_files()):
        Path(snapshot_file).unlink()
    request = Withdrawal(topic=TOPIC, partition=0, offset=150, reason="test")
    with pytest.raises(CommitConflict, match="is gone"):
        withdraw(tier.catalog, stale, store_of(tier), request, cycle_id="c", pacing=NO_WAIT)


def test_landed_but_reported_as_failed(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    Faults(tier, monkeypatch, "landed-then-5xx")
    check(tier, 0, 150)


def test_a_crash_before_the_commit_leaves_orphans_only(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    expected = rows(tier)
    with monkeypatch.context() as patch:
        patch.setattr(tier.catalog, "commit_table", die)
        with pytest.raises(Killed):
            withdrawn(tier, 0, 150)
    assert rows(tier).equals(expected)
    check(tier, 0, 150)
