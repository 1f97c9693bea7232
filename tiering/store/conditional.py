"""Shows that a store heeds conditions, before anything depends on it."""

from __future__ import annotations

from typing import Final, Protocol

from tiering.errors import FatalError, StoreConflict

__all__ = ["PROBE_KEY", "ConditionalPut", "check_conditional_writes"]

PROBE_KEY: Final = "probes/conditional-write"
_NEVER_A_VERSION: Final = "0" * 32


class ConditionalPut(Protocol):
    """An ObjectStore's `put_if`."""

    def __call__(self, key: str, data: bytes, *, expected: str | None) -> str:
        """Write only if the object's version is `expected`."""


def check_conditional_writes(put_if: ConditionalPut, url: str) -> None:
    """Raise FatalError if the store at `url` writes although the condition doesn't hold.

    Some servers that speak S3 ignore If-None-Match or If-Match: two writers of a ledger
    object would then overwrite each other without a word.
    """
    data = b"Tells whether this store heeds conditions; may be removed.\n"
    try:
        put_if(PROBE_KEY, data, expected=None)
    except StoreConflict:
        pass  # it is there, and the condition was heeded
    else:
        _expect_conflict(put_if, data, None, url)
    _expect_conflict(put_if, data, _NEVER_A_VERSION, url)


def _expect_conflict(put_if: ConditionalPut, data: bytes, expected: str | None, url: str) -> None:
    try:
        put_if(PROBE_KEY, data, expected=expected)
    except StoreConflict:
        return
    header = "If-None-Match" if expected is None else "If-Match"
    raise FatalError(f"store {url} ignores {header}: conditional writes are needed")
