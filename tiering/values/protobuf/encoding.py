"""Arrow columns -> messages, as the serializers of C++, Java and Python write them: fields by
ascending number, defaults without presence left out, entries of maps in full."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiering.values.list_elements import list_elements, validity
from tiering.values.payload_bytes import payload_bytes
from tiering.values.pieces import Pieces, joined
from tiering.values.protobuf.json_values import json_payload
from tiering.values.protobuf.layout import Field, Form, Kind, Message
from tiering.values.protobuf.wire_writing import number_pieces, span_pieces, tag_bytes

__all__ = ["MessageWriter"]

_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_NO_TAG: Final = np.zeros(0, dtype=np.uint8)
_MICROS: Final = 1_000_000
_UINT32_MAX: Final = 2**32 - 1


class MessageWriter:
    """Writes messages.

    Attributes:
        unwritable: per payload: it has something that the format has none of (a null in a list).
    """

    def __init__(self, payloads: int) -> None:
        self.unwritable = np.zeros(payloads, dtype=np.bool_)

    def message(self, message: Message, columns: list[pa.Array], rows: _Int64s) -> Pieces:
        """A message per row of the columns. `rows` tells whose payload each is in."""
        made: dict[int, Pieces] = {}
        for field, column in zip(message.fields, columns, strict=True):
            if field.repeated:
                made[field.number] = self._list(field, column, rows)
            else:
                present = validity(column)
                made[field.number] = self._field(
                    field, column, present, rows, defaults=not field.implicit
                )
        return joined([made[number] for number in sorted(made)], len(rows))

    def _list(self, field: Field, column: pa.Array, rows: _Int64s) -> Pieces:
        counts, children = list_elements(column)
        bounds = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=bounds[1:])
        inside = np.repeat(rows, counts)
        always = np.ones(len(inside), dtype=np.bool_)
        for each in children:
            if each.null_count:
                self.unwritable[inside[~validity(each)]] = True
        if field.is_map:
            assert field.message is not None  # noqa: S101 - what makes it a map
            parts = [
                self._field(each, child, always, inside, defaults=True)
                for each, child in zip(field.message.fields, children, strict=True)
            ]
            if field.message.fields[0].number > field.message.fields[1].number:
                parts.reverse()
            made = _spans(field, joined(parts, len(inside)), always)
        elif field.packed:
            bits = self._bits(field, children[0], inside)
            bare = number_pieces(_NO_TAG, field.kind.wire_type, bits, always)
            starts, ends = bare.offsets[bounds[:-1]], bare.offsets[bounds[1:]]
            return span_pieces(tag_bytes(field.number, 2), bare.data, starts, ends, counts > 0)
        else:
            made = self._field(field, children[0], always, inside, defaults=True)
        return Pieces(data=made.data, offsets=made.offsets[bounds])

    def _field(
        self, field: Field, column: pa.Array, present: _Bools, rows: _Int64s, *, defaults: bool
    ) -> Pieces:
        """`present`: where it is to be written; `defaults`: also where it has the default value."""
        if field.message is not None:
            return self._submessage(field, column, present, rows)
        if field.kind in (Kind.STRING, Kind.BYTES):
            found = payload_bytes(column)
            if not defaults:
                present = present & (found.ends > found.starts)
            tag = tag_bytes(field.number, 2)
            return span_pieces(tag, found.data, found.starts, found.ends, present)
        bits = self._bits(field, column, rows)
        if not defaults:
            present = present & (bits != 0)
        tag = tag_bytes(field.number, field.kind.wire_type)
        return number_pieces(tag, field.kind.wire_type, bits, present)

    def _submessage(self, field: Field, column: pa.Array, present: _Bools, rows: _Int64s) -> Pieces:
        message = field.message
        assert message is not None  # noqa: S101 - the caller has looked
        if message.form is Form.JSON:
            return self._json(field, column, present, rows)
        if message.form is Form.WRAPPED:
            columns = [column]
        elif message.form is Form.TIMESTAMP:
            columns = _timestamp_columns(column)
        else:
            columns = column.flatten()
        return _spans(field, self.message(message, columns, rows), present)

    def _json(self, field: Field, column: pa.Array, present: _Bools, rows: _Int64s) -> Pieces:
        assert field.message is not None  # noqa: S101 - the caller has looked
        payloads = []
        for i, text in enumerate(column.to_pylist()):
            payload = None if text is None else json_payload(field.message.name, text)
            if payload is None and text is not None:
                self.unwritable[rows[i]] = True
            payloads.append(payload or b"")
        found = payload_bytes(pa.array(payloads, pa.binary()))
        tag = tag_bytes(field.number, 2)
        return span_pieces(tag, found.data, found.starts, found.ends, present)

    def _bits(self, field: Field, column: pa.Array, rows: _Int64s) -> _Int64s:
        """Values as what varints and fixed numbers hold. 0 where null."""
        kind = field.kind
        if kind is Kind.ENUM:
            return self._enum_bits(field, column, rows)
        if kind in (Kind.UINT64, Kind.FIXED64):
            return self._unsigned_bits(column, rows)
        values = column.fill_null(0 if kind is not Kind.BOOL else False)
        found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        if kind is Kind.FLOAT:
            return found.view(np.uint32).astype(np.int64)
        if kind is Kind.DOUBLE:
            return found.view(np.int64)
        wide: _Int64s = found.astype(np.int64)
        if kind in (Kind.UINT32, Kind.FIXED32):
            self._refuse((wide < 0) | (wide > _UINT32_MAX), rows)
        if kind is Kind.SINT32:
            return ((wide << 1) ^ (wide >> 31)) & _UINT32_MAX
        return (wide << 1) ^ (wide >> 63) if kind is Kind.SINT64 else wide

    def _enum_bits(self, field: Field, column: pa.Array, rows: _Int64s) -> _Int64s:
        assert field.enumeration is not None  # noqa: S101 - what makes it an enum
        places = pc.index_in(column, pa.array(field.enumeration.names, pa.string()))
        self._refuse(validity(column) & ~validity(places), rows)
        numbers = np.array(field.enumeration.numbers, dtype=np.int64)
        found = numbers[places.fill_null(0).to_numpy()]
        return np.where(validity(places), found, 0)

    def _unsigned_bits(self, column: pa.Array, rows: _Int64s) -> _Int64s:
        whole = column.fill_null(0)
        buffer = whole.buffers()[1]
        if buffer is None or not len(whole):
            return np.zeros(len(whole), dtype=np.int64)
        words = np.frombuffer(buffer, dtype=np.int64)[2 * whole.offset :][: 2 * len(whole)]
        self._refuse(words[1::2] != 0, rows)
        return words[0::2].copy()

    def _refuse(self, bad: _Bools, rows: _Int64s) -> None:
        if bad.any():
            self.unwritable[rows[bad]] = True


def _spans(field: Field, made: Pieces, present: _Bools) -> Pieces:
    tag = tag_bytes(field.number, 2)
    return span_pieces(tag, made.data, made.offsets[:-1], made.offsets[1:], present)


def _timestamp_columns(column: pa.Array) -> list[pa.Array]:
    micros = column.cast(pa.int64()).fill_null(0).to_numpy()
    seconds = np.floor_divide(micros, _MICROS)
    nanos = (micros - seconds * _MICROS) * 1000
    return [pa.array(seconds), pa.array(nanos.astype(np.int32))]
