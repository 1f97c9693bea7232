"""Rows become the bytes that Kafka's writers, and a plain encoder of the tests, make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from batch_maker import MadeBatch, MadeRecord, zigzag
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_oracle import KafkaLog
from plain_batches import plain_batches

from segment_reader import (
    DEFAULT_LIMITS,
    RECORD_SCHEMA,
    BatchHeaders,
    BytesSource,
    EncodedRecords,
    RecordEncoder,
    SegmentBounds,
    SegmentReader,
)
from segment_reader.batches import HeaderScanner
from segment_reader.kernels.checksum import checksums
from segment_reader.regeneration import _Columns

LOOSE = SegmentBounds(start_offset=0, end_offset=2**62)
APPEND_TIME = 8


def headers_of(batches: Sequence[MadeBatch]) -> BatchHeaders:
    data = np.frombuffer(b"".join(batch.encode() for batch in batches), np.uint8)
    data.flags.writeable = False
    headers, _ = HeaderScanner("made", LOOSE, DEFAULT_LIMITS).scan(data, 0)
    return headers


def rows_of_made(batches: Sequence[tuple[MadeBatch, Sequence[MadeRecord]]]) -> pa.RecordBatch:
    """What a table has of the records; log-append time hides theirs."""
    rows = []
    for batch, records in batches:
        for record in records:
            own = _wrap(batch.base_timestamp + record.timestamp_delta)
            appended = bool(batch.attributes & APPEND_TIME)
            rows.append(
                {
                    "offset": batch.base_offset + record.offset_delta,
                    "timestamp_ms": batch.max_timestamp if appended else own,
                    "timestamp_type": int(appended),
                    "leader_epoch": 0,
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"key": k.decode(), "value": v} for k, v in record.headers],
                }
            )
    return pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)


def bytes_of(records: EncodedRecords) -> list[bytes]:
    borders = records.borders.tolist()
    return [records.buffer[borders[i] : borders[i + 1]].tobytes() for i in range(len(records))]


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize(
    "name",
    [
        *("codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "mixed-codecs"),
        *("empty-batches", "compacted", "tiny-batches", "odd-timestamps", "large-records"),
    ],
)
def test_rows_of_kafkas_logs_become_kafkas_bytes(
    kafka_logs: Callable[[str], KafkaLog], name: str
) -> None:
    log = kafka_logs(name)
    reader = SegmentReader(log.source, log.bounds)
    encoder, compared = RecordEncoder(), 0
    expected = {b.base_offset: b.records for b in plain_batches(log.data)}
    rows = pa.Table.from_batches(reader.record_batches()).combine_chunks().to_batches()[0]
    for chunk in reader.headers():
        headers = chunk.take(~chunk.control)
        ends = np.append(headers.base_offset, headers.last_offset[-1:] + 1)
        borders = np.searchsorted(rows.column("offset").to_numpy(), ends)
        encoded = encoder.encode(headers, rows, borders)
        records = [expected[base] for base in headers.base_offset.tolist()]
        assert bytes_of(encoded) == records
        assert encoded.checksums().tolist() == [google_crc32c.value(data) for data in records]
        compared += len(records)
    assert compared == sum(not batch["control"] for batch in log.batches)


texts = st.one_of(st.none(), st.binary(max_size=300))
headers_lists = st.lists(st.tuples(st.text(max_size=6).map(str.encode), texts), max_size=4)
int64s = st.integers(-(2**63), 2**63 - 1)


@st.composite
def made_batches(draw: st.DrawFn) -> list[tuple[MadeBatch, list[MadeRecord]]]:
    made, base = [], draw(st.integers(0, 2**61))
    for _ in range(draw(st.integers(1, 4))):
        deltas = sorted(draw(st.sets(st.integers(0, 3000), max_size=12)))
        records = [
            MadeRecord(delta, draw(int64s), draw(texts), draw(texts), tuple(draw(headers_lists)))
            for delta in deltas
        ]
        batch = MadeBatch.of(base, records, base_timestamp=draw(int64s), max_timestamp=draw(int64s))
        made.append((batch, records))
        base += 3001
    return made


@settings(max_examples=200, deadline=None)
@given(made_batches(), st.integers(0, 3), st.data())
def test_any_rows_are_encoded_as_the_plain_encoder_does(
    made: list[tuple[MadeBatch, list[MadeRecord]]], skipped: int, data: st.DataObject
) -> None:
    headers, rows = headers_of([batch for batch, _ in made]), rows_of_made(made)
    counts = [len(records) for _, records in made]
    # Arrow arrays that begin somewhere in their buffers, with other rows around.
    around = rows.slice(0, skipped)
    (whole,) = pa.Table.from_batches([around, rows, rows]).combine_chunks().to_batches() or [rows]
    sliced = whole.slice(around.num_rows)
    borders = np.cumsum([0, *counts])
    expected = [batch.payload for batch, _ in made]
    encoder = RecordEncoder()
    assert bytes_of(encoder.encode(headers, sliced, borders)) == expected
    assert bytes_of(encoder.encode(headers, whole, borders + around.num_rows)) == expected
    i = data.draw(st.integers(0, len(made) - 1))
    one = headers.slice(slice(i, i + 1))
    assert bytes_of(encoder.encode(one, rows, borders[i : i + 2])) == expected[i : i + 1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(int64s, st.booleans()), max_size=30), int64s, int64s)
def test_deltas_are_found_by_offset_when_rows_are_gone(
    deltas: list[tuple[int, bool]], base_timestamp: int, append_time: int
) -> None:
    """`deltas`: of each record, and whether its row is still there."""
    records = [MadeRecord(i, delta) for i, (delta, _) in enumerate(deltas)]
    times = {"base_timestamp": base_timestamp, "max_timestamp": append_time}
    batch = MadeBatch.of(77, records, attributes=APPEND_TIME, **times)
    before = MadeBatch.of(0, [MadeRecord(3, 5)], **times)
    after = MadeBatch.of(1000, [MadeRecord(0), MadeRecord(9)], attributes=APPEND_TIME, **times)
    left = [r for r, (_, is_left) in zip(records, deltas, strict=True) if is_left]
    rows = rows_of_made(
        [(before, [MadeRecord(3, 5)]), (batch, left), (after, [MadeRecord(0), MadeRecord(9)])]
    )
    kept = b"".join(zigzag(delta) for delta, _ in deltas)
    borders = np.cumsum([0, 1, len(left), 2])
    headers = headers_of([before, batch, after])
    encoded = RecordEncoder().encode(headers, rows, borders, [b"\2\2\2\2", kept, None])
    expected = [before.payload, b"".join(r.encode() for r in left), after.payload]
    assert bytes_of(encoded) == expected
    if left and any(record.timestamp_delta for record in left):
        without = bytes_of(RecordEncoder().encode(headers, rows, borders))
        assert without != expected


def test_deltas_that_end_too_soon_are_refused() -> None:
    records = [MadeRecord(0, 1), MadeRecord(1, 300)]
    batch = MadeBatch.of(77, records, attributes=APPEND_TIME)
    headers, rows = headers_of([batch]), rows_of_made([(batch, records)])
    kept = zigzag(1) + zigzag(300)
    for short in (kept[:-1], kept[:-2]):
        with pytest.raises(ValueError, match="batch 77 end before its rows"):
            RecordEncoder().encode(headers, rows, np.array([0, 2]), [short])
    (last_gone,) = bytes_of(
        RecordEncoder().encode(headers, rows.slice(0, 1), np.array([0, 1]), [kept[:-2]])
    )
    assert last_gone == records[0].encode()


def test_a_match_is_of_all_the_bytes_and_no_more() -> None:
    records = [MadeRecord(i, i, value=b"x" * 5000) for i in range(10)]
    batch = MadeBatch.of(0, records)
    headers, rows = headers_of([batch]), rows_of_made([(batch, records)])
    original = np.frombuffer(batch.payload + b"\0", np.uint8)
    size = len(batch.payload)
    for end, count, expected in ((size, 10, True), (size + 1, 10, False), (size, 9, False)):
        place = (np.array([0]), np.array([end]))
        equal = RecordEncoder().match(
            headers,
            rows,
            np.array([0, count]),
            np.zeros(10, np.int64),
            original,
            place,
            np.zeros(1, np.int64),
        )
        assert equal.tolist() == [expected]


def test_rows_that_do_not_fit_their_batch_are_encoded_all_the_same() -> None:
    """A digest tells that they are wrong: nothing may be written past the buffer's end."""
    batch = MadeBatch.of(2**40, [MadeRecord(0)])
    stray = [MadeRecord(delta, delta, None, None) for delta in (-(2**40), 2**62, 5)]
    encoded = RecordEncoder().encode(
        headers_of([batch]), rows_of_made([(batch, stray)]), np.array([0, 3])
    )
    assert bytes_of(encoded) == [b"".join(record.encode() for record in stray)]


