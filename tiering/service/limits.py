"""Every bound of the tier service in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_SERVICE_LIMITS", "ServiceLimits"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Bounds on what clients may ask for and on what the service holds in memory.

    Attributes:
        put_in_flight_max, get_in_flight_max: requests of each kind worked on at once; more
            are answered 503 `busy`.
        put_per_topic_max, get_per_topic_max: share of these that one topic may take, so that
            a slow topic leaves room for the others.
        manifest_bytes_max: the JSON in front of an upload.
        indexes_bytes_max: all index parts of one segment together.
        log_bytes_max: a segment's log (Kafka's positions are int32).
        block_bytes: how much of a body is gathered before it goes to the store.
        no_progress_s: longest time without one more byte of a body.
        put_deadline_s: longest time for a whole body.
        pull_bytes_default, pull_bytes_max: size of one answer of whole batches; a single
            larger batch is sent whole.
        batch_bytes_max: largest batch sent.
        walk_bytes: how much is read at once while looking for a batch's start.
        cache_bytes_max: parsed offset indexes and ledger entries kept in memory.
        entry_cache_s: how long a ledger entry may be used for pulls without reading it again.
        withdrawn_ids_max: deleted ids remembered that had no ledger entry.
        retry_after_s: what a `busy` answer asks the client to wait.
        health_cache_s: how long one look at the store answers for /v1/health.
        store_answer_s: how long /v1/health and /metrics wait for the store.
        ledger_count_every_s: how often the gauges of segments by state are counted again.
        keep_alive_s: how long an idle connection is kept.
    """

    put_in_flight_max: int = 16
    put_per_topic_max: int = 8
    get_in_flight_max: int = 64
    get_per_topic_max: int = 24
    manifest_bytes_max: int = 1 * _MIB
    indexes_bytes_max: int = 512 * _MIB
    log_bytes_max: int = 2**31 - 1
    block_bytes: int = 2 * _MIB
    no_progress_s: float = 30.0
    put_deadline_s: float = 900.0
    pull_bytes_default: int = 1 * _MIB
    pull_bytes_max: int = 4 * _MIB
    batch_bytes_max: int = 256 * _MIB
    walk_bytes: int = 64 * 1024
    cache_bytes_max: int = 64 * _MIB
    entry_cache_s: float = 1.0
    withdrawn_ids_max: int = 10_000
    retry_after_s: int = 1
    health_cache_s: float = 1.0
    store_answer_s: float = 5.0
    ledger_count_every_s: float = 30.0
    keep_alive_s: int = 300


DEFAULT_SERVICE_LIMITS = ServiceLimits()
