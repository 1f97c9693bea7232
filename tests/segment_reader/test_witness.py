"""What a witness gives is enough to make every batch again, and it notices all that is not."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from batch_maker import COMPRESS, MadeBatch, MadeRecord, plain, zigzag
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_oracle import KafkaLog
from plain_batches import plain_batches
from witnessing import ALL, Findings, check, together, witnessed

from segment_reader import (
    DEFAULT_LIMITS,
    RECORD_SCHEMA,
    BytesSource,
    CorruptSegment,
    Kept,
    Limits,
    SegmentBounds,
    SegmentReader,
    Verdicts,
)

LOOSE = SegmentBounds(start_offset=0, end_offset=2**62)
SMALL = Limits(
    chunk_bytes=1 << 12,
    arrow_batch_bytes=1 << 11,
    arrow_batch_rows_max=7,
    large_record_ratio_max=10_000,
)
APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 0x10, 0x20
ROWS, RAW, DELTAS = Kept.ROWS, Kept.RAW, Kept.DELTAS

CREATE_TIME_LOGS = [
    *("codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "mixed-codecs"),
    *("tiny-batches", "odd-timestamps", "large-records"),
]


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, SMALL], ids=["default", "small"])
@pytest.mark.parametrize("name", CREATE_TIME_LOGS)
def test_rows_are_all_that_kafkas_own_batches_need(
    kafka_logs: Callable[[str], KafkaLog], name: str, limits: Limits
) -> None:
    log = kafka_logs(name)
    found = witnessed(log.data, log.bounds, limits=limits)
    assert found.kept == [ROWS] * len(log.batches)
    assert found.rows.num_rows == sum(batch["count"] for batch in log.batches)


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, SMALL], ids=["default", "small"])
def test_log_append_time_needs_the_producers_deltas(
    kafka_logs: Callable[[str], KafkaLog], limits: Limits
) -> None:
    log = kafka_logs("append-time")
    found = witnessed(log.data, log.bounds, limits=limits)
    assert found.kept == [DELTAS] * len(log.batches)
    assert set(found.kept_bytes) == {b"".join(zigzag(-1000 * i) for i in range(5))}


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, SMALL], ids=["default", "small"])
@pytest.mark.parametrize("name", ["transactions", "compacted", "empty-batches"])
def test_what_no_table_shows_is_kept_whole(
    kafka_logs: Callable[[str], KafkaLog], name: str, limits: Limits
) -> None:
    log = kafka_logs(name)
    verdicts, aborted = verdicts_of(log)
    found = witnessed(log.data, log.bounds, verdicts=verdicts, limits=limits)
    hidden = [b["control"] or b["base_offset"] in aborted for b in log.batches]
    empty = [batch["count"] == 0 for batch in log.batches]
    expected = [RAW if h and not e else ROWS for h, e in zip(hidden, empty, strict=True)]
    assert found.kept == expected
    assert (RAW in expected, any(empty)) == (name != "empty-batches", name != "transactions")


def verdicts_of(log: KafkaLog) -> tuple[Verdicts, set[int]]:
    """From the log's own markers: the aborted transactions, and their batches' base offsets."""
    entries, aborted = b"", set()
    running: dict[int, list[int]] = {}
    for batch in log.batches:
        producer = batch["producer_id"]
        if batch["control"]:
            offsets = running.pop(producer, [])
            keys = [base64.b64decode(record[2]) for record in batch["records"]]
            if offsets and keys and keys[0][2:4] == b"\0\0":
                aborted.update(offsets)
                facts = (producer, offsets[0], batch["last_offset"], offsets[0])
                entries += b"\0\0" + b"".join(fact.to_bytes(8, "big") for fact in facts)
        elif batch["transactional"]:
            running.setdefault(producer, []).append(batch["base_offset"])
    return Verdicts.from_entries(entries), aborted


@pytest.mark.parametrize("name", ["mixed-codecs", "append-time", "transactions", "large-records"])
def test_parts_of_a_segment_make_up_the_whole(
    kafka_logs: Callable[[str], KafkaLog], name: str
) -> None:
    log = kafka_logs(name)
    verdicts, _ = verdicts_of(log)
    whole = witnessed(log.data, log.bounds, verdicts=verdicts)
    bases = [batch["base_offset"] for batch in log.batches]
    positions = {batch["base_offset"]: batch["position"] for batch in log.batches}
    cuts = [*bases[:: max(len(bases) // 5, 1)], log.bounds.end_offset + 1]
    steps = []
    for i, (start, stop) in enumerate(pairwise(cuts)):
        reader = SegmentReader(log.source, log.bounds, verdicts, SMALL if i % 2 else DEFAULT_LIMITS)
        given = list(
            reader.witnessed(
                from_offset=start,
                to_offset=stop,
                batches_from=start,
                batches_to=stop,
                # Ranges of bytes overlap, as parts cut by the index do.
                start_position=positions[bases[max(bases.index(start) - 1, 0)]],
            )
        )
        assert reader.stats.next_offset == stop
        steps += given
    parts = together(steps)
    assert parts.rows.equals(whole.rows)
    assert (parts.kept, parts.kept_bytes) == (whole.kept, whole.kept_bytes)
    check(parts, plain_batches(log.data))


def test_rows_and_batches_have_ranges_of_their_own() -> None:
    made = [plain(i * 10, 10, name) for i, name in enumerate(["none", "zstd", "lz4", "none"])]
    log = b"".join(batch.encode() for batch in made)

    def read(rows: tuple[int, int], batches: tuple[int, int]) -> tuple[list[int], list[int]]:
        reader = SegmentReader(BytesSource("x", log), SegmentBounds(start_offset=0, end_offset=39))
        steps = list(
            reader.witnessed(
                from_offset=rows[0],
                to_offset=rows[1],
                batches_from=batches[0],
                batches_to=batches[1],
            )
        )
        assert reader.stats.next_offset >= min(rows[1], 40)
        assert all(step.records or len(step.batches) for step in steps)
        assert all(len(step.batches) == len(step.kept_bytes) for step in steps)
        offsets = [o for s in steps for r in s.records for o in r.column("offset").to_pylist()]
        return offsets, [b for s in steps for b in s.batches.headers.base_offset.tolist()]

    def numbers(start: int, stop: int) -> list[int]:
        return list(range(start, stop))

    assert read((0, 40), (0, ALL)) == (numbers(0, 40), [0, 10, 20, 30])
    # Rows end early, batches don't; and the other way round.
    assert read((5, 12), (0, ALL)) == (numbers(5, 12), [0, 10, 20, 30])
    assert read((5, 38), (0, 11)) == (numbers(5, 38), [0, 10])
    assert read((40, 40), (20, 30)) == ([], [20])
    assert read((15, 16), (15, 16)) == ([15], [])
    assert read((33, 99), (1, 21)) == (numbers(33, 40), [10, 20])
    assert read((33, 33), (50, 60)) == ([], [])


def test_reading_ends_when_nothing_more_is_wanted() -> None:
    log = b"".join(plain(i * 10, 10).encode() for i in range(50))
    reader = SegmentReader(BytesSource("x", log), LOOSE, limits=Limits(piece_bytes=1000))
    steps = reader.witnessed(from_offset=0, to_offset=15, batches_to=40)
    assert [b for s in steps for b in s.batches.headers.base_offset.tolist()] == [0, 10, 20, 30]
    assert reader.stats.bytes_read < len(log) // 4


texts = st.one_of(st.none(), st.binary(max_size=300))
header_keys = st.one_of(st.text(max_size=6).map(str.encode), st.just(b"\xff\xfe"))
headers_lists = st.lists(st.tuples(header_keys, texts), max_size=4).map(tuple)
int64s = st.integers(-(2**63), 2**63 - 1)
records_lists = st.lists(
    st.tuples(st.integers(1, 5), st.one_of(st.just(0), int64s), texts, texts, headers_lists),
    max_size=12,
)
attributes = st.sampled_from(
    [0, 0, 0, APPEND_TIME, APPEND_TIME, TRANSACTIONAL, TRANSACTIONAL | CONTROL, 0x40 | APPEND_TIME]
)


@st.composite
def logs(draw: st.DrawFn) -> list[MadeBatch]:
    made, base = [], draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(1, 6))):
        records, delta = [], -1
        for step, *fields in draw(records_lists):
            delta += 1 if draw(st.booleans()) else step
            records.append(MadeRecord(delta, *fields))
        batch = MadeBatch.of(
            base,
            records,
            draw(st.sampled_from([*COMPRESS])),
            draw(attributes),
            base_timestamp=draw(int64s),
            max_timestamp=draw(int64s),
            producer_id=draw(st.integers(1, 3)),
        )
        trailing = draw(st.integers(0, 3))
        made.append(replace(batch, last_offset_delta=batch.last_offset_delta + trailing))
        base += made[-1].last_offset_delta + 1 + draw(st.integers(0, 3))
    return made


aborted_entries = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 1000), st.integers(0, 200)), max_size=3
)


@settings(max_examples=300, deadline=None)
@given(logs(), aborted_entries, st.sampled_from([64, 700, 1 << 20]))
def test_any_log_can_be_made_again(
    made: list[MadeBatch], entries: list[tuple[int, int, int]], window: int
) -> None:
    facts = [(producer, first, first + length, 0) for producer, first, length in entries]
    verdicts = Verdicts.from_entries(
        b"".join(b"\0\0" + b"".join(n.to_bytes(8, "big") for n in fact) for fact in facts)
    )
    limits = Limits(arrow_batch_bytes=window, piece_bytes=1000, large_record_ratio_max=10_000)
    log = b"".join(batch.encode() for batch in made)
    found = witnessed(log, LOOSE, verdicts=verdicts, limits=limits)
    for i, batch in enumerate(made):
        hidden = batch.attributes & CONTROL or covered(batch, entries)
        if not batch.count or (not hidden and not batch.attributes & APPEND_TIME):
            odd = b"\xff\xfe" in plain_batches(batch.encode())[0].records
            assert found.kept[i] is ROWS or odd
        elif hidden:
            assert found.kept[i] is RAW


def covered(batch: MadeBatch, entries: list[tuple[int, int, int]]) -> bool:
    return bool(batch.attributes & TRANSACTIONAL) and any(
        producer == batch.producer_id and first <= batch.base_offset <= first + length
        for producer, first, length in entries
    )


def of_body(body: bytes, length: bytes | None = None, **fields: int) -> MadeBatch:
    """A batch of one ordinary record and one that is written as `body`."""
    payload = MadeRecord(0).encode() + (length or zigzag(len(body))) + body
    return MadeBatch(10, payload, 2, 1, **fields)


KEY, VALUE, NO_HEADERS = zigzag(1) + b"k", zigzag(1) + b"v", zigzag(0)
DELTA = zigzag(1)
ODD = {
    "attributes": b"\1" + zigzag(0) + DELTA + KEY + VALUE + NO_HEADERS,
    "long timestamp": b"\0" + b"\x80\0" + DELTA + KEY + VALUE + NO_HEADERS,
    "long offset": b"\0" + zigzag(0) + b"\x82\0" + KEY + VALUE + NO_HEADERS,
    "long key length": b"\0" + zigzag(0) + DELTA + b"\x82\0k" + VALUE + NO_HEADERS,
    "long value length": b"\0" + zigzag(0) + DELTA + KEY + b"\x82\0v" + NO_HEADERS,
    "long count": b"\0" + zigzag(0) + DELTA + KEY + VALUE + b"\x80\0",
    "null key of -2": b"\0" + zigzag(0) + DELTA + zigzag(-2) + VALUE + NO_HEADERS,
    "null value of -9": b"\0" + zigzag(0) + DELTA + KEY + zigzag(-9) + NO_HEADERS,
    "overflowing length": b"\0" + zigzag(0) + DELTA + b"\x82\x80\x80\x80\x10k" + VALUE + NO_HEADERS,
    "header key": b"\0" + zigzag(0) + DELTA + KEY + VALUE + zigzag(1) + zigzag(1) + b"\xff" + VALUE,
    "null header": b"\0" + zigzag(0) + DELTA + KEY + VALUE + zigzag(1) + KEY + zigzag(-3),
    "long header key": b"\0" + zigzag(0) + DELTA + KEY + VALUE + zigzag(1) + b"\x82\0k" + VALUE,
}


@pytest.mark.parametrize("window", [32, 1 << 20])
@pytest.mark.parametrize("attributes", [0, APPEND_TIME])
@pytest.mark.parametrize("kind", [*ODD, "long record length"])
def test_records_that_are_written_oddly_are_kept(kind: str, attributes: int, window: int) -> None:
    body = ODD.get(kind, ODD["attributes"].replace(b"\1", b"\0", 1))
    length = None if kind in ODD else b"%c\0" % (0x80 | zigzag(len(body))[0])
    odd = of_body(body, length, attributes=attributes)
    log = plain(0, 10).encode() + odd.encode() + plain(20, 5, "lz4").encode()
    limits = Limits(arrow_batch_bytes=window, large_record_ratio_max=10_000)
    found = witnessed(log, LOOSE, limits=limits)
    assert found.kept == [ROWS, RAW, ROWS]
    assert found.kept_bytes[1] == odd.payload


def test_the_odd_records_are_read_like_ordinary_ones() -> None:
    """So that it's the bytes, and nothing else, for which the test above finds them."""
    ordinary = b"\0" + zigzag(0) + DELTA + KEY + VALUE + NO_HEADERS
    expected = rows(of_body(ordinary).encode())
    assert witnessed(of_body(ordinary).encode(), LOOSE).kept == [ROWS]
    for kind in ("attributes", "long timestamp", "long key length", "overflowing length"):
        assert rows(of_body(ODD[kind]).encode()) == expected


