"""Named points at which a process kills itself, so that tests can crash it exactly there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["CRASH_AT_VARIABLE", "crash_points"]

CRASH_AT_VARIABLE: Final = "ONECOPY_CRASH_AT"
"""Environment variable: the step at which the process sends itself SIGKILL."""


def crash_points(environment: Mapping[str, str]) -> Callable[[str], None]:
    """A function to call with each step's name; does nothing unless the variable names it."""
    wanted = environment.get(CRASH_AT_VARIABLE)

    def reached(step: str) -> None:
        if step == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached
