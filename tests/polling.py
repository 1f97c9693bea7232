"""Waiting for a condition, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T],
    timeout_s: float = 30.0,
    *,
    what: str = "",
    interval_s: float = 0.05,
    details: Callable[[], str] | None = None,
) -> T:
    """Poll until the condition holds (is truthy) and return its value.

    An AssertionError inside the condition counts as "not yet"; when time is up it is raised as it
    is, and so is a plain false value, with `what` was waited for and `details()` of how things are.
    """
    until = time.monotonic() + timeout_s
    while True:
        late = time.monotonic() > until
        try:
            value = condition()
        except AssertionError as error:
            if late:
                if details is not None:
                    error.add_note(details())
                raise
        else:
            if value:
                return value
            if late:
                told = f"\n{details()}" if details is not None else ""
                raise AssertionError(
                    f"not within {timeout_s} s: {what or condition}; last value {value!r}{told}"
                )
        time.sleep(interval_s)
