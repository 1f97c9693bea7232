"""Children are restarted, stopped in order, and never outlive their supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit_processes import alive
from polling import eventually

from tiering.errors import BadInput, TransientError
from tiering.local.supervisor import Child, ChildSpec, Supervisor, log_tail

CHILD = """
import json, os, signal, sys, time
ready, ends = sys.argv[1:3]
if ends == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if ends.isdigit():
    print("this is why"); sys.exit(int(ends))
def stop(*_):
    with open(ready + ".stopped", "a") as file: file.write(f"{time.monotonic_ns()}")
    sys.exit(0)
if ends == "orderly":
    signal.signal(signal.SIGTERM, stop)
with open(ready + ".new", "w") as file: json.dump({"pid": os.getpid()}, file)
os.replace(ready + ".new", ready)
while True: time.sleep(1)
"""


def spec(directory: Path, name: str = "child", ends: str = "orderly", **more: float) -> ChildSpec:
    ready = directory / f"{name}.ready"
    return ChildSpec(
        name=name,
        command=[sys.executable, "-c", CHILD, str(ready), ends],
        log_file=directory / f"{name}.log",
        ready_file=ready,
        **more,  # type: ignore[arg-type]
    )


def test_starts_and_stops(tmp_path: Path) -> None:
    child = Child(spec(tmp_path))
    child.start()
    pid = child.await_ready()["pid"]
    assert pid == child.pid
    child.stop()
    assert not alive(pid)
    assert child.pid is None
    assert (tmp_path / "child.ready.stopped").exists()


def test_a_killed_child_is_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor()
    child = supervisor.start(spec(tmp_path))
    try:
        first = child.await_ready()["pid"]
        os.kill(first, signal.SIGKILL)

        def is_back() -> bool:
            supervisor.tend()
            return child.pid != first and child.ready() is not None

        eventually(is_back, 20)
        assert child.restarts == 1
    finally:
        supervisor.stop()


def test_pauses_grow_up_to_a_bound(tmp_path: Path) -> None:
    now = 0.0
    child = Child(spec(tmp_path, ends="1"), clock=lambda: now)
    pauses = []
    child.start()
    for _ in range(8):
        eventually(lambda: child.pid is None, 20)
        before, restarts = now, child.restarts
        while child.restarts == restarts:
            child.tend()
            now += 0.05
        pauses.append(round(now - before))
    child.stop()
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] == 10


def test_the_last_started_stops_first(tmp_path: Path) -> None:
    supervisor = Supervisor()
    for name in ("one", "two", "three"):
        supervisor.start(spec(tmp_path, name)).await_ready()
    supervisor.stop("three")
    assert [c.spec.name for c in supervisor.children] == ["one", "two"]
    supervisor.stop()
    stopped = [int((tmp_path / f"{n}.ready.stopped").read_text()) for n in ("three", "two", "one")]
    assert stopped == sorted(stopped)


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = Child(spec(tmp_path, ends="stubborn", stop_s_max=0.3))
    child.start()
    pid = child.await_ready()["pid"]
    child.stop()
    assert not alive(pid)


@pytest.mark.parametrize(("code", "kind"), [(2, BadInput), (1, TransientError)])
def test_one_that_ends_at_once_is_an_error_with_its_log(
    tmp_path: Path, code: int, kind: type[Exception]
) -> None:
    child = Child(spec(tmp_path, ends=str(code)))
    child.start()
    with pytest.raises(kind, match="this is why"):
        child.await_ready()
    child.stop()


def test_one_that_is_never_ready_is_an_error(tmp_path: Path) -> None:
    sleeper = spec(tmp_path, ready_s_max=0.3)
    child = Child(
        ChildSpec(
            name="sleeper",
            command=[sys.executable, "-c", "import time; time.sleep(60)"],
            log_file=sleeper.log_file,
            ready_file=sleeper.ready_file,
            ready_s_max=0.3,
        )
    )
    child.start()
    with pytest.raises(TransientError, match="isn't ready"):
        child.await_ready()
    child.stop()


def test_a_ready_file_of_an_earlier_run_doesn_t_count(tmp_path: Path) -> None:
    child = Child(spec(tmp_path, ends="1"))
    child.spec.ready_file.write_text('{"pid": 1}')
    child.start()
    assert child.ready() is None
    child.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_supervisor import spec
from tiering.local.supervisor import Supervisor
supervisor = Supervisor()
pids = [supervisor.start(spec(Path({str(tmp_path)!r}), n)).await_ready()["pid"] for n in "ab"]
print(*pids, flush=True)
time.sleep(60)
"""
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        assert supervisor.stdout is not None
        pids = [int(pid) for pid in supervisor.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
    finally:
        supervisor.kill()
        supervisor.wait()
        supervisor.stdout.close()
    eventually(lambda: not any(alive(pid) for pid in pids), 10)


def test_a_log_s_tail(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none") == "(no log)"
    (tmp_path / "log").write_text("\n".join(map(str, range(50))))
    assert log_tail(tmp_path / "log", 2) == "48\n49"


def test_a_fault_is_told_without_what_earlier_runs_said(tmp_path: Path) -> None:
    (tmp_path / "child.log").write_text("an older run\n")
    child = Child(spec(tmp_path, ends="2"))
    child.start()
    with pytest.raises(BadInput, match=r"\Athis is why\Z"):
        child.await_ready()
    other = Child(spec(tmp_path, ends="3"))
    other.start()
    with pytest.raises(TransientError) as told:
        other.await_ready()
    assert "an older run" not in str(told.value)
