"""The exit codes of `onecopy`, and how signals become them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = [
    "BAD_INPUT",
    "FAILED",
    "INTERRUPTED",
    "OK",
    "UNAVAILABLE",
    "Terminated",
    "ending_on_signals",
    "impatient",
]

OK: Final = 0
FAILED: Final = 1
"""A check failed, or differences were found."""
BAD_INPUT: Final = 2
UNAVAILABLE: Final = 3
"""A part outside (broker, store, catalog, network, Java) is unavailable."""
INTERRUPTED: Final = 130

_ORDERLY: Final = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: an orderly end was asked for."""


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the body as Ctrl-C does, by an exception in the main thread."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    # One that is ignored (nohup) stays ignored.
    heard = [number for number in _ORDERLY if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def impatient(kill: Callable[[], None]) -> Iterator[None]:
    """While the body stops things in order: one more signal is answered, the next one kills."""
    asked = 0

    def again(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            print("onecopy: stopping; press Ctrl-C once more to kill", file=sys.stderr)
        else:
            kill()

    heard = [n for n in (signal.SIGINT, *_ORDERLY) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, again) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
