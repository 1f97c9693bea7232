"""CPU seconds of processes and all their descendants, as the kernel counts them (proc(5))."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.conftest import Timed

__all__ = ["timed_processes", "tree_cpu_s"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def tree_cpu_s(root: int) -> float:
    """User and system time of a process and its descendants, ended ones that were waited for too.

    Processes that end meanwhile are counted by their parent once it has waited for them.
    """
    parents = dict(_parents())
    total, pending = 0.0, [root]
    while pending:
        pid = pending.pop()
        total += _cpu_s(pid)
        pending += [child for child, parent in parents.items() if parent == pid]
    return total


def timed_processes(
    run: Callable[[], object], *, trees: Sequence[int], with_self: bool = False
) -> Timed:
    """Run once; wall time, and CPU time of the process trees below `trees` while it lasts.

    `with_self` adds this process's own time, without its children's.
    """

    def cpu_s() -> float:
        return sum(map(tree_cpu_s, trees)) + (time.process_time() if with_self else 0.0)

    before, start = cpu_s(), time.perf_counter()
    run()
    wall = time.perf_counter() - start
    return Timed(wall_s=wall, cpu_s=cpu_s() - before)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            yield int(entry.name), int(fields[1])


def _cpu_s(pid: int) -> float:
    """utime, stime, cutime and cstime."""
    fields = _fields(pid)
    return sum(map(int, fields[11:15])) / _TICKS_PER_S if fields else 0.0


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the command's name; none when it has ended."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
