"""What is served, Kafka's own classes read as the original; its size is within the rules."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_oracle import KafkaLog, Oracle
from served_batches import Original, made_headers, original
from test_segment_against_kafka import NAMES
from test_serving_frames import DECOMPRESS, packed, payloads

from segment_reader import BatchHeaders, Codec
from segment_reader.compression import STEPS
from segment_reader.kernels.batch_scan import FIELDS
from segment_reader.limits import ServingLimits
from segment_reader.serving import ServedBatches, assemble

Logs = Callable[[str], KafkaLog]

FRAMING = {"position", "size"}
LIMITS = {
    "default": ServingLimits(),
    "always packed": ServingLimits(
        growth_unpacked_max=0, growth_small_max=0, growth_fast_max=1, growth_free_bytes=0
    ),
    "never packed": ServingLimits(growth_unpacked_max=1e9, growth_small_max=1e9),
    "never small": ServingLimits(shrink_max=1),
    "never small, never large": ServingLimits(shrink_max=1, growth_max=1, growth_free_bytes=0),
}


def assembled(made: Original, limits: ServingLimits) -> ServedBatches:
    served = assemble(made.headers, made.headers.count, made.records, made.borders, limits)
    assert len(served) == len(made.headers)
    sizes = np.diff(served.borders)
    assert (sizes >= -(-made.headers.size // limits.shrink_max)).all()
    return served


def without_framing(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: batch[name] for name in batch if name not in FRAMING} for batch in batches]


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_kafka_reads_what_it_wrote(
    kafka_logs: Logs, oracle: Oracle, tmp_path: Path, limits: ServingLimits
) -> None:
    logs = [kafka_logs(name) for name in NAMES]
    paths = [tmp_path / f"{log.name}.log" for log in logs]
    for log, path in zip(logs, paths, strict=True):
        path.write_bytes(assembled(original(log.source, log.bounds), limits).data)
    oracle.run("Served", *map(str, paths))
    for log, path in zip(logs, paths, strict=True):
        served = KafkaLog.load(path)
        before, after = without_framing(log.batches), without_framing(served.batches)
        for one, other in zip(before, after, strict=True):
            # Uncompressed where nothing else is large enough; gzip where that isn't either.
            allowed = {one.pop("codec"), Codec.NONE, Codec.GZIP}
            assert other.pop("codec") in allowed
        assert after == before


ANY_LIMITS = st.builds(
    ServingLimits,
    shrink_max=st.integers(1, 8),
    growth_max=st.integers(1, 3),
    growth_free_bytes=st.sampled_from([0, 1000, 1 << 20]),
    growth_unpacked_max=st.floats(0, 2),
    growth_small_max=st.floats(0, 2),
    growth_fast_max=st.floats(0, 3),
)
contents = st.one_of(st.just(b""), payloads, st.binary(max_size=300))
batches = st.lists(
    st.tuples(st.sampled_from(list(Codec)), contents, st.integers(0, 300_000)), max_size=5
)
RANGES = {
    "base_offset": 63,
    "leader_epoch": 31,
    "last_offset_delta": 31,
    "base_timestamp": 63,
    "max_timestamp": 63,
    "producer_id": 63,
    "producer_epoch": 15,
    "base_sequence": 31,
    "count": 31,
}


@settings(max_examples=80, deadline=None)
@given(made=batches, limits=ANY_LIMITS, seed=st.integers(0, 2**32))
def test_every_field_size_and_byte(
    made: list[tuple[Codec, bytes, int]], limits: ServingLimits, seed: int
) -> None:
    headers = any_headers(made, np.random.default_rng(seed))
    one = Original.of(headers, [content for _, content, _ in made])
    served = assembled(one, limits)
    assert served.borders[0] == 0
    assert served.borders[-1] == len(served.data)
    for i, (codec, content, _) in enumerate(made):
        batch = bytes(served.data[served.borders[i] : served.borders[i + 1]])
        attributes = checked_header(batch, headers, i, lost=not content)
        expected_size(len(batch), int(headers.size[i]), codec, content, limits)
        if content:
            assert DECOMPRESS[Codec(attributes & 7)](batch[61:]) == content
            assert attributes & ~7 == headers.attributes[i] & ~7
            expected_codec(Codec(attributes & 7), codec, int(headers.size[i]), content, limits)


def any_headers(made: list[tuple[Codec, bytes, int]], rng: np.random.Generator) -> BatchHeaders:
    plain = made_headers(0, [61 + size for _, _, size in made])
    fields = {name: getattr(plain, name) for name in FIELDS}
    for name, bits in RANGES.items():
        low = 0 if name in ("base_offset", "last_offset_delta", "count") else -(2**bits)
        fields[name] = rng.integers(low, 2**bits, len(made), endpoint=False)
    flags = rng.integers(0, 16, len(made)) << 3
    fields["attributes"] = flags | np.array([codec for codec, _, _ in made], np.int64)
    return BatchHeaders(**fields)


def checked_header(batch: bytes, headers: BatchHeaders, i: int, *, lost: bool) -> int:
    """Everything but the attributes, which are given back; `lost`: no record is left."""
    base, length, epoch, magic, crc = struct.unpack(">qiibI", batch[:21])
    attributes, *others = struct.unpack(">hiqqqhii", batch[21:61])
    assert (length, magic) == (len(batch) - 12, 2)
    assert crc == google_crc32c.value(batch[21:])
    names = ["last_offset_delta", "base_timestamp", "max_timestamp", "producer_id"]
    names += ["producer_epoch", "base_sequence", "count"]
    expected = [getattr(headers, name)[i] for name in names]
    if lost and len(batch) > 61:
        expected[-1] = 1
        assert attributes == headers.attributes[i] & ~7 | 0x20
    assert others == expected
    assert (base, epoch) == (headers.base_offset[i], headers.leader_epoch[i])
    return int(attributes)


def expected_codec(
    found: Codec, codec: Codec, before: int, content: bytes, limits: ServingLimits
) -> None:
    """The original's, or none if that is within bounds, or else one that can be padded."""
    largest = max(before * limits.growth_max, limits.growth_free_bytes)
    plain_fits = -(-before // limits.shrink_max) <= 61 + len(content) <= largest
    assert found in (codec, Codec.NONE if plain_fits else Codec.GZIP)


def expected_size(
    size: int, before: int, codec: Codec, content: bytes, limits: ServingLimits
) -> None:
    smallest = -(-before // limits.shrink_max)
    largest = max(before * limits.growth_max, limits.growth_free_bytes)
    assert size >= smallest
    if size <= max(largest, smallest + 30):
        return
    # Then nothing that is large enough is smaller.
    if codec == Codec.NONE:
        assert size <= max(61 + len(content), smallest + 30)
        return
    sizes = [61 + len(packed(codec, step, [content])[0]) for step in range(len(STEPS[codec]))]
    assert size <= min(sizes)


def test_nothing_is_served_for_nothing() -> None:
    served = assembled(Original.of(made_headers(0, []), []), ServingLimits())
    assert (len(served), bytes(served.data)) == (0, b"")


def test_a_batch_is_the_same_whatever_is_served_with_it(kafka_logs: Logs) -> None:
    log = kafka_logs("mixed-codecs")
    whole = original(log.source, log.bounds)
    together = assembled(whole, ServingLimits())
    for first in range(0, len(whole.headers), 7):
        part = slice(first, first + 3)
        borders = whole.borders[first : first + 4]
        alone = assemble(
            whole.headers.slice(part), whole.headers.count[part], whole.records, borders
        )
        a, b = together.borders[first], together.borders[first + len(alone)]
        assert alone.data == together.data[a:b]


def test_a_segment_of_one_record_batches_in_one_call(kafka_logs: Logs) -> None:
    log = kafka_logs("tiny-batches")
    one = original(log.source, log.bounds)
    served = assembled(one, ServingLimits())
    assert len(served.data) <= 1.1 * len(log.data)
