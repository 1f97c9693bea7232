"""The codec of Protobuf values in the Confluent wire format.

A payload is the message's indexes (which message type of the file it is) and the message. Columns
are those of the file's first message type, whose indexes producers write as one zero byte; a
payload of another type has none, and whoever needs it must keep its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from tiering.values.codec import Decoded, Fault
from tiering.values.payload_bytes import payload_bytes
from tiering.values.pieces import constant_pieces, joined, pieces_array
from tiering.values.protobuf.compiling import first_message
from tiering.values.protobuf.decoding import MessageReader
from tiering.values.protobuf.encoding import MessageWriter
from tiering.values.protobuf.layout import layout, schema_of, struct_type
from tiering.values.protobuf.wire_reading import OTHER, skip_indexes

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtobufMessage

__all__ = ["ProtobufCodec"]

_FIRST_MESSAGE: Final = b"\x00"
_CELLS_MAX: Final = 1 << 21
"""Payloads times columns that are read at once."""


class ProtobufCodec:
    """See `ValueCodec`. Raises UnsupportedSchema for a definition that gives no columns."""

    def __init__(self, definition: str, references: Sequence[tuple[str, str]] = ()) -> None:
        """`definition` is .proto text or a FileDescriptorProto in base64, as registries have it;
        so are `references`, by import path, those first that others import."""
        descriptor = first_message(definition, tuple(references))
        self._descriptor = descriptor
        self._layout = layout(descriptor)
        self._schema = schema_of(self._layout)
        self._arrow = struct_type(self._layout)

    @property
    def schema(self) -> Schema:
        """See `ValueCodec`."""
        return self._schema

    @property
    def arrow(self) -> pa.StructType:
        """See `ValueCodec`."""
        return self._arrow

    @property
    def aliases(self) -> Mapping[int, tuple[str, ...]]:
        """None: Protobuf's fields have numbers, not earlier names."""
        return {}

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """See `ValueCodec`."""
        step = max(_CELLS_MAX // len(self._layout.fields), 1024)
        parts = [
            self._decode(payloads.slice(start, step))
            for start in range(0, max(len(payloads), 1), step)
        ]
        if len(parts) == 1:
            return parts[0]
        return Decoded(
            columns=pa.concat_arrays([each.columns for each in parts]),
            faults=np.concatenate([each.faults for each in parts]),
            inexact=np.concatenate([each.inexact for each in parts]),
        )

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """See `ValueCodec`. A null is an absent field, or the default of one without presence."""
        count = len(columns)
        writer = MessageWriter(count)
        rows = np.arange(count, dtype=np.int64)
        made = writer.message(self._layout, columns.flatten(), rows)
        null = columns.is_null().to_numpy(zero_copy_only=False) | writer.unwritable
        return pieces_array(joined([constant_pieces(_FIRST_MESSAGE, count), made], count), null)

    def _decode(self, payloads: pa.BinaryArray) -> Decoded:
        found = payload_bytes(payloads)
        count = len(found.starts)
        faults, marks = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
        skip_indexes(found.data, found.starts, found.ends, faults, marks)
        other = marks == OTHER
        starts = np.where(other, found.ends, found.starts)
        reader = MessageReader(found.data, faults)
        rows = np.arange(count, dtype=np.int64)
        columns = reader.columns(self._layout, starts, found.ends, rows)
        again = np.flatnonzero(reader.odd & (reader.faults == Fault.NONE))
        if len(again):
            columns = self._with_odd(reader, columns, again, (found.data, starts, found.ends))
        empty = other | (reader.faults != Fault.NONE)
        if empty.any():
            kept = pa.array(rows, mask=empty)
            columns = [each.take(kept) for each in columns]
        bad = reader.faults != Fault.NONE
        return Decoded(
            columns=pa.StructArray.from_arrays(
                columns, fields=list(self._arrow), mask=pa.array(bad) if bad.any() else None
            ),
            faults=reader.faults,
            inexact=(reader.inexact | other) & ~bad,
        )

    def _with_odd(
        self,
        reader: MessageReader,
        columns: list[pa.Array],
        odd: npt.NDArray[np.int64],
        spans: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]],
    ) -> list[pa.Array]:
        """The columns with odd messages as Protobuf's own parser understands them: it merges, and
        what it writes again is plain."""
        data, starts, ends = spans
        plain = []
        for i in odd:
            message = self._parsed(data[starts[i] : ends[i]].tobytes())
            if message is None:
                reader.faults[i] = Fault.BAD_DOCUMENT
                plain.append(b"")
                continue
            message.DiscardUnknownFields()  # they can have anything, other entries of a map too
            plain.append(message.SerializePartialToString())
        reader.inexact[odd] = True
        found = payload_bytes(pa.array(plain, pa.binary()))
        # What is odd, as groups still are, is so no longer for this reader's results.
        second = MessageReader(found.data, np.zeros(len(plain), np.uint8))
        rows = np.arange(len(plain), dtype=np.int64)
        better = second.columns(self._layout, found.starts, found.ends, rows)
        reader.faults[odd] = np.where(reader.faults[odd], reader.faults[odd], second.faults)
        places = np.arange(len(starts), dtype=np.int64)
        places[odd] = len(starts) + rows
        order = pa.array(places)
        return [
            pa.concat_arrays([first, other]).take(order)
            for first, other in zip(columns, better, strict=True)
        ]

    def _parsed(self, payload: bytes) -> ProtobufMessage | None:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        message = GetMessageClass(self._descriptor)()
        try:
            message.MergeFromString(payload)
        except DecodeError:
            return None
        return message
