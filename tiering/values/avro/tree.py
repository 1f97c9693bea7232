"""What a schema's bytes hold, as a small tree: the form that the rest works with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "Array",
    "Field",
    "Leaf",
    "LeafKind",
    "Map",
    "Node",
    "Record",
    "Union",
    "holds_column",
    "is_null",
]


class LeafKind(StrEnum):
    """What is no record, array, map or union."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    DATE = "date"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    DECIMAL_BYTES = "decimal over bytes"
    DECIMAL_FIXED = "decimal over fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A primitive, fixed or enum type, with its logical type.

    Attributes:
        size: bytes of a fixed.
        precision, scale: of a decimal.
        symbols: of an enum.
        unit: what a number counts, where no type of the table's says it.
    """

    kind: LeafKind
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A record's field and the names that it had before."""

    name: str
    node: Node
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record: its fields one after the other."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """An array: blocks of items."""

    items: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """A map: blocks of a string and a value."""

    values: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """A union: the number of a branch, then a value of that.

    Columns know three forms of it. With one branch beside null it is that branch, nullable. With
    several, or one that holds nothing, it is `tagged`: a struct that says which it is. With null
    alone it is nothing.
    """

    branches: tuple[Node, ...]

    @property
    def null_index(self) -> int:
        """The branch that is null, or -1."""
        return next((i for i, branch in enumerate(self.branches) if is_null(branch)), -1)

    @property
    def others(self) -> tuple[Node, ...]:
        """The branches that aren't null."""
        return tuple(branch for branch in self.branches if not is_null(branch))

    @property
    def is_tagged(self) -> bool:
        """Whether it takes a struct of its own."""
        others = self.others
        if len(others) == 1 and self.null_index >= 0:
            return not holds_column(others[0])
        return len(others) > 1


Node: TypeAlias = Leaf | Record | Array | Map | Union


def holds_column(node: Node) -> bool:
    """Whether there is anything in it to have a column for."""
    match node:
        case Leaf(kind=LeafKind.NULL) | Leaf(kind=LeafKind.FIXED, size=0):
            return False
        case Record(fields=fields):
            return any(holds_column(each.node) for each in fields)
        case Union():
            return node.is_tagged or any(holds_column(branch) for branch in node.others)
        case _:
            return True


def is_null(node: Node) -> bool:
    return isinstance(node, Leaf) and node.kind is LeafKind.NULL
