"""Damaged side files: an error that names the object, or what was written; never other data."""

from __future__ import annotations

import random

import pytest
from side_samples import (
    INDEXES,
    CountingStore,
    Sample,
    assert_holds,
    keys,
    make_sample,
    segment,
    write,
)

from tiering.errors import FatalError
from tiering.side_files import SideFile, bundle, objects, puffin
from tiering.side_files import writer as writing

KEY = "side/damaged.puffin"


@pytest.fixture(params=["in the tail", "by ranges"])
def _reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by ranges":
        monkeypatch.setattr(objects, "TAIL_BYTES", 100)
        monkeypatch.setattr(objects, "_GAP_BYTES_MAX", 0)


@pytest.fixture
def sample() -> Sample:
    return make_sample(12, kept_share=0.5, kept_bytes=60)


@pytest.fixture
def whole(local_store: CountingStore, sample: Sample, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A small side file with everything in it, two blobs of each kind."""
    monkeypatch.setattr(writing, "_BATCHES_MAX", 6)
    monkeypatch.setattr(writing, "_KEPT_BYTES_MAX", 80)
    (written,) = write(local_store, segment(), sample, step=6)
    return local_store.get(written.key).data


def survives(store: CountingStore, data: bytes, sample: Sample) -> bool:
    """Whether `data` is read as if it were intact; otherwise it must be refused by name."""
    store.altered[KEY] = data
    refusal = None
    try:
        side = SideFile.open(store, segment(), [KEY])
        kept = side.kept_bytes(0, len(sample))
        indexes = {name: side.index(name) for name in INDEXES}
    except FatalError as error:
        refusal = str(error)
    if refusal is None:
        assert (kept, indexes) == (sample.kept_bytes, INDEXES)
        assert_holds(side, sample)
        return True
    assert KEY in refusal
    return False


@pytest.mark.usefixtures("_reads")
class TestDamage:
    def test_every_byte_flipped(
        self, local_store: CountingStore, whole: bytes, sample: Sample
    ) -> None:
        assert survives(local_store, whole, sample)
        chance = random.Random(1)
        unnoticed = []
        for at in range(len(whole)):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << chance.randrange(8)
            if survives(local_store, bytes(damaged), sample):
                unnoticed.append(at)
        assert unnoticed == [0, 1, 2, 3]  # the first magic, which nobody needs to read

    def test_every_truncation(
        self, local_store: CountingStore, whole: bytes, sample: Sample
    ) -> None:
        for length in range(len(whole)):
            assert not survives(local_store, whole[:length], sample)

    def test_bytes_lost_doubled_or_put_in(
        self, local_store: CountingStore, whole: bytes, sample: Sample
    ) -> None:
        chance = random.Random(2)
        for _ in range(300):
            low, high = sorted(chance.sample(range(len(whole) + 1), 2))
            added = chance.choice([b"", whole[low:high] * 2, chance.randbytes(high - low)])
            assert not survives(local_store, whole[:low] + added + whole[high:], sample)

    def test_bytes_behind_the_end(
        self, local_store: CountingStore, whole: bytes, sample: Sample
    ) -> None:
        for more in (b"\0", b"PFA1", whole[-16:], bytes(1000)):
            assert not survives(local_store, whole + more, sample)


class TestForeignFooters:
    def test_flags_and_sizes(
        self, local_store: CountingStore, whole: bytes, sample: Sample
    ) -> None:
        for at, data in ((-8, b"\1"), (-5, b"\x80"), (-12, b"\xff\xff\xff\xff"), (-12, bytes(4))):
            damaged = bytearray(whole)
            damaged[len(whole) + at : len(whole) + at + len(data)] = data
            assert not survives(local_store, bytes(damaged), sample)

    def test_a_puffin_file_that_is_not_ours(
        self, local_store: CountingStore, sample: Sample
    ) -> None:
        payload = b'{"blobs":[],"properties":{}}'
        trailer = len(payload).to_bytes(4, "little") + bytes(4) + puffin.MAGIC
        assert not survives(local_store, puffin.MAGIC * 2 + payload + trailer, sample)

    @pytest.mark.parametrize("payload", [b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 5000])
    def test_payloads_of_any_form(
        self, local_store: CountingStore, sample: Sample, payload: bytes
    ) -> None:
        trailer = len(payload).to_bytes(4, "little") + bytes(4) + puffin.MAGIC
        assert not survives(local_store, puffin.MAGIC * 2 + payload + trailer, sample)

    def test_an_empty_object(self, store: CountingStore) -> None:
        store.put(KEY, b"")
        with pytest.raises(FatalError, match="doesn't end as a Puffin file"):
            SideFile.open(store, segment(), [KEY])


def test_what_is_damaged_is_not_bundled(
    local_store: CountingStore, whole: bytes, sample: Sample
) -> None:
    footer = whole.rindex(puffin.MAGIC + b"{")
    for at in range(4, footer, 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        local_store.altered[KEY] = bytes(damaged)
        with pytest.raises(FatalError, match="fails its checksum"):
            bundle(local_store, [(segment(), [KEY])], "side/bundle.puffin")
    assert [i.key for i in local_store.list("side/bundle")] == []


def test_blobs_of_one_kind_that_changed_places(
    local_store: CountingStore, sample: Sample, whole: bytes
) -> None:
    """Every checksum fits, but the batches are not in the log's order."""
    local_store.put(KEY, whole)
    file = objects.open_object(local_store, KEY)
    upload = objects.PuffinUpload(local_store, KEY)
    for blob, data in zip(file.blobs[::-1], file.read(file.blobs[::-1]), strict=True):
        upload.copy(blob, data)
    upload.finish()
    with pytest.raises(FatalError, match="doesn't follow"):
        SideFile.open(local_store, segment(), [KEY])


def test_damage_on_s3(store: CountingStore) -> None:
    sample = make_sample(2000, kept_share=0.5, kept_bytes=2000)
    (key,) = keys(write(store, segment(), sample))
    data = bytearray(store.get(key).data)
    data[len(data) // 3] ^= 1
    store.put(key, bytes(data))
    with pytest.raises(FatalError, match="fails its checksum"):
        SideFile.open(store, segment(), [key]).kept_bytes(0, 2000)
    store.put(key, bytes(data[:-1]))
    with pytest.raises(FatalError, match="doesn't end"):
        SideFile.open(store, segment(), [key])
