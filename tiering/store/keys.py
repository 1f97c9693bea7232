"""Which object keys are accepted, whatever the store. Pure."""

from __future__ import annotations

from typing import Final

from tiering.errors import BadInput

__all__ = ["RESERVED", "check_key", "check_prefix"]

RESERVED: Final = ".onecopy"
"""First path element that stores keep for themselves (locks, temporary files, probes)."""

_KEY_BYTES_MAX: Final = 1024
_ELEMENT_BYTES_MAX: Final = 255


def check_key(key: str) -> str:
    """Return `key` if it names an object below the store's root, else raise BadInput.

    Keys are built from what came over the network or out of listings, so nothing may leave
    the root: no empty, `.` or `..` element, no backslash, no control character.
    """
    elements = key.split("/")
    if elements[0] == RESERVED or not all(_is_plain(element) for element in elements):
        raise BadInput(f"object key {key!r} is not allowed")
    if len(key.encode()) > _KEY_BYTES_MAX:
        raise BadInput(f"object key of {len(key)} characters is longer than {_KEY_BYTES_MAX} bytes")
    return key


def check_prefix(prefix: str) -> str:
    """Return `prefix` if keys may start with it: a key, a key cut anywhere, or nothing."""
    directory, slash, name = prefix.rpartition("/")
    if slash:
        check_key(directory)
    if name not in {"", ".", ".."} and not _is_plain(name):
        raise BadInput(f"key prefix {prefix!r} is not allowed")
    return prefix


def _is_plain(element: str) -> bool:
    return (
        element not in {"", ".", ".."}
        and element.isprintable()
        and "\\" not in element
        and len(element.encode()) <= _ELEMENT_BYTES_MAX
    )
