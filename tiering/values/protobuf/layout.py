"""What the columns of a message type are: descriptors -> Iceberg and Arrow types.

Scalars map to the type that holds all their values: uint32 and fixed32 to long, uint64 and fixed64
to decimal(20, 0). Enums are strings, messages structs, repeated fields lists, maps maps.
google.protobuf.Timestamp is a timestamptz, the wrappers are what they wrap; Struct, Value and
ListValue, which hold themselves, are strings with JSON. Any, Duration and FieldMask are structs
like every other message. What can't have a column has none: groups, and messages without fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tiering.values.codec import UnsupportedSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

__all__ = ["Enumeration", "Field", "Form", "Kind", "Message", "arrow_type", "layout", "schema_of"]

_COLUMNS_MAX: Final = 5000


class Kind(IntEnum):
    """Types of fields, numbered as in descriptor.proto."""

    DOUBLE = 1
    FLOAT = 2
    INT64 = 3
    UINT64 = 4
    INT32 = 5
    FIXED64 = 6
    FIXED32 = 7
    BOOL = 8
    STRING = 9
    GROUP = 10
    MESSAGE = 11
    BYTES = 12
    UINT32 = 13
    ENUM = 14
    SFIXED32 = 15
    SFIXED64 = 16
    SINT32 = 17
    SINT64 = 18

    @property
    def wire_type(self) -> int:
        """0 varint, 1 eight bytes, 2 a length and bytes, 5 four bytes."""
        if self in (Kind.DOUBLE, Kind.FIXED64, Kind.SFIXED64):
            return 1
        if self in (Kind.FLOAT, Kind.FIXED32, Kind.SFIXED32):
            return 5
        return 2 if self in (Kind.STRING, Kind.BYTES, Kind.MESSAGE) else 0


class Form(IntEnum):
    """What a message becomes."""

    STRUCT = 0
    TIMESTAMP = 1
    WRAPPED = 2
    JSON = 3
    ENTRY = 4
    """Of a map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """An enum's names and numbers, in the order of the file. Of names with the same number, the
    first is the one that's read."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field that has a column.

    Attributes:
        implicit: absent means the default value.
        checked: a string that isn't UTF-8 makes the message invalid.
        oneof: number of the oneof in its message; -1 for none.
    """

    name: str
    number: int
    kind: Kind
    repeated: bool = False
    packed: bool = False
    implicit: bool = True
    checked: bool = True
    oneof: int = -1
    message: Message | None = None
    enumeration: Enumeration | None = None

    @property
    def is_map(self) -> bool:
        """Whether it is a map: repeated entries."""
        return self.message is not None and self.message.form is Form.ENTRY


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message type; its fields in the order of the file."""

    name: str
    form: Form
    fields: tuple[Field, ...]


_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON: Final = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue"))

_SCALARS: Final[dict[Kind, tuple[IcebergType, pa.DataType]]] = {
    Kind.DOUBLE: (DoubleType(), pa.float64()),
    Kind.FLOAT: (FloatType(), pa.float32()),
    Kind.INT64: (LongType(), pa.int64()),
    Kind.SINT64: (LongType(), pa.int64()),
    Kind.SFIXED64: (LongType(), pa.int64()),
    Kind.UINT64: (DecimalType(20, 0), pa.decimal128(20, 0)),
    Kind.FIXED64: (DecimalType(20, 0), pa.decimal128(20, 0)),
    Kind.INT32: (IntegerType(), pa.int32()),
    Kind.SINT32: (IntegerType(), pa.int32()),
    Kind.SFIXED32: (IntegerType(), pa.int32()),
    Kind.UINT32: (LongType(), pa.int64()),
    Kind.FIXED32: (LongType(), pa.int64()),
    Kind.BOOL: (BooleanType(), pa.bool_()),
    Kind.STRING: (StringType(), pa.string()),
    Kind.BYTES: (BinaryType(), pa.binary()),
    Kind.ENUM: (StringType(), pa.string()),
}


def layout(descriptor: Descriptor) -> Message:
    """Of a message type. Raises UnsupportedSchema if it is recursive, too wide, or has no field
    that can have a column."""
    found = _Layouts().message(descriptor, ())
    if found.form is Form.STRUCT and found.fields:
        return found
    if found.form is Form.STRUCT:
        raise UnsupportedSchema(f"message type {descriptor.full_name} has no fields")
    # A well-known type by itself is a message like any other.
    if found.form is Form.JSON:
        raise UnsupportedSchema(f"{descriptor.full_name} by itself")
    return Message(name=found.name, form=Form.STRUCT, fields=found.fields)


class _Layouts:
    def __init__(self) -> None:
        self._columns = 0

    def message(self, of: Descriptor, above: tuple[str, ...]) -> Message:
        if of.full_name in _JSON:
            return Message(name=of.full_name, form=Form.JSON, fields=())
        if of.full_name in above:
            raise UnsupportedSchema(f"message type {of.full_name} contains itself")
        form = Form.STRUCT
        if of.full_name == "google.protobuf.Timestamp":
            form = Form.TIMESTAMP
        elif of.full_name in _WRAPPERS:
            form = Form.WRAPPED
        elif of.GetOptions().map_entry:
            form = Form.ENTRY
        inside = (*above, of.full_name)
        fields = (self._field(each, form, inside) for each in of.fields)
        return Message(
            name=of.full_name, form=form, fields=tuple(each for each in fields if each is not None)
        )

    def _field(self, of: FieldDescriptor, form: Form, above: tuple[str, ...]) -> Field | None:
        kind = Kind(of.type)
        message = None
        if kind is Kind.GROUP:
            return None
        if kind is Kind.MESSAGE:
            message = self.message(of.message_type, above)
            wanted = 2 if message.form is Form.ENTRY else 1
            if message.form is not Form.JSON and len(message.fields) < wanted:
                return None
        self._columns += 1
        if self._columns > _COLUMNS_MAX:
            raise UnsupportedSchema(f"more than {_COLUMNS_MAX} columns")
        oneof = of.containing_oneof
        return Field(
            name=of.name,
            number=of.number,
            kind=kind,
            repeated=of.is_repeated,
            packed=of.is_packed,
            implicit=form is Form.ENTRY or not of.has_presence,
            checked=kind is Kind.STRING and _syntax(of) != "proto2",
            oneof=-1 if oneof is None else oneof.index,
            message=message,
            enumeration=_enumeration(of.enum_type) if kind is Kind.ENUM else None,
        )


def _syntax(of: FieldDescriptor) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    of.file.CopyToProto(file)
    return file.syntax or "proto2"


def _enumeration(of: EnumDescriptor) -> Enumeration:
    return Enumeration(
        names=tuple(each.name for each in of.values),
        numbers=tuple(each.number for each in of.values),
    )


def schema_of(message: Message) -> Schema:
    """The Iceberg schema: ids in pre-order from 1."""
    return Schema(*_Numbering().fields(message))


class _Numbering:
    def __init__(self) -> None:
        self._last = 0

    def fields(self, message: Message) -> list[NestedField]:
        return [self._column(each) for each in message.fields]

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _column(self, field: Field) -> NestedField:
        own = self._next()
        return NestedField(own, field.name, self._type(field), required=False)

    def _type(self, field: Field) -> IcebergType:
        if field.is_map:
            assert field.message is not None  # noqa: S101 - what makes it a map
            key, value = field.message.fields
            key_id, value_id = self._next(), self._next()
            return MapType(
                key_id, self._single(key), value_id, self._single(value), value_required=False
            )
        if field.repeated:
            element = self._next()
            return ListType(element, self._single(field), element_required=False)
        return self._single(field)

    def _single(self, field: Field) -> IcebergType:
        message = field.message
        if message is None:
            return _SCALARS[field.kind][0]
        if message.form is Form.TIMESTAMP:
            return TimestamptzType()
        if message.form is Form.WRAPPED:
            return _SCALARS[message.fields[0].kind][0]
        if message.form is Form.JSON:
            return StringType()
        return StructType(*self.fields(message))


def arrow_type(field: Field) -> pa.DataType:
    """Of a field's column."""
    if field.is_map:
        assert field.message is not None  # noqa: S101 - what makes it a map
        key, value = field.message.fields
        return pa.map_(single_arrow_type(key), pa.field("value", single_arrow_type(value)))
    single = single_arrow_type(field)
    return pa.list_(pa.field("element", single)) if field.repeated else single


def single_arrow_type(field: Field) -> pa.DataType:
    """Of one element, where a field is repeated."""
    message = field.message
    if message is None:
        return _SCALARS[field.kind][1]
    if message.form is Form.TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if message.form is Form.WRAPPED:
        return _SCALARS[message.fields[0].kind][1]
    if message.form is Form.JSON:
        return pa.string()
    return struct_type(message)


def struct_type(message: Message) -> pa.StructType:
    """Of a message's columns."""
    return pa.struct([pa.field(each.name, arrow_type(each)) for each in message.fields])
