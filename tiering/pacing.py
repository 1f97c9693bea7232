"""How often and how long something outside is asked again. Time and chance come in from here."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["SYSTEM_PACING", "Pacing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Bounds on retries, and the clock, sleep and chance that they use.

    Attributes:
        attempts_max: commits sent for one plan at most.
        faults_max: those of them that may fail for another reason than a conflict.
        loads_max: tries to read one table at most, each time that it must be read.
        backoff_ms_min, backoff_ms_max: the pause before try n is random below
            min(backoff_ms_max, backoff_ms_min * 2^n).
        patience_ms: no new try after this time.
        clock: seconds, monotonic.
        sleep: takes seconds.
        chance: a number in [0, 1).
    """

    attempts_max: int = 20
    faults_max: int = 5
    loads_max: int = 8
    backoff_ms_min: int = 20
    backoff_ms_max: int = 2_000
    patience_ms: int = 60_000
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def pause(self, attempt: int) -> None:
        """Sleep before try number `attempt` (1 is the first repetition)."""
        longest_ms = min(self.backoff_ms_max, self.backoff_ms_min * 2 ** min(attempt, 30))
        self.sleep(self.chance() * longest_ms / 1000)

    def is_out_of_patience(self, started: float) -> bool:
        """Whether `patience_ms` have passed since `started` (a reading of `clock`)."""
        return (self.clock() - started) * 1000 >= self.patience_ms


SYSTEM_PACING: Final = Pacing()
