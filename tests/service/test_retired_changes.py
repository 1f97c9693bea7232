"""Reads of retired segments while others change the table, and while parts are out of reach."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from history_tier import FOREIGN
from native_segments import Rec, Segment, in_batches, kafka_uuid
from polling import eventually
from position_deletes import delete_rows
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table
from retired_tier import (
    Reader,
    Seconds,
    announce,
    bases,
    check_served,
    from_catalog,
    places,
    reader,
    retire,
    rewrite,
    small,
    table_of,
    values,
)
from service_harness import serving
from sole_copy import SoleCopyTier

from tiering.cli import main
from tiering.errors import FatalError, TransientError
from tiering.service.table_views import LoadTable
from tiering.table.foreign_changes import changed_by_others
from tiering.table.pointers import TablePointer

# PyIceberg says so of a table property that is meant for Spark.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Parquet writer option:UserWarning", "ignore:Delete operation did not match:UserWarning"
)
PARTITION = 3


@pytest.fixture
def tier(tmp_path: Path) -> SoleCopyTier:
    return SoleCopyTier(tmp_path)


def plain(start: int = 0, count: int = 120, value: bytes = b"value") -> Segment:
    records = [Rec(offset=start + i, value=value + b"%d" % (start + i)) for i in range(count)]
    return Segment(batches=in_batches(records, 5, ("none", "gzip", "zstd")))


def following(first: Segment, count: int = 60) -> Segment:
    """The same log's next segment."""
    more = plain(first.end_offset + 1, count)
    return replace(first, batches=more.batches, segment_id=kafka_uuid())


def kept(segment: Segment) -> dict[int, bytes | None]:
    """Offset -> value as produced."""
    return {r.offset: r.value for batch in segment.batches for r in batch.records}


def served(reads: Reader, segment: Segment) -> dict[int, bytes | None]:
    return values(b"".join(reads.walk(segment.id, 700)))


def within(start: int, end: int) -> And:
    return And(GreaterThanOrEqual("kafka_offset", start), LessThan("kafka_offset", end))


def update(table: Table, start: int, end: int) -> None:
    """Another value for some rows, as UPDATE does it by copy-on-write."""
    rows = table.scan(within(start, end)).to_arrow()
    place = rows.schema.get_field_index("value")
    field = rows.schema.field(place)
    changed = rows.set_column(place, field, pa.array([FOREIGN] * rows.num_rows, field.type))
    table.overwrite(changed, within(start, end))


def drop(*paths: str) -> None:
    """What expiry and orphan removal do in the end."""
    for path in paths:
        Path(urlparse(path).path).unlink()


