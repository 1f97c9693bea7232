"""Comparisons of what was acknowledged with what brokers, ledger and tables hold."""

from __future__ import annotations

import pyarrow.compute as pc
from acknowledged import ISOLATIONS, READ_COMMITTED, WrittenTopic, hashed
from librdkafka_reads import read_partition
from polling import eventually
from real_tier import Tier
from table_rows import assert_same, catalog_of, compared, reader_at

from tiering.table.schema import table_name

__all__ = [
    "CAUGHT_UP_S_MAX",
    "check_all_read",
    "check_table",
    "check_tiered",
    "topic_until_now",
]

CAUGHT_UP_S_MAX = 90


def check_all_read(tier: Tier, topic: WrittenTopic) -> None:
    """Both isolation levels see what was acknowledged."""
    for isolation in ISOLATIONS:
        for number, partition in enumerate(topic.partitions):
            records = read_partition(
                *(tier.bootstrap_servers, topic.name, number, partition.end_offset, isolation),
                fetch=1 << 20,
            )
            partition.expected(isolation).check_all([hashed(r) for r in records])


def check_tiered(tier: Tier, topic: WrittenTopic) -> None:
    """All is in the tier, without a hole, and every live copy is whole."""
    tier.wait_tiered(topic.name, topic.ends, CAUGHT_UP_S_MAX)
    for number, end in topic.ends.items():
        reached = 0
        for entry in tier.entries(topic.name):
            if entry.metadata.id.partition != number:
                continue
            log = tier.path_of(entry.metadata.id.log_key)
            assert log.stat().st_size == entry.metadata.size_bytes
            assert entry.metadata.start_offset <= reached
            reached = max(reached, entry.metadata.end_offset + 1)
        assert reached == end


def check_table(tier: Tier, topic: WrittenTopic) -> None:
    """The table holds every committed record once, and nothing else."""
    catalog = catalog_of(tier)
    eventually(
        lambda: reader_at(tier, catalog, topic.name, topic.ends),
        CAUGHT_UP_S_MAX,
        what=f"{topic.name} is in its table",
        details=lambda: f"{tier.heartbeat()}\n{tier.engine.tail()}",
    )
    table = catalog.load_table((tier.config.namespace, table_name(topic.name)))
    rows = table.scan().to_arrow().sort_by("kafka_offset")
    assert rows.num_rows == sum(len(p.committed) for p in topic.partitions)
    for number, partition in enumerate(topic.partitions):
        got = rows.filter(pc.field("kafka_partition") == number)
        wanted = partition.expected(READ_COMMITTED).table()
        assert_same(compared(got), wanted, f"{topic.name}-{number}")


def topic_until_now(topic: WrittenTopic) -> WrittenTopic:
    """A copy whose expectations don't stay when more is written."""
    now = WrittenTopic.empty(topic.name, len(topic.partitions))
    for written, copy in zip(topic.partitions, now.partitions, strict=True):
        copy.committed += written.committed
        copy.aborted += written.aborted
    return now
