"""A schema as a linear program, which the kernels run once per payload.

An instruction is a row of eight int64: what to do, for which column, and arguments. Control flow is
as in any machine: jumps over branches that weren't taken, and loops over items.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tiering.values.avro.layout import Column, Layout
from tiering.values.avro.tree import Array, Leaf, LeafKind, Map, Node, Record, Union, holds_column

__all__ = ["COLUMN", "LINE_BYTES", "OP", "Program", "compiled_program"]

WORDS: Final = 8
LINE_BYTES: Final = 8 * WORDS
"""Of an instruction."""

OP, COLUMN = 0, 1
"""Words of an instruction; its arguments follow."""

END: Final = 0
"""The payload is read."""
JUMP: Final = 1
"""To a."""
RECORD: Final = 2
"""A struct begins; its fields follow."""
BOOLEAN: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
FIXED: Final = 6
"""a bytes."""
DECIMAL_FIXED: Final = 7
"""a bytes; below 10^precision, which is c * 2^64 + b."""
LIST: Final = 8
"""Items of level a, each of c bytes or more; the loop's end is at b."""
ITEM_END: Final = 9
"""Go on at b with the next item; a and c as for LIST."""
BRANCH: Final = 10
"""Data behind UNION: the branch's code is at a, its columns are [b, c), d is its tag or -1."""

NUMBERS: Final = 11
"""Instructions from here on begin with a varint."""
INT: Final = 11
LONG: Final = 12
TIMESTAMP_MILLIS: Final = 13
BYTES: Final = 14
STRING: Final = 15
ENUM: Final = 16
"""a symbols, whose borders are from b on."""
DECIMAL_BYTES: Final = 17
"""As DECIMAL_FIXED."""
OPTIONAL: Final = 18
"""Null is branch a: then columns [c, d) are null and it goes on at b. Otherwise here."""
UNION: Final = 19
"""a branches, null is branch e or none (-1), all columns are [c, d). Goes on at b."""
ONLY: Final = 20
"""A union with one branch."""

_NUMBER_BYTES: Final = 10
_LENGTH_BYTES: Final = 5
"""Most that a varint of 64 and of 32 bits takes."""

_LEAF_OPS: Final = {
    LeafKind.BOOLEAN: (BOOLEAN, 1),
    LeafKind.INT: (INT, _LENGTH_BYTES),
    LeafKind.LONG: (LONG, _NUMBER_BYTES),
    LeafKind.FLOAT: (FLOAT, 4),
    LeafKind.DOUBLE: (DOUBLE, 8),
    LeafKind.BYTES: (BYTES, _LENGTH_BYTES),
    LeafKind.STRING: (STRING, _LENGTH_BYTES),
    LeafKind.FIXED: (FIXED, 0),
    LeafKind.ENUM: (ENUM, _LENGTH_BYTES),
    LeafKind.DATE: (INT, _LENGTH_BYTES),
    LeafKind.TIMESTAMP_MILLIS: (TIMESTAMP_MILLIS, _NUMBER_BYTES),
    LeafKind.TIMESTAMP_MICROS: (LONG, _NUMBER_BYTES),
    LeafKind.LOCAL_TIMESTAMP_MILLIS: (TIMESTAMP_MILLIS, _NUMBER_BYTES),
    LeafKind.LOCAL_TIMESTAMP_MICROS: (LONG, _NUMBER_BYTES),
    LeafKind.DECIMAL_BYTES: (DECIMAL_BYTES, 17),
    LeafKind.DECIMAL_FIXED: (DECIMAL_FIXED, 0),
}
"""The instruction, and how many bytes it writes at most beside those of a string or fixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the kernels run.

    Attributes:
        lines: int64, instructions x 8.
        symbol_borders: int64, where the symbols of all enums lie in `symbols`.
        symbols: their UTF-8.
        enums: the symbols of each column that is an enum.
        level_bytes: how much one element of each level adds to a payload, at most, beside the
            bytes of strings.
        depth: loops inside each other.
    """

    lines: npt.NDArray[np.int64]
    symbol_borders: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.uint8]
    enums: dict[int, tuple[str, ...]]
    level_bytes: tuple[int, ...]
    depth: int


def compiled_program(node: Node, layout: Layout) -> Program:
    """The program of a schema's tree."""
    compiler = _Compiler(level_bytes=[0] * layout.levels)
    if isinstance(node, Record):
        compiler.record(node, layout.root)
    else:
        compiler.put(RECORD, layout.root)
        children = layout.root.children
        compiler.node(node, children[0] if children else None)
    compiler.put(END)
    return Program(
        lines=np.array(compiler.lines, np.int64).reshape(-1, WORDS),
        symbol_borders=np.array(compiler.symbol_borders, np.int64),
        symbols=np.frombuffer(bytes(compiler.symbols) + bytes(64), np.uint8),
        enums=compiler.enums,
        level_bytes=tuple(compiler.level_bytes),
        depth=compiler.depth,
    )


