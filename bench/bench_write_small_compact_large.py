"""Small segments make tables fresh, large files make them quick: how much of each, by segment size.

For each of BENCH_SEGMENTS_MB (1,4,16) a topic is produced at BENCH_RATE_MB megabytes a second (4),
BENCH_MB in all (48), on a whole tier of this machine. Measured:

- `..._visible_p50`, `..._p99`: from handing a record to the producer until a reader that loads the
  table sees it, over all records of segments that rolled by size, but for those of the first
  commit. The rival is the largest segment size of the same run;
- `..._scan`, `..._plan`, `..._seek`: reading all rows with the offset reader; loading the table
  and planning its files with PyIceberg; the first rows from some offset on with a reader that has
  no footers yet. Ours is the table after `onecopy compact`, the rival the same rows before,
  which a branch of the table keeps: both are measured in turn;
- `..._files`: data files after and before.

A Kafka consumer's digest of each topic is the same before and after. The figures are drawn in
results/write_small_compact_large.svg.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from bench.history_readers import LibrdkafkaReader
from bench.json_records import JSON_EVENTS
from bench.produced_to_visible import TableWatch, produce_steadily
from bench.production import produce
from bench.results import LATEST, BenchResult
from bench.sealed_topics import create_open, seal
from bench.svg_chart import Panel, Series, write_chart
from bench.tier_sizes import TopicSizes, compact
from tiering.config import EngineConfig, default_config
from tiering.demo.tiered import await_tiered, kafka_of
from tiering.demo.workload import DemoTopic
from tiering.local.tier_stack import TierStack
from tiering.offset_reader import OffsetReader
from tiering.table.schema import table_name
from tiering.table.topic_tables import CatalogTables

NAME = "write_small_compact_large"
SEGMENTS_MB = [int(mb) for mb in os.environ.get("BENCH_SEGMENTS_MB", "1,4,16").split(",")]
RECORDS = int(os.environ.get("BENCH_MB", "48")) * 1_000_000 // JSON_EVENTS.value_bytes
BYTES_PER_S = float(os.environ.get("BENCH_RATE_MB", "4")) * 1e6
RUNS = int(os.environ.get("BENCH_RUNS", "3"))
WARM_UP = "warm-up"
WARM_UP_RECORDS = 20_000
SEEKS = 15
SEED = 11
BEFORE = "before"
MAIN = "main"
MEASURES = ("scan", "plan", "seek")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What was measured for one segment size: latencies in seconds, costs in milliseconds."""

    latencies: Sequence[float]
    files: tuple[int, int]
    before: Mapping[str, Sequence[float]]
    after: Mapping[str, Sequence[float]]

    def visible_s(self, percent: float) -> float:
        """A percentile of the latencies."""
        return float(np.percentile(self.latencies, percent))


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[TierStack]:
    # A grace of nothing: what is proven is retired at once.
    config = default_config(tmp_path / "tier", engine=EngineConfig(retire_grace_ms=0))
    with TierStack(config, tmp_path / "tier", with_kafka=True) as running:
        yield running


def test_write_small_compact_large(tier: TierStack, report: Callable[[BenchResult], None]) -> None:
    _warm_up(tier)
    topics = {mb: f"segments-{mb}mib" for mb in SEGMENTS_MB}
    latencies = {mb: _produced(tier, topic, mb) for mb, topic in topics.items()}
    assert tier.engine is not None
    tier.engine.stop()
    fresh = {mb: TopicSizes.of(tier.config, topic).files for mb, topic in topics.items()}
    digests = {topic: _kafka_digest(tier, topic) for topic in topics.values()}
    catalog = CatalogTables(tier.config).catalog
    for topic in topics.values():
        _keep_branch(catalog, tier.config.namespace, topic)
    compact(tier.directory)
    _forget(tier)
    stories = {}
    for mb, topic in topics.items():
        assert _kafka_digest(tier, topic) == digests[topic]
        before, after = _costs(catalog, tier.config.namespace, topic)
        files = fresh[mb], TopicSizes.of(tier.config, topic).files
        stories[mb] = Story(latencies=latencies[mb], files=files, before=before, after=after)
    for result in _results(stories):
        report(result)
    _draw(LATEST.parent / f"{NAME}.svg", stories)


def _warm_up(tier: TierStack) -> None:
    """The first segments of a tier wait for its workers, which load their parts."""
    kafka = kafka_of(tier)
    create_open(kafka, WARM_UP, segment_bytes=1024 * 1024)
    produce(kafka, WARM_UP, JSON_EVENTS, WARM_UP_RECORDS, codec="none")
    seal(kafka, WARM_UP)
    await_tiered(tier, DemoTopic(name=WARM_UP, partitions=1, share=1.0, codec="none"))


