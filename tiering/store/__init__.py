"""The object store as the tier sees it: one Protocol, chosen by URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tiering.errors import BadInput
from tiering.store.objects import ObjectInfo, ObjectStore, StoredObject, Upload

__all__ = ["ObjectInfo", "ObjectStore", "StoredObject", "Upload", "open_store"]


def open_store(url: str, env: Mapping[str, str] | None = None) -> ObjectStore:
    """Open the store that `url` names; nothing is sent to a server yet.

    - a path, or `file:///path`: a local directory, made if missing;
    - `s3://bucket/prefix?endpoint=http://host:port&region=r`: S3 or what speaks it; endpoint
      and region are optional. Credentials come only from `env` (the process environment by
      default: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) or from the standard
      AWS files and instance roles, never from the URL.

    Raises BadInput when the URL can't be taken (it is not repeated when it might hold secrets).
    """
    if url.startswith("s3://"):
        # Only here: `minio` takes a moment to import, and local stores do without it.
        from tiering.store.s3 import open_s3_store

        return open_s3_store(url, os.environ if env is None else env)
    from tiering.store.local import LocalStore

    return LocalStore(_local_path(url))


def _local_path(url: str) -> Path:
    if "://" not in url:
        if not url:
            raise BadInput("the store's URL is empty: give a directory or s3://bucket/prefix")
        return Path(url).absolute()
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise BadInput(f"store URLs are a path, file:///path or s3://bucket, not {parts.scheme}://")
    if parts.netloc not in {"", "localhost"} or parts.query or parts.fragment or not parts.path:
        raise BadInput("a file URL is file:///absolute/path without host, query or fragment")
    return Path(unquote(parts.path))
