"""A topic's committed records from its Iceberg table, by partition and offset."""

from tiering.offset_reader.limits import DEFAULT_LIMITS, ReadLimits
from tiering.offset_reader.reader import OffsetReader
from tiering.offset_reader.records import Record

__all__ = ["DEFAULT_LIMITS", "OffsetReader", "ReadLimits", "Record"]
