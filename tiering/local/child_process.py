"""Child processes that never outlive the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["guarded"]

_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def guarded(command: Sequence[str]) -> list[str]:
    """The command behind a wrapper that has the kernel kill it when this process dies.

    The wrapper sets the parent-death signal and becomes the command (same process id). On systems
    other than Linux there's no such signal, and the command is returned as it is.

    The kernel acts on the death of the *thread* that started the child: start it from one that
    lives as long as the process.
    """
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _main(arguments: Sequence[str]) -> None:
    parent, *command = arguments
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the line above
        os._exit(1)
    os.execvp(command[0], command)  # noqa: S606  # becomes the caller's fixed command


if __name__ == "__main__":
    _main(sys.argv[1:])