def rows(log: bytes) -> list[dict[str, object]]:
    read = SegmentReader(BytesSource("x", log), LOOSE).record_batches()
    return [row for batch in read for row in batch.to_pylist()]


RICH = [
    MadeRecord(0, 0, b"key-0", b"value-0", ((b"name", b"content"), (b"name", None))),
    MadeRecord(1, -7, None, b"", ()),
    MadeRecord(2, 2**41, b"", None, ((b"", b""),)),
    MadeRecord(3, 5, b"key-3", b"v" * 2000, ((b"x", b"y"),)),
]


def planted(field: str, offset: int, change: Callable[[object], object]) -> Changes:
    def as_held(records: pa.RecordBatch) -> pa.RecordBatch:
        changed = records.to_pylist()
        for row in changed:
            if row["offset"] == offset:
                row[field] = change(row[field])
        return pa.RecordBatch.from_pylist(changed, RECORD_SCHEMA)

    return as_held


Changes = Callable[[pa.RecordBatch], pa.RecordBatch]


def flip(content: object) -> bytes:
    assert isinstance(content, bytes)
    return content[:-1] + bytes([content[-1] ^ 1])


def headers_with(**changes: object) -> Callable[[object], object]:
    def change(headers: object) -> object:
        assert isinstance(headers, list)
        return [{**headers[0], **changes}, *headers[1:]]

    return change