@pytest.mark.parametrize("field", ["key", "value", "header key", "header value"])
def test_there_is_room_for_every_field(field: str) -> None:
    large = b"x" * 100_000
    header = {"header key": (large, b""), "header value": (b"", large)}.get(field)
    record = MadeRecord(
        0,
        key=large if field == "key" else None,
        value=large if field == "value" else None,
        headers=(header,) if header else (),
    )
    batch = MadeBatch.of(0, [record])
    rows, borders = rows_of_made([(batch, [record])]), np.array([0, 1])
    room = _Columns(rows).bytes_max(borders)
    assert len(batch.payload) <= room < len(batch.payload) + 100
    assert bytes_of(RecordEncoder().encode(headers_of([batch]), rows, borders)) == [batch.payload]


def test_results_are_good_until_the_next_call_and_buffers_shrink_again() -> None:
    encoder = RecordEncoder()
    large, small = [MadeRecord(0, value=b"x" * (40 << 20))], [MadeRecord(0)]
    batches = [(MadeBatch.of(0, records), records) for records in (large, small)]
    for batch, records in [*batches, *batches]:
        encoded = encoder.encode(
            headers_of([batch]), rows_of_made([(batch, records)]), np.array([0, 1])
        )
        assert bytes_of(encoded) == [batch.payload]
    assert encoder._buffer.nbytes < 1000


