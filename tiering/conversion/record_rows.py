"""Records on their way into a task's files: rows of the table, and dead letters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiering.conversion.dead_letters import dead_letter_rows
from tiering.conversion.held_records import records_from_rows
from tiering.conversion.record_columns import TableColumns
from tiering.conversion.task_files import TaskFiles, warehouse_url
from tiering.conversion.task_input import OpenStore
from tiering.conversion.typed_rows import TypedRecords, TypedRows
from tiering.tasks import ConversionTask, DataFileEntry

__all__ = ["NoDeadLetters", "RecordRows", "Suspended"]


class NoDeadLetters(Exception):
    """There are bad records, and the topic has no table for them yet."""


class Suspended(Exception):
    """There is a bad record, and its topic is to stop at such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """Records and the rows that were made of them, one for each."""

    records: pa.RecordBatch
    rows: pa.RecordBatch
    typed: TypedRecords | None


class RecordRows:
    """Makes rows of records, says what will come back of them, and writes them.

    Every record is made a row once: what `as_held` has looked at is what `write` writes.

    Args:
        open_store: opens the places of the tables.
    """

    def __init__(self, task: ConversionTask, open_store: OpenStore) -> None:
        self._task = task
        self._open_store = open_store
        self._columns = TableColumns.of(task.target.schema_json, task.target.schemas)
        self._typed = TypedRows(self._columns, task.typed) if task.typed is not None else None
        self._files = TaskFiles(
            task, self._columns, open_store(warehouse_url(task.target, task.store_url))
        )
        self._dead: TaskFiles | None = None
        self._made: _Made | None = None
        self.bad_records: Counter[str] = Counter()
        self.typed_rows = 0
        self.raw_rows = 0

    def as_held(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """What the table gives back of records (RECORD_SCHEMA), with whatever it loses.

        Typed columns have been compared with the bytes that they were made of by then, row by
        row: keys and values come back whole, but for those of dead letters, which have no row.
        """
        made = self._make(records)
        if made.typed is None:
            return records_from_rows(made.rows, self._columns)
        untyped = self._columns.rows(records, self._task.partition)
        held = records_from_rows(untyped, self._columns)
        if self._keeps_bad() or not made.typed.bad.any():
            return held
        return _without_values(held, made.typed)

    def write(self, records: pa.RecordBatch) -> None:
        """Write records that follow those before in offset order.

        Raises UnknownSchemas, NoDeadLetters and Suspended.
        """
        made = self._part_of_made(records)
        rows, typed = made.rows, made.typed
        if typed is not None:
            self.typed_rows += int(typed.typed.sum())
            self.raw_rows += int((typed.typed & typed.kept).sum())
            if typed.bad.any():
                rows = self._without_bad(made, typed)
        if rows.num_rows:
            self._files.add(rows)

    def finish(self) -> tuple[tuple[DataFileEntry, ...], tuple[DataFileEntry, ...]]:
        """Make all files durable: the table's, and those of dead letters."""
        entries = self._files.finish()
        return entries, self._dead.finish() if self._dead is not None else ()

    def abort(self) -> None:
        """Drop all files, as far as the stores let us; never raises."""
        self._files.abort()
        if self._dead is not None:
            self._dead.abort()

    def _keeps_bad(self) -> bool:
        return self._task.typed is not None and self._task.typed.on_error == "raw"

    def _make(self, records: pa.RecordBatch) -> _Made:
        typed = self._typed.of(records) if self._typed is not None else None
        given = None if typed is None else typed.columns
        rows = self._columns.rows(records, self._task.partition, given)
        self._made = _Made(records=records, rows=rows, typed=typed)
        return self._made

    def _part_of_made(self, records: pa.RecordBatch) -> _Made:
        """What was made of these records: all or some of those that were looked at last."""
        made = self._made
        if made is None or not records.num_rows:
            return self._make(records)
        offsets, wanted = made.records.column("offset"), records.column("offset")
        first = int(np.searchsorted(offsets.to_numpy(), wanted[0].as_py()))
        count = records.num_rows
        if first + count > len(offsets) or offsets[first + count - 1] != wanted[count - 1]:
            return self._make(records)
        if count == len(offsets):
            return made
        typed = made.typed.slice(first, count) if made.typed is not None else None
        return _Made(records=records, rows=made.rows.slice(first, count), typed=typed)

    def _without_bad(self, made: _Made, typed: TypedRecords) -> pa.RecordBatch:
        """The rows of the table; bad records go where the topic's plan says."""
        assert self._task.typed is not None  # noqa: S101 - what `typed` was made by
        self.bad_records += typed.causes()
        on_error = self._task.typed.on_error
        if on_error == "raw":
            return made.rows
        if on_error == "suspend":
            raise Suspended(typed.first_fault(made.records))
        self._bury(made, typed)
        return made.rows.filter(pa.array(~typed.bad))

    def _bury(self, made: _Made, typed: TypedRecords) -> None:
        plan = self._task.typed
        assert plan is not None  # noqa: S101 - there are typed records
        if plan.dead_letters is None:
            raise NoDeadLetters(f"{int(typed.bad.sum())} bad records")
        bad = typed.bad_records(made.records)
        fresh = bad.from_offset(plan.dead_letters_from)
        if not fresh.records.num_rows:
            return
        if self._dead is None:
            task = replace(self._task, target=plan.dead_letters)
            columns = TableColumns.of(plan.dead_letters.schema_json)
            place = self._open_store(warehouse_url(plan.dead_letters, self._task.store_url))
            self._dead = TaskFiles(task, columns, place)
        self._dead.add(dead_letter_rows(self._dead.columns, fresh, self._task.partition))


def _without_values(held: pa.RecordBatch, typed: TypedRecords) -> pa.RecordBatch:
    """The records, those that have no row with another value: their batches are kept whole."""
    values = held.column("value")
    other = pc.if_else(values.is_null(), pa.scalar(b"", pa.binary()), pa.scalar(None, pa.binary()))
    place = held.schema.get_field_index("value")
    changed = pc.if_else(pa.array(typed.bad), other, values)
    return held.set_column(place, held.schema.field(place), changed)
