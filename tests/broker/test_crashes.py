"""kill -9 of the engine at each of its steps, at any moment, of its parts, and of two at once.

The native segments are those that a real broker has uploaded; each test has a copy of its own,
and the broker reads from it. However often the engine dies on its way, clients read what was
acknowledged, and in the end the tables are the only copy of it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from acknowledged import ISOLATIONS, READ_COMMITTED, WrittenTopic, hashed
from librdkafka_reads import read_partition
from native_copies import NativeCopy
from polling import eventually
from real_tier import RealTier, TierProcess
from retirement import native_files, regenerations, wait_retired
from stock_client import StockClient
from table_rows import assert_same, catalog_of, compared, reader_at

from tiering.ledger import Ledger, LedgerEntry, SegmentState
from tiering.table.schema import table_name

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1200)]

STEPS = (
    *("planned", "converted", "committed", "settled"),
    *("proven", "proof_recorded", "retiring", "retired", "native_deleted"),
)
WITHDRAWING = ("entries_withdrawn", "withdrawn")
TOPICS = ("small-segments", "transactions.interleaved")
LARGE = "one-record-batches"
DONE_S_MAX = 120
FETCH = 1 << 20


@dataclass(kw_only=True)
class Case:
    """A copy, what it must hold, and who reads from it."""

    copy: NativeCopy
    topics: Mapping[str, WrittenTopic]
    java: StockClient
    starts: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def engine(self) -> TierProcess:
        return self.copy.tier.engine

    def partition(self, topic: str, number: int) -> list[LedgerEntry]:
        """Its segments, in offset order."""
        wanted = (topic, number)
        entries = self.copy.entries
        return [e for e in entries if (e.metadata.topic, e.metadata.id.partition) == wanted]

    def start(self, name: str, number: int) -> int:
        """The first offset that is still there."""
        return self.starts.get((name, number), 0)

    def crash_at(self, step: str) -> None:
        """Start the engine and have it kill itself at a step."""
        self.engine.start(crash_at=step, wait=False)
        self.engine.wait_crashed(180)
        wait_nobody_left(self.engine)

    def check_read(self, name: str, number: int) -> None:
        """librdkafka reads what was acknowledged."""
        partition, start = self.topics[name].partitions[number], self.start(name, number)
        servers = self.copy.source.bootstrap_servers
        for isolation in ISOLATIONS:
            records = read_partition(
                *(servers, name, number, partition.end_offset, isolation), fetch=FETCH, start=start
            )
            partition.expected(isolation).check_all([hashed(r) for r in records], start=start)

    def check_read_by_java(self, name: str, number: int) -> None:
        """Kafka's own client reads what was acknowledged."""
        partition, start = self.topics[name].partitions[number], self.start(name, number)
        for isolation in ISOLATIONS:
            where = (name, number, partition.end_offset, isolation)
            found = self.java.read(*where, start=start, fetch=FETCH)
            partition.expected(isolation).check_all(found, start=start)

    def check_table(self, name: str) -> None:
        """Every committed record, each once."""
        tier = self.copy.tier
        table = catalog_of(tier).load_table((tier.config.namespace, table_name(name)))
        rows = table.scan().to_arrow().sort_by("kafka_offset")
        for number, partition in enumerate(self.topics[name].partitions):
            got = rows.filter(pc.field("kafka_partition") == number)
            wanted = partition.expected(READ_COMMITTED).table()
            wanted = wanted.filter(pc.field("offset") >= self.start(name, number))
            assert_same(compared(got), wanted, f"{name}-{number}")

    def check_end(self, tend: Callable[[], None] = lambda: None) -> None:
        """Once all is in the tables: nothing else is left, and everybody reads it from there."""
        tier = self.copy.tier
        catalog = catalog_of(tier)

        def done() -> bool:
            tend()
            return all(reader_at(tier, catalog, t.name, t.ends) for t in self.topics.values())

        eventually(done, DONE_S_MAX, what="all is in the tables", details=tier.engine.tail)
        wait_retired(tier, self.topics)
        assert native_files(tier) == []
        for name, topic in self.topics.items():
            self.check_table(name)
            for number in topic.ends:
                self.check_read(name, number)
                self.check_read_by_java(name, number)
        assert regenerations(self.copy.source) > 0


@pytest.fixture
def case(
    tier: RealTier,
    java: StockClient,
    first_written: Mapping[str, WrittenTopic],
    tmp_path: Path,
) -> Iterator[Case]:
    """Segments of two topics, none of them revealed."""
    topics = {name: first_written[name] for name in TOPICS}
    yield from _case(tier, java, topics, tmp_path)


@pytest.fixture
def large_case(
    tier: RealTier, java: StockClient, written: Mapping[str, WrittenTopic], tmp_path: Path
) -> Iterator[Case]:
    """Segments that take their time."""
    yield from _case(tier, java, {LARGE: written[LARGE]}, tmp_path)


def _case(
    tier: RealTier, java: StockClient, topics: Mapping[str, WrittenTopic], directory: Path
) -> Iterator[Case]:
    made = NativeCopy(tier, directory / "copy", topics, retire_grace_ms=0)
    try:
        with made.answering():
            yield Case(copy=made, topics=topics, java=java)
    finally:
        made.tier.close()


def wait_nobody_left(engine: TierProcess) -> None:
    """Spark's JVM and Python workers go with the engine."""
    eventually(
        lambda: not engine.relatives(),
        30,
        what="no process left",
        details=lambda: str(engine.relatives()),
    )


