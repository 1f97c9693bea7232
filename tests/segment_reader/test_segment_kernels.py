"""What the compiled kernels promise beyond results: memory, caching, processors, threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

import segment_reader
from segment_reader.kernels import checksum

HERE = Path(__file__).parent

DECODE = """
import sys
sys.path.insert(0, {tests!r})
from batch_maker import plain
from segment_reader import BytesSource, SegmentBounds, SegmentReader
from segment_reader.kernels import checksum
data = plain(0, 1000).encode() + plain(1000, 3).encode()
bounds = SegmentBounds(start_offset=0, end_offset=1002)
rows = SegmentReader(BytesSource("x", data), bounds).record_batches()
print(sum(batch.num_rows for batch in rows), checksum.HAS_INSTRUCTION)
"""


def run(code: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code],
        env={**os.environ, **environment},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_no_kernel_reads_past_the_end_of_its_buffer() -> None:
    result = run(["guarded_reads.py"])
    assert (result.returncode, result.stdout) == (0, "ok"), result.stderr
    assert run(["guarded_reads.py", "--overrun"]).returncode < 0


def test_processors_without_the_instruction_compute_the_same(tmp_path: Path) -> None:
    result = run(
        ["-c", DECODE.format(tests=str(HERE))],
        NUMBA_CPU_NAME="generic",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert result.stdout.split() == ["1003", "False"], result.stderr


def test_a_package_that_cannot_be_written_to_still_works(tmp_path: Path) -> None:
    package = tmp_path / "site" / "segment_reader"
    shutil.copytree(
        Path(segment_reader.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    # A file in the place of each cache directory: neither can be made, by whatever user.
    for place in (package / "kernels" / "__pycache__", tmp_path / "home"):
        place.write_text("")
    result = run(
        ["-c", DECODE.format(tests=str(HERE))],
        PYTHONPATH=str(tmp_path / "site"),
        PYTHONDONTWRITEBYTECODE="1",
        HOME=str(tmp_path / "home"),
        XDG_CACHE_HOME=str(tmp_path / "home"),
    )
    assert result.stdout.split()[:1] == ["1003"], result.stderr


@pytest.mark.parametrize("size", [*range(40), 61, 1000, 8191, 8192, 70_001])
def test_checksums_equal_the_librarys(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 3).astype(np.uint8)
    data.flags.writeable = False
    starts, ends = np.array([1, 3]), np.array([1 + size, 3 + size])
    crcs = [google_crc32c.value(data[a:b]) for a, b in zip(starts, ends, strict=True)]
    right = np.array(crcs)
    assert checksum.first_mismatch(data, starts, ends, right, 1 << 40) == -1
    assert checksum.first_mismatch(data, starts, ends, right ^ np.array([0, 1]), 1 << 40) == 1
    assert checksum.first_mismatch(data, starts, ends, right ^ 1, size - 1) == -1
