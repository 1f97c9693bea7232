"""`python -m bench [NAME ...]`: run the benchmarks (all, or those named) and print the table."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from bench.results import LATEST, print_table, read_results

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run; returns pytest's exit code."""
    known = {p.stem.removeprefix("bench_"): p for p in sorted(HERE.glob("bench_*.py"))}
    unknown = [n for n in names if n not in known]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    files = [str(known[n]) for n in names or known]
    json_out = LATEST.parent / "pytest-benchmark.json"
    json_out.parent.mkdir(parents=True, exist_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "--timeout=3600", f"--benchmark-json={json_out}"]
    # A benchmark that fails is reported as such, without a complaint about its missing figures.
    options += ["-W", "ignore:Not saving anything:Warning"]
    # Brokers leave gigabytes behind: everything goes at the end, where pytest would keep it.
    with tempfile.TemporaryDirectory(prefix="onecopy-bench-") as scratch:
        options += [f"--basetemp={scratch}/run", "-o", "python_files=bench_*.py"]
        code = pytest.main([*options, *files])
    print_table(read_results())
    print(f"written: {LATEST.relative_to(Path.cwd())}" if LATEST.exists() else "nothing written")
    return int(code)


if __name__ == "__main__":
    sys.exit(main([n for n in sys.argv[1:] if n]))
