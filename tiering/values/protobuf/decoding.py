"""Messages of one type -> Arrow columns, a level of nesting at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiering.values.codec import Fault
from tiering.values.payload_bytes import texts_valid
from tiering.values.protobuf.json_values import json_texts
from tiering.values.protobuf.layout import (
    Field,
    Form,
    Kind,
    Message,
    arrow_type,
    single_arrow_type,
    struct_type,
)
from tiering.values.protobuf.wire_reading import (
    ODD,
    UNKNOWN,
    copy_spans,
    fill_elements,
    scan_messages,
)

__all__ = ["MessageReader"]

_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_NAN_32: Final = np.uint32(0x7FC00000)
_NAN_64: Final = np.uint64(0x7FF8000000000000)
_MICROS: Final = 1_000_000
_TIMESTAMP_SECONDS_MIN: Final = -62_135_596_800
"""0001-01-01; google.protobuf.Timestamp has none before, and none after 9999."""
_TIMESTAMP_SECONDS_MAX: Final = 253_402_300_799


class MessageReader:
    """Reads messages out of one buffer.

    Attributes:
        faults: per payload; see `Fault`.
        inexact: per payload: something in it isn't in the columns.
        odd: per payload: only a full parser reads it right.
    """

    def __init__(self, data: npt.NDArray[np.uint8], faults: npt.NDArray[np.uint8]) -> None:
        self._data = data
        self.faults = faults
        self.inexact = np.zeros(len(faults), dtype=np.bool_)
        self.odd = np.zeros(len(faults), dtype=np.bool_)

    def columns(
        self, message: Message, starts: _Int64s, ends: _Int64s, rows: _Int64s
    ) -> list[pa.Array]:
        """A column per field, an element per message. `rows` tells whose payload each is in."""
        fields = sorted(message.fields, key=lambda each: each.number)
        numbers = np.array([each.number for each in fields], dtype=np.int32)
        wires = np.array([each.kind.wire_type for each in fields], dtype=np.uint8)
        repeated = np.array([each.repeated for each in fields], dtype=np.uint8)
        merged = np.array([each.message is not None for each in fields], dtype=np.uint8)
        oneofs = np.array([each.oneof for each in fields], dtype=np.int32)
        chosen = np.empty(int(oneofs.max(initial=-1)) + 1, dtype=np.int64)
        values = np.zeros((len(fields), len(starts)), dtype=np.int64)
        lengths = np.empty_like(values)
        lengths[:] = np.where(repeated, 0, -1)[:, np.newaxis]
        faults, marks = np.zeros(len(starts), np.uint8), np.zeros(len(starts), np.uint8)
        spans = (self._data, starts, ends)
        scan_messages(
            *(*spans, numbers, wires, repeated, merged, oneofs, chosen),
            *(values, lengths, faults, marks),
        )
        self._note(faults, marks, rows)
        totals = lengths.sum(axis=1, where=repeated[:, np.newaxis] != 0)
        ends_at = np.cumsum(totals)
        flat_values = np.empty(int(totals.sum()), dtype=np.int64)
        flat_lengths = np.empty_like(flat_values)
        if len(flat_values):
            places = ends_at - totals
            fill_elements(
                *(*spans, numbers, wires, repeated, faults),
                *(places, flat_values, flat_lengths),
            )
        found: dict[int, pa.Array] = {}
        for i, field in enumerate(fields):
            if field.repeated:
                own = slice(ends_at[i] - totals[i], ends_at[i])
                elements = flat_values[own], flat_lengths[own]
                found[field.number] = self._list(field, lengths[i], *elements, rows)
            else:
                found[field.number] = self._single(field, values[i], lengths[i], rows)
        return [found[each.number] for each in message.fields]

    def _note(
        self, faults: npt.NDArray[np.uint8], marks: npt.NDArray[np.uint8], rows: _Int64s
    ) -> None:
        bad = faults != 0
        if bad.any():
            self.faults[rows[bad]] = faults[bad]
        if marks.any():
            self.inexact[rows[marks & UNKNOWN != 0]] = True
            self.odd[rows[marks & ODD != 0]] = True

    def _list(
        self, field: Field, counts: _Int64s, values: _Int64s, lengths: _Int64s, rows: _Int64s
    ) -> pa.Array:
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        offsets[1:] = np.cumsum(counts)
        inside = np.repeat(rows, counts)
        if field.is_map:
            elements = self._entries(field, counts, values, lengths, inside)
        else:
            elements = self._single(field, values, lengths, inside)
        return pa.Array.from_buffers(
            *(arrow_type(field), len(counts), [None, pa.py_buffer(offsets)]), children=[elements]
        )

    def _entries(
        self, field: Field, counts: _Int64s, starts: _Int64s, lengths: _Int64s, rows: _Int64s
    ) -> pa.Array:
        assert field.message is not None  # noqa: S101 - what makes it a map
        keys, items = self.columns(field.message, starts, starts + lengths, rows)
        if keys.null_count:  # no text: marked already
            keys = keys.fill_null("")
        if len(counts) and counts.max() > 1:
            codes = keys.dictionary_encode()
            width = np.int64(len(codes.dictionary))
            maps = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
            both = maps * width + codes.indices.to_numpy()
            order = np.argsort(both, kind="stable")
            again = both[order[1:]] == both[order[:-1]]
            self.odd[rows[order[1:][again]]] = True
        entries = arrow_type(field)
        fields = [entries.key_field, entries.item_field]
        return pa.StructArray.from_arrays([keys, items], fields=fields)

    def _single(self, field: Field, values: _Int64s, lengths: _Int64s, rows: _Int64s) -> pa.Array:
        """`lengths` are -1 where the field is absent."""
        absent = lengths < 0
        missing = absent if absent.any() and not field.implicit else None
        if field.message is not None:
            return self._message(field, values, lengths, rows)
        if field.kind in (Kind.STRING, Kind.BYTES):
            return self._bytes(field, values, lengths, rows, missing)
        if field.kind is Kind.ENUM:
            return self._enum(field, values, rows, absent)
        return self._number(field.kind, values, rows, missing)

    def _message(self, field: Field, starts: _Int64s, lengths: _Int64s, rows: _Int64s) -> pa.Array:
        message = field.message
        assert message is not None  # noqa: S101 - the caller has looked
        present = np.ones(len(lengths), np.bool_) if field.implicit else lengths >= 0
        whole = bool(present.all())
        lengths = np.maximum(lengths, 0)
        if not whole:
            starts, lengths, rows = starts[present], lengths[present], rows[present]
        found = self._formed(message, starts, starts + lengths, rows)
        if whole:
            return found
        places = np.cumsum(present, dtype=np.int64) - 1
        return found.take(pa.array(places, mask=~present))

    def _formed(self, message: Message, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Array:
        if message.form is Form.JSON:
            texts, bad, inexact = json_texts(message.name, self._data, starts, ends)
            self.faults[rows[bad]] = Fault.BAD_DOCUMENT
            self.inexact[rows[inexact]] = True
            return texts
        columns = self.columns(message, starts, ends, rows)
        if message.form is Form.WRAPPED:
            return columns[0]
        if message.form is Form.TIMESTAMP:
            return self._timestamps(columns, rows)
        return pa.StructArray.from_arrays(columns, fields=list(struct_type(message)))

    def _timestamps(self, columns: list[pa.Array], rows: _Int64s) -> pa.Array:
        seconds, nanos = (each.to_numpy() for each in columns)
        beyond = (seconds < _TIMESTAMP_SECONDS_MIN) | (seconds > _TIMESTAMP_SECONDS_MAX)
        beyond |= (nanos < 0) | (nanos > 999_999_999)
        self.inexact[rows[beyond | (nanos % 1000 != 0)]] = True
        micros = np.where(beyond, 0, seconds) * _MICROS + nanos // 1000
        return pa.array(micros, mask=beyond).cast(pa.timestamp("us", tz="UTC"))

    def _bytes(
        self,
        field: Field,
        starts: _Int64s,
        lengths: _Int64s,
        rows: _Int64s,
        missing: _Bools | None,
    ) -> pa.Array:
        if field.kind is Kind.STRING:
            valid = np.empty(len(starts), dtype=np.uint8)
            texts_valid(self._data, starts, starts + lengths, valid)
            bad = valid == 0
            if bad.any():
                if field.checked:
                    self.faults[rows[bad]] = Fault.BAD_TEXT
                self.inexact[rows[bad]] = True
                missing = bad if missing is None else missing | bad
                lengths = np.where(bad, -1, lengths)
        offsets = np.empty(len(starts) + 1, dtype=np.int32)
        data = np.empty(int(np.maximum(lengths, 0).sum()), dtype=np.uint8)
        copy_spans(self._data, starts, lengths, offsets, data)
        buffers = [_validity(missing), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(single_arrow_type(field), len(starts), buffers)

    def _enum(self, field: Field, values: _Int64s, rows: _Int64s, absent: _Bools) -> pa.Array:
        assert field.enumeration is not None  # noqa: S101 - what makes it an enum
        numbers = np.array(field.enumeration.numbers, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")  # of equal numbers the first is found
        ascending = numbers[order]
        wanted = values.astype(np.int32).astype(np.int64)
        if field.implicit:
            wanted = np.where(absent, numbers[0], wanted)
        places = np.searchsorted(ascending, wanted)
        places = np.minimum(places, len(numbers) - 1)
        unknown = ascending[places] != wanted
        if not field.implicit:
            unknown &= ~absent
        if unknown.any():
            self.inexact[rows[unknown]] = True
        null = unknown if field.implicit else unknown | absent
        names = pa.array(field.enumeration.names, pa.string())
        return names.take(pa.array(order[places], mask=null if null.any() else None))

    def _number(
        self, kind: Kind, values: _Int64s, rows: _Int64s, missing: _Bools | None
    ) -> pa.Array:
        made = _numbers(kind, values)
        if kind in (Kind.DOUBLE, Kind.FLOAT):
            strange = np.isnan(made)
            if strange.any():
                bits = made.view(np.uint64 if kind is Kind.DOUBLE else np.uint32)
                canonical = _NAN_64 if kind is Kind.DOUBLE else _NAN_32
                self.inexact[rows[strange & (bits != canonical)]] = True
                bits[strange] = canonical
        if kind in (Kind.UINT64, Kind.FIXED64):
            words = np.zeros((len(made), 2), dtype=np.int64)
            words[:, 0] = made
            buffers = [_validity(missing), pa.py_buffer(words)]
            return pa.Array.from_buffers(pa.decimal128(20, 0), len(made), buffers)
        return pa.array(made, mask=missing)


def _validity(missing: _Bools | None) -> pa.Buffer | None:
    if missing is None or not len(missing):
        return None
    packed = np.packbits(~missing, bitorder="little")
    return pa.py_buffer(packed)


def _numbers(kind: Kind, values: _Int64s) -> npt.NDArray[Any]:
    """What the bits of varints and fixed numbers mean; of unsigned 64 bits, the bits."""
    if kind is Kind.BOOL:
        return np.not_equal(values, 0)
    if kind in (Kind.INT32, Kind.SFIXED32):
        return values.astype(np.int32)
    if kind in (Kind.UINT32, Kind.FIXED32):
        return values & 0xFFFFFFFF
    if kind is Kind.SINT32:
        raw = values.astype(np.uint32)
        return ((raw >> np.uint32(1)) ^ -(raw & np.uint32(1))).view(np.int32)
    if kind is Kind.SINT64:
        wide = values.view(np.uint64)
        long: _Int64s = ((wide >> np.uint64(1)) ^ -(wide & np.uint64(1))).view(np.int64)
        return long
    if kind is Kind.FLOAT:
        return values.astype(np.uint32).view(np.float32)
    if kind is Kind.DOUBLE:
        return values.copy().view(np.float64)
    return values
