"""Taking free memory from the host of a virtual machine before the clock starts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["touch_memory"]

_MEGABYTES: Final = 1200
_FILL: Final = b"\1" * 1_000_000


def touch_memory(directory: Path) -> None:
    """Write a file of more bytes than a run will write, and remove it at once.

    Virtual machines may hand memory that is free back to their host. Getting it again costs
    seconds of CPU time a gigabyte (seen: 2.2), for whoever writes a file next, and says nothing
    about what is measured here. What the page cache has just given up comes first.
    """
    path = directory / "touched"
    with path.open("wb") as file:
        for _ in range(_MEGABYTES):
            file.write(_FILL)
    path.unlink()
