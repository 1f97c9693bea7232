"""What is deleted later: only what nothing names, only after its grace, never what is in doubt."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

import pytest
from appends import NO_WAIT, TOPIC, TOPIC_ID, Faults, Tier
from pyiceberg.io.pyarrow import PyArrowFileIO

from tiering.errors import CommitConflict, FatalError, TransientError
from tiering.ledger import Ledger, LedgerEntry
from tiering.segments import SegmentId, SegmentMetadata
from tiering.store import ObjectStore, open_store
from tiering.store.local import LocalStore
from tiering.table.commit import append
from tiering.table.replace import TableReplacement, replace
from tiering.upkeep.leftovers import Graces, Leftovers, Swept
from tiering.upkeep.withdrawal import Withdrawal, withdraw

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000 * DAY_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def ledger(store: ObjectStore) -> Ledger:
    return Ledger(store)


@pytest.fixture
def leftovers(store: ObjectStore, clock: Clock) -> Leftovers:
    return Leftovers(store, now_ms=clock, graces=Graces(every_ms=0))


def segment(base: int, number: int = 0) -> SegmentId:
    return SegmentId(topic_id=TOPIC_ID, partition=0, base_offset=base, segment_id=f"{number:022d}")


def side_key(identity: SegmentId) -> str:
    return f"{identity.side_prefix}.{identity.base_offset:020d}-{uuid.uuid4().hex}.puffin"


def entry(
    base: int, last: int, clock: Clock, *, number: int = 0, side: tuple[str, ...] = (),
    deleted: bool = False, age_ms: int = 2 * DAY_MS,
) -> LedgerEntry:  # fmt: skip
    return LedgerEntry(
        metadata=SegmentMetadata(
            id=segment(base, number), topic=TOPIC, start_offset=base, end_offset=last,
            max_timestamp_ms=0, broker_id=1, size_bytes=1, leader_epochs=((0, 0),),
        ),
        parts=(),
        sha256="",
        uploaded_at_ms=clock.now_ms - age_ms,
        delete_requested=deleted,
        side=side,
    )  # fmt: skip


def keys(store: ObjectStore, prefix: str) -> set[str]:
    return {info.key for info in store.list(prefix)}


class TestSideFiles:
    def test_named_ones_stay_for_ever(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        key = side_key(segment(0))
        store.put(key, b"side")
        ledger.create(entry(0, 9, clock, side=(key,)))
        for _ in range(3):
            clock.now_ms += 10 * DAY_MS
            assert leftovers.sweep(list(ledger.scan())) == Swept()
        assert keys(store, "side/") == {key}

    def test_unnamed_ones_go_after_the_grace_and_not_before(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        named, attempt = side_key(segment(0)), side_key(segment(0))
        for key in (named, attempt):
            store.put(key, b"side")
        ledger.create(entry(0, 9, clock, side=(named,)))
        assert leftovers.sweep(list(ledger.scan())).side_files == 0
        clock.now_ms += HOUR_MS - 1
        assert leftovers.sweep(list(ledger.scan())).side_files == 0
        clock.now_ms += 1
        assert leftovers.sweep(list(ledger.scan())).side_files == 1
        assert keys(store, "side/") == {named}

    def test_one_that_is_named_in_the_last_moment_stays(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        """The sweep was handed a scan from before; it looks again."""
        key = side_key(segment(0))
        store.put(key, b"side")
        plain = ledger.create(entry(0, 9, clock))
        stale = list(ledger.scan())
        leftovers.sweep(stale)
        clock.now_ms += DAY_MS
        ledger.update(plain.metadata.id, lambda found: changed(found, side=(key,)))
        assert leftovers.sweep(stale) == Swept()
        assert keys(store, "side/") == {key}

    def test_use_in_between_starts_the_grace_anew(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        key = side_key(segment(0))
        store.put(key, b"side")
        used, unused = entry(0, 9, clock, side=(key,)), entry(0, 9, clock)
        for entries in ([unused], [used], [unused]):
            assert leftovers.sweep(entries) == Swept()
            clock.now_ms += HOUR_MS // 2
        assert leftovers.sweep([unused]) == Swept()
        clock.now_ms += HOUR_MS
        assert leftovers.sweep([unused]).side_files == 1

    def test_a_deleted_segments_side_file_goes(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        key = side_key(segment(0))
        store.put(key, b"side")
        ledger.create(entry(0, 9, clock, side=(key,), deleted=True))
        leftovers.sweep(list(ledger.scan()))
        clock.now_ms += HOUR_MS
        assert leftovers.sweep(list(ledger.scan())).side_files == 1

    def test_a_bundle_stays_as_long_as_one_segment_needs_it(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        bundle = f"side/{TOPIC_ID}/0/bundle-{uuid.uuid4().hex}.puffin"
        store.put(bundle, b"side")
        first = ledger.create(entry(0, 9, clock, number=1, side=(bundle,), deleted=True))
        second = ledger.create(entry(10, 19, clock, number=2, side=(bundle,)))
        leftovers.sweep(list(ledger.scan()))
        clock.now_ms += 2 * DAY_MS
        leftovers.sweep(list(ledger.scan()))
        assert keys(store, "side/") == {bundle}
        ledger.update(second.metadata.id, lambda found: changed(found, delete_requested=True))
        for _ in range(2):
            clock.now_ms += HOUR_MS
            leftovers.sweep(list(ledger.scan()))
        assert keys(store, "side/") == set()
        assert first.metadata.id.ledger_key not in keys(store, "ledger/")

    def test_a_damaged_ledger_object_keeps_everything(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        key = side_key(segment(0))
        store.put(key, b"side")
        store.put(segment(0).ledger_key, b"{broken")
        leftovers.sweep([])
        clock.now_ms += DAY_MS
        assert leftovers.sweep([]) == Swept()
        assert keys(store, "side/") == {key}

    def test_a_store_that_is_out_stops_nobody(
        self, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def out(*_: object) -> None:
            raise TransientError("503")

        monkeypatch.setattr(LocalStore, "list", out)
        assert leftovers.sweep([]) == Swept()

    def test_places_are_listed_now_and_then_only(
        self, store: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listings: list[str] = []
        real: Callable[..., object] = LocalStore.list

        def counted(self: LocalStore, prefix: str) -> object:
            listings.append(prefix)
            return real(self, prefix)

        monkeypatch.setattr(LocalStore, "list", counted)
        leftovers = Leftovers(store, now_ms=clock, graces=Graces(every_ms=1000))
        for _ in range(4):
            leftovers.sweep([])
            clock.now_ms += 500
        assert listings == ["side/", "native/"] * 2


class TestNativeObjects:
    """What an upload that was killed has left: the log, perhaps the indexes, no ledger object."""

    def test_uploads_that_never_ended_go_after_the_grace(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        whole, killed, early = segment(0, 1), segment(0, 2), segment(10, 3)
        ledger.create(entry(0, 9, clock, number=1))
        for key in (whole.log_key, whole.indexes_key, killed.log_key, killed.indexes_key,
                    early.log_key):  # fmt: skip
            store.put(key, b"native")
        assert leftovers.sweep(list(ledger.scan())) == Swept()
        clock.now_ms += DAY_MS - 1
        assert leftovers.sweep(list(ledger.scan())) == Swept()
        clock.now_ms += 1
        assert leftovers.sweep(list(ledger.scan())).native_objects == 3
        assert keys(store, "native/") == {whole.log_key, whole.indexes_key}

    def test_one_that_ends_in_the_last_moment_stays(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        store.put(segment(0).log_key, b"log")
        leftovers.sweep([])
        clock.now_ms += DAY_MS
        ledger.create(entry(0, 9, clock))
        assert leftovers.sweep([]) == Swept()
        assert keys(store, "native/") == {segment(0).log_key}

    def test_a_damaged_ledger_object_keeps_them(
        self, store: ObjectStore, leftovers: Leftovers, clock: Clock
    ) -> None:
        store.put(segment(0, 1).log_key, b"log")
        store.put(segment(0, 2).ledger_key, b"{broken")
        leftovers.sweep([])
        clock.now_ms += DAY_MS
        assert leftovers.sweep([]) == Swept()


class TestLedgerObjects:
    def test_a_deleted_one_goes_with_what_is_left_of_its_native_copy(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        gone = ledger.create(entry(0, 9, clock, number=1, deleted=True))
        stays = ledger.create(entry(10, 19, clock, number=2))
        for each in (gone, stays):
            store.put(each.metadata.id.log_key, b"log")
            store.put(each.metadata.id.indexes_key, b"indexes")
        assert leftovers.sweep(list(ledger.scan())) == Swept()
        clock.now_ms += DAY_MS - 1
        assert leftovers.sweep(list(ledger.scan())) == Swept()
        clock.now_ms += 1
        assert leftovers.sweep(list(ledger.scan())).ledger_objects == 1
        assert keys(store, "ledger/") == {stays.metadata.id.ledger_key}
        assert keys(store, "native/") == {stays.metadata.id.log_key, stays.metadata.id.indexes_key}

    def test_the_one_that_ends_last_says_how_far_the_deletes_came(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        for number, (base, last) in enumerate([(0, 9), (10, 19), (5, 25)]):
            ledger.create(entry(base, last, clock, number=number, deleted=True))
        leftovers.sweep(list(ledger.scan()))
        clock.now_ms += DAY_MS
        assert leftovers.sweep(list(ledger.scan())).ledger_objects == 2
        assert [e.metadata.end_offset for e in ledger.scan()] == [25]

    def test_a_young_upload_waits(self, ledger: Ledger, leftovers: Leftovers, clock: Clock) -> None:
        ledger.create(entry(0, 9, clock, number=1, deleted=True, age_ms=-DAY_MS))
        ledger.create(entry(10, 19, clock, number=2))
        leftovers.sweep(list(ledger.scan()))
        clock.now_ms += DAY_MS
        assert leftovers.sweep(list(ledger.scan())) == Swept()

    def test_its_side_file_goes_first(
        self, store: ObjectStore, ledger: Ledger, leftovers: Leftovers, clock: Clock
    ) -> None:
        key = side_key(segment(0, 1))
        store.put(key, b"side")
        ledger.create(entry(0, 9, clock, number=1, side=(key,), deleted=True))
        ledger.create(entry(10, 19, clock, number=2))
        swept = []
        for _ in range(4):
            swept.append(leftovers.sweep(list(ledger.scan())))
            clock.now_ms += DAY_MS
        assert [s.side_files for s in swept] == [0, 1, 0, 0]
        assert [s.ledger_objects for s in swept] == [0, 0, 0, 1]


class TestTableFiles:
    @pytest.fixture
    def tier(self, tmp_path: Path) -> Tier:
        tier = Tier.open(tmp_path)
        tier.ensure()
        return tier

    def swept(self, leftovers: Leftovers, tier: Tier) -> int:
        table = tier.table()
        below = open_store(table.location())
        return leftovers.sweep_table(table, below, warehouse=tier.warehouse).table_files

    def files(self, tier: Tier) -> set[str]:
        location = Path(tier.table().location())
        found = {str(p.relative_to(location)) for p in location.rglob("*") if p.is_file()}
        return {name for name in found if not name.startswith(".onecopy/")}

    def ours(self, tier: Tier, offsets: range) -> str:
        """A data file named as ours that nobody commits."""
        path = Path(tier.table().location()) / f"data/0-{offsets.start:020d}-{uuid.uuid4().hex}"
        path = path.with_suffix(".parquet")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"rows")
        return f"data/{path.name}"

    def withdrawn(self, tier: Tier, offset: int) -> None:
        withdraw(
            tier.catalog, tier.table(), open_store(tier.table().location()),
            Withdrawal(topic=TOPIC, partition=0, offset=offset, reason="test"),
            cycle_id=uuid.uuid4().hex, pacing=NO_WAIT,
        )  # fmt: skip

    def test_what_a_snapshot_references_stays_also_an_old_one(
        self, tier: Tier, leftovers: Leftovers, clock: Clock
    ) -> None:
        append(tier.catalog, tier.plan({0: 100}))
        self.withdrawn(tier, 50)
        before = self.files(tier)
        for _ in range(3):
            assert self.swept(leftovers, tier) == 0
            clock.now_ms += DAY_MS
        assert self.files(tier) == before

    def test_files_of_commits_that_failed_go_after_the_grace(
        self, tier: Tier, leftovers: Leftovers, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(tier.catalog, tier.plan({0: 100}))
        orphan = self.ours(tier, range(100, 200))
        before = self.files(tier)
        with monkeypatch.context() as patch:
            Faults(tier, patch, *["409"] * 100)
            with pytest.raises(CommitConflict):
                self.withdrawn(tier, 50)
        failed = self.files(tier) - before
        assert any(name.startswith("data/kept-") for name in failed)
        assert sum(name.endswith(".avro") for name in failed) == 3 * NO_WAIT.attempts_max
        assert self.swept(leftovers, tier) == 0
        clock.now_ms += DAY_MS - 1
        assert self.swept(leftovers, tier) == 0
        clock.now_ms += 1
        assert self.swept(leftovers, tier) == len(failed) + 1
        assert self.files(tier) == before - {orphan}
        assert tier.offsets() == list(range(100))

    def test_files_that_only_expired_snapshots_knew_go(
        self, tier: Tier, leftovers: Leftovers, clock: Clock
    ) -> None:
        append(tier.catalog, tier.plan({0: 100}))
        self.withdrawn(tier, 50)
        append(tier.catalog, tier.plan({0: 60}))
        self.withdrawn(tier, 40)
        kept = [Path(p).name for p in tier.referenced_files()]
        tagged = tier.table().snapshots()[1]
        tier.table().manage_snapshots().create_tag(tagged.snapshot_id, "audit").commit()
        old = [s.snapshot_id for s in tier.table().snapshots()[:-1] if s != tagged]
        tier.table().maintenance.expire_snapshots().by_ids(old).commit()
        for _ in range(2):
            swept = self.swept(leftovers, tier)
            clock.now_ms += DAY_MS
        assert swept > 0
        live = {Path(p).name for p in tier.referenced_files()}
        assert live == set(kept)
        assert tier.offsets() == list(range(40))
        at_tag = tier.table().scan(snapshot_id=tagged.snapshot_id).to_arrow()
        assert sorted(at_tag["kafka_offset"].to_pylist()) == list(range(50))

    def test_what_spark_wrote_for_nobody_goes_when_iceberg_would_remove_it_too(
        self, tier: Tier, leftovers: Leftovers, clock: Clock
    ) -> None:
        append(tier.catalog, tier.plan({0: 10}))
        name = f"data/00003-17-{uuid.uuid4()}-0-00001.parquet"
        (Path(tier.table().location()) / name).write_bytes(b"rows")
        assert self.swept(leftovers, tier) == 0
        clock.now_ms += 3 * DAY_MS - 1
        assert self.swept(leftovers, tier) == 0
        clock.now_ms += 1
        assert self.swept(leftovers, tier) == 1
        assert name not in self.files(tier)
        assert tier.offsets() == list(range(10))

    def test_what_is_not_named_as_ours_is_left_alone(
        self, tier: Tier, leftovers: Leftovers, clock: Clock
    ) -> None:
        append(tier.catalog, tier.plan({0: 10}))
        location = Path(tier.table().location())
        for name in (
            "data/part-00000.parquet", "data/x/0-00000000000000000000-ab.parquet",
            "metadata/00000-abc.metadata.json", "metadata/stats.puffin", "readme.txt",
        ):  # fmt: skip
            (location / name).parent.mkdir(exist_ok=True)
            (location / name).write_bytes(b"theirs")
        before = self.files(tier)
        for _ in range(3):
            assert self.swept(leftovers, tier) == 0
            clock.now_ms += DAY_MS
        assert self.files(tier) == before

    def test_a_file_committed_in_the_last_moment_stays(
        self, tier: Tier, leftovers: Leftovers, clock: Clock
    ) -> None:
        """The sweep was handed a table from before; it looks again."""
        append(tier.catalog, tier.plan({0: 10}))
        stale, below = tier.table(), open_store(tier.table().location())
        orphan = self.ours(tier, range(10, 20))
        plan = tier.plan({0: 20})
        entry = plan.files[0][0]
        path = f"{tier.table().location()}/{orphan}"
        Path(entry.path).replace(path)
        leftovers.sweep_table(stale, below, warehouse=tier.warehouse)
        clock.now_ms += DAY_MS
        append(tier.catalog, changed(plan, files={0: (changed(entry, path=path),)}))
        leftovers.sweep_table(stale, below, warehouse=tier.warehouse)
        assert tier.offsets() == list(range(20))

    def test_a_manifest_that_can_not_be_read_keeps_everything(
        self, tier: Tier, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(tier.catalog, tier.plan({0: 10}))
        orphan = self.ours(tier, range(10, 20))

        def out(*_: object) -> None:
            raise OSError("503")

        table, below = tier.table(), open_store(tier.table().location())
        hasty = Leftovers(below, now_ms=clock, graces=Graces(every_ms=0, table_ms=0))
        with monkeypatch.context() as patch:
            patch.setattr(PyArrowFileIO, "new_input", out)
            assert hasty.sweep_table(table, below, warehouse=tier.warehouse) == Swept()
        assert orphan in self.files(tier)
        assert hasty.sweep_table(table, below, warehouse=tier.warehouse).table_files == 1

    def test_a_table_elsewhere_is_refused(self, tier: Tier, leftovers: Leftovers) -> None:
        table = tier.table()
        with pytest.raises(FatalError, match="not in the warehouse"):
            leftovers.sweep_table(table, open_store(table.location()), warehouse="/elsewhere")


def test_replacing_is_what_the_sweep_waits_for(tmp_path: Path, clock: Clock) -> None:
    """Files that retention took out stay as long as a snapshot names them."""
    tier = Tier.open(tmp_path)
    tier.ensure()
    append(tier.catalog, tier.plan({0: 100}))
    state = tier.state()
    removed = frozenset(tier.referenced_files())
    replace(
        tier.catalog,
        TableReplacement(
            identifier=state.identifier, topic=TOPIC, topic_id=TOPIC_ID, cycle_id="c", base=state,
            expected={}, moved={}, removed=removed, reason="retention",
        ),
    )  # fmt: skip
    table = tier.table()
    sweeper = Leftovers(open_store(table.location()), now_ms=clock, graces=Graces(table_ms=0))
    sweeper.sweep_table(table, open_store(table.location()), warehouse=tier.warehouse)
    assert all(Path(path).exists() for path in removed)
