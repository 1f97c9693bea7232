"""A segment's batches again, from the table's rows and what the side file keeps beside them."""

from tiering.conversion.held_records import as_held, records_from_rows
from tiering.history.coverage import coverage
from tiering.history.kafka_columns import dropped_columns
from tiering.history.regenerator import HistoryMismatch, RegeneratedRun, Regenerator
from tiering.history.table_records import RecordCursor, TableRecords

__all__ = [
    "HistoryMismatch",
    "RecordCursor",
    "RegeneratedRun",
    "Regenerator",
    "TableRecords",
    "as_held",
    "coverage",
    "dropped_columns",
    "records_from_rows",
]
