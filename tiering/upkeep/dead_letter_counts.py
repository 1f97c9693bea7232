"""What the tables of bad records hold now, counted from their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from tiering.errors import NotFound, TransientError
from tiering.redaction import redact
from tiering.table.loading import load_table
from tiering.table.schema import ERROR_CLASS_FIELD, ERROR_REASON_FIELD, SCHEMA_ID_FIELD, raw_schema
from tiering.watermarks import TOPIC_ID_PROPERTY, TOPIC_PROPERTY

__all__ = ["DeadLetterCounts", "DeadLetterGroup", "OffsetRange", "count_dead_letters", "tables"]

_SUFFIX = "__dlq"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """A partition's bad records of one group: how many, and the first and last offset."""

    partition: int
    records: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Bad records of one error class and one schema id (None: they name none); `reason` is that
    of one of them."""

    error_class: str | None
    schema_id: int | None
    records: int
    reason: str | None
    partitions: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCounts:
    """One topic id's bad records; a former topic of the same name has a table of its own."""

    topic: str
    topic_id: str
    table: str
    records: int
    groups: tuple[DeadLetterGroup, ...]


@dataclass(slots=True)
class _Group:
    reason: str | None
    ranges: dict[int, OffsetRange] = field(default_factory=dict)


def tables(catalog: Catalog, namespace: str) -> list[Table]:
    """All tables of bad records in a namespace, by name. Raises TransientError."""
    try:
        names = [n for n in sorted(catalog.list_tables(namespace)) if _SUFFIX in n[-1]]
    except NoSuchNamespaceError:
        return []
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        text = f"the tables of {namespace} can't be listed: {type(error).__name__}: {error}"
        raise TransientError(redact(text, catalog.properties)) from None
    found = []
    for name in names:
        try:
            table = load_table(catalog, name)
        except NotFound:
            continue  # dropped or renamed meanwhile
        known = {TOPIC_PROPERTY, TOPIC_ID_PROPERTY} <= table.properties.keys()
        if known and any(ERROR_CLASS_FIELD in s.field_ids for s in table.schemas().values()):
            found.append(table)
    return found


def count_dead_letters(table: Table) -> DeadLetterCounts:
    """Read a table of bad records; memory doesn't grow with it. Raises TransientError."""
    groups: dict[tuple[str | None, int | None], _Group] = {}
    name = ".".join(table.name())
    try:
        for batch in _batches(table):
            _add(groups, batch)
    except OSError as error:
        raise TransientError(f"table {name} can't be read for now: {error}") from error
    made = [_made(key, group) for key, group in groups.items()]
    return DeadLetterCounts(
        topic=table.properties[TOPIC_PROPERTY],
        topic_id=table.properties[TOPIC_ID_PROPERTY],
        table=name,
        records=sum(group.records for group in made),
        groups=tuple(
            sorted(made, key=lambda g: (-g.records, str(g.error_class), str(g.schema_id)))
        ),
    )


def _batches(table: Table) -> Iterator[pa.Table]:
    """(partition, offset, class, schema id, reason); null for what somebody has dropped."""
    raw, schema = raw_schema(), table.schema()
    wanted = {
        "partition": raw.find_field("kafka_partition").field_id,
        "offset": raw.find_field("kafka_offset").field_id,
        "class": ERROR_CLASS_FIELD,
        "schema_id": SCHEMA_ID_FIELD,
        "reason": ERROR_REASON_FIELD,
    }
    names = {k: schema.find_column_name(i) for k, i in wanted.items()}
    kinds = {"class": pa.string(), "schema_id": pa.int32(), "reason": pa.string()}
    selected = tuple(name for name in names.values() if name is not None)
    for batch in table.scan(selected_fields=selected).to_arrow_batch_reader():
        columns = {
            key: pa.nulls(batch.num_rows, kinds[key]) if name is None else batch.column(name)
            for key, name in names.items()
        }
        yield pa.table(columns)


def _add(groups: dict[tuple[str | None, int | None], _Group], batch: pa.Table) -> None:
    counted = batch.group_by(["class", "schema_id", "partition"], use_threads=False).aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count"), ("reason", "first")]
    )
    for row in counted.to_pylist():
        group = groups.setdefault((row["class"], row["schema_id"]), _Group(row["reason_first"]))
        partition = row["partition"]
        before = group.ranges.get(partition)
        first, last = row["offset_min"], row["offset_max"]
        group.ranges[partition] = OffsetRange(
            partition=partition,
            records=row["offset_count"] + (before.records if before else 0),
            first_offset=min(first, before.first_offset) if before else first,
            last_offset=max(last, before.last_offset) if before else last,
        )


def _made(key: tuple[str | None, int | None], group: _Group) -> DeadLetterGroup:
    ranges = tuple(group.ranges[p] for p in sorted(group.ranges))
    return DeadLetterGroup(
        error_class=key[0],
        schema_id=key[1],
        records=sum(each.records for each in ranges),
        reason=group.reason,
        partitions=ranges,
    )
