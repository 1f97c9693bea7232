"""How a topic's table is to be partitioned, as it is written in the configuration. Pure.

`hour(kafka_timestamp)`, `bucket(16, customer_id)`, `truncate(4, code)`, or a column alone. Whether
the column is there, and of a type that goes with the transform, is known with the table only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, cast, get_args

from tiering.errors import BadInput

__all__ = ["PartitionTerm", "Transform", "parse_terms"]

Transform = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]
"""Iceberg's partition transforms (spec, "Partition Transforms") but for void."""

_TIMES: Final = ("year", "month", "day", "hour")
_WIDE: Final = ("bucket", "truncate")
_WIDTH_MAX: Final = 2**31 - 1
_TERMS_MAX: Final = 16
_COLUMN: Final = r"(?P<column>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
_TERM: Final = re.compile(
    rf"\s*(?:(?P<transform>[a-z]+)\s*\(\s*(?:(?P<width>\d{{1,10}})\s*,\s*)?{_COLUMN}\s*\)"
    rf"|{_COLUMN.replace('column', 'plain')})\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTerm:
    """One field of a partition spec.

    Attributes:
        column: its name; with dots for one inside a struct.
        width: of bucket (their number) and truncate (what is kept); else 0.
    """

    transform: Transform
    column: str
    width: int = 0

    def __str__(self) -> str:
        """As the configuration has it."""
        if self.transform == "identity":
            return self.column
        width = f"{self.width}, " if self.width else ""
        return f"{self.transform}({width}{self.column})"


@lru_cache(maxsize=256)
def parse_terms(terms: tuple[str, ...]) -> tuple[PartitionTerm, ...]:
    """Raises BadInput that names the term at fault, or two that say the same."""
    if len(terms) > _TERMS_MAX:
        raise BadInput(f"{len(terms)} terms; give {_TERMS_MAX} at most")
    parsed = tuple(_parse(term) for term in terms)
    _must_differ(parsed)
    return parsed


def _parse(text: str) -> PartitionTerm:
    match = _TERM.fullmatch(text)
    if match is None:
        raise BadInput(
            f"{text!r} is no partition term: give a column, hour(COLUMN), bucket(16, COLUMN) "
            "or truncate(4, COLUMN)"
        )
    transform = match["transform"] or "identity"
    if transform not in get_args(Transform):
        known = ", ".join(get_args(Transform))
        raise BadInput(f"{text!r}: {transform} is no transform; known are {known}")
    if (match["width"] is not None) is not (transform in _WIDE):
        form = f"{transform}(16, COLUMN)" if transform in _WIDE else f"{transform}(COLUMN)"
        raise BadInput(f"{text!r}: write {form}")
    width = int(match["width"] or 0)
    if transform in _WIDE and not 0 < width <= _WIDTH_MAX:
        raise BadInput(f"{text!r}: {width} is not in 1..{_WIDTH_MAX}")
    column = match["column"] or match["plain"]
    return PartitionTerm(transform=cast(Transform, transform), column=column, width=width)


def _must_differ(terms: Iterable[PartitionTerm]) -> None:
    """Iceberg refuses two terms of the same meaning, and two units of one time."""
    seen: dict[tuple[str, str, int], PartitionTerm] = {}
    for term in terms:
        kind = "time" if term.transform in _TIMES else term.transform
        earlier = seen.setdefault((kind, term.column, term.width), term)
        if earlier is not term:
            raise BadInput(f"{term} says nothing beside {earlier}: leave one out")
