"""Units of whole numbers that stand for times, as a column's `doc` says them.

Tables have no columns of type `time`: Spark refuses to open a table with one. And Iceberg v2 has
no type for nanoseconds. Such values are the numbers that the writer wrote.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MICROS_OF_DAY", "MILLIS_OF_DAY", "NANOS_LOCAL", "NANOS_UTC", "UNITS"]

MILLIS_OF_DAY: Final = "milliseconds after midnight"
MICROS_OF_DAY: Final = "microseconds after midnight"
NANOS_UTC: Final = "nanoseconds since 1970-01-01 00:00:00 UTC"
NANOS_LOCAL: Final = "nanoseconds since 1970-01-01 00:00:00, in no time zone"

UNITS: Final = frozenset({MILLIS_OF_DAY, MICROS_OF_DAY, NANOS_UTC, NANOS_LOCAL})
"""Numbers of two of these never go into one column."""
