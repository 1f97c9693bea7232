"""Every bound of the tier service in one place."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tiering.offset_reader.limits import ReadLimits

__all__ = ["DEFAULT_SERVICE_LIMITS", "ServiceLimits"]

_MIB = 1024 * 1024
_TABLE_READS = ReadLimits(
    batch_bytes=4 * _MIB,
    gather_bytes=64 * _MIB,
    read_ahead_row_groups=1,
    read_ahead_bytes=8 * _MIB,
    footer_bytes=8 * _MIB,
    open_files=4,
)


def _twice_the_cores(least: int = 4, most: int = 16) -> int:
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return min(most, max(least, 2 * cores))


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
        unit_bytes: record bytes of a retired segment that are regenerated in one go.
        unit_cache_bytes_max: regenerated batches kept in memory.
        side_cache_bytes_max: side files of retired segments kept in memory.
        units_ahead_max: units begun before they are asked for by who reads on and on.
        readers_max: readers of retired segments that are told apart.
        regeneration_threads: threads that regenerate, shared fairly by the topics; twice the
            cores, so that one topic, which gets at most half of them, can use all cores.
        regeneration_wait_s: how long a request waits for its unit; the unit is made all the same.
        cursors_max: readers of table rows that are kept where they stopped.
        table_reads: bounds of each of them, and on what is kept of each table.
        views_max: tables kept open.
        view_check_s: how long a table is used before its pointer is looked at again.
        fault_check_s: how long a batch is refused before its rows are looked at again.
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
    unit_bytes: int = 2 * _MIB
    unit_cache_bytes_max: int = 256 * _MIB
    side_cache_bytes_max: int = 128 * _MIB
    units_ahead_max: int = 4
    readers_max: int = 1024
    regeneration_threads: int = field(default_factory=_twice_the_cores)
    regeneration_wait_s: float = 20.0
    cursors_max: int = 16
    table_reads: ReadLimits = _TABLE_READS
    views_max: int = 128
    view_check_s: float = 10.0
    fault_check_s: float = 1.0


DEFAULT_SERVICE_LIMITS = ServiceLimits()
