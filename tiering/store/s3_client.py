"""Signed requests to S3 with bounded time, and what their failures mean.

`minio` signs and sends. Its methods have no argument for conditional writes and none for an
upload in parts that isn't one file, so requests go through `S3Client.send`, the one place
that uses what the library calls protected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import certifi
import urllib3
from minio import Minio
from minio.credentials.providers import (
    AWSConfigProvider,
    ChainedProvider,
    IamAwsProvider,
    Provider,
    StaticProvider,
)
from minio.error import MinioException, S3Error
from urllib3.response import BaseHTTPResponse

from tiering.errors import (
    BadInput,
    FatalError,
    NotFound,
    StoreConflict,
    TieringError,
    TransientError,
)
from tiering.store.s3_location import S3Location

__all__ = ["BehindEnd", "S3Client", "translated"]

_CONNECT_S: Final = 3.0
_READ_S: Final = 20.0
_CONNECTIONS: Final = 64
_OUTAGE_STATUSES: Final = (429, 500, 502, 503, 504)
_CONFLICT_STATUS: Final = 412
_CONFLICT_CODES: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_RANGE_STATUS: Final = 416
_MESSAGE_MAX: Final = 300
_NO_OBJECT: Final = "NoSuchKey"


class BehindEnd(TieringError):
    """A range was asked that begins behind the object's end."""


class S3Client(Minio):
    """A minio client for one bucket with bounded tries and times."""

    def __init__(self, location: S3Location, env: Mapping[str, str], *, tries: int) -> None:
        super().__init__(
            location.host,
            secure=location.secure,
            region=location.region,
            credentials=_credentials(env),
            http_client=_pool(tries),
        )
        self._bucket = location.bucket

    def send(
        self,
        method: str,
        name: str,
        *,
        body: bytes | None,
        headers: dict[str, str] | None,
        query: dict[str, str] | None,
    ) -> BaseHTTPResponse:
        """One signed request for the object `name`, answered 200, 204 or 206, or it raises."""
        return self._execute(
            method,
            self._bucket,
            name,
            body=body,
            headers={**headers} if headers else None,
            query_params={**query} if query else None,
        )


@contextmanager
def translated(action: str, key: str) -> Iterator[None]:
    """Turn the library's errors into the store's."""
    try:
        yield
    except S3Error as error:
        status = error.response.status
        what = f"{action} {key}: {error.code}: {error.message}"
        if error.code == _NO_OBJECT:
            raise NotFound(what) from error
        if status == _RANGE_STATUS:
            raise BehindEnd(what) from error
        if error.code == "NotImplemented":
            raise FatalError(f"{what} (the server lacks what this store needs)") from error
        if status == _CONFLICT_STATUS or error.code in _CONFLICT_CODES:
            raise StoreConflict(what) from error
        # Anything else, refused credentials and a missing bucket among them, is an outage of
        # the store to whoever asks for an object: it never means that the object is gone.
        raise TransientError(what) from error
    except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
        # Cut: what isn't S3 may answer with a whole page.
        raise TransientError(f"{action} {key}: {str(error)[:_MESSAGE_MAX]}") from error
    except ValueError as error:
        raise TransientError(f"{action} {key}: no usable credentials: {error}") from error


def _pool(tries: int) -> urllib3.PoolManager:
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
        maxsize=_CONNECTIONS,
        cert_reqs="CERT_REQUIRED",
        ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
        retries=urllib3.Retry(
            total=tries - 1,
            redirect=0,
            backoff_factor=0.1,
            backoff_max=1.0,
            status_forcelist=_OUTAGE_STATUSES,
            raise_on_status=False,
            # A server that starts may ask for a minute: the caller decides whether to wait.
            respect_retry_after_header=False,
        ),
    )


def _credentials(env: Mapping[str, str]) -> Provider:
    """The environment's, else those of the standard AWS files and instance roles."""
    access, secret = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    if access and secret:
        return StaticProvider(access, secret, env.get("AWS_SESSION_TOKEN") or None)
    if access or secret:
        raise BadInput("give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY both, or neither")
    return ChainedProvider([AWSConfigProvider(), IamAwsProvider(http_client=_pool(2))])