def test_what_is_no_such_column_or_border_is_refused() -> None:
    batch = MadeBatch.of(0, [MadeRecord(0), MadeRecord(1)])
    headers, rows = headers_of([batch]), rows_of_made([(batch, [MadeRecord(0), MadeRecord(1)])])
    encoder = RecordEncoder()
    for borders in ([0], [0, 3], [-1, 2], [2, 1], [0, 1, 2]):
        with pytest.raises(ValueError, match="border"):
            encoder.encode(headers, rows, np.array(borders))
    with pytest.raises(ValueError, match="deltas of 2 batches"):
        encoder.encode(headers_of([batch_of_append_time()]), rows, np.array([0, 2]), [None, None])
    wrong: list[tuple[str, pa.Array]] = [
        ("offset", pa.array([0, 1], pa.int32())),
        ("timestamp_ms", pa.array([0, None], pa.int64())),
        ("key", pa.array(["a", "b"], pa.large_string())),
        ("value", pa.array([0, 1], pa.int64())),
        (
            "headers",
            pa.array([[], []], pa.large_list(RECORD_SCHEMA.field("headers").type.field(0))),
        ),
    ]
    for name, column in wrong:
        changed = rows.set_column(RECORD_SCHEMA.get_field_index(name), name, column)
        with pytest.raises(ValueError, match=r"column|int64|null"):
            encoder.encode(headers, changed, np.array([0, 2]))


def batch_of_append_time() -> MadeBatch:
    return MadeBatch.of(0, [MadeRecord(0), MadeRecord(1)], attributes=APPEND_TIME)


def test_columns_are_found_by_name() -> None:
    records = [MadeRecord(0, headers=((b"a", b"b"), (b"a", None)))]
    batch = MadeBatch.of(0, records)
    rows = rows_of_made([(batch, records)])
    names = ["headers", "value", "offset", "key", "timestamp_ms"]
    shuffled = rows.select(names).append_column("more", pa.array([1]))
    assert bytes_of(RecordEncoder().encode(headers_of([batch]), shuffled, np.array([0, 1]))) == [
        batch.payload
    ]


@pytest.mark.parametrize("size", [0, 1, 7, 383, 384, 385, 3071, 3072, 3073, 3456, 100_001])
def test_checksums_can_be_extended(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 5000).astype(np.uint8)
    data.flags.writeable = False
    crcs = np.zeros(2, np.int64)
    checksums(data, np.array([1, 0]), np.array([1, size]), crcs)
    checksums(data, np.array([0, size]), np.array([4000, size + 777]), crcs)
    expected = [google_crc32c.value(data[:4000]), google_crc32c.value(data[: size + 777])]
    assert crcs.tolist() == expected


def test_log_append_time_without_deltas_means_zeros() -> None:
    records = [MadeRecord(0), MadeRecord(1)]
    batch = batch_of_append_time()
    rows = rows_of_made([(batch, records)])
    for deltas in (None, [None], [b"\0\0"]):
        encoded = RecordEncoder().encode(headers_of([batch]), rows, np.array([0, 2]), deltas)
        assert bytes_of(encoded) == [batch.payload]


def test_arrays_may_lie_in_any_memory(kafka_logs: Callable[[str], KafkaLog]) -> None:
    """Rows from an Arrow stream, whose buffers are not aligned."""
    log = kafka_logs("codec-none")
    reader = SegmentReader(BytesSource(log.name, log.data), log.bounds)
    (rows,) = pa.Table.from_batches(reader.record_batches()).combine_chunks().to_batches()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows.slice(5))
    moved = pa.py_buffer(b"x" * 3 + sink.getvalue().to_pybytes()).slice(3)
    (back,) = pa.ipc.open_stream(moved)
    headers = next(reader.headers())
    ends = np.append(headers.base_offset, headers.last_offset[-1:] + 1)
    borders = np.searchsorted(back.column("offset").to_numpy(), ends)
    encoded = bytes_of(RecordEncoder().encode(headers, back, borders))
    assert encoded[1:] == [batch.records for batch in plain_batches(log.data)][1:]