def _produced(tier: TierStack, topic: str, segment_mb: int) -> list[float]:
    """Latencies of a topic's records; all of it is retired then."""
    kafka = kafka_of(tier)
    create_open(kafka, topic, segment_bytes=segment_mb * 1024 * 1024)
    with TableWatch(tier.config, topic) as watch:
        sent = produce_steadily(kafka, topic, JSON_EVENTS, count=RECORDS, bytes_per_s=BYTES_PER_S)
        end = kafka.local_segments(topic)[-1]
        watch.wait(end)
        start = watch.first
        assert start < end, f"all of {topic} came with one commit: produce more (BENCH_MB)"
        latencies = watch.visible(start, end) - sent[start:end]
    seal(kafka, topic)
    await_tiered(tier, DemoTopic(name=topic, partitions=1, share=1.0, codec="none"))
    return [float(x) for x in latencies]


def _kafka_digest(tier: TierStack, topic: str) -> str:
    servers = kafka_of(tier).bootstrap_servers
    found = LibrdkafkaReader().read(servers, topic, "read_committed", RECORDS, digest=True)
    assert found.records == RECORDS
    return found.digest


def _keep_branch(catalog: Catalog, namespace: str, topic: str) -> None:
    """Keep the table as it is now under a name."""
    table = catalog.load_table((namespace, table_name(topic)))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, BEFORE).commit()


def _forget(tier: TierStack) -> None:
    """Start the service again: it must read the new files."""
    assert tier.service is not None
    tier.service.stop()
    tier.service.start()
    tier.service.await_ready()


def _costs(
    catalog: Catalog, namespace: str, topic: str
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of each measure before and after, one of a kind in each run."""
    before: dict[str, list[float]] = {m: [] for m in MEASURES}
    after: dict[str, list[float]] = {m: [] for m in MEASURES}
    for run in range(RUNS + 1):
        for branch, costs in ((BEFORE, before), (MAIN, after)):
            found = _measured(catalog, namespace, topic, branch)
            if run:  # the first one warms up
                for measure, cost in found.items():
                    costs[measure].append(cost)
    return before, after


def _measured(catalog: Catalog, namespace: str, topic: str, branch: str) -> dict[str, float]:
    def reader() -> OffsetReader:
        return OffsetReader.open(catalog, namespace, topic, branch=branch)

    def scan(opened: OffsetReader) -> None:
        assert sum(batch.num_rows for batch in opened.batches(0)) == RECORDS

    def seek(opened: OffsetReader, offset: int) -> None:
        batch = next(iter(opened.batches(0, offset=offset)))
        assert batch.column("kafka_offset")[0].as_py() == offset

    def plan() -> None:
        table = catalog.load_table((namespace, table_name(topic)))
        assert list(table.scan().use_ref(branch).plan_files())

    offsets = np.random.default_rng(SEED).integers(0, RECORDS, SEEKS).tolist()
    seeks = [_ms(lambda opened, at=at: seek(opened, at), reader()) for at in offsets]
    return {
        "scan": _ms(scan, reader()),
        "plan": _ms(lambda _: plan(), None),
        "seek": statistics.median(seeks),
    }


def _ms(run: Callable[..., None], given: object) -> float:
    begun = time.perf_counter()
    run(given)
    return (time.perf_counter() - begun) * 1000


def _results(stories: Mapping[int, Story]) -> Iterator[BenchResult]:
    largest = max(stories)
    for mb, story in stories.items():
        name = f"{NAME}_{mb}mib"
        for percent in (50, 99):
            ours, theirs = [story.visible_s(percent)], [stories[largest].visible_s(percent)]
            rival = f"{largest} MiB segments"
            yield BenchResult.of_costs(f"{name}_visible_p{percent}", "s", rival, ours, theirs)
        for measure in MEASURES:
            ours, theirs = list(story.after[measure]), list(story.before[measure])
            yield BenchResult.of_costs(f"{name}_{measure}", "ms", "not compacted", ours, theirs)
        before, after = story.files
        files = [float(after)], [float(before)]
        yield BenchResult.of_costs(f"{name}_files", "files", "not compacted", *files)


def _draw(path: Path, stories: Mapping[int, Story]) -> None:
    latency = Panel(
        title="Produced to visible",
        unit="s",
        series=[
            Series(name=f"p{percent}", values=[s.visible_s(percent) for s in stories.values()])
            for percent in (50, 99)
        ],
    )
    costs = [
        Panel(
            title=title,
            unit="ms",
            series=[
                Series(
                    name=name,
                    values=[statistics.median(c[measure]) for c in sides],
                )
                for name, sides in (
                    ("as written", [s.before for s in stories.values()]),
                    ("compacted", [s.after for s in stories.values()]),
                )
            ],
        )
        for measure, title in zip(MEASURES, ("Full scan", "Planning", "A seek"), strict=True)
    ]
    write_chart(
        path,
        title=f"Write small, compact large: {RECORDS:,} records of {JSON_EVENTS.name}",
        across="segment size, MiB",
        places=[str(mb) for mb in stories],
        panels=[latency, *costs],
    )
