"""Memory settings for a process that decodes and writes all day."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_BYTES: Final = 32 * 1024 * 1024
_TRIM_THRESHOLD_BYTES: Final = 256 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Let the C library keep freed blocks for the next ones (glibc's `mallopt`); True if it does.

    Conversion takes and frees blocks of some megabytes all the time. By default each comes fresh
    from the kernel, page by page and zeroed, which costs as much time as decoding does. The
    process's peak stays what it is. On other C libraries nothing happens.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(
            mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
            and mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        )
    return False
