"""What the columns of a JSON Schema are (drafts 7, 2019-09, 2020-12) -> Iceberg and Arrow types.

An object with properties is a struct, one with only `additionalProperties` a map, an array whose
items have one schema a list; integer is long, number double. Whatever may be of several types, or
of any, is a string holding JSON. `null` beside another type changes nothing: all columns are
optional. Formats (`date-time` and the like) stay strings, so that they come back as written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tiering.values.codec import WHOLE_VALUE, UnsupportedSchema

__all__ = ["Form", "Node", "Property", "layout", "schema_of", "struct_type"]

_COLUMNS_MAX: Final = 5000
_Json = object


class Form(IntEnum):
    """What a value becomes."""

    JSON = 0
    """Any: a string holding JSON."""
    STRING = 1
    INTEGER = 2
    NUMBER = 3
    BOOLEAN = 4
    OBJECT = 5
    MAP = 6
    ARRAY = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """Of an object. `null_written`: it is required and may be null, so an absent value can only
    have been an explicit null."""

    name: str
    node: Node
    null_written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value: an object has `properties`, a map or array `inside`."""

    form: Form
    properties: tuple[Property, ...] = ()
    inside: Node | None = None
    nullable: bool = False


_ANY: Final = Node(form=Form.JSON, nullable=True)
_TYPES: Final = {
    "string": Form.STRING,
    "integer": Form.INTEGER,
    "number": Form.NUMBER,
    "boolean": Form.BOOLEAN,
}
_LEAVES: Final[dict[Form, tuple[IcebergType, pa.DataType]]] = {
    Form.JSON: (StringType(), pa.string()),
    Form.STRING: (StringType(), pa.string()),
    Form.INTEGER: (LongType(), pa.int64()),
    Form.NUMBER: (DoubleType(), pa.float64()),
    Form.BOOLEAN: (BooleanType(), pa.bool_()),
}


def layout(definition: str, references: Sequence[tuple[str, str]]) -> Node:
    """Of a schema. Raises UnsupportedSchema for what is none, or contains itself."""
    try:
        main = json.loads(definition)
        others = {name: json.loads(text) for name, text in references}
    except (ValueError, RecursionError) as error:
        raise UnsupportedSchema(f"no JSON Schema: {error}") from error
    if not isinstance(main, (dict, bool)):
        raise UnsupportedSchema("no JSON Schema: neither an object nor a boolean")
    try:
        return _Layouts(main, others).node(main, "", ())
    except RecursionError as error:
        raise UnsupportedSchema("nested too deeply") from error


class _Layouts:
    def __init__(self, main: _Json, others: Mapping[str, _Json]) -> None:
        self._columns = 0
        self._documents: dict[str, _Json] = {"": main}
        for name, document in (*others.items(), ("", main)):
            self._documents[name] = document
            own = document.get("$id") if isinstance(document, dict) else None
            if isinstance(own, str):
                self._documents.setdefault(urldefrag(own)[0], document)

    def node(self, of: _Json, base: str, above: tuple[int, ...]) -> Node:
        """`base`: the document that it is in; `above`: the schemas that it is inside of."""
        self._columns += 1
        if self._columns > _COLUMNS_MAX:
            raise UnsupportedSchema(f"more than {_COLUMNS_MAX} columns")
        if not isinstance(of, dict):
            return _ANY
        if id(of) in above:
            raise UnsupportedSchema("a schema that contains itself")
        above = (*above, id(of))
        if isinstance(of.get("$ref"), str):
            target, place = self._resolved(of["$ref"], base)
            return self.node(target, place, above)
        types = _types(of)
        named = [each for each in types if each != "null"]
        nullable = "null" in types
        if set(named) == {"integer", "number"}:
            named = ["number"]
        if len(named) > 1:
            return _ANY
        if named == ["object"] and not {"properties", "additionalProperties"} & of.keys():
            named = []  # what is in it may be in its parts
        if named == ["object"]:
            return self._object(of, base, above, nullable=nullable)
        if named == ["array"]:
            return self._array(of, base, above, nullable=nullable)
        if named and named[0] in _TYPES:
            return Node(form=_TYPES[named[0]], nullable=nullable)
        return self._combined(of, base, above)

    def _combined(self, of: Mapping[str, _Json], base: str, above: tuple[int, ...]) -> Node:
        """Without a type of its own: by its parts."""
        for word in ("oneOf", "anyOf", "allOf"):
            parts = of.get(word)
            if not isinstance(parts, list):
                continue
            others = [each for each in parts if not _is_null(each)]
            if len(others) == 1:
                node = self.node(others[0], base, above)
                nullable = node.nullable or len(parts) > 1
                return Node(
                    form=node.form,
                    properties=node.properties,
                    inside=node.inside,
                    nullable=nullable,
                )
            if word == "allOf" and others:
                return self._merged([self.node(each, base, above) for each in others])
        return _ANY

    def _merged(self, nodes: Sequence[Node]) -> Node:
        if any(each.form is not Form.OBJECT for each in nodes):
            return _ANY
        found: dict[str, Property] = {}
        for node in nodes:
            for each in node.properties:
                if each.name in found:
                    each = Property(name=each.name, node=_ANY)  # noqa: PLW2901 - the same, wider
                found[each.name] = each
        return Node(form=Form.OBJECT, properties=tuple(found.values()))

    def _object(
        self, of: Mapping[str, _Json], base: str, above: tuple[int, ...], *, nullable: bool
    ) -> Node:
        properties = of.get("properties")
        more = of.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            required = of.get("required")
            needed = set(map(str, required)) if isinstance(required, list) else set()
            found = []
            for name, each in properties.items():
                if not name or any("\ud800" <= letter <= "\udfff" for letter in name):
                    raise UnsupportedSchema(f"no name for a column: {name!r}")
                node = self.node(each, base, above)
                written = node.nullable and name in needed
                found.append(Property(name=name, node=node, null_written=written))
            return Node(form=Form.OBJECT, properties=tuple(found), nullable=nullable)
        if isinstance(more, dict) and more and not of.get("patternProperties"):
            inside = self.node(more, base, above)
            return Node(form=Form.MAP, inside=inside, nullable=nullable)
        return _ANY

    def _array(
        self, of: Mapping[str, _Json], base: str, above: tuple[int, ...], *, nullable: bool
    ) -> Node:
        items = of.get("items")
        if not isinstance(items, dict) or of.get("prefixItems"):
            return _ANY
        return Node(form=Form.ARRAY, inside=self.node(items, base, above), nullable=nullable)

    def _resolved(self, reference: str, base: str) -> tuple[_Json, str]:
        """A schema and the document that it is in."""
        name, fragment = urldefrag(reference)
        document_name = base
        if name:
            own = self._documents.get(base)
            root = own.get("$id") if isinstance(own, dict) else None
            absolute = urljoin(root, name) if isinstance(root, str) else name
            known = [each for each in (name, absolute) if each in self._documents]
            if not known:
                raise UnsupportedSchema(f"a reference that isn't given: {reference}")
            document_name = known[0]
        document = self._documents[document_name]
        if not fragment:
            return document, document_name
        found = _at(document, unquote(fragment)) if fragment.startswith("/") else None
        if not fragment.startswith("/"):
            found = next((each for each in _schemas(document) if _is_named(each, fragment)), None)
        if found is None:
            raise UnsupportedSchema(f"a reference to nothing: {reference}")
        return found, document_name


