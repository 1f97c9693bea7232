"""What a codec of one writer's schema does, whatever the format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

__all__ = ["WHOLE_VALUE", "Decoded", "Fault", "UnsupportedSchema", "ValueCodec"]

WHOLE_VALUE: Final = "value"
"""Name of the one column of a schema that isn't a record: a string, a number, a list."""


class UnsupportedSchema(ValueError):
    """A schema that gives no columns (recursive, or beyond what tables can hold): says why.

    Values written with it are kept as they are.
    """


class Fault(IntEnum):
    """Why a payload gave no row."""

    NONE = 0
    TRUNCATED = 1
    """It ends before its schema does."""
    TRAILING_BYTES = 2
    """It goes on behind what its schema describes."""
    BAD_LENGTH = 3
    """A length, count or varint is negative, too large or too long."""
    BAD_INDEX = 4
    """A union branch or an enum symbol that the schema doesn't have."""
    BAD_TEXT = 5
    """A string is not UTF-8."""
    BAD_DOCUMENT = 6
    """It isn't of the format at all (JSON, Protobuf wire format)."""
    BAD_TYPE = 7
    """A value is of another type than its schema says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Payloads as columns.

    Attributes:
        columns: a StructArray of the codec's `arrow` type, one element per payload, in order. A
            payload with a fault is a null element.
        faults: uint8, a `Fault` per payload.
        inexact: bool, per payload: its columns are right, as far as they can be, but don't hold
            all of it (a NaN with a payload, a number beyond its column's type): whoever needs the
            bytes must keep them. Payloads that merely weren't written in the usual way (a longer
            varint, another order) needn't be marked: encoding them shows it.
    """

    columns: pa.StructArray
    faults: npt.NDArray[np.uint8]
    inexact: npt.NDArray[np.bool_]


class ValueCodec(Protocol):
    """One writer's schema, ready to be used. Safe for several threads."""

    @property
    def schema(self) -> Schema:
        """The columns: an Iceberg schema whose field ids are the codec's own, numbered from 1 in
        pre-order (a field, then what is inside it). All fields are optional, but for map keys.

        The same writer's schema gives the same ids in every version of Onecopy.
        """

    @property
    def arrow(self) -> pa.StructType:
        """The same as an Arrow type, as `Decoded.columns` and `encode` have it."""

    @property
    def aliases(self) -> Mapping[int, tuple[str, ...]]:
        """Earlier names of fields, by field id."""

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Columns of payloads: the bytes behind the wire format's prefix. No payload is null.

        Nothing that a payload says makes it raise, or take more than a few times its own size.
        """

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """The inverse of `decode`: the payload of each element, in the way that the format's
        own serializers write it.

        Null where an element is null or can't be written with this schema (somebody has put a
        null where it has none).
        """
