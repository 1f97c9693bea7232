"""Taking free memory from the host of a virtual machine before the clock starts."""

from __future__ import annotations

import mmap

__all__ = ["touch_memory"]

_BYTES = 1536 * 1024 * 1024
_FILL = b"\1" * (1024 * 1024)


def touch_memory() -> None:
    """Write to more memory than a run will newly take, and give it back to the kernel.

    Virtual machines may hand memory that is free back to their host. Getting it again costs
    seconds of CPU time a gigabyte (seen: 2.2), for whoever writes a file next, and says nothing
    about what is measured here.
    """
    with mmap.mmap(-1, _BYTES) as memory:
        for _ in range(_BYTES // len(_FILL)):
            memory.write(_FILL)
