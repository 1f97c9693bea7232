"""Objects as files below one directory, durable and atomic, shared by processes of one host.

Every write goes to a temporary file, is flushed to the disk, takes the object's name by
rename, and the directory is flushed too. Writes of one key exclude each other across
processes by a lock file, which is what makes `put_if` a compare-and-set.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tiering.errors import FatalError, NotFound, StoreConflict, TransientError
from tiering.store.keys import RESERVED, check_key, check_prefix
from tiering.store.objects import ObjectInfo, StoredObject

__all__ = ["LocalStore"]

_LOCK_FILES: Final = 64
"""Keys share this many lock files: enough that strangers seldom meet."""
_ABANDONED_AFTER_S: Final = 60.0
"""A temporary file this old that nobody has locked belongs to a process that died."""


class LocalStore:
    """An ObjectStore in a directory; made if missing."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._own = os.path.join(self._root, RESERVED)
        self._temporary = os.path.join(self._own, "tmp")
        with _failures("open", self._root):
            os.makedirs(self._temporary, exist_ok=True)
        self._remove_abandoned()

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    @property
    def url(self) -> str:
        """`file:///...`, absolute."""
        return Path(self._root).as_uri()

    def get(self, key: str) -> StoredObject:
        """Read an object whole."""
        with self._opened(key) as fd:
            status = os.fstat(fd)
            return StoredObject(data=_read_exactly(fd, 0, status.st_size), version=_version(status))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes [start, start+length), shorter only at the object's end."""
        with self._opened(key) as fd:
            return _read_exactly(fd, start, length)

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes (all, when it has fewer) and its size."""
        with self._opened(key) as fd:
            size = os.fstat(fd).st_size
            start = max(0, size - length)
            return _read_exactly(fd, start, size - start), size

    def size(self, key: str) -> int:
        """Size in bytes."""
        with self._opened(key) as fd:
            return os.fstat(fd).st_size

    def put(self, key: str, data: bytes) -> None:
        """Write an object whole, replacing what is there."""
        upload = self.open_upload(key)
        try:
            upload.write(data)
            upload.commit()
        finally:
            upload.abort()

    def put_if(self, key: str, data: bytes, *, expected: str | None) -> str:
        """Write only if the object's version is `expected` (None: does not exist)."""
        upload = self.open_upload(key)
        try:
            upload.write(data)
            return upload.commit_if(expected)
        finally:
            upload.abort()

    def open_upload(self, key: str) -> LocalUpload:
        """Start a streamed write of `key`."""
        path = self._path(check_key(key))
        self._check_present(key)  # a store that isn't mounted must not come to be anew, empty
        with _failures("write", key):
            os.makedirs(self._temporary, exist_ok=True)
            return LocalUpload(self, key, path, os.path.join(self._temporary, uuid.uuid4().hex))

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        path = self._path(check_key(key))
        with _failures("delete", key):
            if not os.path.lexists(path):
                self._check_present(key)
                return
            with self.locked(key):
                with suppress(FileNotFoundError):
                    os.unlink(path)
                _flush_directory(os.path.dirname(path))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, in key order (of their UTF-8 bytes)."""
        directory, slash, name = check_prefix(prefix).rpartition("/")
        self._check_present(prefix)
        return self._walk(directory + slash, name)

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Exclude every other writer of `key`, in this process and in others."""
        name = f"lock-{zlib.crc32(key.encode()) % _LOCK_FILES:02d}"
        fd = os.open(os.path.join(self._own, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # of this open file: threads exclude each other too
            yield
        finally:
            os.close(fd)

    def publish(self, temporary: str, fd: int, path: str) -> str:
        """Give a flushed temporary file its name (under the key's lock); returns its version."""
        self._make_directory(os.path.dirname(path))
        before = _status(path)
        # Set by hand and always later than the version before: the file system's own clock
        # ticks too slowly to tell two writes apart that reuse an inode.
        modified_ns = max(time.time_ns(), before.st_mtime_ns + 1 if before else 0)
        os.utime(fd, ns=(modified_ns, modified_ns))
        os.fsync(fd)
        version = _version(os.fstat(fd))
        os.rename(temporary, path)
        _flush_directory(os.path.dirname(path))
        return version

    def _path(self, key: str) -> str:
        path = os.path.join(self._root, key)
        parent = os.path.dirname(path)
        if os.path.realpath(parent) != parent:
            raise FatalError(f"{key}: a symbolic link lies on its way below {self._root}")
        return path

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        path = self._path(check_key(key))
        with _failures("read", key):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                self._check_present(key)
                raise NotFound(f"{key}: no such object in {self.url}") from None
            try:
                if os.path.isdir(fd):
                    raise NotFound(f"{key}: no such object in {self.url}")
                yield fd
            finally:
                os.close(fd)

    def _check_present(self, key: str) -> None:
        """Tell a missing object from a missing store (a disk that is not mounted)."""
        if not os.path.isdir(self._own):
            raise TransientError(f"{key}: the store's directory {self._root} is gone")

    def _make_directory(self, directory: str) -> None:
        if os.path.isdir(directory):
            return
        self._make_directory(os.path.dirname(directory))
        with suppress(FileExistsError):
            os.mkdir(directory)
        _flush_directory(os.path.dirname(directory))

    def _walk(self, directory: str, name_prefix: str) -> Iterator[ObjectInfo]:
        entries: list[tuple[bytes, os.DirEntry[str]]] = []
        try:
            with os.scandir(os.path.join(self._root, directory)) as found:
                for entry in found:
                    if entry.name.startswith(name_prefix) and not entry.is_symlink():
                        # A directory stands where its children do: behind "/", not at its end.
                        suffix = "/" if entry.is_dir() else ""
                        entries.append(((entry.name + suffix).encode(), entry))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise TransientError(f"list {directory}: {error.strerror}") from error
        for _, entry in sorted(entries, key=lambda item: item[0]):
            key = directory + entry.name
            if key == RESERVED:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(key + "/", "")
            elif (status := _status(entry.path)) is not None:
                yield ObjectInfo(key=key, size_bytes=status.st_size, version=_version(status))

    def _remove_abandoned(self) -> None:
        """Drop temporary files of processes that were killed; a live writer holds its lock."""
        oldest = time.time() - _ABANDONED_AFTER_S
        with suppress(OSError), os.scandir(self._temporary) as found:
            for entry in found:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        _remove_unlocked(entry.path)


class LocalUpload:
    """A streamed write into a temporary file, locked as long as its writer lives."""

    def __init__(self, store: LocalStore, key: str, path: str, temporary: str) -> None:
        self._store = store
        self._key = key
        self._path = path
        self._temporary = temporary
        self._fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def write(self, chunk: bytes | memoryview) -> None:
        """Append `chunk`."""
        with _failures("write", self._key):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def commit(self) -> None:
        """Make the object durable and visible, replacing what is there."""
        with _failures("write", self._key):
            os.fsync(self._fd)  # the bulk of it outside the lock
            with self._store.locked(self._key):
                self._store.publish(self._temporary, self._fd, self._path)
        self._close()

    def commit_if(self, expected: str | None) -> str:
        """Make it visible only if the object's version is `expected`; returns the new one."""
        with _failures("write", self._key):
            os.fsync(self._fd)
            with self._store.locked(self._key):
                status = _status(self._path)
                found = None if status is None else _version(status)
                if found != expected:
                    raise StoreConflict(f"{self._key}: version is {found}, not {expected}")
                version = self._store.publish(self._temporary, self._fd, self._path)
        self._close()
        return version

    def abort(self) -> None:
        """Drop what was written; nothing happens after a commit."""
        if self._fd >= 0:
            with suppress(OSError):
                os.unlink(self._temporary)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        with suppress(OSError):
            os.close(fd)


@contextmanager
def _failures(action: str, key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FatalError(f"{action} {key}: it is a symbolic link") from error
        raise TransientError(f"{action} {key}: {error.strerror}") from error


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _read_exactly(fd: int, start: int, length: int) -> bytes:
    data = os.pread(fd, length, start)
    if len(data) == length:
        return data
    pieces = [data]
    while pieces[-1] and length > (done := sum(map(len, pieces))):
        pieces.append(os.pread(fd, length - done, start + done))
    return b"".join(pieces)


def _flush_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove_unlocked(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(fd)