def number_plus(step: int) -> Callable[[object], object]:
    return lambda number: int(str(number)) + step


PLANTED: dict[str, tuple[str, int, Callable[[object], object]]] = {
    "key": ("key", 20, flip),
    "null key": ("key", 20, lambda _: None),
    "empty key for null": ("key", 21, lambda _: b""),
    "value": ("value", 20, flip),
    "last byte of a long value": ("value", 23, flip),
    "null value for empty": ("value", 21, lambda _: None),
    "empty value for null": ("value", 22, lambda _: b""),
    "timestamp": ("timestamp_ms", 21, number_plus(1)),
    "timestamp, far off": ("timestamp_ms", 22, number_plus(-(2**41))),
    "no timestamp": ("timestamp_ms", 23, lambda _: -1),
    "offset": ("offset", 23, number_plus(1)),
    "header key": ("headers", 20, headers_with(key="namf")),
    "header value": ("headers", 20, headers_with(value=b"contenu")),
    "null header value": ("headers", 22, headers_with(value=None)),
    "empty header key": ("headers", 23, headers_with(key="")),
    "headers the other way round": ("headers", 20, lambda h: h[::-1] if isinstance(h, list) else h),
    "a header less": ("headers", 20, lambda h: h[1:] if isinstance(h, list) else h),
    "a header more": ("headers", 21, lambda _: [{"key": "", "value": None}]),
}


