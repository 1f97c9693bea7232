"""Bad records as rows of the table of dead letters."""

from __future__ import annotations

import pyarrow as pa

from tiering.conversion.record_columns import TableColumns, field_ids
from tiering.conversion.typed_rows import BadRecords
from tiering.table.schema import ERROR_CLASS_FIELD, ERROR_PART_FIELD, ERROR_REASON_FIELD

__all__ = ["dead_letter_rows"]


def dead_letter_rows(columns: TableColumns, bad: BadRecords, partition: int) -> pa.RecordBatch:
    """Rows with the records as they are, and what is wrong with each."""
    said = {
        ERROR_CLASS_FIELD: bad.causes,
        ERROR_REASON_FIELD: bad.reasons,
        ERROR_PART_FIELD: bad.parts,
        field_ids().schema_id: bad.schema_ids,
    }
    return columns.rows(bad.records, partition, said)
