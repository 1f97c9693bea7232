"""From a registry's text to a message's descriptor, in a pool of its own."""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from tiering.values.codec import UnsupportedSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

__all__ = ["first_message"]

_COMPILE_SECONDS_MAX: Final = 60
_MISSING: Final = "Protobuf values need optional packages: pip install 'onecopy[schemas]'"
_MAIN: Final = "onecopy_value.proto"

_META: Final = "".join(
    [
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";',
        "message Meta {",
        "string doc = 1; map<string, string> params = 2; repeated string tags = 3;",
        "}",
        "extend google.protobuf.FileOptions { Meta file_meta = 1088; }",
        "extend google.protobuf.MessageOptions { Meta message_meta = 1088; }",
        "extend google.protobuf.FieldOptions { Meta field_meta = 1088; }",
        "extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }",
        "extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }",
    ]
)
_DECIMAL: Final = "".join(
    [
        'syntax = "proto3"; package confluent.type;',
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    ]
)
_KNOWN_TO_REGISTRIES: Final = (
    ("confluent/meta.proto", _META),
    ("confluent/type/decimal.proto", _DECIMAL),
)
"""Files that Confluent's registry has without being given them."""


@lru_cache(maxsize=128)
def first_message(definition: str, references: tuple[tuple[str, str], ...]) -> Descriptor:
    """The first message type of a definition: .proto text, or a FileDescriptorProto in base64.

    `references` are (import path, definition), those first that others import. Raises
    UnsupportedSchema where it doesn't compile or has no message.
    """
    try:
        from google.protobuf.descriptor_pool import DescriptorPool
    except ImportError as error:
        raise ImportError(_MISSING) from error
    files = _files(definition, references)
    pool = DescriptorPool()
    try:
        for each in files:
            pool.Add(each)
        main = files[-1]
        if not main.message_type:
            raise UnsupportedSchema("a Protobuf file without a message type")
        name = main.message_type[0].name
        full_name = f"{main.package}.{name}" if main.package else name
        return pool.FindMessageTypeByName(full_name)
    except (TypeError, KeyError) as error:  # what pools raise for descriptors that don't fit
        raise UnsupportedSchema(f"no valid Protobuf descriptor: {error}") from error


def _files(definition: str, references: Sequence[tuple[str, str]]) -> list[FileDescriptorProto]:
    """All files with what they import, in an order in which they can be built; ours is last."""
    given = [(name, text, _descriptor(name, text)) for name, text in references]
    main = _descriptor(_MAIN, definition)
    ready = [each for _, _, each in given if each is not None]
    texts = [(name, text) for name, text, each in given if each is None]
    if main is None or texts:
        return _compiled(definition if main is None else None, main, texts, ready)
    return [*_ordered([*_well_known(), *ready]), main]


def _descriptor(name: str, text: str) -> FileDescriptorProto | None:
    """What a text is if it is a FileDescriptorProto in base64; None for .proto text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if not text:
        return None
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    found.name = name
    return found


def _well_known() -> list[FileDescriptorProto]:
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    found = []
    for module in (
        *(descriptor_pb2, any_pb2, duration_pb2, empty_pb2, field_mask_pb2),
        *(struct_pb2, timestamp_pb2, wrappers_pb2),
    ):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found.append(file)
    return found


def _compiled(
    definition: str | None,
    main: FileDescriptorProto | None,
    texts: Sequence[tuple[str, str]],
    ready: Sequence[FileDescriptorProto],
) -> list[FileDescriptorProto]:
    """What protoc makes of the texts. It runs in a process of its own: whatever a text does to
    it, it ends, and this process stays as it is."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    names = {name for name, _ in texts} | {each.name for each in ready}
    with tempfile.TemporaryDirectory(prefix="onecopy-proto-") as place:
        folder = Path(place)
        known = [each for each in _KNOWN_TO_REGISTRIES if each[0] not in names]
        for name, text in [*known, *texts]:
            _write(folder, name, text)
        wanted = [name for name, _ in texts]
        if definition is not None:
            _write(folder, _MAIN, definition)
            wanted = [_MAIN]
        built = _run_protoc(folder, wanted, FileDescriptorSet(file=[*_well_known(), *ready]))
    files = [each for each in built.file if each.name != _MAIN]
    last = main if main is not None else next(e for e in built.file if e.name == _MAIN)
    missing = [each for each in ready if each.name not in {file.name for file in files}]
    return [*_ordered([*_well_known(), *files, *missing]), last]


def _write(folder: Path, name: str, text: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise UnsupportedSchema(f"no import path: {name!r}")
    target = folder / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except (OSError, UnicodeEncodeError) as error:
        raise UnsupportedSchema(f"no import path or no text: {name!r}: {error}") from error


def _run_protoc(folder: Path, names: Sequence[str], ready: FileDescriptorSet) -> FileDescriptorSet:
    try:
        import grpc_tools
    except ImportError as error:
        raise ImportError(_MISSING) from error
    given, made = folder / ".given.bin", folder / ".made.bin"
    given.write_bytes(ready.SerializeToString())
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}"]
    command += [f"--proto_path={path}/_proto" for path in grpc_tools.__path__]
    command += [f"--descriptor_set_in={given}", f"--descriptor_set_out={made}", "--include_imports"]
    try:
        ended = subprocess.run(
            [*command, *names],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_COMPILE_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise UnsupportedSchema(f"not compiled in {_COMPILE_SECONDS_MAX} seconds") from error
    if ended.returncode != 0 or not made.exists():
        said = ended.stderr.decode(errors="replace").strip()[-2000:]
        raise UnsupportedSchema(f"protoc refuses it: {said}")
    return type(ready).FromString(made.read_bytes())


def _ordered(files: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Each behind what it imports. What is missing is left to the pool to complain about."""
    by_name = {each.name: each for each in files}
    done: dict[str, FileDescriptorProto] = {}

    def place(file: FileDescriptorProto, above: frozenset[str]) -> None:
        if file.name in done or file.name in above:
            return
        for name in file.dependency:
            if name in by_name:
                place(by_name[name], above | {file.name})
        done[file.name] = file

    for each in files:
        place(each, frozenset())
    return list(done.values())
