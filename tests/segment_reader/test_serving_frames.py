"""Every frame decompresses, by libraries that are not ours, to what went in."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from itertools import pairwise

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from served_batches import made_headers

from segment_reader import Codec
from segment_reader.compression import STEPS, Frames, stored_sizes
from segment_reader.kernels.stored_frames import (
    GZIP_BLOCK,
    LZ4_BLOCK,
    SNAPPY_BLOCK,
    ZSTD_BLOCK,
    ZSTD_SINGLE_SEGMENT_MAX,
)
from segment_reader.limits import ServingLimits
from segment_reader.padding import PADDABLE, padded
from segment_reader.serving import assemble


def _snappy(frame: bytes) -> bytes:
    assert frame[:16] == b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2
    at, out = 16, b""
    while at < len(frame):
        size = int.from_bytes(frame[at : at + 4], "big")
        block = bytes(cramjam.snappy.decompress_raw(frame[at + 4 : at + 4 + size]))
        assert 0 < len(block) <= SNAPPY_BLOCK
        out += block
        at += 4 + size
    assert at == len(frame)
    return out


def _gzip(frame: bytes) -> bytes:
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    out = member.decompress(frame)
    assert member.eof
    assert not member.unused_data
    return out


def _lz4(frame: bytes) -> bytes:
    info = lz4.frame.get_frame_info(frame)
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert info["block_size"] == LZ4_BLOCK
    return bytes(lz4.frame.decompress(frame))


def _zstd(frame: bytes) -> bytes:
    out = zstandard.ZstdDecompressor().decompress(frame)
    assert zstandard.get_frame_parameters(frame).content_size == len(out)
    return out


DECOMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: lambda frame: frame,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
STEP_NAMES = [(codec, step) for codec in CODECS for step in range(len(STEPS[codec]))]

BORDERS = [
    *(1, 2, 12, 13, 60, 61, 127, 128, 255, 256, 257, 16383, 16384),
    *(size for block in (SNAPPY_BLOCK, LZ4_BLOCK, GZIP_BLOCK) for size in (block, block + 1)),
    *(65536 + 255, 65536 + 256, ZSTD_BLOCK, ZSTD_BLOCK + 1, 300_000),
    *(ZSTD_SINGLE_SEGMENT_MAX, ZSTD_SINGLE_SEGMENT_MAX + 1),
]


def payload(kind: str, size: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    if kind == "noise":
        return rng.bytes(size)
    if kind == "zeros":
        return bytes(size)
    if kind == "periodic":
        period = rng.bytes(int(rng.integers(1, 70_000)))
        return (period * (size // len(period) + 1))[:size]
    if kind == "two letters":
        return rng.integers(0, 2, size).astype(np.uint8).tobytes()
    if kind == "skewed":  # counts like Fibonacci's numbers make the longest Huffman codes
        return np.minimum(rng.geometric(0.4, size), 255).astype(np.uint8).tobytes()
    words = [
        b'{"user":',
        b'"name-',
        b"12345",
        b',"time":',
        b"17000000",
        b"}",
        *map(bytes, [[i] for i in range(65, 90)]),
    ]
    chosen = rng.integers(0, len(words), size // 2 + 1)
    return b"".join(words[i] for i in chosen)[:size].ljust(size, b" ")


KINDS = ["noise", "zeros", "periodic", "two letters", "skewed", "words"]
sizes = st.one_of(st.integers(1, 3000), st.sampled_from(BORDERS), st.integers(1, 200_000))
payloads = st.builds(payload, st.sampled_from(KINDS), sizes, st.integers(0, 2**32))
mixed = st.lists(st.one_of(st.binary(min_size=1, max_size=200), payloads), min_size=1, max_size=6)


def packed(codec: Codec, step: int, contents: list[bytes]) -> list[bytes]:
    """With a byte between any two payloads, which is nobody's."""
    records = np.frombuffer(b"".join(b"\xa5" + content for content in contents) + b"\xa5", np.uint8)
    lengths = np.array([len(content) for content in contents], np.int64)
    starts = np.cumsum(lengths + 1) - lengths
    frames: Frames = STEPS[codec][step](records, starts, lengths)
    borders = frames.borders.tolist()
    data = frames.data.tobytes()
    return [data[a:b] for a, b in pairwise(borders)]


