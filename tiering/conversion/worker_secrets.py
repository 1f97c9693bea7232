"""What a worker knows and no message may say."""

from __future__ import annotations

import os
from typing import Final

from tiering.redaction import redact

__all__ = ["without_secrets"]

_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def without_secrets(reason: str) -> str:
    """`reason` without the credentials that the process environment holds."""
    return redact(reason, {name: os.environ.get(name, "") for name in _SECRETS})
