"""An Avro schema's JSON text as a small tree of what its bytes hold (Avro 1.12, "Schemas").

Only the writer's schema matters here: defaults, documentation and orders are passed over, names of
types serve to find them, and logical types that the specification says to ignore are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tiering.values.avro.tree import (
    Array,
    Field,
    Leaf,
    LeafKind,
    Map,
    Node,
    Record,
    Union,
    holds_column,
    is_null,
)
from tiering.values.codec import UnsupportedSchema
from tiering.values.units import MICROS_OF_DAY, MILLIS_OF_DAY, NANOS_LOCAL, NANOS_UTC

__all__ = ["parse_schema"]

NESTING_MAX: Final = 64
"""Types inside each other."""

COLUMNS_MAX: Final = 10_000
"""Columns of one schema: named types may be used many times, so a short text can be a huge tree."""

FIXED_BYTES_MAX: Final = 16 * 1024
"""Of a fixed type: Arrow needs its bytes for every null, too."""

_DECIMAL_DIGITS_MAX: Final = 38

_Json: TypeAlias = object


_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)


_LOGICAL: Final[Mapping[tuple[str, str], Leaf]] = {
    ("int", "date"): Leaf(kind=LeafKind.DATE),
    ("int", "time-millis"): Leaf(kind=LeafKind.INT, unit=MILLIS_OF_DAY),
    ("long", "time-micros"): Leaf(kind=LeafKind.LONG, unit=MICROS_OF_DAY),
    ("long", "timestamp-millis"): Leaf(kind=LeafKind.TIMESTAMP_MILLIS),
    ("long", "timestamp-micros"): Leaf(kind=LeafKind.TIMESTAMP_MICROS),
    ("long", "timestamp-nanos"): Leaf(kind=LeafKind.LONG, unit=NANOS_UTC),
    ("long", "local-timestamp-millis"): Leaf(kind=LeafKind.LOCAL_TIMESTAMP_MILLIS),
    ("long", "local-timestamp-micros"): Leaf(kind=LeafKind.LOCAL_TIMESTAMP_MICROS),
    ("long", "local-timestamp-nanos"): Leaf(kind=LeafKind.LONG, unit=NANOS_LOCAL),
}
"""Those that aren't here leave the plain type, but for what is over bytes and fixed. Uuids do, too:
Spark (Iceberg 1.12) finds few of the rows that a filter on a uuid column asks for."""


def parse_schema(definition: str, references: Sequence[tuple[str, str]] = ()) -> Node:
    """The tree of a schema's text; `references` are the (name, text) of schemas that it uses.

    Raises:
        UnsupportedSchema: It is recursive, or has an array of what holds nothing, or is larger
            than what tables can hold.
        ValueError: It is no Avro schema.
    """
    parser = _Parser()
    texts = [_json(text, f"reference {name}") for name, text in references]
    texts.append(_json(definition, "schema"))
    for text in texts:
        parser.collect(text, "", 0)
    return parser.node(texts[-1], "")


def _json(text: str, what: str) -> _Json:
    try:
        parsed: _Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the Avro {what} is not JSON: {error}") from error
    return parsed


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _names(described: Mapping[str, _Json], namespace: str) -> tuple[str, str]:
    """Full name and namespace of a named type ("Names" of the specification)."""
    name, own = described.get("name"), described.get("namespace", namespace)
    if not isinstance(name, str) or not name:
        raise ValueError(f"an Avro {described.get('type')} has no name")
    if not isinstance(own, str):
        raise ValueError(f"the namespace of the Avro type {name} is no string")
    full = _full_name(name, own).removeprefix(".")
    return full, full.rpartition(".")[0]


_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


@dataclass(slots=True)
class _Parser:
    """Named types as found in all texts, and their trees as far as these are made."""

    _described: dict[str, Mapping[str, _Json]] = field(default_factory=dict)
    _made: dict[str, tuple[Node, int, int]] = field(default_factory=dict)
    """Trees with how many columns and levels they have."""
    _open: list[str] = field(default_factory=list)
    _columns: int = 0
    _deepest: int = 0

    def collect(self, text: _Json, namespace: str, depth: int) -> None:
        """Take down every named type of a text."""
        if depth > 2 * NESTING_MAX:
            raise UnsupportedSchema(f"types are nested more than {NESTING_MAX} deep")
        if isinstance(text, list):
            for branch in text:
                self.collect(branch, namespace, depth + 1)
        if not isinstance(text, dict):
            return
        kind = text.get("type")
        if isinstance(kind, str) and kind in _NAMED:
            full, namespace = _names(text, namespace)
            if self._described.setdefault(full, text) != text:
                raise ValueError(f"the Avro type {full} is defined twice")
            if kind in ("record", "error"):
                for each in _fields(text, full):
                    self.collect(each.get("type"), namespace, depth + 1)
        else:
            for inner in (kind, text.get("items"), text.get("values")):
                self.collect(inner, namespace, depth + 1)

    def node(self, text: _Json, namespace: str, depth: int = 0) -> Node:
        """The tree of a part of a text."""
        self._reach(depth)
        if isinstance(text, str):
            return self._by_name(text, namespace, depth)
        if isinstance(text, list):
            return self._union(text, namespace, depth)
        if not isinstance(text, dict) or "type" not in text:
            raise ValueError(f"not an Avro type: {_shown(text)}")
        kind = text["type"]
        if not isinstance(kind, str):
            return self.node(kind, namespace, depth + 1)
        if kind in _NAMED:
            return self._named(_names(text, namespace)[0], depth)
        if kind == "array":
            return Array(items=self._item(text, "items", namespace, depth))
        if kind == "map":
            return Map(values=self._item(text, "values", namespace, depth))
        if kind in _PRIMITIVES:
            self._count()
            return _primitive(kind, text)
        return self._by_name(kind, namespace, depth)

    def _reach(self, depth: int) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > NESTING_MAX:
            raise UnsupportedSchema(f"types are nested more than {NESTING_MAX} deep")

    def _count(self, columns: int = 1) -> None:
        self._columns += columns
        if self._columns > COLUMNS_MAX:
            raise UnsupportedSchema(f"it has more than {COLUMNS_MAX} columns")

    def _by_name(self, name: str, namespace: str, depth: int) -> Node:
        if name in _PRIMITIVES:
            self._count()
            return Leaf(kind=LeafKind(name))
        full = _full_name(name, namespace)
        if full not in self._described and name in self._described:
            full = name  # as Java looks names up: in the null namespace at last
        if full not in self._described:
            raise ValueError(f"the Avro schema uses {full}, which is not defined")
        return self._named(full, depth)

    def _named(self, full: str, depth: int) -> Node:
        if full in self._open:
            raise UnsupportedSchema(f"it is recursive: {full} holds itself")
        if full in self._made:
            node, columns, levels = self._made[full]
            self._count(columns)
            self._reach(depth + levels)
            return node
        described, before, deepest = self._described[full], self._columns, self._deepest
        self._deepest = depth
        self._count()
        if described["type"] == "enum":
            made: Node = _enum(described, full)
        elif described["type"] == "fixed":
            made = _fixed(described, full)
        else:
            self._open.append(full)
            made = self._record(described, full, depth)
            self._open.pop()
        self._made[full] = made, self._columns - before, self._deepest - depth
        self._deepest = max(self._deepest, deepest)
        return made

    def _record(self, described: Mapping[str, _Json], full: str, depth: int) -> Record:
        namespace, fields, seen = full.rpartition(".")[0], [], set()
        for each in _fields(described, full):
            name = each.get("name")
            if not isinstance(name, str) or not name or name in seen:
                raise ValueError(f"a field of {full} has no name of its own: {_shown(name)}")
            if "." in name:
                raise UnsupportedSchema(f"a field of {full} has a dot in its name: {name}")
            seen.add(name)
            node = self.node(each.get("type"), namespace, depth + 1)
            fields.append(Field(name=name, node=node, aliases=tuple(_strings(each, "aliases"))))
        return Record(fields=tuple(fields))

    def _item(self, text: Mapping[str, _Json], key: str, namespace: str, depth: int) -> Node:
        self._count(2)
        node = self.node(text.get(key), namespace, depth + 1)
        if not holds_column(node):
            raise UnsupportedSchema(f"an Avro {text['type']} whose {key} hold nothing")
        return node

    def _union(self, branches: Sequence[_Json], namespace: str, depth: int) -> Union:
        self._count()
        nodes = tuple(self.node(branch, namespace, depth + 1) for branch in branches)
        if not nodes:
            raise ValueError("an Avro union has no branches")
        if any(isinstance(node, Union) for node in nodes):
            raise ValueError("an Avro union holds a union")
        if sum(map(is_null, nodes)) > 1:
            raise ValueError("an Avro union has null twice")
        return Union(branches=nodes)


def _fields(described: Mapping[str, _Json], full: str) -> Iterator[Mapping[str, _Json]]:
    fields = described.get("fields")
    if not isinstance(fields, list):
        raise ValueError(f"the Avro record {full} has no fields")
    for each in fields:
        if not isinstance(each, dict):
            raise ValueError(f"a field of {full} is no JSON object: {_shown(each)}")
        yield each


def _strings(described: Mapping[str, _Json], key: str) -> Iterator[str]:
    values = described.get(key, [])
    for value in values if isinstance(values, list) else [values]:
        if not isinstance(value, str):
            raise ValueError(f"{key} of an Avro type hold {_shown(value)}")
        yield value


def _whole(value: _Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _enum(described: Mapping[str, _Json], full: str) -> Leaf:
    symbols = tuple(_strings(described, "symbols"))
    if "symbols" not in described or len(set(symbols)) < len(symbols):
        raise ValueError(f"the symbols of the Avro enum {full} are missing or not distinct")
    return Leaf(kind=LeafKind.ENUM, symbols=symbols)


def _fixed(described: Mapping[str, _Json], full: str) -> Leaf:
    size, logical = _whole(described.get("size")), described.get("logicalType")
    if size is None or size < 0:
        raise ValueError(f"the Avro fixed {full} has no size")
    if size > FIXED_BYTES_MAX:
        raise UnsupportedSchema(f"the Avro fixed {full} has more than {FIXED_BYTES_MAX} bytes")
    if logical == "decimal" and size:
        digits = len(str(2 ** (8 * size - 1) - 1)) - 1
        return _decimal(described, LeafKind.DECIMAL_FIXED, size, digits)
    return Leaf(kind=LeafKind.FIXED, size=size)


def _primitive(kind: str, described: Mapping[str, _Json]) -> Leaf:
    logical = described.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        return _decimal(described, LeafKind.DECIMAL_BYTES, 0, _DECIMAL_DIGITS_MAX)
    if isinstance(logical, str) and (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    return Leaf(kind=LeafKind(kind))


def _decimal(described: Mapping[str, _Json], kind: LeafKind, size: int, digits: int) -> Leaf:
    """A decimal, or the plain type where the specification says that it isn't a valid one."""
    precision, scale = _whole(described.get("precision")), _whole(described.get("scale", 0))
    highest = min(digits, _DECIMAL_DIGITS_MAX)
    if (
        precision is None
        or scale is None
        or not 0 <= scale <= precision <= highest
        or not precision
    ):
        plain = LeafKind.FIXED if kind is LeafKind.DECIMAL_FIXED else LeafKind.BYTES
        return Leaf(kind=plain, size=size)
    return Leaf(kind=kind, size=size, precision=precision, scale=scale)


def _shown(value: _Json) -> str:
    return json.dumps(value)[:80]