@pytest.mark.parametrize(("codec", "step"), STEP_NAMES)
@settings(max_examples=60, deadline=None)
@given(contents=mixed)
def test_libraries_decompress_every_step(codec: Codec, step: int, contents: list[bytes]) -> None:
    frames = packed(codec, step, contents)
    assert [DECOMPRESS[codec](frame) for frame in frames] == contents
    # Kernels write into memory of this size.
    stored = stored_sizes(np.full(len(frames), codec), np.array([len(c) for c in contents]))
    if step == 0 and codec != Codec.ZSTD:
        assert all(len(f) <= s for f, s in zip(frames, stored.tolist(), strict=True))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_at_every_border(codec: Codec, kind: str) -> None:
    contents = [payload(kind, size, size) for size in [*range(1, 80), *BORDERS]]
    frames = packed(codec, 0, contents)
    assert [DECOMPRESS[codec](frame) for frame in frames] == contents
    # Each alone gives the same bytes.
    assert [packed(codec, 0, [content])[0] for content in contents[::7]] == frames[::7]


@pytest.mark.parametrize("codec", CODECS)
def test_stored_frames_at_every_border(codec: Codec) -> None:
    contents = [payload("noise", size, size) for size in [*range(1, 300), *BORDERS]]
    never = ServingLimits(growth_unpacked_max=1e12, growth_small_max=1e12)
    borders = np.concatenate(([0], np.cumsum([len(content) for content in contents])))
    headers = made_headers(codec, [61] * len(contents))
    records = np.frombuffer(b"".join(contents), np.uint8)
    served = assemble(headers, headers.count, records, borders, never)
    for i, content in enumerate(contents):
        batch = served.data[served.borders[i] : served.borders[i + 1]]
        assert batch[22] & 7 == codec
        assert DECOMPRESS[codec](bytes(batch[61:])) == content
        assert len(batch) - 61 <= len(content) + 30 + len(content) // 3000


@pytest.mark.parametrize("codec", PADDABLE)
@settings(max_examples=60, deadline=None)
@given(content=payloads, size=st.integers(0, 100_000))
def test_padded_frames_decompress_to_the_same(codec: Codec, content: bytes, size: int) -> None:
    for step in range(len(STEPS[codec]) - 1):
        (frame,) = packed(codec, step, [content])
        longer = padded(codec, frame, size)
        assert max(size, len(frame)) <= len(longer) < max(size, len(frame)) + 5
        assert DECOMPRESS[codec](longer) == content


def test_threads_do_not_share_their_workspace() -> None:
    contents = [payload("words", 40_000, seed) for seed in range(30)]
    expected = {codec: packed(codec, 0, contents) for codec in CODECS}
    wrong: list[Codec] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for codec in CODECS * 5:
            if packed(codec, 0, contents) != expected[codec]:
                wrong.append(codec)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


LIBRARIES: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: lambda data: zlib.compress(data, 1),
    Codec.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    Codec.LZ4: lambda data: bytes(lz4.frame.compress(data)),
}


@pytest.mark.parametrize("codec", LIBRARIES)
def test_what_repeats_gets_nearly_as_small_as_with_libraries(codec: Codec) -> None:
    log = b"".join(
        b'{"id":%d,"user":"user-%d","path":"/shop/%d","agent":"Mozilla/5.0 (X11)"}\n'
        % (i, i * 7919 % 10_000, i * i % 977)
        for i in range(5000)
    )
    for content in (log, log[:16_000], bytes(100_000)):
        allowed = 1.25 * len(LIBRARIES[codec](content)) + 100
        assert len(packed(codec, 0, [content])[0]) < allowed < len(content) / 2
