"""Waiting until a topic's history is in its table alone: off the broker, proven, and retired."""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from tiering.demo.readings import log_ends
from tiering.demo.workload import DemoTopic
from tiering.errors import FatalError, NotFound, TransientError
from tiering.ledger import Ledger, LedgerEntry, SegmentState
from tiering.local.kafka import LocalKafka
from tiering.local.tier_stack import TierStack
from tiering.store import open_store
from tiering.table.topic_tables import CatalogTables

__all__ = ["Tiered", "await_tiered", "bytes_served", "kafka_of"]

_PATIENCE_S: Final = 240.0
_POLL_S: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiered:
    """What of a topic has been tiered.

    Attributes:
        ends: per partition, the offset after the last one in the table.
        segments: native segments handed over, with `native_bytes` in all; `retired` of them have
            been proven and retired.
        native_objects, native_bytes_left: what the store still holds of native segments.
        side_bytes: size of the side files.
        local_segments, local_bytes: *.log files left in the broker's directories.
        files, table_bytes: the table's data files and their size.
    """

    ends: dict[int, int]
    segments: int
    native_bytes: int
    retired: int
    native_objects: int
    native_bytes_left: int
    side_bytes: int
    local_segments: int
    local_bytes: int
    files: int
    table_bytes: int
    metadata_location: str

    def to_dict(self) -> dict[str, Any]:
        """As plain values for the report."""
        return asdict(self)


def await_tiered(tier: TierStack, topic: DemoTopic) -> Tiered:
    """Wait until all of it is deleted locally (the active segment is empty then) and retired.

    Raises TransientError with what is missing after four minutes.
    """
    ledger, tables = Ledger(open_store(tier.config.store)), CatalogTables(tier.config)
    until = time.monotonic() + _PATIENCE_S
    ends = log_ends(kafka_of(tier).bootstrap_servers, topic.name, topic.partitions)
    missing = "nothing was looked at"
    while time.monotonic() < until:
        tier.tend()
        entries = [e for e in ledger.scan() if e.metadata.topic == topic.name]
        missing = _missing(tier, topic, entries, ends)
        if not missing:
            try:
                return _tiered(tier, topic, entries, tables)
            except NotFound as error:
                missing = str(error)
        time.sleep(_POLL_S)
    raise TransientError(f"topic {topic.name} isn't tiered after {_PATIENCE_S:.0f} s: {missing}")


def _missing(
    tier: TierStack, topic: DemoTopic, entries: list[LedgerEntry], ends: Mapping[int, int]
) -> str:
    """What is still to come, empty when nothing is."""
    for partition, end in ends.items():
        local = kafka_of(tier).local_segments(topic.name, partition)
        if local != [end]:
            return f"partition {partition} still has local segments from {local[0]} to {end}"
        mine = [e for e in entries if e.metadata.id.partition == partition]
        reached = max((e.metadata.end_offset + 1 for e in mine), default=0)
        if reached != end:
            return f"partition {partition} is tiered to {reached}, its log ends at {end}"
        waiting = sum(not e.native_gone for e in mine)
        if waiting:
            states = Counter(e.state.value for e in mine)
            return f"partition {partition} has {waiting} native segments left ({dict(states)})"
    return ""


def _tiered(
    tier: TierStack, topic: DemoTopic, entries: list[LedgerEntry], tables: CatalogTables
) -> Tiered:
    topic_id = entries[0].metadata.id.topic_id
    state = tables.state(topic.name, topic_id)
    files, table_bytes = tables.files(state)
    data = kafka_of(tier).data_directory
    store = open_store(tier.config.store)
    native = list(store.list(f"native/{topic_id}/"))
    local = [f for p in range(topic.partitions) for f in data.glob(f"{topic.name}-{p}/*.log")]
    return Tiered(
        ends={partition: mark.offset for partition, mark in state.watermarks.items()},
        segments=len(entries),
        native_bytes=sum(e.metadata.size_bytes for e in entries),
        retired=sum(e.state is SegmentState.RETIRED for e in entries),
        native_objects=len(native),
        native_bytes_left=sum(o.size_bytes for o in native),
        side_bytes=sum(o.size_bytes for o in store.list(f"side/{topic_id}/")),
        local_segments=len(local),
        local_bytes=sum(f.stat().st_size for f in local),
        files=files,
        table_bytes=table_bytes,
        metadata_location=tables.table(topic.name, topic_id).metadata_location,
    )


def kafka_of(tier: TierStack) -> LocalKafka:
    """The stack's own broker."""
    if tier.kafka is None:
        raise FatalError("this tier runs without a Kafka of its own")
    return tier.kafka


def bytes_served(tier: TierStack) -> int:
    """Bytes of log that the service has handed back to the broker, as its /metrics says."""
    request = urllib.request.Request(  # noqa: S310 - the service of this tier, on loopback
        f"{tier.service_url}/metrics",
        headers={"Authorization": f"Bearer {tier.token_file.read_text().strip()}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
        families = text_string_to_metric_families(answer.read().decode())
    samples = (s for f in families for s in f.samples if s.name == "onecopy_sent_bytes_total")
    return int(sum(s.value for s in samples if s.labels["route"] == "get_log"))
