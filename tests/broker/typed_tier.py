"""The real tier with a real schema registry that can go and come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from acknowledged import ISOLATIONS, Record, WrittenTopic, hashed
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from librdkafka_reads import read_partition
from polling import eventually
from producers import START_MS, produce, send
from real_tier import RealTier
from registry_server import RegistryThatComesBack
from retirement import wait_retired
from stock_client import StockClient
from tier_checks import CAUGHT_UP_S_MAX, topic_until_now

from tiering.config import RegistryConfig, TopicConfig
from tiering.local.schema_registry import LocalSchemaRegistry

__all__ = ["TypedTier", "check_read", "record_of", "transaction", "typed_tier"]

MIB = 1024 * 1024
NOBODY_WAITS_MS = 2_000
"""For a registry's answer; a busy machine's takes long."""


class TypedTier(RealTier):
    """Retires at once. Nothing is set for topics but what `topics` says."""

    def __init__(
        self,
        directory: Path,
        server: LocalSchemaRegistry,
        client: SchemaRegistryClient,
        topics: Mapping[str, TopicConfig],
    ) -> None:
        super().__init__(directory, retire_grace_ms=0)
        registry = RegistryConfig(url=server.url, timeout_ms=NOBODY_WAITS_MS)
        self.config = replace(self.config, registry=registry, topics=dict(topics))
        (directory / "tier.json").write_text(self.config.to_json())
        self.client = client
        self.registry = RegistryThatComesBack(server, client)

    def create(self, name: str, partitions: int = 1) -> WrittenTopic:
        """A topic whose active segments don't roll before `seal`."""
        configs = {"segment.ms": str(2**63 - 1), "local.retention.ms": "-1"}
        self.create_tiered_topic(name, partitions, configs)
        return WrittenTopic.empty(name, partitions)

    def seal(self, topic: WrittenTopic, last: Record) -> None:
        """End every partition with a plain record; then the broker keeps nothing locally."""
        for number in topic.ends:
            self._wait_decided(topic.name, number)
        produce(self, topic, "none", [(number, last) for number in topic.ends])
        self.set_topic_config(topic.name, local_retention_ms="1")

    def wait_sole_copy(self, *topics: WrittenTopic) -> None:
        """Until all that was written is in tables, and nowhere else."""
        for topic in topics:
            self.wait_tiered(topic.name, topic.ends, CAUGHT_UP_S_MAX)
        wait_retired(self, [topic.name for topic in topics])

    def problem(self, topic: str) -> str:
        """What the engine last said is wrong with a topic."""
        problems: Mapping[str, str] = self.heartbeat().get("problems", {})
        found = [why for where, why in sorted(problems.items()) if where.startswith(topic)]
        return "; ".join(found)

    def wait_problem(self, topic: str, *words: str) -> str:
        """Until it says all of `words`."""
        return eventually(
            lambda: all(w in self.problem(topic) for w in words) and self.problem(topic),
            60,
            what=f"{topic} waits, saying {words}",
            details=lambda: f"{self.heartbeat()}\n{self.engine.tail()}",
        )

    def _wait_decided(self, topic: str, number: int) -> None:
        """A commit is acknowledged before its markers are written."""

        def decided() -> bool:
            stable = self.watermarks(topic, number, "read_committed")
            return stable == self.watermarks(topic, number)

        eventually(decided, 30, what=f"no open transaction in {topic}-{number}")


@contextmanager
def typed_tier(directory: Path, topics: Mapping[str, TopicConfig]) -> Iterator[TypedTier]:
    """Registry, Kafka, service and engine."""
    with (
        LocalSchemaRegistry() as server,
        SchemaRegistryClient({"url": server.url}) as client,
        TypedTier(directory, server, client, topics) as tier,
    ):
        tier.engine.start(wait=False)
        yield tier


def record_of(place: int, key: bytes | None, value: bytes | None) -> Record:
    """One to be sent."""
    return 0, START_MS + place, key, value, [("place", b"%d" % place)]


def transaction(
    tier: TypedTier,
    topic: WrittenTopic,
    name: str,
    codec: str,
    records: list[tuple[int, Record]],
    *,
    aborted: bool,
) -> None:
    """One transaction."""
    producer = Producer(
        {
            "bootstrap.servers": tier.bootstrap_servers,
            "transactional.id": f"{topic.name}-{name}",
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 10,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number, record in records:
        partition = topic.partitions[number]
        send(
            producer,
            topic.name,
            number,
            record,
            partition.aborted if aborted else partition.committed,
        )
    assert producer.flush(30) == 0
    if aborted:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def check_read(tier: TypedTier, java: StockClient, *topics: WrittenTopic) -> None:
    """Both clients, at both isolation levels, get every byte that was produced."""
    for topic in topics:
        now = topic_until_now(topic)
        for isolation in ISOLATIONS:
            for number, partition in enumerate(now.partitions):
                place = (topic.name, number, partition.end_offset, isolation)
                wanted = partition.expected(isolation)
                ours = read_partition(tier.bootstrap_servers, *place, fetch=MIB)
                wanted.check_all([hashed(r) for r in ours])
                wanted.check_all(java.read(*place, fetch=MIB))
