"""Keeping secrets out of messages and out of what travels to workers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["is_secret", "redact"]

_SECRET_KEY: Final = re.compile(
    r"secret|token|credential|passw|access-key|key-id|account-key|sas|auth|signer|header\.",
    re.IGNORECASE,
)
_URI_LOGIN: Final = re.compile(r"(?<=://)([^/@\s]+)@")
_SHORTEST: Final = 4
"""Values shorter than this are not looked for in texts: `true` would do more harm than good."""


def is_secret(key: str) -> bool:
    """Whether a catalog or FileIO property of this name may hold a secret."""
    return _SECRET_KEY.search(key) is not None


def redact(text: str, properties: Mapping[str, str]) -> str:
    """`text` without the secret values of `properties` and without logins in URLs."""
    for secret in sorted(_secrets(properties), key=len, reverse=True):
        text = text.replace(secret, "***")
    return _URI_LOGIN.sub("***@", text)


def _secrets(properties: Mapping[str, str]) -> Iterator[str]:
    for key, value in properties.items():
        if is_secret(key) and len(str(value)) > _SHORTEST:
            yield str(value)
            # OAuth credentials are `id:secret`; servers like to quote one of the two.
            yield from (part for part in str(value).split(":") if len(part) > _SHORTEST)
