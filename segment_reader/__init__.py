"""Kafka's bytes on disk as Arrow: batches, records, indexes, verdicts and native layouts.

Pure: bytes come in through a `RangeSource`; nothing here knows a network, a clock, Spark or
Iceberg.
"""

from segment_reader.batch_table import BATCH_SCHEMA, KEPT_COLUMN, BatchTable, Kept
from segment_reader.batches import BatchHeaders, BatchStarts, Codec, whole_batches
from segment_reader.bounds import SegmentBounds
from segment_reader.columns import RECORD_SCHEMA
from segment_reader.errors import CorruptSegment, SegmentReaderError, UnsupportedFormat
from segment_reader.indexes import (
    OffsetIndex,
    ProducerSnapshot,
    TimeIndex,
    TransactionIndex,
    parse_leader_epochs,
    parse_offset_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
    serve_offset_index,
)
from segment_reader.layouts import (
    IndexKind,
    LocalTieredStorageLayout,
    NativeLayout,
    NativeSegment,
    ObjectRead,
    OnecopyLayout,
    StoredSegment,
)
from segment_reader.limits import DEFAULT_LIMITS, Limits
from segment_reader.reader import ReadStats, RecordFilter, SegmentReader
from segment_reader.regeneration import EncodedRecords, RecordEncoder
from segment_reader.sources import BytesSource, FileSource, RangeSource
from segment_reader.transactions import NO_VERDICTS, Verdicts
from segment_reader.witness import AsHeld, Witnessed

__all__ = [
    "BATCH_SCHEMA",
    "DEFAULT_LIMITS",
    "KEPT_COLUMN",
    "NO_VERDICTS",
    "RECORD_SCHEMA",
    "AsHeld",
    "BatchHeaders",
    "BatchStarts",
    "BatchTable",
    "BytesSource",
    "Codec",
    "CorruptSegment",
    "EncodedRecords",
    "FileSource",
    "IndexKind",
    "Kept",
    "Limits",
    "LocalTieredStorageLayout",
    "NativeLayout",
    "NativeSegment",
    "ObjectRead",
    "OffsetIndex",
    "OnecopyLayout",
    "ProducerSnapshot",
    "RangeSource",
    "ReadStats",
    "RecordEncoder",
    "RecordFilter",
    "SegmentBounds",
    "SegmentReader",
    "SegmentReaderError",
    "StoredSegment",
    "TimeIndex",
    "TransactionIndex",
    "UnsupportedFormat",
    "Verdicts",
    "Witnessed",
    "parse_leader_epochs",
    "parse_offset_index",
    "parse_producer_snapshot",
    "parse_time_index",
    "parse_transaction_index",
    "serve_offset_index",
    "whole_batches",
]
