"""Which of a table's columns writers' fields went into, by the names that the writers gave them.

A column's own name may be another: it was taken, somebody has renamed it, or the writers have. A
name that once had a column is never given a second one because somebody has dropped the first.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tiering.errors import FatalError
from tiering.values.stored_schema import Part

__all__ = [
    "KEY_ROOT",
    "VALUE_ROOT",
    "WRITTEN_NAMES_PREFIX",
    "WrittenName",
    "WrittenNames",
    "names_property",
]

WRITTEN_NAMES_PREFIX: Final = "onecopy.written-names."
"""Properties are called `onecopy.written-names.<part>.<schema id>`, each with what that schema
has brought: so two commits that add names don't overwrite each other's."""

VALUE_ROOT: Final = 0
"""Stands for the parent of a value's top-level fields."""
KEY_ROOT: Final = -1
"""Stands for the parent of the one column that keys have."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenName:
    """A writer's field and its column.

    Attributes:
        parent: field id of the struct (or the list element, or map value) that it lies in, or one
            of the roots.
        name: as the writer calls it.
        field_id: the column's.
        given: what the column was called for it, where that was another name.
    """

    parent: int
    name: str
    field_id: int
    given: str = ""


class WrittenNames:
    """All of a table. Entries are added and never taken away."""

    def __init__(self, entries: Iterable[WrittenName] = ()) -> None:
        self._entries: list[WrittenName] = []
        self._by_name: dict[tuple[int, str], list[WrittenName]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: WrittenName) -> None:
        """Add what isn't known yet."""
        known = self._by_name.setdefault((entry.parent, entry.name), [])
        if all(each.field_id != entry.field_id for each in known):
            known.append(entry)
            known.sort(key=lambda each: each.field_id, reverse=True)
            self._entries.append(entry)

    def of(self, parent: int, name: str) -> tuple[WrittenName, ...]:
        """Columns that fields of that name went into, the newest first."""
        return tuple(self._by_name.get((parent, name), ()))

    def names(self, field_id: int) -> set[str]:
        """What writers have called a column, and what we have."""
        found = (e for e in self._entries if e.field_id == field_id)
        return {name for e in found for name in (e.name, e.given) if name}

    def is_given(self, field_id: int, name: str) -> bool:
        """Whether a column was called so only because the writer's name was taken."""
        return any(e.field_id == field_id and e.given == name for e in self._entries)

    def copy(self) -> WrittenNames:
        """One that can be added to without changing this."""
        return WrittenNames(self._entries)

    def since(self, before: WrittenNames) -> tuple[WrittenName, ...]:
        """What was added since this was a copy of `before`."""
        return tuple(self._entries[len(before._entries) :])

    @staticmethod
    def of_properties(properties: Mapping[str, str]) -> WrittenNames:
        """All that a table's properties hold. Raises FatalError for what isn't ours."""
        names = WrittenNames()
        for name, value in sorted(properties.items()):
            if name.startswith(WRITTEN_NAMES_PREFIX):
                for entry in _decoded(name, value):
                    names.add(entry)
        return names


def names_property(part: Part, schema_id: int, entries: Sequence[WrittenName]) -> dict[str, str]:
    """What one schema has brought, as the table's property: JSON, deflated, base64."""
    if not entries:
        return {}
    raw = [[e.parent, e.name, e.field_id, e.given] for e in entries]
    text = json.dumps({"version": _VERSION, "names": raw}, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return {f"{WRITTEN_NAMES_PREFIX}{part}.{schema_id}": packed}


@lru_cache(maxsize=1024)
def _decoded(name: str, value: str) -> tuple[WrittenName, ...]:
    try:
        raw = json.loads(zlib.decompress(base64.b64decode(value)))
        if raw["version"] != _VERSION:
            raise ValueError(f"version {raw['version']}, this one reads {_VERSION}")
        return tuple(
            WrittenName(parent=int(p), name=str(n), field_id=int(i), given=str(g))
            for p, n, i, g in raw["names"]
        )
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise FatalError(f"table property {name}: not names of ours: {error!r}") from error