def files_of(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


@dataclass
class Catalog:
    """Counts what is asked of it; may be out."""

    load: LoadTable
    is_out: bool = False
    asked: int = 0

    def __call__(self, topic: str, topic_id: str) -> Table:
        self.asked += 1
        if self.is_out:
            raise TransientError("the catalog is out")
        return self.load(topic, topic_id)


# The catalog


@pytest.mark.parametrize("catalog", ["none", "out"])
def test_reads_need_no_catalog(tier: SoleCopyTier, catalog: str) -> None:
    """A fresh service has only the pointer, and later segments are read as they come."""
    first = plain()
    retire(tier, first)
    load = Catalog(from_catalog(tier), is_out=True) if catalog == "out" else None
    with reader(tier.store, load_table=load) as reads:
        assert served(reads, first) == kept(first)
        later = following(first)
        retire(tier, later)
        assert served(reads, later) == kept(later)
        assert served(reads, first) == kept(first)
    with reader(tier.store, load_table=load) as fresh:
        assert served(fresh, later) == kept(later)
    assert load is None or not load.asked


def test_a_pointer_to_metadata_that_is_gone_leads_to_the_catalog(tier: SoleCopyTier) -> None:
    segment = plain()
    retire(tier, segment)
    at = TablePointer.load(tier.store, segment.topic_id).metadata_location
    table_of(tier, segment).transaction().set_properties({"x": "y"}).commit_transaction()
    drop(at)
    catalog = Catalog(from_catalog(tier), is_out=True)
    with reader(tier.store, load_table=catalog) as reads:
        with pytest.raises(TransientError, match="the catalog is out"):
            reads.pull(segment.id, cursor=0)
        catalog.is_out = False
        assert served(reads, segment) == kept(segment)
    with reader(tier.store) as alone, pytest.raises(TransientError, match="is gone"):
        alone.pull(segment.id, cursor=0)
    assert_unavailable(tier, segment)


def test_no_pointer_or_a_damaged_one_leads_to_the_catalog(tier: SoleCopyTier) -> None:
    segment = plain()
    retire(tier, segment)
    key = TablePointer.key(segment.topic_id)
    for damage in (b"{}", b"", None):
        if damage is None:
            tier.store.delete(key)
        else:
            tier.store.put(key, damage)
        with reader(tier.store, load_table=from_catalog(tier)) as reads:
            assert served(reads, segment) == kept(segment)
        with reader(tier.store) as alone, pytest.raises(TransientError, match="can't be read"):
            alone.pull(segment.id, cursor=0)


def assert_unavailable(tier: SoleCopyTier, segment: Segment) -> None:
    """Over HTTP it's an outage: the broker must ask again, not take the segment for gone."""
    with serving(tier.store, small()) as client:
        answer = client.get(f"/v1/segments/{segment.id.path}/log", params={"position": 0})
        assert (answer.status_code, answer.json()["error"]) == (503, "store_unavailable")
        assert client.get(f"/v1/segments/{segment.id.path}/indexes/offset").status_code == 200


# Files


def test_a_reader_follows_rewritten_files_once_its_own_are_gone(tier: SoleCopyTier) -> None:
    segment = plain()
    retire(tier, segment)
    catalog = Catalog(from_catalog(tier))
    with reader(tier.store, small(unit_bytes=500), load_table=catalog) as reads:
        half = places(segment.log)[12]
        before = reads.pull(segment.id, 200, cursor=0)
        drop(*rewrite(tier, segment, files=2, row_group_rows=30))
        assert served(reads, segment) == kept(segment)
        assert catalog.asked == 1
        again = reads.pull(segment.id, 200, cursor=0)
        assert bytes(again.data) == bytes(before.data)
        assert bases(reads.pull(segment.id, 1, cursor=half.position).data) == [half.base_offset]
    with reader(tier.store, load_table=catalog) as fresh:
        assert served(fresh, segment) == kept(segment)
    announce(tier, segment)
    with reader(tier.store) as alone:
        assert served(alone, segment) == kept(segment)


def test_files_gone_from_the_newest_snapshot_are_an_outage(tier: SoleCopyTier) -> None:
    segment = plain()
    retire(tier, segment)
    old = rewrite(tier, segment, files=1, row_group_rows=1000)
    drop(*old, *files_of(table_of(tier, segment)))
    catalog = Catalog(from_catalog(tier))
    with reader(tier.store, load_table=catalog) as reads:
        for _ in range(2):
            with pytest.raises(TransientError, match="is gone"):
                reads.pull(segment.id, cursor=0)
        catalog.is_out = True
        # Which of the two is told depends on how lately the table was looked at.
        with pytest.raises(TransientError, match=r"is out|is gone"):
            reads.pull(segment.id, cursor=0)
    assert_unavailable(tier, segment)


def test_a_dropped_table_is_an_outage_never_a_missing_segment(tier: SoleCopyTier) -> None:
    segment = plain()
    retire(tier, segment)
    at = TablePointer.load(tier.store, segment.topic_id).metadata_location
    table = table_of(tier, segment)
    drop(*files_of(table))
    table.catalog.drop_table(table.name())
    with (
        reader(tier.store, load_table=from_catalog(tier)) as reads,
        pytest.raises(TransientError, match="no table"),
    ):
        reads.pull(segment.id, cursor=0)
    drop(at)
    assert_unavailable(tier, segment)


# UPDATE


def expect_refused(reads: Reader, segment: Segment, cursor: int) -> None:
    with pytest.raises(FatalError, match="don't give the records that were converted"):
        reads.pull(segment.id, cursor=cursor)


@pytest.mark.parametrize("known", ["announced", "by the catalog"])
def test_changed_rows_are_refused_batch_by_batch(tier: SoleCopyTier, known: str) -> None:
    segment = plain()
    retire(tier, segment)
    old = files_of(table_of(tier, segment))
    update(table_of(tier, segment), 42, 43)
    if known == "announced":
        announce(tier, segment)
    else:
        drop(*(set(old) - set(files_of(table_of(tier, segment)))))
    bad = places(segment.log)[8]
    with reader(tier.store, load_table=from_catalog(tier)) as reads:
        before = reads.pull(segment.id, cursor=0)
        assert before.next_position == bad.position
        assert check_served(bytes(before.data), segment.log) == 8
        expect_refused(reads, segment, bad.position)
        expect_refused(reads, segment, bad.position)
        behind = b"".join(reads.walk(segment.id, cursor=bad.end))
        assert check_served(behind, segment.log[bad.end :]) == len(segment.batches) - 9
        assert reads.value("history_mismatches_total") == reads.made == 1


def test_changed_rows_are_500_over_http(tier: SoleCopyTier) -> None:
    segment = plain()
    retire(tier, segment)
    update(table_of(tier, segment), 0, 1)
    announce(tier, segment)
    with serving(tier.store, small()) as client:
        answer = client.get(f"/v1/segments/{segment.id.path}/log", params={"position": 0})
        assert (answer.status_code, answer.json()["error"]) == (500, "failed")
        assert FOREIGN not in answer.content
        message = answer.json()["message"]
        assert f"orders-3 [0..119] {segment.id.name}" in message
        assert "batch 0 at offset 0" in message
        assert "onecopy_history_mismatches_total 1.0" in client.get("/metrics").text


def test_while_the_catalog_is_out_a_mismatch_may_be_only_old(tier: SoleCopyTier) -> None:
    """The view has changed rows; a newer one, which can't be seen, may have them mended."""
    segment = plain()
    retire(tier, segment)
    rows = table_of(tier, segment).scan(within(42, 43)).to_arrow()
    update(table_of(tier, segment), 42, 43)
    announce(tier, segment)
    catalog, clock = Catalog(from_catalog(tier), is_out=True), Seconds()
    bad = places(segment.log)[8]
    with reader(tier.store, load_table=catalog, clock=clock) as reads:
        with pytest.raises(TransientError, match="is out"):
            reads.pull(segment.id, cursor=bad.position)
        assert bases(reads.pull(segment.id, 1, cursor=0).data) == [0]
        assert not reads.value("history_mismatches_total")
        table_of(tier, segment).overwrite(rows, within(42, 43))
        catalog.is_out = False
        with pytest.raises(TransientError):
            reads.pull(segment.id, cursor=bad.position)
        clock.now += 1.0
        assert served(reads, segment) == kept(segment)


# DELETE


def left(segment: Segment, *gone: range) -> dict[int, bytes | None]:
    return {o: v for o, v in kept(segment).items() if not any(o in r for r in gone)}


def delete_by_copy(table: Table, start: int, end: int) -> None:
    table.delete(within(start, end))


def delete_by_positions(table: Table, start: int, end: int) -> None:
    for task in list(table.scan(within(start, end)).plan_files()):
        offsets = table.scan().to_arrow()["kafka_offset"].to_pylist()
        assert offsets == sorted(offsets)
        delete_rows(table, task.file.file_path, *range(start, end))
        return


Delete = Callable[[Table, int, int], None]


@pytest.mark.parametrize("delete", [delete_by_copy, delete_by_positions])
@pytest.mark.parametrize("known", ["announced", "by the catalog", "by another process"])
def test_deleted_rows_become_a_gap(tier: SoleCopyTier, delete: Delete, known: str) -> None:
    segment = plain()
    retire(tier, segment)
    old = rewrite(tier, segment, files=1, row_group_rows=50)
    gone = range(33, 58)
    delete(table_of(tier, segment), gone.start, gone.stop)
    if known == "announced":
        announce(tier, segment)
    elif known == "by the catalog":
        drop(*old)
    else:  # whose snapshots have expired since; only the pointer remembers
        announce(tier, segment)
        forget_history(tier, segment)
        announce(tier, segment)
    with reader(tier.store, load_table=from_catalog(tier)) as reads:
        assert served(reads, segment) == left(segment, gone)
        assert reads.value("deleted_rows_total") == len(gone)
        whole = b"".join(reads.walk(segment.id))
        assert bases(whole) == [place.base_offset for place in places(segment.log)]


def forget_history(tier: SoleCopyTier, segment: Segment) -> None:
    """Leave a snapshot of which nobody can tell that rows were deleted below it."""
    insert(table_of(tier, segment), 10_000)
    table_of(tier, segment).maintenance.expire_snapshots().older_than(datetime.now()).commit()
    assert len(table_of(tier, segment).metadata.snapshots) == 1
    assert not changed_by_others(table_of(tier, segment).metadata)


def insert(table: Table, *offsets: int) -> None:
    """Rows that no log has."""
    rows = [{"kafka_partition": PARTITION, "kafka_offset": o, "value": FOREIGN} for o in offsets]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def test_rows_that_a_table_never_had_are_not_taken_for_deleted(tier: SoleCopyTier) -> None:
    """Once rows may miss, a view older than a segment must not serve it as all deleted."""
    first = plain()
    retire(tier, first)
    table_of(tier, first).delete(EqualTo("kafka_offset", 7))
    announce(tier, first)
    catalog = Catalog(from_catalog(tier))
    with reader(tier.store, load_table=catalog) as reads:
        assert served(reads, first) == left(first, range(7, 8))
        stale = TablePointer.load(tier.store, first.topic_id)
        later = following(first)
        retire(tier, later)
        assert served(reads, later) == kept(later)
        last = following(later)
        retire(tier, last)
        # An engine of old comes to and says where the table was when it went to sleep.
        TablePointer.update(tier.store, first.topic_id, lambda _: stale)
        assert served(reads, last) == kept(last)
    with reader(tier.store, load_table=catalog) as fresh:
        assert served(fresh, last) == kept(last)
    with reader(tier.store) as alone, pytest.raises(FatalError, match="the table has 0 rows"):
        alone.pull(last.id, cursor=0)


def test_a_delete_shows_in_what_is_cached_when_the_pointer_is_looked_at(
    tier: SoleCopyTier,
) -> None:
    segment = plain()
    retire(tier, segment)
    clock = Seconds()
    with reader(tier.store, small(unit_bytes=500), clock=clock) as reads:
        assert served(reads, segment) == kept(segment)
        made = reads.made
        delete_by_copy(table_of(tier, segment), 10, 20)
        announce(tier, segment)
        assert served(reads, segment) == kept(segment)
        assert reads.made == made
        clock.now += 10.0
        reads.pull(segment.id, cursor=0)
        eventually(lambda: not reads.views.is_due(segment.topic_id))
        assert served(reads, segment) == left(segment, range(10, 20))
        assert made < reads.made < 2 * made


# INSERT


def test_inserted_rows_are_ignored(tier: SoleCopyTier) -> None:
    segment = plain()
    retire(tier, segment)
    table = table_of(tier, segment)
    insert(table, 5, 60, 61, 119, 10_000)
    table.append(table.scan(within(80, 90)).to_arrow())
    announce(tier, segment)
    with reader(tier.store) as reads:
        assert served(reads, segment) == kept(segment)


# Accepted by an operator


@pytest.fixture
def command(tier: SoleCopyTier) -> Callable[..., int]:
    (tier.directory / "tier.json").write_text(tier.config.to_json())

    def run(*arguments: object) -> int:
        return main([*map(str, arguments), "--dir", str(tier.directory)])

    return run


def accept(command: Callable[..., int], start: int, end: int, *more: object) -> int:
    where = ("--partition", PARTITION, "--from", start, "--to", end)
    return command("accept", "orders", *where, *more)


def test_accepted_changes_are_served(
    tier: SoleCopyTier, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    segment = plain()
    retire(tier, segment)
    update(table_of(tier, segment), 40, 42)
    update(table_of(tier, segment), 77, 78)
    announce(tier, segment)
    clock = Seconds()
    lie = places(segment.log)
    with reader(tier.store, clock=clock) as reads:
        expect_refused(reads, segment, lie[8].position)
        assert accept(command, 40, 42) == 0
        assert "40 to 41 are served" in capsys.readouterr().out
        expect_refused(reads, segment, lie[8].position)
        clock.now += 1.0
        assert bases(reads.pull(segment.id, 1, cursor=lie[8].position).data) == [40]
        upto = reads.pull(segment.id, cursor=0)
        found = values(upto.data)
        assert found == {**left(segment, range(75, 120)), 40: FOREIGN, 41: FOREIGN}
        assert upto.next_position == lie[15].position
        expect_refused(reads, segment, lie[15].position)
        assert accept(command, 70, 80, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert told == {"topic": "orders", "accepted": [PARTITION, 70, 80]}
        clock.now += 1.0
        changed = {**kept(segment), 40: FOREIGN, 41: FOREIGN, 77: FOREIGN}
        assert served(reads, segment) == changed
    with reader(tier.store) as fresh:
        assert served(fresh, segment) == changed
    announce(tier, segment)
    with reader(tier.store) as fresh:
        assert served(fresh, segment) == changed


def test_what_is_accepted_elsewhere_lets_nothing_through(
    tier: SoleCopyTier, command: Callable[..., int]
) -> None:
    segment = plain()
    retire(tier, segment)
    update(table_of(tier, segment), 42, 43)
    announce(tier, segment)
    assert accept(command, 0, 40) == 0
    assert accept(command, 45, 1000) == 0
    assert command("accept", "orders", "--partition", 4, "--from", 0, "--to", 1000) == 0
    with reader(tier.store) as reads:
        expect_refused(reads, segment, places(segment.log)[8].position)


def test_deletes_among_accepted_changes(tier: SoleCopyTier, command: Callable[..., int]) -> None:
    segment = plain()
    retire(tier, segment)
    update(table_of(tier, segment), 40, 42)
    delete_by_copy(table_of(tier, segment), 42, 44)
    announce(tier, segment)
    assert accept(command, 40, 45) == 0
    expected = {**left(segment, range(42, 44)), 40: FOREIGN, 41: FOREIGN}
    with reader(tier.store) as reads:
        assert served(reads, segment) == expected


def test_there_must_be_something_to_accept(
    tier: SoleCopyTier, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert accept(command, 0, 5) == 2
    assert "holds no segments of topic orders" in capsys.readouterr().err
    plain().store(tier.store)
    assert accept(command, 0, 5) == 2
    assert "no rows of topic orders have been found changed or retired" in capsys.readouterr().err
    for start, end in ((5, 5), (6, 5), (-1, 5)):
        assert accept(command, start, end) == 2
        assert "are not a range" in capsys.readouterr().err
