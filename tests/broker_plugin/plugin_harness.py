"""The plug-in in a JVM of its own, driven line by line (java/Harness.java)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Harness", "Outcome", "Segment", "compile_harness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one call did: `error` is the exception's simple class name, or None."""

    millis: int
    error: str | None
    message: str
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment on disk and its metadata, as the broker would hand them over."""

    directory: Path
    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    leader_epochs: tuple[tuple[int, int], ...]

    @property
    def path(self) -> str:
        """Below `/v1/`."""
        name = f"{self.start_offset:020d}-{self.segment_id}"
        return f"segments/{self.topic_id}/{self.partition}/{name}"


def compile_harness(classpath: Sequence[Path], target: Path) -> None:
    """Compile java/Harness.java into `target`."""
    source = Path(__file__).parent / "java" / "Harness.java"
    entries = os.pathsep.join(map(str, classpath))
    command = ["javac", "--release", "17", "-cp", entries, "-d", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


class Harness:
    """One JVM; one call at a time."""

    def __init__(self, classpath: Sequence[Path], stderr: Path) -> None:
        self._stderr_path = stderr
        self._stderr = stderr.open("wb")
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", os.pathsep.join(map(str, classpath)), "Harness"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
        )

    def close(self) -> int:
        """End the JVM by ending its input; its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process.stdout.close()
        self._stderr.close()
        return code

    def stderr(self) -> str:
        """All that the JVM has logged so far."""
        return self._stderr_path.read_text()

    def configure(self, url: str | None, **settings: object) -> Outcome:
        """A new plug-in; `settings` without `onecopy.`, with `_` for `.`; None: not set."""
        named = {"url": url, "token": "secret-token", **settings}
        pairs = (
            f"onecopy.{key.replace('_', '.')}={value}"
            for key, value in named.items()
            if value is not None
        )
        return self.call("configure", *pairs)

    def use(self, segment: Segment) -> None:
        """Name the segment that the following calls are about."""
        epochs = ",".join(f"{epoch}:{start}" for epoch, start in segment.leader_epochs)
        outcome = self.call(
            "segment",
            segment.topic,
            segment.topic_id,
            segment.partition,
            segment.segment_id,
            segment.start_offset,
            segment.end_offset,
            segment.size_bytes,
            segment.directory,
            epochs,
        )
        assert outcome.error is None, outcome

    def copy(self, *, interrupt_after_ms: int = -1) -> Outcome:
        """copyLogSegmentData."""
        return self.call("copy", interrupt_after_ms)

    def fetch(
        self, target: Path, start: int = 0, end: int | None = None, how: str = "all"
    ) -> Outcome:
        """fetchLogSegment into `target`; `how`: all, byte (read() only), head:N (then close)."""
        return self.call("fetch", start, "-" if end is None else end, how, target)

    def race(self, positions: Sequence[int], *, threads: int, head: int) -> list[str]:
        """fetchLogSegment at each position, in threads; SHA-256 of `head` bytes of each."""
        outcome = self.call("race", threads, head, *positions)
        assert outcome.error is None, outcome
        return outcome.message.split(" ")

    def index(self, kind: str, target: Path) -> Outcome:
        """fetchIndex into `target`, which must not exist."""
        return self.call("index", kind, target)

    def delete(self) -> Outcome:
        """deleteLogSegmentData."""
        return self.call("delete")

    def call(self, *fields: object) -> Outcome:
        """Send one command, wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, fields)) + "\n")
        self._process.stdin.flush()
        status, millis, *rest = self._process.stdout.readline().rstrip("\n").split("\t")
        if status == "ok":
            return Outcome(millis=int(millis), error=None, message=rest[0])
        return Outcome(
            millis=int(millis), error=rest[0], message=rest[1], interrupted=rest[2] == "true"
        )