@pytest.mark.parametrize("window", [256, 1 << 20])
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("kind", PLANTED)
def test_every_planted_difference_is_noticed(kind: str, compression: str, window: int) -> None:
    made = [MadeBatch.of(base, RICH, compression) for base in (10, 20, 30)]
    log = b"".join(batch.encode() for batch in made)
    limits = Limits(arrow_batch_bytes=window, large_record_ratio_max=10_000)
    assert witnessed(log, LOOSE, limits=limits).kept == [ROWS] * 3
    found = witnessed(log, LOOSE, limits=limits, as_held=planted(*PLANTED[kind]))
    assert found.kept == [ROWS, RAW, ROWS]


def test_every_byte_of_a_rows_content_counts() -> None:
    made = MadeBatch.of(5, [MadeRecord(0, 9, b"key", b"value", ((b"head", b"er"),))])
    places = [("key", 3), ("value", 5)]
    for field, length in places:
        for at in range(length):
            for bit in range(8):

                def change(content: object, at: int = at, bit: int = bit) -> bytes:
                    assert isinstance(content, bytes)
                    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]

                found = witnessed(made.encode(), LOOSE, as_held=planted(field, 5, change))
                assert found.kept == [RAW]


def test_a_table_that_cannot_hold_a_timestamp() -> None:
    """Microseconds end before Kafka's milliseconds do: the row says -1 then, the batch is kept."""
    records = [MadeRecord(0, 0), MadeRecord(1, 2**62)]
    log = MadeBatch.of(0, records[:1]).encode() + MadeBatch.of(10, records).encode()

    def as_held(held: pa.RecordBatch) -> pa.RecordBatch:
        times = held.column("timestamp_ms").to_numpy()
        fitting = np.where(np.abs(times) > 2**63 // 1000, -1, times)
        return held.set_column(1, RECORD_SCHEMA.field(1), pa.array(fitting))

    assert witnessed(log, LOOSE, as_held=as_held).kept == [ROWS, RAW]


def test_a_table_that_loses_rows_is_an_error() -> None:
    reader = SegmentReader(BytesSource("x", plain(0, 5).encode()), LOOSE)
    with pytest.raises(ValueError, match="5 records are held as 4"):
        list(reader.witnessed(from_offset=0, to_offset=9, as_held=lambda rows: rows.slice(1)))


def appended(base: int, deltas: Sequence[int], gap: int = 0, compression: str = "none") -> bytes:
    records = [MadeRecord(i, delta) for i, delta in enumerate(deltas)]
    made = MadeBatch.of(base, records, compression, APPEND_TIME, max_timestamp=2_000_000_000_000)
    return replace(made, last_offset_delta=made.last_offset_delta + gap).encode()


@pytest.mark.parametrize("window", [16, 1 << 20])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_log_append_time_needs(compression: str, window: int) -> None:
    limits = Limits(arrow_batch_bytes=window, arrow_batch_rows_max=2, large_record_ratio_max=10_000)
    log = b"".join(
        [
            appended(0, [0, 0, 0, 0, 0], compression=compression),
            appended(10, [0, 0, 0, 0, 7], compression=compression),
            appended(20, [-9, 0, 0, 0, 0], compression=compression),
            # Deltas are found by offset: with gaps these don't say which record is which.
            appended(30, [1, 2, 3], gap=1, compression=compression),
            appended(40, [0, 0, 0], gap=1, compression=compression),
        ]
    )
    found = witnessed(log, LOOSE, limits=limits)
    assert found.kept == [ROWS, DELTAS, DELTAS, RAW, ROWS]
    assert found.kept_bytes[1:3] == (b"\0\0\0\0\x0e", b"\x11\0\0\0\0")
    assert set(found.rows.column("timestamp_ms").to_pylist()) == {2_000_000_000_000}


@pytest.mark.parametrize("attributes", [0, APPEND_TIME, CONTROL | TRANSACTIONAL])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy-xerial", "lz4", "zstd"])
@pytest.mark.parametrize("planted_at", [None, 4000])
def test_batches_larger_than_the_window(
    compression: str, attributes: int, planted_at: int | None
) -> None:
    rng = np.random.default_rng(1)
    records = [MadeRecord(i, i % 50, None, rng.bytes(i % 90)) for i in range(4001)]
    large = MadeBatch.of(5, records, compression, attributes)
    log = plain(0, 5, "zstd").encode() + large.encode() + plain(5000, 5).encode()
    limits = Limits(chunk_bytes=1 << 14, arrow_batch_bytes=1 << 14, arrow_batch_rows_max=300)
    change = planted("value", 5 + planted_at, flip) if planted_at else lambda records: records
    kept = RAW if attributes & CONTROL else DELTAS if attributes else ROWS
    found = witnessed(log, LOOSE, limits=limits, as_held=change)
    assert found.kept == [ROWS, RAW if planted_at else kept, ROWS]
    assert len(large.payload) > 1 << 16


@pytest.mark.parametrize("attributes", [CONTROL | TRANSACTIONAL, 0])
def test_a_batch_that_is_kept_may_be_many_windows_long(attributes: int) -> None:
    rng = np.random.default_rng(2)
    records = [MadeRecord(i, 0, None, rng.bytes(50_000)) for i in range(60)]
    log = MadeBatch.of(0, records, "lz4", attributes).encode()
    limits = Limits(arrow_batch_bytes=1 << 17)
    found = witnessed(log, LOOSE, limits=limits, as_held=planted("value", 59, flip))
    assert found.kept == [RAW]


def test_bytes_behind_the_records_of_a_large_batch_are_refused() -> None:
    payload = b"".join(MadeRecord(i, 0, None, b"x" * 1000).encode() for i in range(10))
    log = MadeBatch(0, COMPRESS["zstd"][1](payload + bytes(1 << 20)), 10, 9, attributes=4).encode()
    limits = Limits(arrow_batch_bytes=1 << 10, large_record_ratio_max=1 << 20)
    reader = SegmentReader(BytesSource("x", log), LOOSE, limits=limits)
    with pytest.raises(CorruptSegment, match="bytes left after the batch's last record"):
        list(reader.witnessed(from_offset=0, to_offset=ALL))
    assert len(payload) > 1 << 10


def test_a_large_batch_takes_no_more_memory_than_the_limits_say() -> None:
    values = [b"%08d" % i * 2000 for i in range(3000)]
    log = MadeBatch.of(
        0, [MadeRecord(i, 0, None, v) for i, v in enumerate(values)], "zstd"
    ).encode()
    size = sum(map(len, values))
    limits = Limits(chunk_bytes=1 << 20, arrow_batch_bytes=1 << 20)
    reader = SegmentReader(BytesSource("x", log), LOOSE, limits=limits)
    tracemalloc.start()
    try:
        kept = [
            kept
            for step in reader.witnessed(from_offset=0, to_offset=ALL)
            for kept in step.batches.kept.tolist()
        ]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept == [ROWS]
    assert size > 40 << 20
    assert peak < 8 << 20


def test_steps_finish_batches_in_order_and_late_enough() -> None:
    """A batch comes with the step that has its last records, not before."""
    log = b"".join(plain(i * 10, 10).encode() for i in range(9))
    limits = Limits(arrow_batch_rows_max=7)
    reader = SegmentReader(BytesSource("x", log), LOOSE, limits=limits)
    rows_given, batches_given = 0, 0
    for step in reader.witnessed(from_offset=0, to_offset=ALL):
        rows_given += sum(records.num_rows for records in step.records)
        batches_given += len(step.batches)
        assert batches_given == rows_given // 10
    assert (rows_given, batches_given) == (90, 9)


def test_what_was_given_stays_as_it_was() -> None:
    """Headers, digests, rows and kept bytes have memory of their own."""
    made = [plain(i * 10, 10, name) for i, name in enumerate([*COMPRESS] * 3)]
    control = [replace(b, attributes=b.attributes | CONTROL) for b in made[::4]]
    made[::4] = control
    log = b"".join(batch.encode() for batch in made)
    limits = Limits(chunk_bytes=1 << 10, arrow_batch_bytes=1 << 10, piece_bytes=1 << 9)
    reader = SegmentReader(BytesSource("x", log), LOOSE, limits=limits)
    found: Findings = together(list(reader.witnessed(from_offset=0, to_offset=ALL)))
    check(found, plain_batches(log))
