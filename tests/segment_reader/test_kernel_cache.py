"""Kernels' machine code on disk: loaded while it is that of the source, through all modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from segment_reader.kernels import compiler, source_stamp

SOURCES = {
    "segment_reader/__init__.py": "",
    "segment_reader/kernels/__init__.py": "",
    "tiny/__init__.py": "from tiny import beside",
    "tiny/beside.py": "",
    "tiny/number.py": "NUMBER = 7",
    "tiny/inner.py": """
from segment_reader.kernels.compiler import inlined
from tiny import number as numbers
@inlined
def inner(x):
    return x + numbers.NUMBER
""",
    "tiny/between.py": """
from segment_reader.kernels.compiler import (
    called,
)
from tiny.inner import inner
@called
def between(x):
    return inner(x) * 2
""",
    "tiny/kernel.py": """
from segment_reader.kernels.compiler import INT64, compiled
from tiny.between import between
@compiled(INT64(INT64))
def kernel(x):
    return between(x)
print(kernel(1), sum(kernel.stats.cache_hits.values()))
""",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for module in (compiler, source_stamp):
        shutil.copy(str(module.__file__), tmp_path / "segment_reader" / "kernels")
    return tmp_path


def answer_and_loads(site: Path) -> list[int]:
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", "import tiny.kernel"],
        cwd=site,
        env=environment | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def edit(file: Path, old: str, new: str) -> None:
    """An edit of the same size and time, as an upgrade with fixed times may leave it."""
    before = file.stat()
    file.write_text(file.read_text().replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_machine_code_is_kept_until_something_in_it_changes(site: Path) -> None:
    assert answer_and_loads(site) == [16, 0]
    assert answer_and_loads(site) == [16, 1]
    edit(site / "tiny" / "number.py", "7", "8")
    assert answer_and_loads(site) == [18, 0]
    edit(site / "tiny" / "inner.py", "x +", "x -")
    assert answer_and_loads(site) == [-14, 0]
    edit(site / "tiny" / "between.py", "* 2", "* 3")
    assert answer_and_loads(site) == [-21, 0]
    edit(site / "tiny" / "kernel.py", "between(x)", "between(9)")
    assert answer_and_loads(site) == [3, 0]
    assert answer_and_loads(site) == [3, 1]


def test_modules_that_a_kernel_does_not_take_in_leave_it_as_it_is(site: Path) -> None:
    answer_and_loads(site)
    (site / "tiny" / "beside.py").write_text("OTHER = 1")
    (site / "tiny" / "__init__.py").write_text("")
    assert answer_and_loads(site) == [16, 1]
