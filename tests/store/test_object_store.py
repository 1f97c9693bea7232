"""What every object store promises, over a local directory and over a real S3 server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3_server import S3Server

from tiering.errors import BadInput, FatalError, NotFound, StoreConflict
from tiering.store import ObjectStore, open_store

READS: dict[str, Callable[[ObjectStore, str], object]] = {
    "get": lambda store, key: store.get(key),
    "size": lambda store, key: store.size(key),
    "range": lambda store, key: store.get_range(key, 0, 5),
    "range_of_nothing": lambda store, key: store.get_range(key, 0, 0),
    "tail": lambda store, key: store.get_tail(key, 5),
    "tail_of_nothing": lambda store, key: store.get_tail(key, 0),
}


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    if request.param == "local":
        yield open_store(str(tmp_path / "store"))
        return
    server: S3Server = request.getfixturevalue("s3_server")
    yield open_store(server.url(f"t/{tmp_path.name}"), server.env)


class TestWholeObjects:
    def test_put_then_get(self, store: ObjectStore) -> None:
        store.put("a/b.json", b"one")
        assert store.get("a/b.json").data == b"one"
        assert store.size("a/b.json") == 3

    def test_put_replaces_and_the_version_changes(self, store: ObjectStore) -> None:
        store.put("k", b"one")
        before = store.get("k").version
        store.put("k", b"two")
        assert store.get("k").data == b"two"
        assert store.get("k").version != before

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        store.put("empty", b"")
        assert store.get("empty").data == b""
        assert store.size("empty") == 0
        assert store.get_range("empty", 0, 10) == b""
        assert store.get_tail("empty", 10) == (b"", 0)

    @pytest.mark.parametrize("read", READS)
    def test_missing_is_not_found(self, store: ObjectStore, read: str) -> None:
        store.put("dir/there", b"x")
        for key in ("nothing", "dir", "dir/there/below", "dir/other"):
            with pytest.raises(NotFound):
                READS[read](store, key)

    def test_delete_is_idempotent(self, store: ObjectStore) -> None:
        store.put("k", b"one")
        store.delete("k")
        store.delete("k")
        store.delete("never/there")
        with pytest.raises(NotFound):
            store.get("k")


class TestRanges:
    @pytest.mark.parametrize(
        ("start", "length"),
        [(0, 0), (0, 1), (0, 100), (5, 20), (99, 1), (99, 5), (100, 1), (500, 9), (0, 10**7)],
    )
    def test_as_slices_are(self, store: ObjectStore, start: int, length: int) -> None:
        data = bytes(range(100))
        store.put("k", data)
        assert store.get_range("k", start, length) == data[start : start + length]

    @pytest.mark.parametrize("length", [0, 1, 99, 100, 101, 10**7])
    def test_tails_come_with_the_size(self, store: ObjectStore, length: int) -> None:
        data = bytes(range(100))
        store.put("k", data)
        assert store.get_tail("k", length) == (data[100 - min(length, 100) :], 100)


class TestConditionalWrites:
    @pytest.fixture(autouse=True)
    def _heeded(self, request: pytest.FixtureRequest, store: ObjectStore) -> None:
        if store.url.startswith("s3:"):
            server: S3Server = request.getfixturevalue("s3_server")
            if not server.heeds_conditions:
                with pytest.raises(FatalError, match="conditional writes"):
                    store.put_if("k", b"one", expected=None)
                pytest.skip("this S3 server ignores conditions, and that was noticed")

    def test_create_once(self, store: ObjectStore) -> None:
        version = store.put_if("k", b"one", expected=None)
        assert store.get("k").version == version
        with pytest.raises(StoreConflict):
            store.put_if("k", b"two", expected=None)
        assert store.get("k").data == b"one"

    def test_replace_the_version_that_was_read(self, store: ObjectStore) -> None:
        first = store.put_if("k", b"one", expected=None)
        second = store.put_if("k", b"two", expected=first)
        assert second != first
        with pytest.raises(StoreConflict):
            store.put_if("k", b"three", expected=first)
        assert store.get("k").data == b"two"
        store.put_if("k", b"three", expected=second)

    def test_a_missing_object_has_no_version(self, store: ObjectStore) -> None:
        version = store.put_if("k", b"one", expected=None)
        store.delete("k")
        with pytest.raises(StoreConflict):
            store.put_if("k", b"two", expected=version)

    def test_listing_tells_the_same_version(self, store: ObjectStore) -> None:
        version = store.put_if("a/k", b"one", expected=None)
        assert [info.version for info in store.list("a/")] == [version]

    def test_of_many_writers_one_wins_each_round(self, store: ObjectStore) -> None:
        store.put_if("n", b"0", expected=None)

        def count() -> None:
            for _ in range(10):
                while True:
                    found = store.get("n")
                    try:
                        store.put_if("n", b"%d" % (int(found.data) + 1), expected=found.version)
                    except StoreConflict:
                        continue
                    break

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.get("n").data == b"40"


class TestUploads:
    @pytest.mark.parametrize("size", [0, 1, 1000, 8 * 2**20, 8 * 2**20 + 1, 19 * 2**20])
    def test_nothing_is_seen_before_the_commit(self, store: ObjectStore, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        upload = store.open_upload("big/one")
        for start in range(0, size, 3 * 2**20):
            upload.write(memoryview(data)[start : start + 3 * 2**20])
        with pytest.raises(NotFound):
            store.size("big/one")
        assert list(store.list("")) == []
        upload.commit()
        assert store.size("big/one") == size
        assert store.get("big/one").data == data
        upload.abort()  # does nothing any more
        assert store.size("big/one") == size

    def test_an_aborted_upload_leaves_nothing(self, store: ObjectStore) -> None:
        store.put("k", b"before")
        upload = store.open_upload("k")
        upload.write(b"x" * (9 * 2**20))
        upload.abort()
        upload.abort()
        assert store.get("k").data == b"before"
        assert [info.key for info in store.list("")] == ["k"]

    def test_an_upload_replaces(self, store: ObjectStore) -> None:
        store.put("k", b"before")
        upload = store.open_upload("k")
        upload.write(b"after")
        upload.commit()
        assert store.get("k").data == b"after"


class TestListing:
    KEYS = ("a-b", "a.b", "a/b", "a/b-c", "a/b.c", "a/b/c", "a0", "ab", "b", "\u00e9/x")

    def test_in_key_order_below_any_prefix(self, store: ObjectStore) -> None:
        keys = [key for key in self.KEYS if key != "a/b/c"]
        for key in keys:
            store.put(key, key.encode())
        for prefix in ("", "a", "a/", "a/b", "a/b-", "b", "c", "\u00e9", "a/b/", "zz/y"):
            found = list(store.list(prefix))
            wanted = sorted((k for k in keys if k.startswith(prefix)), key=str.encode)
            assert [info.key for info in found] == wanted
            assert all(info.size_bytes == len(info.key.encode()) for info in found)

    def test_directories_stand_where_their_keys_do(self, store: ObjectStore) -> None:
        keys = ["p/1-x", "p/1/a", "p/10", "p/1.z/b", "p/1/b"]
        for key in keys:
            store.put(key, b"")
        assert [info.key for info in store.list("p/1")] == sorted(keys)


class TestKeys:
    @pytest.mark.parametrize(
        "key",
        ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\\b", "a\x00b",
         "a\nb", ".onecopy", ".onecopy/tmp/x", "a/" + "x" * 256, "x/" * 600 + "x"],
    )  # fmt: skip
    def test_nothing_outside_the_root(self, store: ObjectStore, key: str) -> None:
        for call in (store.get, store.size, store.delete, store.open_upload):
            with pytest.raises(BadInput):
                call(key)
        with pytest.raises(BadInput):
            store.put(key, b"")
        with pytest.raises(BadInput):
            store.put_if(key, b"", expected=None)
        with pytest.raises(BadInput):
            store.get_range(key, 0, 1)

    @pytest.mark.parametrize("prefix", ["/", "../", "a/../", "a//", "a/./b", ".onecopy/", "a\x00"])
    def test_nor_listed(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(BadInput):
            list(store.list(prefix))
