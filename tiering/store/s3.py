"""Objects in an S3 bucket, or in whatever speaks S3 with conditional writes.

Versions are ETags; `put_if` is a PUT with If-None-Match or If-Match. Large objects go up in
parts, so nothing of them is seen before the upload is completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from urllib3.response import BaseHTTPResponse

from tiering.errors import FatalError, NotFound, StoreConflict, TieringError, TransientError
from tiering.store.conditional import check_conditional_writes
from tiering.store.keys import RESERVED, check_key, check_prefix
from tiering.store.objects import ObjectInfo, StoredObject
from tiering.store.s3_client import BehindEnd, S3Client, translated
from tiering.store.s3_location import S3Location, parse_s3_url

__all__ = ["PART_BYTES", "S3Store", "S3Upload", "open_s3_store"]

PART_BYTES: Final = 8 * 1024 * 1024
"""Size of an uploaded part; S3's 10,000 of them hold any Kafka segment many times over."""

_PARTIAL_CONTENT: Final = 206


def open_s3_store(url: str, env: Mapping[str, str]) -> S3Store:
    """Open `s3://bucket/prefix?endpoint=...&region=...`; raises BadInput for another URL."""
    return S3Store(parse_s3_url(url, env), env)


class S3Store:
    """An ObjectStore below a prefix of one bucket."""

    def __init__(self, location: S3Location, env: Mapping[str, str]) -> None:
        self._location = location
        self._bucket = location.bucket
        self._client = S3Client(location, env, tries=3)
        # Conditional writes are sent once: a repeat of one that landed would call it a conflict.
        self._client_once = S3Client(location, env, tries=1)
        self._conditions_checked = False
        self._check_lock = Lock()

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    @property
    def url(self) -> str:
        """The URL it was opened with; credentials are never part of one."""
        return self._location.url

    def get(self, key: str) -> StoredObject:
        """Read an object whole."""
        with translated("read", key):
            answer = self.request("GET", key)
            return StoredObject(data=answer.data, version=_etag(answer))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes [start, start+length), shorter only at the object's end."""
        if length <= 0:
            self.size(key)
            return b""
        wanted = {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            with translated("read", key):
                answer = self.request("GET", key, headers=wanted)
        except BehindEnd:
            return b""
        if answer.status == _PARTIAL_CONTENT:
            return answer.data
        return answer.data[start : start + length]  # from a server that knows no ranges

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes (all, when it has fewer) and its size, in one request."""
        if length <= 0:
            return b"", self.size(key)
        try:
            with translated("read", key):
                answer = self.request("GET", key, headers={"Range": f"bytes=-{length}"})
        except BehindEnd:  # how an empty object answers
            return b"", 0
        if answer.status != _PARTIAL_CONTENT:
            return answer.data[-length:], len(answer.data)
        total = str(answer.headers.get("Content-Range", "")).rpartition("/")[2]
        if not total.isdigit():
            raise TransientError(f"read {key}: the server doesn't say how long the object is")
        return answer.data, int(total)

    def size(self, key: str) -> int:
        """Size in bytes."""
        try:
            with translated("read", key):
                return int(self.request("HEAD", key).headers["Content-Length"])
        except NotFound:
            # HEAD has no body to tell a missing object from a missing bucket; GET has.
            return len(self.get(key).data)

    def put(self, key: str, data: bytes) -> None:
        """Write an object whole, replacing what is there."""
        with translated("write", key):
            self.request("PUT", key, body=data)

    def put_if(self, key: str, data: bytes, *, expected: str | None) -> str:
        """Write only if the object's version is `expected` (None: does not exist).

        Raises FatalError when the server doesn't heed conditions: nothing is written then.
        """
        check_key(key)
        with self._check_lock:
            if not self._conditions_checked:
                check_conditional_writes(self._put_if, self.url)
                self._conditions_checked = True
        return self._put_if(key, data, expected=expected)

    def open_upload(self, key: str) -> S3Upload:
        """Start a streamed write of `key`; the first request goes out with the first part."""
        return S3Upload(self, check_key(key))

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        with suppress(NotFound), translated("delete", key):
            self.request("DELETE", key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, in key order (of their UTF-8 bytes)."""
        return self._list(check_prefix(prefix))

    def request(
        self,
        method: str,
        key: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        once: bool = False,
    ) -> BaseHTTPResponse:
        """Send one signed request for an object; raises what `translated` understands."""
        client = self._client_once if once else self._client
        name = self._location.prefix + check_key(key)
        return client.send(method, name, body=body, headers=headers, query=query)

    def _put_if(self, key: str, data: bytes, *, expected: str | None) -> str:
        condition = {"If-None-Match": "*"} if expected is None else {"If-Match": f'"{expected}"'}
        try:
            with translated("write", key):
                answer = self.request("PUT", key, body=data, headers=condition, once=True)
                return _etag(answer)
        except NotFound:
            raise StoreConflict(f"{key}: it is gone, expected was version {expected}") from None

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        own = f"{self._location.prefix}{RESERVED}/"
        with translated("list", prefix):
            for found in self._client.list_objects(
                self._bucket, prefix=self._location.prefix + prefix, recursive=True
            ):
                name = found.object_name or ""
                if name.startswith(own) or name.endswith("/"):
                    continue
                yield ObjectInfo(
                    key=name.removeprefix(self._location.prefix),
                    size_bytes=found.size or 0,
                    version=(found.etag or "").strip('"'),
                )


class S3Upload:
    """A streamed write: gathers parts; a small object becomes a single PUT."""

    def __init__(self, store: S3Store, key: str) -> None:
        self._store = store
        self._key = key
        self._chunks: list[bytes | memoryview] = []
        self._gathered = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._committed = False

    def write(self, chunk: bytes | memoryview) -> None:
        """Append `chunk`; it must not change afterwards."""
        self._chunks.append(chunk)
        self._gathered += len(chunk)
        if self._gathered >= PART_BYTES:
            self._send_part()

    def commit(self) -> None:
        """Make the object durable and visible, atomically."""
        if self._upload_id is None:
            self._store.put(self._key, b"".join(self._chunks))
        else:
            if self._gathered:
                self._send_part()
            self._complete(self._upload_id)
        self._committed = True
        self._chunks.clear()

    def abort(self) -> None:
        """Drop what was written; never raises, nothing happens after a commit."""
        self._chunks.clear()
        upload_id, self._upload_id = self._upload_id, None
        if upload_id is not None and not self._committed:
            with suppress(TieringError), translated("abort", self._key):
                self._store.request("DELETE", self._key, query={"uploadId": upload_id})

    def _send_part(self) -> None:
        if self._upload_id is None:
            self._upload_id = self._start()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._gathered = 0
        query = {"partNumber": str(len(self._etags) + 1), "uploadId": self._upload_id}
        with translated("write", self._key):
            self._etags.append(_etag(self._store.request("PUT", self._key, body=data, query=query)))

    def _start(self) -> str:
        with translated("write", self._key):
            answer = self._store.request("POST", self._key, query={"uploads": ""})
        upload_id = _element(answer.data, "UploadId")
        if not upload_id:
            raise FatalError(f"write {self._key}: the server started no upload")
        return upload_id

    def _complete(self, upload_id: str) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in enumerate(self._etags, start=1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        with translated("write", self._key):
            answer = self._store.request(
                "POST", self._key, body=body, query={"uploadId": upload_id}
            )
            # S3 may answer 200 at once and put an error into the body later.
            if not _element(answer.data, "ETag"):
                raise OSError("the server did not complete the upload")


def _etag(answer: BaseHTTPResponse) -> str:
    return str(answer.headers.get("ETag", "")).strip('"')


def _element(document: bytes, name: str) -> str | None:
    try:
        root = ElementTree.fromstring(document)  # noqa: S314 - an answer of the trusted server
    except ElementTree.ParseError:
        return None
    return next((e.text for e in root.iter() if e.tag.rpartition("}")[2] == name), None)
