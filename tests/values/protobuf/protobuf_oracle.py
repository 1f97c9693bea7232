"""What Google's own library says about messages: descriptors, random messages, columns."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from hypothesis import strategies as st

UTC = datetime.UTC
INT32S = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, -1, 127, 128])
INT64S = st.integers(-(2**63), 2**63 - 1) | INT32S
UINT32S = st.integers(0, 2**32 - 1)
UINT64S = st.integers(0, 2**64 - 1)
TEXTS = st.text(max_size=9)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    1: st.floats(allow_nan=False),
    2: st.floats(width=32, allow_nan=False),
    3: INT64S,
    4: UINT64S,
    5: INT32S,
    6: UINT64S,
    7: UINT32S,
    8: st.booleans(),
    9: TEXTS,
    12: st.binary(max_size=9),
    13: UINT32S,
    15: INT32S,
    16: INT64S,
    17: INT32S,
    18: INT64S,
}


def message_class(folder: Path, files: dict[str, str], full_name: str) -> type[Message]:
    """A class of Google's for a message type; `files` by import path."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    out = folder / "out.bin"
    arguments = ["protoc", f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={out}"]
    assert protoc.main([*arguments, "--include_imports", *files]) == 0
    pool = DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(each)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(full_name))
    return found


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry)


@st.composite
def messages(draw: st.DrawFn, cls: type[Message]) -> Message:
    """Any message of a class, but for groups and extensions."""
    message = cls()
    fill(draw, message)
    return message


def fill(draw: st.DrawFn, message: Message) -> None:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.seconds = draw(st.integers(-62135596800, 253402300799))
        message.nanos = draw(st.integers(0, 999_999)) * 1000
        return
    for field in message.DESCRIPTOR.fields:
        if field.type == field.TYPE_GROUP or not draw(st.booleans()):
            continue
        if is_map(field):
            key, value = field.message_type.fields
            for each in draw(st.lists(SCALARS[key.type], max_size=3)):
                if value.type == value.TYPE_MESSAGE:
                    fill(draw, getattr(message, field.name)[each])
                else:
                    getattr(message, field.name)[each] = scalar(draw, value)
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if field.type == field.TYPE_MESSAGE:
                    fill(draw, getattr(message, field.name).add())
                else:
                    getattr(message, field.name).append(scalar(draw, field))
        elif field.type == field.TYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
            fill(draw, getattr(message, field.name))
        else:
            setattr(message, field.name, scalar(draw, field))


def scalar(draw: st.DrawFn, field: FieldDescriptor) -> Any:
    if field.type == field.TYPE_ENUM:
        return draw(st.sampled_from([each.number for each in field.enum_type.values]))
    return draw(SCALARS[field.type])


def columns(message: Message) -> dict[str, Any]:
    """What a row must be, by the mapping's own words. Maps are dicts."""
    return {
        field.name: column(message, field)
        for field in message.DESCRIPTOR.fields
        if field.type != field.TYPE_GROUP and not without_columns(field)
    }


def without_columns(field: FieldDescriptor) -> bool:
    return field.type == field.TYPE_MESSAGE and not field.message_type.fields


def column(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        of = field.message_type.fields[1]
        return {single(field.message_type.fields[0], k): single(of, value[k]) for k in value}
    if field.is_repeated:
        return [single(field, each) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return single(field, value)


def single(field: FieldDescriptor, value: Any) -> Any:
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return Decimal(value)
    if field.type == field.TYPE_ENUM:
        known = {each.number: each.name for each in reversed(field.enum_type.values)}
        return known.get(value)
    if field.type != field.TYPE_MESSAGE:
        return value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        if not (-62135596800 <= value.seconds <= 253402300799 and 0 <= value.nanos < 10**9):
            return None
        span = datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return datetime.datetime(1970, 1, 1, tzinfo=UTC) + span
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return single(field.message_type.fields[0], value.value)
    return columns(value)


def as_dicts(value: Any, descriptor: Descriptor) -> Any:
    """A row of Arrow's as `columns` has it: maps as dicts."""
    return {
        field.name: _as_dict(value[field.name], field)
        for field in descriptor.fields
        if field.name in value
    }


def _as_dict(value: Any, field: FieldDescriptor) -> Any:
    if value is None:
        return None
    if is_map(field):
        of = field.message_type.fields[1]
        return {key: _single_dict(inside, of) for key, inside in value}
    if field.is_repeated:
        return [_single_dict(each, field) for each in value]
    return _single_dict(value, field)


def _single_dict(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, dict):
        return as_dicts(value, field.message_type)
    return value
