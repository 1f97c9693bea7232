"""Bad records tried again: which of them are rows of the topic's table now, which stay. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segment_reader import RECORD_SCHEMA
from tiering.conversion.held_records import records_from_rows
from tiering.conversion.record_columns import TableColumns, field_ids
from tiering.conversion.typed_rows import TypedRecords, TypedRows
from tiering.table.schema import ERROR_CLASS_FIELD, ERROR_PART_FIELD, ERROR_REASON_FIELD
from tiering.tasks import TableTarget, TypedValues
from tiering.upkeep.row_files import all_columns
from tiering.values.arrow_fields import field_id

__all__ = ["RecordsAgain", "Retried"]

_NO_RECORDS: Final = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """What became of some rows of the table of bad records.

    Attributes:
        rows: for the topic's table; of its columns.
        already: how many leave because the topic's table has a row of theirs.
        stays: the rows that remain, with the newest reasons; all columns of their table.
        changed: whether any left, or stays for another reason than before.
    """

    rows: pa.RecordBatch
    already: int
    stays: pa.RecordBatch
    changed: bool


class RecordsAgain:
    """Makes rows of bad records, by the code that conversion does it by. For one thread.

    Args:
        target: the topic's table.
        typed: how values and keys become columns; None where they are kept as they are.
        dead: the table of bad records.
    """

    def __init__(self, target: TableTarget, typed: TypedValues | None, dead: TableTarget) -> None:
        self.columns = TableColumns.of(target.schema_json, target.schemas)
        self.dead_columns = all_columns(dead)
        self._typed = TypedRows(self.columns, typed) if typed is not None else None
        self._keeps_bad = typed is not None and typed.on_error == "raw"
        self._records = TableColumns.of(dead.schema_json)

    def classes(self, batch: pa.RecordBatch) -> pa.Array:
        """Their error classes; nulls where somebody has dropped the column."""
        place = self.dead_columns.index(ERROR_CLASS_FIELD)
        return pa.nulls(batch.num_rows, pa.string()) if place is None else batch.column(place)

    def of(
        self, batch: pa.RecordBatch, partition: int, tried: Bools, there: Bools, duplicate: Bools
    ) -> Retried:
        """Try some rows of the table of bad records (all of its columns) again.

        Args:
            tried: which ones; the others stay as they are.
            there: which ones the topic's table has a row of.
            duplicate: which ones are of the same offset as the one before.

        Raises UnknownSchemas.
        """
        if not tried.any():
            return Retried(
                rows=self.columns.rows(_NO_RECORDS, partition),
                already=0,
                stays=batch,
                changed=False,
            )
        records = self._as_records(batch.filter(pa.array(tried)))
        typed = self._typed.of(records) if self._typed is not None else None
        rows = self.columns.rows(records, partition, None if typed is None else typed.columns)
        bad = np.zeros(records.num_rows, np.bool_)
        if typed is not None and not self._keeps_bad:
            bad = typed.bad
        known = there[tried] | duplicate[tried]
        leaves = np.zeros(batch.num_rows, np.bool_)
        leaves[tried] = ~bad | there[tried]
        stays = batch
        if typed is not None and bad.any():
            stays = self._with_reasons(batch, np.flatnonzero(tried)[bad], typed, records)
        return Retried(
            rows=rows.filter(pa.array(~bad & ~known)),
            already=int((leaves[tried] & known).sum()),
            stays=stays.filter(pa.array(~leaves)),
            changed=bool(leaves.any()) or not stays.equals(batch),
        )

    def _as_records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        held = [self.dead_columns.index(field_id(each)) for each in self._records.arrow]
        columns = [batch.column(place) for place in held if place is not None]
        own = pa.RecordBatch.from_arrays(columns, schema=self._records.arrow)
        return records_from_rows(own, self._records)

    def _with_reasons(
        self,
        batch: pa.RecordBatch,
        places: Int64s,
        typed: TypedRecords,
        records: pa.RecordBatch,
    ) -> pa.RecordBatch:
        """The batch with what is wrong now with the rows at `places`."""
        bad = typed.bad_records(records)
        given = {
            ERROR_CLASS_FIELD: bad.causes,
            ERROR_REASON_FIELD: bad.reasons,
            ERROR_PART_FIELD: bad.parts,
            field_ids().schema_id: bad.schema_ids,
        }
        mask = np.zeros(batch.num_rows, np.bool_)
        mask[places] = True
        columns: list[Any] = []
        for each, column in zip(self.dead_columns.arrow, batch.columns, strict=True):
            new = given.get(field_id(each))
            columns.append(
                column if new is None else pc.replace_with_mask(column, pa.array(mask), new)
            )
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
