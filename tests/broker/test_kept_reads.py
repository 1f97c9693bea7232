"""Stock clients while the plug-in keeps what it has pulled: the same records, for fewer pulls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import workloads
from acknowledged import ISOLATIONS, WrittenTopic, hashed
from librdkafka_reads import read_partition, seek_each
from real_tier import RealTier
from retirement import forget_everything, retire

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

KIB = 1024
NATIVE, RETIRED = "native", "retired"
TIERED_S_MAX = 120


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealTier]:
    """A tier of its own, with the plug-in as it is by default."""
    with RealTier(tmp_path_factory.mktemp("keeping"), keeps_pulls=True) as running:
        yield running


@pytest.fixture(scope="module")
def topic(keeping: RealTier) -> WrittenTopic:
    """Transactions, some of them aborted, whose markers lie segments behind."""
    made = workloads.interleaved_transactions(keeping)
    workloads.seal(keeping, made)
    keeping.wait_tiered(made.name, made.ends, TIERED_S_MAX)
    return made


@pytest.fixture(scope="module", params=[NATIVE, RETIRED])
def form(request: pytest.FixtureRequest, keeping: RealTier, topic: WrittenTopic) -> str:
    """What the service answers from."""
    if request.param == RETIRED:
        retire(keeping, [topic.name])
        forget_everything(keeping)
    return str(request.param)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_all_records_for_fewer_pulls_than_fetches(
    keeping: RealTier, topic: WrittenTopic, form: str, isolation: str
) -> None:
    before, fetches = keeping.log_fetches(), 0
    for number, partition in enumerate(topic.partitions):
        expected = partition.expected(isolation)
        segments = [e for e in keeping.entries(topic.name) if e.metadata.id.partition == number]
        for fetch in (8 * KIB, 64 * KIB):
            records = read_partition(
                *(keeping.bootstrap_servers, topic.name, number, partition.end_offset, isolation),
                fetch=fetch,
            )
            expected.check_all([hashed(record) for record in records])
            fetches += sum(-(-e.metadata.size_bytes // fetch) for e in segments)
    assert keeping.log_fetches() - before < fetches


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_seeks_to_many_offsets(
    keeping: RealTier, topic: WrittenTopic, form: str, isolation: str
) -> None:
    for number in list(topic.ends)[:2]:
        expected = topic.partitions[number].expected(isolation)
        end = topic.partitions[number].end_offset
        wanted = sorted({*range(0, end, max(1, end // 120)), end - 1})
        found = seek_each(
            keeping.bootstrap_servers, topic.name, number, wanted, isolation, fetches=(64 * KIB, 1)
        )
        sought = 0
        for target, records in found:
            expected.check_seek(target, records)
            sought += 1
        assert sought == len(wanted)
