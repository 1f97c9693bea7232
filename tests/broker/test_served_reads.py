"""Stock clients read from the broker what it no longer has on its disk: by content, all of it.

Twice: while the service answers from native segments, and when there is nothing left but tables
and side files. The second time the broker has to fetch the indexes again, too.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
import pytest
from acknowledged import ISOLATIONS, READ_COMMITTED, READ_UNCOMMITTED, WrittenTopic, hashed
from librdkafka_reads import read_partition, seek_each
from native_batches import borders, native_batches
from polling import eventually
from real_tier import RealTier
from retirement import forget_everything, kept_path, native_files, regenerations, retire
from stock_client import StockClient
from table_rows import NAMES, assert_same, catalog_of, compared, reader_at

from tiering.ledger import Ledger, LedgerEntry

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

KIB = 1024
FETCHES = (1, 64 * KIB, 1024 * KIB, 10 * 1024 * KIB)
LARGE_FETCHES = (1, 8 * KIB, 64 * KIB, 1024 * KIB)
NATIVE, RETIRED = "native", "retired"
SMALL_TOPICS = ("Odd.Records-v1_A", "log-append-time", "compacted-first")
LARGE_TOPICS = ("transactions.interleaved", "transactions-tiny", "one-record-batches")
SEEKS_MAX = {NATIVE: 60, RETIRED: 250}
TIMES_MAX = {NATIVE: 60, RETIRED: 300}
CONVERTED_S_MAX = 180
VERDICT_BYTES = 34
PULLED = ("librdkafka", "java")


@pytest.fixture(scope="module", params=[NATIVE, RETIRED])
def form(
    request: pytest.FixtureRequest, tier: RealTier, written: Mapping[str, WrittenTopic]
) -> str:
    """What the service answers from. First all of native, for there is no way back."""
    if request.param == RETIRED:
        retire(tier, written)
        forget_everything(tier)
    return str(request.param)


@pytest.fixture(scope="module")
def topic_ids(tier: RealTier, written: Mapping[str, WrittenTopic]) -> list[str]:
    ids = {e.metadata.id.topic_id: e.metadata.topic for e in Ledger(tier.store).scan()}
    return [topic_id for topic_id, name in ids.items() if name in written]


@pytest.fixture(autouse=True)
def _from_the_tier(
    request: pytest.FixtureRequest,
    tier: RealTier,
    written: Mapping[str, WrittenTopic],
    topic_ids: Sequence[str],
) -> Iterator[None]:
    """What a test reads came through the service, from what it should: the broker's disk has no
    record of it, nor, when it's retired, is there any native object."""
    if "form" not in request.fixturenames:
        yield
        return
    before = tier.log_fetches()
    yield
    for topic in written.values():
        for number, end in topic.ends.items():
            assert tier.kafka.local_segments(topic.name, number) == [end]
    if "client" in request.fixturenames:
        assert tier.log_fetches() > before
    is_retired = request.getfixturevalue("form") == RETIRED
    for topic_id in topic_ids:
        assert bool(native_files(tier, topic_id)) != is_retired


