"""What an s3:// URL says: bucket, prefix, endpoint, region. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tiering.errors import BadInput
from tiering.store.keys import check_key

__all__ = ["S3Location", "parse_s3_url"]

_AWS_ENDPOINT: Final = "https://s3.amazonaws.com"
_PARAMETERS: Final = frozenset({"endpoint", "region"})
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Location:
    """A place in an S3 server.

    Attributes:
        url: the URL as given; holds no credentials.
        prefix: what every key begins with: empty, or ending in "/".
        host: host[:port] of the endpoint.
        secure: whether the endpoint speaks TLS.
        region: None lets the server tell.
    """

    url: str
    bucket: str
    prefix: str
    host: str
    secure: bool
    region: str | None


def parse_s3_url(url: str, env: Mapping[str, str]) -> S3Location:
    """Take `s3://bucket/prefix?endpoint=http://host:port&region=name` apart.

    Without a region parameter AWS_REGION or AWS_DEFAULT_REGION of `env` counts. Raises
    BadInput, without repeating the URL where it might hold a secret.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise BadInput("an s3 URL holds no credentials: give them by AWS_ACCESS_KEY_ID and so on")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := set(query) - _PARAMETERS:
        raise BadInput(
            f"s3 URL: unknown parameter {', '.join(sorted(unknown))}; "
            "known are endpoint and region, credentials come from the environment"
        )
    if parts.fragment or not _BUCKET.fullmatch(parts.netloc):
        raise BadInput("an s3 URL is s3://bucket/prefix?endpoint=http://host:port&region=name")
    prefix = unquote(parts.path).strip("/")
    if prefix:
        prefix = check_key(prefix) + "/"
    host, secure = _parse_endpoint(query.get("endpoint") or _AWS_ENDPOINT)
    return S3Location(
        url=url,
        bucket=parts.netloc,
        prefix=prefix,
        host=host,
        secure=secure,
        region=query.get("region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
    )


def _parse_endpoint(endpoint: str) -> tuple[str, bool]:
    parts = urlsplit(endpoint)
    wrong = "@" in parts.netloc or parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in {"http", "https"} or not parts.netloc or wrong:
        raise BadInput("s3 URL: endpoint is http://host:port or https://host")
    return parts.netloc, parts.scheme == "https"
