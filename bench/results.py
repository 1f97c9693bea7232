"""The benchmark record, its file and its table."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

__all__ = ["LATEST", "BenchResult", "machine", "print_table", "read_results", "write_results"]

LATEST = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """One figure of ours beside one of a rival's, medians of `runs` alternating runs.

    `ratio` is how many times better ours is (above 1 is better), whatever the unit.
    """

    name: str
    value: float
    unit: str
    rival: str
    rival_value: float
    ratio: float
    runs: int
    machine: str

    @classmethod
    def of_rates(
        cls, name: str, unit: str, rival: str, ours: Sequence[float], theirs: Sequence[float]
    ) -> BenchResult:
        """From rates (more is better), one pair per run; the ratio is the pairs' median."""
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        return cls._of(name, unit, rival, ours, theirs, ratio)

    @classmethod
    def of_costs(
        cls, name: str, unit: str, rival: str, ours: Sequence[float], theirs: Sequence[float]
    ) -> BenchResult:
        """From costs (less is better), one pair per run."""
        ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
        return cls._of(name, unit, rival, ours, theirs, ratio)

    @classmethod
    def _of(
        cls,
        name: str,
        unit: str,
        rival: str,
        ours: Sequence[float],
        theirs: Sequence[float],
        ratio: float,
    ) -> BenchResult:
        return cls(
            name=name,
            value=round(statistics.median(ours), 4),
            unit=unit,
            rival=rival,
            rival_value=round(statistics.median(theirs), 4),
            ratio=round(ratio, 3),
            runs=len(ours),
            machine=machine(),
        )


def machine() -> str:
    """What this ran on, in one line."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def read_results(path: Path = LATEST) -> list[dict[str, Any]]:
    """The results written so far, oldest first."""
    return list(json.loads(path.read_text())) if path.exists() else []


def write_results(results: Sequence[BenchResult], path: Path = LATEST) -> None:
    """Put `results` into the file, replacing those of the same name."""
    names = {r.name for r in results}
    kept = [r for r in read_results(path) if r["name"] not in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, *(asdict(r) for r in results)], indent=2) + "\n")


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print results as a table."""
    table = Table(
        Column("name", overflow="fold"), "ours", "rival's", "unit", "ratio", "runs", "rival"
    )
    for row in rows:
        table.add_row(
            row["name"],
            f"{row['value']:g}",
            f"{row['rival_value']:g}",
            row["unit"],
            f"{row['ratio']:.2f}",
            str(row["runs"]),
            row["rival"],
        )
    Console(width=140).print(table)
