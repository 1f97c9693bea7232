"""Puffin, version 1: a container of blobs with a JSON footer (Iceberg's Puffin spec). Pure.

    magic | blobs | magic | payload (JSON) | u32 payload size | u32 flags | magic      little endian

The spec has no checksums. Here every blob has the property `crc32c` (of the bytes as they lie in
the file), and the XX
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import google_crc32c

from tiering.errors import FatalError

__all__ = ["CRC", "MAGIC", "TRAILER_BYTES", "Blob", "checksum", "footer", "footer_size", "parse"]

MAGIC: Final = b"PFA1"
CRC: Final = "crc32c"
TRAILER_BYTES: Final = 12
"""Payload size, flags and magic, behind the payload."""

FOOTER_BYTES_MAX: Final = 256 * 1024 * 1024
_FOOTER_CRC: Final = "footer-crc32c"
_NO_SNAPSHOT: Final = -1
_CREATED_BY: Final = "Onecopy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One blob's place in the file, its type and properties; `codec` None: not compressed."""

    type: str
    offset: int
    length: int
    codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.offset + self.length

    def to_json(self) -> dict[str, Any]:
        """As in the footer: no snapshot is named, for a side file belongs to none."""
        codec = {} if self.codec is None else {"compression-codec": self.codec}
        return {
            "type": self.type,
            "fields": [],
            "snapshot-id": _NO_SNAPSHOT,
            "sequence-number": _NO_SNAPSHOT,
            "offset": self.offset,
            "length": self.length,
            **codec,
            "properties": dict(self.properties),
        }


def checksum(data: bytes) -> str:
    """CRC-32C in the form of a property: eight hex digits."""
    return f"{google_crc32c.value(data):08x}"


def footer(blobs: Sequence[Blob]) -> bytes:
    """The footer, from its first magic to the last: what goes behind the blobs."""
    content: dict[str, Any] = {
        "blobs": [blob.to_json() for blob in blobs],
        "properties": {"created-by": _CREATED_BY},
    }
    content["properties"][_FOOTER_CRC] = checksum(_json(content))
    payload = _json(content)
    sizes = len(payload).to_bytes(4, "little") + bytes(4)
    return MAGIC + payload + sizes + MAGIC


def footer_size(tail: bytes, size_bytes: int, key: str) -> int:
    """Size of the whole footer, told by the last bytes of a file of `size_bytes`.

    Raises FatalError naming `key` for what isn't the end of a Puffin file.
    """
    if len(tail) < TRAILER_BYTES or tail[-4:] != MAGIC:
        raise _damaged(key, "it doesn't end as a Puffin file")
    if any(tail[-8:-4]):
        raise _damaged(key, "its footer has flags that are not known")
    size = int.from_bytes(tail[-12:-8], "little") + len(MAGIC) + TRAILER_BYTES
    if size > min(size_bytes - len(MAGIC), FOOTER_BYTES_MAX):
        raise _damaged(key, f"a footer of {size} bytes in a file of {size_bytes}")
    return size


def parse(data: bytes, size_bytes: int, key: str) -> tuple[Blob, ...]:
    """The blobs that a footer (whole, and nothing else) describes, checked against the file.

    Raises FatalError naming `key` when the footer is damaged.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise _damaged(key, "its footer doesn't begin where it should")
    try:
        content = json.loads(data[len(MAGIC) : -TRAILER_BYTES])
        told = content["properties"].pop(_FOOTER_CRC)
        intact = checksum(_json(content)) == told
        blobs = tuple(_blob(each) for each in content["blobs"]) if intact else ()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(key, f"its footer can't be read: {error!r}") from error
    if not intact:
        raise _damaged(key, "its footer fails its checksum")
    borders = [len(MAGIC), *(blob.end for blob in blobs)]
    if borders != [*(blob.offset for blob in blobs), size_bytes - len(data)]:
        raise _damaged(key, "its blobs don't fill it from the first magic to the footer")
    return blobs


def _blob(raw: dict[str, Any]) -> Blob:
    return Blob(
        type=str(raw["type"]),
        offset=int(raw["offset"]),
        length=int(raw["length"]),
        codec=raw.get("compression-codec"),
        properties={str(name): str(value) for name, value in raw["properties"].items()},
    )


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _damaged(key: str, reason: str) -> FatalError:
    return FatalError(f"side file {key} is damaged: {reason}")