def targets(tier: RealTier, topic: WrittenTopic, partition: int, form: str) -> list[int]:
    """Every offset of a small topic; of a large one batch borders and their neighbours."""
    end = topic.partitions[partition].end_offset
    small = topic.name in SMALL_TOPICS
    if small and form == RETIRED:
        return list(range(end))
    edges = [offset for offset in all_borders(tier, topic.name, partition) if offset < end]
    step = max(1, len(edges) // SEEKS_MAX[form])
    return sorted({*edges[::step], *edges[-3:]})


@lru_cache
def all_borders(tier: RealTier, topic: str, partition: int) -> list[int]:
    return borders(tier, topic, partition)


def fetches(topic: str, form: str) -> tuple[int, ...]:
    """The fetch sizes with which partitions are read whole."""
    if topic in LARGE_TOPICS:
        return (1024 * KIB,) if form == NATIVE else (256 * KIB, 10 * 1024 * KIB)
    return (20 * KIB,) if form == NATIVE else FETCHES


def taking_turns(topic: str, client: str, isolation: str) -> tuple[int, ...]:
    """The fetch sizes in another order for each: a target is sought with each of them."""
    sizes = LARGE_FETCHES if topic in LARGE_TOPICS else FETCHES
    first = 2 * PULLED.index(client) + ISOLATIONS.index(isolation)
    return sizes[first:] + sizes[:first]


def readable(topic: WrittenTopic, isolation: str, form: str) -> range:
    """The partitions that are read whole: all, but of a million batches only once."""
    once = topic.name == "one-record-batches" and (isolation, form) != (READ_COMMITTED, RETIRED)
    return range(1 if once else len(topic.partitions))


def partitions(topic: WrittenTopic) -> range:
    """The partitions whose offsets are sought: of many alike, two."""
    return range(min(2, len(topic.partitions)))


def test_workloads_are_what_they_claim(tier: RealTier, written: Mapping[str, WrittenTopic]) -> None:
    odd = [b for p in (0, 1) for b in native_batches(tier, "Odd.Records-v1_A", p)]
    assert {b.codec for b in odd} == {0, 1, 2, 3, 4}
    assert max(b.size for b in odd) > 1024 * KIB

    compacted = list(native_batches(tier, "compacted-first", 0))
    assert any(b.count == 0 for b in compacted)
    assert any(b.has_delete_horizon for b in compacted)
    assert any(0 < b.count < b.last_offset - b.base_offset + 1 for b in compacted)

    ones = written["one-record-batches"]
    for number in range(len(ones.partitions)):
        entry = tier.entries(ones.name)[0]
        assert entry.metadata.end_offset > 100_000, number
    first = list(native_batches(tier, ones.name, 0))
    assert len(first) == ones.partitions[0].end_offset
    assert ones.records >= 1_000_000


def test_ten_thousand_aborted_transactions_are_one_segment(
    tier: RealTier, written: Mapping[str, WrittenTopic]
) -> None:
    topic = written["transactions-tiny"]
    assert len(topic.partitions[0].aborted) >= 10_000
    sizes = [dict(e.parts)["verdicts"] // VERDICT_BYTES for e in tier.entries(topic.name)]
    assert max(sizes) >= 10_000


def test_markers_lie_segments_behind_the_records(
    tier: RealTier, written: Mapping[str, WrittenTopic]
) -> None:
    topic = written["transactions.interleaved"]
    rows = sum(len(p.committed) + len(p.aborted) for p in topic.partitions)
    aborted = sum(len(p.aborted) for p in topic.partitions)
    assert 0.25 < aborted / rows < 0.35
    for number in topic.ends:
        entries = [e for e in tier.entries(topic.name) if e.metadata.id.partition == number]
        ends = [e.metadata.end_offset for e in entries]
        behind = [
            bisect_left(ends, marker) - at
            for at, entry in enumerate(entries)
            for marker in _markers(tier, entry)
        ]
        assert max(behind) >= 2, behind
        assert len(entries) > 4


def _markers(tier: RealTier, entry: LedgerEntry) -> Iterator[int]:
    """Offsets of the abort markers of the transactions that a segment has verdicts of."""
    start, size = entry.part_range("verdicts") or (0, 0)
    data = kept_path(tier, entry.metadata.id.indexes_key).read_bytes()[start : start + size]
    for _, _, _, marker, _ in struct.iter_unpack(">hqqqq", data):
        yield marker


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", [*SMALL_TOPICS, *LARGE_TOPICS])
@pytest.mark.parametrize("client", ["librdkafka"])
def test_librdkafka_reads_whole_partitions(
    tier: RealTier,
    written: Mapping[str, WrittenTopic],
    form: str,
    client: str,
    name: str,
    isolation: str,
) -> None:
    topic = written[name]
    for number in readable(topic, isolation, form):
        partition = topic.partitions[number]
        expected = partition.expected(isolation)
        for fetch in fetches(name, form):
            records = read_partition(
                *(tier.bootstrap_servers, name, number, partition.end_offset, isolation),
                fetch=fetch,
            )
            expected.check_all([hashed(r) for r in records])


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", [*SMALL_TOPICS, *LARGE_TOPICS])
@pytest.mark.parametrize("client", ["java"])
def test_java_reads_whole_partitions(
    java: StockClient,
    written: Mapping[str, WrittenTopic],
    form: str,
    client: str,
    name: str,
    isolation: str,
) -> None:
    topic = written[name]
    for number in readable(topic, isolation, form):
        partition = topic.partitions[number]
        expected = partition.expected(isolation)
        for fetch in fetches(name, form):
            found = java.read(name, number, partition.end_offset, isolation, fetch=fetch)
            expected.check_all(found)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", [*SMALL_TOPICS, *LARGE_TOPICS])
@pytest.mark.parametrize("client", ["librdkafka"])
def test_librdkafka_seeks_to_every_offset(
    tier: RealTier,
    written: Mapping[str, WrittenTopic],
    form: str,
    client: str,
    name: str,
    isolation: str,
) -> None:
    topic = written[name]
    before, asked = tier.log_fetches(), 0
    for number in partitions(topic):
        expected = topic.partitions[number].expected(isolation)
        wanted = targets(tier, topic, number, form)
        turns = taking_turns(name, client, isolation)
        found = seek_each(tier.bootstrap_servers, name, number, wanted, isolation, fetches=turns)
        for target, records in found:
            expected.check_seek(target, records)
            asked += 1
    assert asked == sum(len(targets(tier, topic, n, form)) for n in partitions(topic))
    assert tier.log_fetches() - before >= asked


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", [*SMALL_TOPICS, *LARGE_TOPICS])
@pytest.mark.parametrize("client", ["java"])
def test_java_seeks_to_every_offset(
    tier: RealTier,
    java: StockClient,
    written: Mapping[str, WrittenTopic],
    form: str,
    client: str,
    name: str,
    isolation: str,
) -> None:
    topic = written[name]
    before, asked = tier.log_fetches(), 0
    for number in partitions(topic):
        expected = topic.partitions[number].expected(isolation)
        wanted = targets(tier, topic, number, form)
        turns = taking_turns(name, client, isolation)
        for target, records in java.seek(name, number, wanted, isolation, fetches=turns):
            expected.check_seek(target, records)
            asked += 1
    assert tier.log_fetches() - before >= asked > 0


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", [*SMALL_TOPICS, *LARGE_TOPICS])
@pytest.mark.parametrize("client", ["java"])
def test_offsets_for_times(
    java: StockClient,
    written: Mapping[str, WrittenTopic],
    form: str,
    client: str,
    name: str,
    isolation: str,
) -> None:
    """The first record, or marker, at or after each time; no record before it is as late."""
    partition = written[name].partitions[0]
    everything = partition.expected(READ_UNCOMMITTED)
    times = sorted({r[1] + near for r in everything.records for near in (-1, 0, 1)})
    times = [t for t in times if t >= 0][:: max(1, len(times) // TIMES_MAX[form])]
    firsts = _first_at_or_after(everything.records)
    for time, (offset, at) in zip(
        times, java.offsets_for_times(name, 0, times, isolation), strict=True
    ):
        first = firsts(time)
        if offset != first:  # then it is a marker in front of it, which counts for Kafka, too
            assert offset not in everything.offsets
            assert offset > -1
            assert first == -1 or offset < first
        assert (offset == -1) == (at == -1)
        assert at == -1 or at >= time


def _first_at_or_after(records):  # type: ignore[no-untyped-def]
    """A function from a time to the lowest offset of a record with that time or later, or -1."""
    maxima: list[int] = []
    for record in records:
        maxima.append(max(record[1], maxima[-1] if maxima else -(2**63)))

    def first(time: int) -> int:
        at = bisect_left(maxima, time)
        return records[at][0] if at < len(records) else -1

    return first


@pytest.mark.parametrize("name", [*SMALL_TOPICS, *LARGE_TOPICS])
def test_log_starts_and_ends_where_it_did(
    tier: RealTier, written: Mapping[str, WrittenTopic], form: str, name: str
) -> None:
    for number, end in written[name].ends.items():
        assert tier.watermarks(name, number) == (0, end)


@pytest.mark.parametrize("name", [*SMALL_TOPICS, *LARGE_TOPICS])
def test_the_table_holds_what_clients_read(
    tier: RealTier, written: Mapping[str, WrittenTopic], form: str, name: str
) -> None:
    if form == NATIVE and not tier.engine.running:
        tier.engine.start()
    topic, catalog = written[name], catalog_of(tier)
    reader = eventually(
        lambda: reader_at(tier, catalog, name, topic.ends),
        CONVERTED_S_MAX,
        what=f"{name} is in its table",
        details=tier.engine.tail,
    )
    for number, partition in enumerate(topic.partitions):
        got = pa.Table.from_batches(list(reader.batches(number, columns=NAMES)))
        wanted = partition.expected(READ_COMMITTED).table()
        assert_same(compared(got), wanted, f"{name}-{number}")


def test_retired_history_is_made_from_the_table(
    tier: RealTier, java: StockClient, written: Mapping[str, WrittenTopic], form: str
) -> None:
    tier.service.stop()
    tier.service.start()
    topic = written["log-append-time"]
    (partition,) = topic.partitions
    found = java.read(topic.name, 0, partition.end_offset, READ_COMMITTED, fetch=KIB)
    partition.expected(READ_COMMITTED).check_all(found)
    assert (regenerations(tier) > 0) == (form == RETIRED)


def test_read_committed_shows_no_aborted_record(written: Mapping[str, WrittenTopic]) -> None:
    """The comparison itself: what it expects differs between the isolation levels."""
    for name in ("transactions.interleaved", "transactions-tiny"):
        for partition in written[name].partitions:
            committed = partition.expected(READ_COMMITTED).offsets
            assert not set(committed) & {r[0] for r in partition.aborted}
            assert len(committed) < len(partition.expected(READ_UNCOMMITTED).offsets)
