"""Keeps child processes running, and stops them in order.

A child has a session of its own (a terminal's Ctrl-C doesn't reach it), logs to a file, says by a
ready file that it is at work, and dies with the supervisor. One that ends is started again after
a pause that grows, up to a bound.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tiering.errors import BadInput, TransientError
from tiering.local.child_process import guarded

__all__ = ["Child", "ChildSpec", "Supervisor", "log_tail"]

_log: Final = logging.getLogger("onecopy.supervisor")
_POLL_S: Final = 0.05
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STEADY_S: Final = 60.0  # a child that ran so long starts again after the first pause
_LOG_BYTES_MAX: Final = 16 * 1024 * 1024  # a log larger than this is put aside at start
_TAIL_BYTES: Final = 64 * 1024
_EXIT_BAD_INPUT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """How to run one child.

    Attributes:
        command: its argument list.
        log_file: gets its standard output and error.
        ready_file: JSON that the child writes with its "pid" once it is at work.
        environment: variables beside those of this process.
        ready_s_max: it must be ready within this time at its first start.
        stop_s_max: after SIGTERM it has this long before SIGKILL.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    ready_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_s_max: float = 90.0
    stop_s_max: float = 20.0


class Child:
    """One child process and its restarts."""

    def __init__(self, spec: ChildSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self.spec = spec
        self.restarts = 0
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._failures = 0
        self._start_at: float | None = None
        self._log_start = 0  # its log may hold earlier runs

    @property
    def pid(self) -> int | None:
        """Its process id, None while it isn't running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it; doesn't wait."""
        spec = self.spec
        spec.ready_file.unlink(missing_ok=True)
        spec.log_file.parent.mkdir(parents=True, exist_ok=True)
        _put_aside(spec.log_file)
        with spec.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                guarded(spec.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **spec.environment},
                start_new_session=True,
            )
        self._started_at, self._start_at = self._clock(), None

    def ready(self) -> dict[str, Any] | None:
        """What its ready file says, None while it isn't at work."""
        try:
            said = json.loads(self.spec.ready_file.read_text())
        except (OSError, ValueError):
            return None
        return said if isinstance(said, dict) and said.get("pid") == self.pid else None

    def await_ready(self) -> dict[str, Any]:
        """Wait until it is at work. When it ends or takes too long, an error with its log's end."""
        until = self._clock() + self.spec.ready_s_max
        while (said := self.ready()) is None:
            if self.pid is None:
                raise self._failure(f"{self.spec.name} ended at once (code {self._code()})")
            if self._clock() > until:
                raise self._failure(f"{self.spec.name} isn't ready after {self.spec.ready_s_max} s")
            time.sleep(_POLL_S)
        return said

    def tend(self) -> None:
        """Start it again if it has ended and its pause is over; doesn't wait."""
        if self.pid is not None:
            return
        now = self._clock()
        if self._start_at is None:
            self._failures = 0 if now - self._started_at > _STEADY_S else self._failures + 1
            pause = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
            _log.warning(
                "%s ended with code %s; starting it again in %.1f s (log: %s)",
                self.spec.name,
                self._code(),
                pause,
                self.spec.log_file,
            )
            self._start_at = now + pause
        elif now >= self._start_at:
            self.restarts += 1
            self.start()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL to whatever is left of its session."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.spec.stop_s_max)
        self.kill()

    def kill(self) -> None:
        """SIGKILL at once."""
        if self._process is not None:
            # The group is the session's: processes that the child left behind go with it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _code(self) -> int | None:
        return self._process.poll() if self._process else None

    def _failure(self, what: str) -> Exception:
        if self._code() == _EXIT_BAD_INPUT:
            # Such a child has ended with one line for people; the rest isn't their concern.
            said = log_tail(self.spec.log_file, 1, start=self._log_start)
            return BadInput(said.removeprefix("onecopy ") or what)
        tail = log_tail(self.spec.log_file, start=self._log_start)
        return TransientError(f"{what}; see {self.spec.log_file}:\n{tail}")


class Supervisor:
    """Children in the order of their start; they stop in the opposite one."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def start(self, spec: ChildSpec) -> Child:
        """Start one more child; doesn't wait."""
        child = Child(spec)
        self.children.append(child)
        child.start()
        return child

    def tend(self) -> None:
        """Start again what has ended; call it several times a second."""
        for child in self.children:
            child.tend()

    def stop(self, *names: str) -> None:
        """Stop the named children (all of them without names), the last started first."""
        for child in reversed(self.children):
            if not names or child.spec.name in names:
                child.stop()
        self.children = [c for c in self.children if names and c.spec.name not in names]

    def kill(self) -> None:
        """Kill all children at once."""
        for child in self.children:
            child.kill()
        self.children = []


def log_tail(path: Path, lines: int = 15, *, start: int = 0) -> str:
    """The last lines of a log, none of them from before the byte `start`."""
    try:
        with path.open("rb") as log:
            log.seek(max(start, path.stat().st_size - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:])


def _put_aside(log_file: Path) -> None:
    with suppress(OSError):
        if log_file.stat().st_size > _LOG_BYTES_MAX:
            log_file.replace(log_file.with_suffix(log_file.suffix + ".1"))
