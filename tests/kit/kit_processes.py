"""Looking at processes from outside (Linux)."""

from __future__ import annotations

import contextlib
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """All processes below `pid`, at this moment."""
    children: dict[int, set[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, set()).add(int(stat.parent.name))
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for parent in new for child in children.get(parent, ())} - found
        found |= new
    return found