def _at(document: _Json, pointer: str) -> _Json:
    """What a JSON pointer (RFC 6901) points to; None for nothing."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def _schemas(document: _Json) -> Iterator[Mapping[str, _Json]]:
    if isinstance(document, dict):
        yield document
        for each in document.values():
            yield from _schemas(each)
    elif isinstance(document, list):
        for each in document:
            yield from _schemas(each)


def _is_named(schema: Mapping[str, _Json], anchor: str) -> bool:
    return schema.get("$anchor") == anchor or schema.get("$id") == f"#{anchor}"


def _is_null(schema: _Json) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _types(of: Mapping[str, _Json]) -> list[str]:
    """The types that a schema names, or that its words are only for, or its constants have."""
    named = of.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return [str(each) for each in named]
    if "properties" in of:
        return ["object"]
    constants = of.get("enum") if isinstance(of.get("enum"), list) else None
    if "const" in of:
        constants = [of["const"]]
    if not isinstance(constants, list):
        return []
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return sorted({names.get(type(each), "array") for each in constants})


def schema_of(node: Node) -> Schema:
    """The Iceberg schema: ids in pre-order from 1."""
    return Schema(*_Numbering().fields(_columns(node)))


def _columns(node: Node) -> tuple[Property, ...]:
    if node.form is Form.OBJECT:
        return node.properties
    return (Property(name=WHOLE_VALUE, node=node),)


class _Numbering:
    def __init__(self) -> None:
        self._last = 0

    def fields(self, properties: Sequence[Property]) -> list[NestedField]:
        return [
            NestedField(self._next(), each.name, self._type(each.node), required=False)
            for each in properties
        ]

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _type(self, node: Node) -> IcebergType:
        if node.form is Form.OBJECT:
            return StructType(*self.fields(node.properties))
        if node.inside is None:
            return _LEAVES[node.form][0]
        if node.form is Form.ARRAY:
            element = self._next()
            return ListType(element, self._type(node.inside), element_required=False)
        key, value = self._next(), self._next()
        return MapType(key, StringType(), value, self._type(node.inside), value_required=False)


def arrow_type(node: Node) -> pa.DataType:
    """Of a value's column."""
    if node.form is Form.OBJECT:
        return pa.struct([pa.field(each.name, arrow_type(each.node)) for each in node.properties])
    if node.inside is None:
        return _LEAVES[node.form][1]
    if node.form is Form.ARRAY:
        return pa.list_(pa.field("element", arrow_type(node.inside)))
    return pa.map_(pa.string(), pa.field("value", arrow_type(node.inside)))


def struct_type(node: Node) -> pa.StructType:
    """Of all columns."""
    return pa.struct([pa.field(each.name, arrow_type(each.node)) for each in _columns(node)])