def test_the_engine_dies_at_each_step_and_at_any_moment(case: Case) -> None:
    rng = random.Random(7)
    copy, engine = case.copy, case.engine
    for number, step in enumerate(STEPS):
        copy.reveal(case.partition(TOPICS[0], number))
        case.crash_at(step)
        case.check_read(TOPICS[0], number)
        if step == "committed":
            spoil_newest_file(copy)
            for later in WITHDRAWING:
                case.crash_at(later)
                case.check_read(TOPICS[0], number)
    delete(case, TOPICS[0], 0, segments=2)
    copy.reveal(case.partition(TOPICS[0], len(STEPS)))
    case.crash_at("expelled")
    case.check_read(TOPICS[0], 0)
    for number in case.topics[TOPICS[1]].ends:
        engine.start()
        copy.reveal(case.partition(TOPICS[1], number))
        time.sleep(rng.uniform(0, 3))  # the moment is the test's input, nothing is awaited
        engine.kill()
        wait_nobody_left(engine)
        case.check_read(TOPICS[1], number)
    engine.start()
    case.check_end()
    assert engine.stop() == 0
    wait_nobody_left(engine)


def spoil_newest_file(copy: NativeCopy) -> None:
    """Change one value in the data file that was written last: its proof must fail."""
    files = Path(copy.tier.config.warehouse).rglob("data/*.parquet")
    path = max(files, key=lambda file: file.stat().st_mtime_ns)
    table = pq.read_table(path)
    values = table.column("value").to_pylist()
    row = next(number for number, value in enumerate(values) if value)
    values[row] = bytes([values[row][0] ^ 1]) + values[row][1:]
    at = table.column_names.index("value")
    table = table.set_column(at, table.schema.field("value"), pa.array(values, pa.binary()))
    pq.write_table(table, path, store_schema=False, compression="zstd")


def delete(case: Case, topic: str, number: int, *, segments: int) -> None:
    """What the service does when the broker deletes the first segments of a partition."""
    store = case.copy.tier.store
    entries = case.partition(topic, number)
    for entry in entries[:segments]:
        segment = entry.metadata.id
        Ledger(store).update(segment, lambda found: replace(found, delete_requested=True))
        for key in (segment.log_key, segment.indexes_key):
            store.delete(key)
    case.starts[topic, number] = entries[segments].metadata.start_offset


def test_two_engines_side_by_side_of_which_one_dies(case: Case) -> None:
    """Both plan the same segments; each commit lands once, whoever is first."""
    groups = parts(case.copy.entries, 8)
    one, other = case.engine, case.copy.tier.second_engine
    one.start(wait=False)
    other.start(wait=False)
    one.wait_ready()
    other.wait_ready()
    for number, group in enumerate(groups):
        case.copy.reveal(group)
        if number == len(groups) // 2:
            other.kill()
        time.sleep(0.3)  # so that there are several cycles to race in
    other.start()
    case.check_end()


def parts(entries: Sequence[LedgerEntry], count: int) -> list[Sequence[LedgerEntry]]:
    """`count` runs of about equal length, in order."""
    size = -(-len(entries) // count)
    return [entries[at : at + size] for at in range(0, len(entries), size)]


def test_parts_of_the_engine_die_at_work(large_case: Case) -> None:
    """Spark's Python workers while they convert and while they prove, then its JVM: the engine
    goes on, or ends and is started again."""
    case, copy, engine = large_case, large_case.copy, large_case.engine
    first, last = parts(copy.entries, 2)
    engine.start()
    copy.reveal(first)
    side_files = copy.tier.path_of("side")
    eventually(side_files.exists, 60, what="conversion", interval_s=0.005)
    kill_workers_at_work(engine)
    assert states(copy, first) == {SegmentState.UPLOADED}
    eventually(
        lambda: SegmentState.CONVERTED in states(copy, first), 90, what="proof", interval_s=0.005
    )
    kill_workers_at_work(engine)
    assert SegmentState.RETIRED not in states(copy, first)
    wait_states(copy, first, {SegmentState.RETIRED})
    assert engine.running
    copy.reveal(last)
    eventually(
        lambda: SegmentState.CONVERTED in states(copy, last), 90, what="proof", interval_s=0.005
    )
    kill_part(engine, "java")

    def start_again() -> None:
        if not engine.running:
            engine.start()

    case.check_end(start_again)


def states(copy: NativeCopy, entries: Sequence[LedgerEntry]) -> set[SegmentState]:
    """How far these segments have come."""
    ledger = Ledger(copy.tier.store)
    return {ledger.load(e.metadata.id).state for e in entries}


def wait_states(
    copy: NativeCopy, entries: Sequence[LedgerEntry], wanted: set[SegmentState]
) -> None:
    """Until they have come that far, all of them."""
    eventually(
        lambda: states(copy, entries) == wanted,
        DONE_S_MAX,
        what=f"these segments are {wanted}",
        details=copy.tier.engine.tail,
    )


def kill_workers_at_work(engine: TierProcess) -> None:
    """kill -9 Spark's Python workers; a job must fail by it."""
    said = "Spark job failed"
    before = engine.log_path.read_text().count(said)
    kill_part(engine, "python")
    eventually(
        lambda: engine.log_path.read_text().count(said) > before,
        30,
        what="a job fails",
        details=engine.tail,
    )


def kill_part(engine: TierProcess, program: str) -> None:
    """kill -9 every process of this program that belongs to the engine, but not itself."""
    leader = min(engine.relatives())
    found = [p for p, c in engine.relatives().items() if program in c.split()[0] and p != leader]
    assert found, engine.relatives()
    for pid in found:
        os.kill(pid, signal.SIGKILL)
