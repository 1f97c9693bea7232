"""How far each topic and partition has come: ledger and table, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tiering.errors import NotFound, TieringError
from tiering.ledger import LedgerEntry, SegmentState
from tiering.planning import group_by_partition
from tiering.table.commit import TableState

__all__ = ["PartitionStatus", "TierStatus", "TopicStatus", "ValuesStatus", "collect_status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition; offsets are Kafka's, sizes bytes.

    Attributes:
        log_start: first offset that the tier holds in native form, None when it holds none.
        tier_end: offset after the last one handed to the tier.
        watermark: next offset to come into the table, None before the first conversion.
        lag: offsets handed to the tier that are not in the table yet.
        pending_segments, pending_bytes: segments that still have offsets to convert.
        proven_segments: table and side file are known to give back what the native log holds.
        retired_segments: of these, those that have no native log any more.
        native_bytes: bytes of native logs that are still there.
        deleted_rows: records whose rows SQL had deleted when their segment was proven.
        quarantined: reasons of quarantined segments.
        faults: proofs that failed, and why.
    """

    partition: int
    log_start: int | None
    tier_end: int
    watermark: int | None
    lag: int
    pending_segments: int
    pending_bytes: int
    proven_segments: int
    retired_segments: int
    native_bytes: int
    deleted_rows: int
    quarantined: tuple[str, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesStatus:
    """What has become of a topic's values since the engine's start.

    Attributes:
        typed_rows: rows with typed columns.
        raw_rows: of these, those whose values don't come back from their columns: kept twice.
        raw_share: raw_rows / typed_rows; 0 without any.
        bad_records: records that gave no typed row, by cause. Those that are in the table of bad
            records now are counted by `onecopy dlq list`.
    """

    typed_rows: int
    raw_rows: int
    raw_share: float
    bad_records: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """One topic id with its table.

    `problem` says what stops it, None when nothing does; `values` is None where the engine has
    told of no values with a schema. `untyped` says which schemas' values have no columns, and why.
    """

    topic: str
    topic_id: str
    table: str
    snapshot_id: int | None
    files: int
    file_bytes: int
    problem: str | None
    values: ValuesStatus | None
    untyped: tuple[str, ...]
    partitions: tuple[PartitionStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """All topics, and when the engine was last seen at work (epoch ms)."""

    engine_seen_at_ms: int | None
    topics: tuple[TopicStatus, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)


def collect_status(
    entries: Iterable[LedgerEntry],
    *,
    state_of: Callable[[str, str], TableState],
    files_of: Callable[[TableState], tuple[int, int]],
    heartbeat: Mapping[str, Any],
) -> TierStatus:
    """Put ledger, tables and the engine's heartbeat together.

    Args:
        state_of: (topic, topic id) -> its table's state; raises NotFound before the first
            conversion.
        files_of: table state -> (data files, their bytes) of the current snapshot.
    """
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.metadata.id.topic_id, []).append(entry)
    topics = [
        _topic(topic_id, group, state_of, files_of, heartbeat)
        for topic_id, group in sorted(groups.items(), key=lambda g: g[1][0].metadata.topic)
    ]
    return TierStatus(engine_seen_at_ms=heartbeat.get("at_ms"), topics=tuple(topics))


def _topic(
    topic_id: str,
    group: Sequence[LedgerEntry],
    state_of: Callable[[str, str], TableState],
    files_of: Callable[[TableState], tuple[int, int]],
    heartbeat: Mapping[str, Any],
) -> TopicStatus:
    topic = group[0].metadata.topic
    state: TableState | None = None
    files, file_bytes = 0, 0
    partitions = group_by_partition(group)
    problem = _problem_of(topic, partitions, heartbeat.get("problems", {}))
    try:
        state = state_of(topic, topic_id)
        files, file_bytes = files_of(state)
        problem = state.flagged or problem
    except NotFound:
        problem = problem or "no table yet"
    except (TieringError, OSError) as error:
        problem = str(error)
    return TopicStatus(
        topic=topic,
        topic_id=topic_id,
        table=".".join(state.identifier) if state else "",
        snapshot_id=state.snapshot_id if state else None,
        files=files,
        file_bytes=file_bytes,
        problem=problem,
        values=_values(heartbeat.get("values"), topic),
        untyped=state.untyped if state else (),
        partitions=tuple(_partition(p, partitions[p], state) for p in sorted(partitions)),
    )


def _problem_of(topic: str, partitions: Iterable[int], problems: Mapping[str, str]) -> str | None:
    """A problem is reported under the topic's name or `<topic>-<partition>`."""
    if topic in problems:
        return problems[topic]
    for partition in sorted(partitions):
        problem = problems.get(f"{topic}-{partition}")
        if problem is not None:
            return f"partition {partition}: {problem}"
    return None


def _values(told: object, topic: str) -> ValuesStatus | None:
    """The engine counts by a topic's name."""
    found = told.get(topic) if isinstance(told, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    typed, raw = int(found.get("typed_rows", 0)), int(found.get("raw_rows", 0))
    return ValuesStatus(
        typed_rows=typed,
        raw_rows=raw,
        raw_share=raw / typed if typed else 0.0,
        bad_records=dict(found.get("bad_records", {})),
    )


def _partition(
    partition: int, entries: Sequence[LedgerEntry], state: TableState | None
) -> PartitionStatus:
    mark = state.watermarks.get(partition) if state else None
    reached = mark.offset if mark else 0
    live = [e for e in entries if not e.delete_requested]
    pending = [
        e for e in live if e.state is SegmentState.UPLOADED and e.metadata.end_offset >= reached
    ]
    tier_end = max((e.metadata.end_offset + 1 for e in live), default=reached)
    first = min((e.metadata.start_offset for e in live), default=None)
    return PartitionStatus(
        partition=partition,
        log_start=first,
        tier_end=tier_end,
        watermark=mark.offset if mark else None,
        lag=max(0, tier_end - max(reached, first or 0)),
        pending_segments=len(pending),
        pending_bytes=sum(e.metadata.size_bytes for e in pending),
        proven_segments=sum(e.proof is not None for e in live),
        retired_segments=sum(e.state is SegmentState.RETIRED for e in live),
        native_bytes=sum(e.metadata.size_bytes for e in live if not e.native_gone),
        deleted_rows=sum(e.proof.deleted_rows for e in live if e.proof is not None),
        quarantined=tuple(
            f"{e.metadata.id.path}: byte {e.quarantine.position}: {e.quarantine.reason}"
            for e in live
            if e.quarantine is not None
        ),
        faults=tuple(
            f"{e.metadata.id.path}: offset {e.fault.offset}: {e.fault.reason} ({e.fault.count}x)"
            for e in live
            if e.fault is not None and e.proof is None
        ),
    )
