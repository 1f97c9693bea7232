"""Kafka's bytes on disk as Arrow: batches, records, indexes, verdicts and native layouts.

Pure: bytes come in through a `RangeSource`; nothing here knows a network, a clock, Spark or
Iceberg.
"""

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
from segment_reader.sources import BytesSource, FileSource, RangeSource
from segment_reader.transactions import NO_VERDICTS, Verdicts

__all__ = [
    "DEFAULT_LIMITS",
    "NO_VERDICTS",
    "RECORD_SCHEMA",
    "BatchHeaders",
    "BatchStarts",
    "BytesSource",
    "Codec",
    "CorruptSegment",
    "FileSource",
    "IndexKind",
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
    "RecordFilter",
    "SegmentBounds",
    "SegmentReader",
    "SegmentReaderError",
    "StoredSegment",
    "TimeIndex",
    "TransactionIndex",
    "UnsupportedFormat",
    "Verdicts",
    "parse_leader_epochs",
    "parse_offset_index",
    "parse_producer_snapshot",
    "parse_time_index",
    "parse_transaction_index",
    "serve_offset_index",
    "whole_batches",
]