def _bytes_min(node: Node) -> int:
    """How many bytes a value takes at least."""
    match node:
        case Leaf(kind=LeafKind.NULL):
            return 0
        case Leaf(kind=LeafKind.FIXED | LeafKind.DECIMAL_FIXED, size=size):
            return size
        case Leaf(kind=LeafKind.FLOAT):
            return 4
        case Leaf(kind=LeafKind.DOUBLE):
            return 8
        case Record(fields=fields):
            return sum(_bytes_min(each.node) for each in fields)
        case Union(branches=branches):
            return 1 + min(_bytes_min(branch) for branch in branches)
        case _:
            return 1


@dataclass(slots=True)
class _Compiler:
    level_bytes: list[int]
    lines: list[list[int]] = field(default_factory=list)
    symbol_borders: list[int] = field(default_factory=list)
    symbols: bytearray = field(default_factory=bytearray)
    enums: dict[int, tuple[str, ...]] = field(default_factory=dict)
    depth: int = 0
    _level: int = 0
    _open: int = 0

    def put(self, op: int, column: Column | None = None, *arguments: int, writes: int = 0) -> int:
        """Append an instruction; where it is."""
        self.level_bytes[self._level] += writes
        line = [op, column.index if column else 0, *arguments]
        self.lines.append(line + [0] * (WORDS - len(line)))
        return len(self.lines) - 1

    def node(self, node: Node, column: Column | None) -> None:
        """Append what reads or writes a value. What holds nothing has no column."""
        match node:
            case Leaf():
                if column is not None:
                    self._leaf(node, column)
            case Record():
                self.record(node, column)
            case Union():
                self._union(node, column)
            case Array() | Map():
                assert column is not None  # noqa: S101 - the parser refuses items of nothing
                self._loop(node, column)

    def record(self, node: Record, column: Column | None) -> None:
        """Append what reads or writes a record's fields."""
        if column is not None:
            self.put(RECORD, column)
        children = iter(column.children if column is not None else ())
        for each in node.fields:
            self.node(each.node, next(children) if holds_column(each.node) else None)

    def _leaf(self, leaf: Leaf, column: Column) -> None:
        op, writes = _LEAF_OPS[leaf.kind]
        arguments = [leaf.size]
        if leaf.kind in (LeafKind.DECIMAL_BYTES, LeafKind.DECIMAL_FIXED):
            limit = 10**leaf.precision
            low = limit & (2**64 - 1)
            arguments += [low - 2**64 if low >= 2**63 else low, limit >> 64]
        if leaf.kind is LeafKind.ENUM:
            arguments = [len(leaf.symbols), len(self.symbol_borders)]
            self.enums[column.index] = leaf.symbols
            self.symbol_borders.append(len(self.symbols))
            for symbol in leaf.symbols:
                self.symbols += symbol.encode()
                self.symbol_borders.append(len(self.symbols))
        self.put(op, column, *arguments, writes=writes + leaf.size)

    def _loop(self, node: Array | Map, column: Column) -> None:
        item = node.items if isinstance(node, Array) else node.values
        least = _bytes_min(item) + isinstance(node, Map)
        start = self.put(LIST, column, column.inner, 0, least, writes=_NUMBER_BYTES + 1)
        level, self._level = self._level, column.inner
        self._open += 1
        self.depth = max(self.depth, self._open)
        (child,) = column.children
        if isinstance(node, Map):
            self.put(RECORD, child)
            key, child = child.children
            self._leaf(Leaf(kind=LeafKind.STRING), key)
        self.node(item, child)
        self._open -= 1
        self.lines[start][3] = self.put(ITEM_END, column, column.inner, start + 1, least)
        self._level = level

    def _union(self, node: Union, column: Column | None) -> None:
        if node.is_tagged and column is not None:
            self._tagged(node, column)
        elif len(node.branches) == 1:
            self.put(ONLY, column, writes=1)
            self.node(node.branches[0], column)
        else:
            assert column is not None  # noqa: S101 - nullable: what holds nothing is tagged
            index = column.index
            null = node.null_index
            at = self.put(OPTIONAL, column, null, 0, index, column.stop, writes=1)
            self.node(node.others[0], column)
            self.lines[at][3] = len(self.lines)

    def _tagged(self, node: Union, column: Column) -> None:
        count, null = len(node.branches), node.null_index
        at = self.put(
            UNION, column, count, 0, column.index, column.stop, null, writes=_LENGTH_BYTES
        )
        for _ in node.branches:
            self.put(BRANCH)
        children, jumps, tag = iter(column.children[1:]), [], 0
        for i, branch in enumerate(node.branches):
            if i == null:
                self.lines[at + 1 + i][5] = -1
                continue
            child = next(children) if holds_column(branch) else None
            columns = (child.index, child.stop) if child else (0, 0)
            self.lines[at + 1 + i][2:6] = [len(self.lines), *columns, tag]
            tag += 1
            self.node(branch, child)
            jumps.append(self.put(JUMP))
        for line in [at, *jumps]:
            self.lines[line][3 if line == at else 2] = len(self.lines)
