"""What a table's metadata says of our progress: watermarks, and whether they can be trusted. Pure.

Every snapshot of ours repeats all watermarks and its cycle id in its summary. So what counts is
the newest ancestor of main that carries them; it changes with the rows, in one commit. The table
property of the same name is a copy for people, and the truth only once all our snapshots have
been expired.

Somebody may have rolled the table back. It shows in two ways: a snapshot of ours is newer than
the one that main knows (or than all that main knows), or the property says more than main does.
Snapshots that others put on top of ours (rewrites, deletes) and expired snapshots are no rollback.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from tiering.errors import FatalError
from tiering.values.stored_schema import stored_schemas
from tiering.watermarks import (
    CYCLE_ID_SUMMARY,
    MOVED_SUMMARY,
    TOPIC_ID_PROPERTY,
    WATERMARKS_PROPERTY,
    Watermark,
    decode_watermarks,
)

__all__ = ["TableState", "landed_snapshot", "main_ancestors", "moved_partitions", "read_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One reading of a table.

    Attributes:
        identifier: (namespace..., table name).
        uuid: the table's own, which a rename keeps.
        snapshot_id: head of main, None while the table is empty.
        topic_id: the Kafka topic that the table belongs to; "" if the property is gone.
        watermarks: by Kafka partition; partitions without rows or progress are missing.
        flagged: why nothing may be converted or retired until somebody has looked, or None.
        untyped: which schemas' values have no columns, and why.
    """

    identifier: tuple[str, ...]
    uuid: str
    snapshot_id: int | None
    topic_id: str
    watermarks: Mapping[int, Watermark]
    flagged: str | None = None
    untyped: tuple[str, ...] = ()


def read_state(identifier: tuple[str, ...], metadata: TableMetadata) -> TableState:
    """Read the state from a table's metadata; what is damaged or unclear becomes a flag."""
    name = ".".join(identifier)
    head = _head_id(metadata)
    watermarks: Mapping[int, Watermark] = {}
    try:
        watermarks, flagged = _judge(name, metadata)
    except FatalError as error:
        flagged = str(error)
    return TableState(
        identifier=identifier,
        uuid=str(metadata.table_uuid),
        snapshot_id=head,
        topic_id=metadata.properties.get(TOPIC_ID_PROPERTY, ""),
        watermarks=watermarks,
        flagged=flagged,
        untyped=tuple(_untyped(metadata)),
    )


def _untyped(metadata: TableMetadata) -> Iterator[str]:
    try:
        schemas = stored_schemas(metadata.properties)
    except FatalError as error:
        yield str(error)
        return
    for (part, schema_id), stored in sorted(schemas.items()):
        if stored.refused:
            yield f"{part}s of schema {schema_id} are bad records: {stored.refused}"
        elif stored.kept_raw:
            yield f"{part}s of schema {schema_id} are kept as they are: {stored.kept_raw}"


def landed_snapshot(
    metadata: TableMetadata, snapshot_ids: Collection[int], cycle_id: str
) -> Snapshot | None:
    """The ancestor of main that is one of `snapshot_ids` or carries `cycle_id`, if any."""
    for snapshot in main_ancestors(metadata):
        if snapshot.snapshot_id in snapshot_ids or _summary(snapshot, CYCLE_ID_SUMMARY) == cycle_id:
            return snapshot
    return None


def moved_partitions(snapshot: Snapshot) -> frozenset[int]:
    """The partitions that a snapshot of ours moved. Earlier tries may have held more of them."""
    return frozenset(int(p) for p in (_summary(snapshot, MOVED_SUMMARY) or "").split(",") if p)


def _judge(table: str, metadata: TableMetadata) -> tuple[Mapping[int, Watermark], str | None]:
    newest, oldest_seen = _newest_of_ours(metadata)
    floor = newest or oldest_seen
    lost = _newer_of_ours(metadata, floor)
    text = metadata.properties.get(WATERMARKS_PROPERTY)
    if newest is not None:
        marks = decode_watermarks(_summary(newest, WATERMARKS_PROPERTY), table=table)
    elif oldest_seen is not None and not _is_first(oldest_seen):
        if text is None:
            return {}, (
                f"table {table}: property {WATERMARKS_PROPERTY} is gone and every snapshot that "
                "carried the watermarks has expired; set the property again"
            )
        marks = decode_watermarks(text, table=table)
    else:
        marks = {}
    if lost is not None:
        return marks, (
            f"table {table}: snapshot {lost.snapshot_id} of cycle "
            f"{_summary(lost, CYCLE_ID_SUMMARY)} is not an ancestor of main any more: somebody "
            "rolled the table back; nothing is converted or retired until that is settled"
        )
    return marks, _property_ahead(table, decode_watermarks(text, table=table), marks)


def _property_ahead(
    table: str, stated: Mapping[int, Watermark], marks: Mapping[int, Watermark]
) -> str | None:
    """Say where the property claims more than main: rows were taken away, or it was edited."""
    for partition, mark in sorted(stated.items()):
        known = marks.get(partition)
        if known is None or mark.offset > known.offset:
            return (
                f"table {table}: property {WATERMARKS_PROPERTY} has partition {partition} at "
                f"offset {mark.offset}, main's snapshots have it at "
                f"{known.offset if known else 'none'}: the table was rolled back or the property "
                "edited; nothing is converted or retired until that is settled"
            )
    return None


def _newest_of_ours(metadata: TableMetadata) -> tuple[Snapshot | None, Snapshot | None]:
    """Main's newest ancestor that carries watermarks, and the last ancestor looked at."""
    last = None
    for last in main_ancestors(metadata):
        if _summary(last, WATERMARKS_PROPERTY) is not None:
            return last, last
    return None, last


def _is_first(snapshot: Snapshot) -> bool:
    """Whether the table has never had an older one: some engines cut the parent at expiry."""
    return snapshot.parent_snapshot_id is None and snapshot.sequence_number == 1


def _newer_of_ours(metadata: TableMetadata, floor: Snapshot | None) -> Snapshot | None:
    """A snapshot of ours made after `floor`.

    `floor` is main's newest of ours, or else the oldest ancestor that is still known. Sequence
    numbers rise along the chain of ancestors, so a newer one of ours can't be among them.
    """
    above = -1 if floor is None else floor.sequence_number or 0
    newer = [
        s
        for s in metadata.snapshots
        if (s.sequence_number or 0) > above and _summary(s, WATERMARKS_PROPERTY) is not None
    ]
    return max(newer, key=lambda s: s.sequence_number or 0, default=None)


def main_ancestors(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Main's snapshots from its head backwards, as far as they have not expired."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    at = _head_id(metadata)
    while at is not None and (snapshot := by_id.pop(at, None)) is not None:
        yield snapshot
        at = snapshot.parent_snapshot_id


def _head_id(metadata: TableMetadata) -> int | None:
    main = metadata.refs.get(MAIN_BRANCH)
    return None if main is None else main.snapshot_id


def _summary(snapshot: Snapshot, key: str) -> str | None:
    summary = snapshot.summary
    return None if summary is None else summary.additional_properties.get(key)
