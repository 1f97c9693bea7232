"""What is special about a store in a directory: processes, symbolic links, crashes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiering.errors import BadInput, FatalError, NotFound, StoreConflict, TransientError
from tiering.store import open_store
from tiering.store.local import LocalStore

COUNT = """
import sys
from tiering.errors import StoreConflict
from tiering.store import open_store
store = open_store(sys.argv[1])
for _ in range(50):
    while True:
        found = store.get("n")
        try:
            store.put_if("n", b"%d" % (int(found.data) + 1), expected=found.version)
            break
        except StoreConflict:
            pass
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def test_two_processes_compare_and_set(root: Path, store: LocalStore) -> None:
    store.put_if("n", b"0", expected=None)
    workers = [subprocess.Popen([sys.executable, "-c", COUNT, str(root)]) for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert store.get("n").data == b"100"


def test_equal_bytes_written_fast_are_new_versions(store: LocalStore) -> None:
    seen = set()
    version: str | None = None
    for _ in range(200):
        version = store.put_if("k", b"same", expected=version)
        seen.add(version)
    assert len(seen) == 200


def test_a_symbolic_link_is_neither_followed_nor_listed(
    root: Path, store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "outside").mkdir()
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(FatalError, match="symbolic link"):
        store.get("link")
    with pytest.raises(FatalError, match="symbolic link"):
        store.put("d/new", b"x")
    with pytest.raises(FatalError, match="symbolic link"):
        store.delete("d/new")
    assert list(store.list("")) == []
    store.put("link", b"replaces the link itself")
    assert (tmp_path / "secret").read_text() == "outside"
    assert store.get("link").data == b"replaces the link itself"


def test_the_root_itself_may_be_a_link(root: Path, store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(root)
    store.put("k", b"x")
    assert open_store(str(tmp_path / "other")).get("k").data == b"x"


def test_a_store_that_is_gone_is_an_outage(root: Path, store: LocalStore, tmp_path: Path) -> None:
    store.put("k", b"x")
    root.rename(tmp_path / "unmounted")
    for call in (store.get, store.size, store.list, store.delete):
        with pytest.raises(TransientError, match="gone"):
            call("k")
    for write in (lambda: store.put("k", b"y"), lambda: store.put_if("k", b"y", expected=None)):
        with pytest.raises(TransientError, match="gone"):
            write()
    assert not root.exists()
    (tmp_path / "unmounted").rename(root)
    assert store.get("k").data == b"x"


def test_what_a_killed_writer_left_is_removed_later(root: Path, store: LocalStore) -> None:
    upload = store.open_upload("alive")
    upload.write(b"x")
    left = root / ".onecopy" / "tmp" / "left"
    left.write_bytes(b"half")
    long_ago = time.time() - 3600
    for path in (root / ".onecopy" / "tmp").iterdir():
        os.utime(path, (long_ago, long_ago))
    LocalStore(root)
    assert not left.exists()
    upload.commit()  # a live writer's file was left alone, however old
    assert store.get("alive").data == b"x"


def test_an_unwritable_store_is_an_outage(root: Path, store: LocalStore) -> None:
    (root / "file").write_text("")
    with pytest.raises(TransientError):
        store.put("file/below", b"x")
    with pytest.raises(NotFound):
        store.get("file/below")
    with pytest.raises(StoreConflict):
        store.put_if("file", b"", expected="other")


class TestUrls:
    def test_path_and_file_url_are_one_store(self, tmp_path: Path) -> None:
        store = open_store(str(tmp_path / "with space"))
        store.put("k", b"x")
        assert store.url == f"file://{tmp_path}/with%20space"
        assert open_store(store.url).get("k").data == b"x"
        assert store.url in repr(store)

    @pytest.mark.parametrize(
        "url", ["", "file://host/path", "file:///a?b=c", "file://", "http://x/y", "gs://bucket"]
    )
    def test_what_is_refused(self, url: str) -> None:
        with pytest.raises(BadInput):
            open_store(url)

    def test_an_unusable_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(TransientError):
            open_store(str(tmp_path / "file" / "store"))
