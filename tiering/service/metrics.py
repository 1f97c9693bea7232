"""What /metrics shows, in a registry of the application's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["EngineHeartbeat", "ServiceMetrics"]

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
_CYCLE_NUMBERS: Final = (
    *("cycles", "commits", "failed_cycles"),
    *("proven", "proof_faults", "retired", "retired_bytes"),
)
_TOPIC_NUMBERS: Final = ("watermark_lag_offsets", "pending_segments", "quarantined")
_VALUE_NUMBERS: Final = {
    "typed_rows": "Rows with typed columns, since the engine's start.",
    "raw_rows": "Of these, those whose values don't come back from their columns: kept twice.",
}
_TOPICS_MAX: Final = 10_000
_CAUSES_MAX: Final = 50


class ServiceMetrics:
    """Counters and gauges of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "onecopy_requests", "Requests answered.", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "onecopy_request_seconds",
            "From a request's head to its last byte sent.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.bytes_in = Counter(
            "onecopy_received_bytes", "Body bytes of uploads.", registry=self.registry
        )
        self.bytes_out = Counter(
            "onecopy_sent_bytes", "Body bytes of answers.", ("route",), registry=self.registry
        )
        self.store_errors = Counter(
            "onecopy_store_errors", "Requests the store failed.", ("route",), registry=self.registry
        )
        self.disconnects = Counter(
            "onecopy_client_disconnects", "Uploads cut by their client.", registry=self.registry
        )
        self.segments = Gauge(
            "onecopy_segments",
            "Segments in the ledger, counted now and then.",
            ("state",),
            registry=self.registry,
        )
        self.regeneration_seconds = Histogram(
            "onecopy_regeneration_seconds",
            "Making one unit of a retired segment's batches.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.regeneration_failures = Counter(
            "onecopy_regeneration_failures", "Units that could not be made.", registry=self.registry
        )
        self.history_mismatches = Counter(
            "onecopy_history_mismatches",
            "Times a table's rows were not what was produced: refused.",
            registry=self.registry,
        )
        self.deleted_rows = Counter(
            "onecopy_deleted_rows",
            "Records left out of regenerated batches, for SQL has deleted their rows.",
            registry=self.registry,
        )
        self.heartbeat = EngineHeartbeat()
        self.registry.register(self.heartbeat)
        self._in_flight = Gauge(
            "onecopy_requests_in_flight",
            "Requests holding a slot.",
            ("kind",),
            registry=self.registry,
        )

    def watch_in_flight(self, kind: str, count: Callable[[], float]) -> None:
        """Show `count()` as the number of requests of `kind` in flight."""
        self._in_flight.labels(kind).set_function(count)


class EngineHeartbeat(Collector):
    """The engine's last heartbeat object, as gauges and counters."""

    def __init__(self) -> None:
        self._beat: Mapping[str, Any] | None = None

    def update(self, data: bytes | None) -> None:
        """Take the heartbeat object's bytes (None: there is none); damaged ones show nothing."""
        try:
            beat = None if data is None else json.loads(data)
        except (ValueError, RecursionError):
            beat = None
        self._beat = beat if isinstance(beat, dict) else None

    def collect(self) -> Iterator[Metric]:
        """What the engine said of itself, and of each topic."""
        beat = self._beat
        if beat is None:
            return
        if (at_ms := _number(beat.get("at_ms"))) is not None:
            yield GaugeMetricFamily(
                "onecopy_engine_heartbeat_timestamp_seconds",
                "When the engine last reported.",
                value=at_ms / 1000,
            )
        for name in _CYCLE_NUMBERS:
            if (value := _number(beat.get(name))) is not None:
                yield GaugeMetricFamily(
                    f"onecopy_engine_{name}", "As the engine reported.", value=value
                )
        topics = beat.get("topics")
        if isinstance(topics, dict):
            yield from _topic_gauges(topics)
        values = beat.get("values")
        if isinstance(values, dict):
            yield from _value_counters(dict(list(values.items())[:_TOPICS_MAX]))


def _topic_gauges(topics: Mapping[str, Any]) -> Iterator[Metric]:
    for name in _TOPIC_NUMBERS:
        family = GaugeMetricFamily(
            f"onecopy_engine_{name}", "As the engine reported.", labels=("topic",)
        )
        for topic, numbers in list(topics.items())[:_TOPICS_MAX]:
            value = _number(numbers.get(name)) if isinstance(numbers, dict) else None
            if value is not None:
                family.add_metric((topic,), value)
        yield family


def _value_counters(values: Mapping[str, Any]) -> Iterator[Metric]:
    for name, meaning in _VALUE_NUMBERS.items():
        family = CounterMetricFamily(f"onecopy_{name}", meaning, labels=("topic",))
        for topic, numbers in values.items():
            value = _number(numbers.get(name)) if isinstance(numbers, dict) else None
            if value is not None:
                family.add_metric((topic,), value)
        yield family
    bad = CounterMetricFamily(
        "onecopy_bad_records",
        "Records that gave no typed row, since the engine's start.",
        labels=("topic", "cause"),
    )
    for topic, numbers in values.items():
        causes = numbers.get("bad_records") if isinstance(numbers, dict) else None
        for cause, count in list(causes.items())[:_CAUSES_MAX] if isinstance(causes, dict) else ():
            if (value := _number(count)) is not None:
                bad.add_metric((topic, cause), value)
    yield bad


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
