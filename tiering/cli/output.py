"""What commands print: JSON for scripts, tables and progress for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.table import Table

__all__ = ["WIDTH_IN_PIPES", "announcing", "print_json", "print_table", "readable_bytes"]

WIDTH_IN_PIPES: Final = 200  # where there is no terminal, nothing says how wide lines may be
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def print_json(value: object) -> None:
    """One JSON object on one line, at once."""
    print(json.dumps(value, separators=(", ", ": ")), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str) -> None:
    """A table on standard output; columns of numbers are aligned to the right."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        numbers = all(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    width = None if sys.stdout.isatty() else WIDTH_IN_PIPES
    Console(width=width, markup=False, highlight=False).print(table)


@contextmanager
def announcing(start: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done on standard error, when a person looks; call to change the text."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True, markup=False).status(start) as status:
        yield status.update


def readable_bytes(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"
