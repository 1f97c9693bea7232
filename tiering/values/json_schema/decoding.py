"""JSON documents -> Arrow columns, a level of nesting at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiering.values.codec import Fault
from tiering.values.json_schema.layout import Form, Node, arrow_type
from tiering.values.json_schema.text_reading import (
    BEYOND,
    FRACTION,
    READ,
    count_elements,
    find_elements,
    find_properties,
    read_integers,
    read_numbers,
    unescape_strings,
)

__all__ = ["DocumentReader"]

_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Spans = tuple[_Int64s, _Int64s]

_FIRST = {
    Form.STRING: b'"',
    Form.INTEGER: b"-0123456789",
    Form.NUMBER: b"-0123456789",
    Form.BOOLEAN: b"tf",
    Form.OBJECT: b"{",
    Form.MAP: b"{",
    Form.ARRAY: b"[",
}
"""What a value begins with."""


class DocumentReader:
    """Reads values out of one buffer, of documents that are known to be JSON.

    Attributes:
        faults: per payload; see `Fault`.
        inexact: per payload: something in it isn't in the columns.
    """

    def __init__(self, data: npt.NDArray[np.uint8], faults: npt.NDArray[np.uint8]) -> None:
        self._data = data
        self.faults = faults
        self.inexact = np.zeros(len(faults), dtype=np.bool_)

    def column(self, node: Node, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Array:
        """An element per value; null where it is `null` or, `starts` being -1, absent. `rows` tells
        whose payload each is in."""
        first = np.full(len(starts), ord("n"), dtype=np.uint8)
        there = starts >= 0
        first[there] = self._data[starts[there]]
        present = first != ord("n")
        if node.form is not Form.JSON:
            allowed = np.zeros(256, dtype=np.bool_)
            allowed[list(_FIRST[node.form])] = True
            wrong = present & ~allowed[first]
            if wrong.any():
                self.faults[rows[wrong]] = Fault.BAD_TYPE
                present &= ~wrong
        if present.all():
            return self._values(node, starts, ends, rows)
        found = self._values(node, starts[present], ends[present], rows[present])
        places = np.cumsum(present, dtype=np.int64) - 1
        return found.take(pa.array(places, mask=~present))

    def properties(
        self, node: Node, starts: _Int64s, ends: _Int64s, rows: _Int64s
    ) -> list[pa.Array]:
        """A column per property of objects."""
        spellings, named = _spellings([each.name for each in node.properties])
        names = np.frombuffer(b"".join(spellings), dtype=np.uint8)
        name_ends = np.cumsum([len(each) for each in spellings], dtype=np.int64)
        value_starts = np.full((len(node.properties), len(starts)), -1, dtype=np.int64)
        value_ends = np.full_like(value_starts, -1)
        marks = np.zeros(len(starts), dtype=np.uint8)
        find_properties(
            *(self._data, starts, ends, names, name_ends, named),
            *(value_starts, value_ends, marks),
        )
        self.inexact[rows[marks != 0]] = True
        return [
            self.column(each.node, value_starts[i], value_ends[i], rows)
            for i, each in enumerate(node.properties)
        ]

    def _values(self, node: Node, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Array:
        if node.form is Form.OBJECT:
            columns = self.properties(node, starts, ends, rows)
            return pa.StructArray.from_arrays(columns, fields=list(arrow_type(node)))
        if node.form in (Form.MAP, Form.ARRAY):
            return self._elements(node, starts, ends, rows)
        if node.form is Form.BOOLEAN:
            return pa.array(self._data[starts] == ord("t"), pa.bool_())
        if node.form is Form.INTEGER:
            return self._integers(starts, ends, rows)
        if node.form is Form.NUMBER:
            return self._numbers(starts, ends, rows)
        if node.form is Form.JSON:
            return self._texts(starts, ends)
        return self._strings(starts, ends, rows)

    def _elements(self, node: Node, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Array:
        assert node.inside is not None  # noqa: S101 - maps and arrays have it
        counts = np.empty(len(starts), dtype=np.int64)
        count_elements(self._data, starts, ends, counts)
        offsets = np.zeros(len(starts) + 1, dtype=np.int32)
        offsets[1:] = np.cumsum(counts)
        spans = [np.empty(int(offsets[-1]), dtype=np.int64) for _ in range(4)]
        find_elements(self._data, starts, ends, *spans)
        inside = np.repeat(rows, counts)
        elements = self.column(node.inside, spans[2], spans[3], inside)
        repeated = None
        kind = arrow_type(node)
        if node.form is Form.MAP:
            keys = self._strings(spans[0], spans[1], inside)
            if keys.null_count:
                keys = keys.fill_null("")
            repeated = _maps_with_repeated_keys(keys, counts)
            fields = [kind.key_field, kind.item_field]
            elements = pa.StructArray.from_arrays([keys, elements], fields=fields)
        buffers = [None, pa.py_buffer(offsets)]
        made = pa.Array.from_buffers(kind, len(starts), buffers, children=[elements])
        if repeated is not None and repeated.any():
            self.inexact[rows[repeated]] = True
            made = made.take(pa.array(np.arange(len(starts)), mask=repeated))
        return made

    def _integers(self, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Array:
        values, states = np.empty(len(starts), np.int64), np.empty(len(starts), np.uint8)
        read_integers(self._data, starts, ends, values, states)
        unread = states != READ
        for i in np.flatnonzero(states == FRACTION):  # 1.0 is an integer to JSON Schema, 1.5 isn't
            number = float(self._data[starts[i] : ends[i]].tobytes())
            if math.isfinite(number) and not number.is_integer():
                self.faults[rows[i]] = Fault.BAD_TYPE
        self.inexact[rows[unread]] = True
        return pa.array(values, mask=unread if unread.any() else None)

    def _numbers(self, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Array:
        bits, states = np.empty(len(starts), np.int64), np.empty(len(starts), np.uint8)
        read_numbers(self._data, starts, ends, bits, states)
        values = bits.view(np.float64)
        for i in np.flatnonzero(states == BEYOND):
            values[i] = float(self._data[starts[i] : ends[i]].tobytes())
        beyond = np.isinf(values)
        self.inexact[rows[beyond]] = True
        return pa.array(values, mask=beyond if beyond.any() else None)

    def _strings(self, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Array:
        offsets = np.empty(len(starts) + 1, dtype=np.int32)
        target = np.empty(int((ends - starts).sum()), dtype=np.uint8)
        broken = np.zeros(len(starts), dtype=np.uint8)
        unescape_strings(self._data, starts, ends, offsets, target, broken)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(target)]
        texts = pa.Array.from_buffers(pa.string(), len(starts), buffers)
        bad = broken != 0
        if bad.any():
            self.inexact[rows[bad]] = True
            texts = texts.take(pa.array(np.arange(len(starts)), mask=bad))
        return texts

    def _texts(self, starts: _Int64s, ends: _Int64s) -> pa.Array:
        whole = pa.py_buffer(np.ascontiguousarray(self._data))
        view = pa.Array.from_buffers(
            *(pa.string(), 2 * len(starts), [None, pa.py_buffer(_bounds(starts, ends)), whole])
        )
        return view.take(pa.array(np.arange(len(starts), dtype=np.int64) * 2))


def _spellings(names: Sequence[str]) -> tuple[list[bytes], _Int64s]:
    """Names as they are in JSON, first those without needless escapes, then those of serializers
    that write ASCII only; and whose name each is."""
    plain = [json.dumps(each, ensure_ascii=False)[1:-1].encode() for each in names]
    escaped = [json.dumps(each)[1:-1].encode() for each in names]
    others = [i for i in range(len(names)) if escaped[i] != plain[i]]
    spellings = plain + [escaped[i] for i in others]
    return spellings, np.array([*range(len(names)), *others], dtype=np.int64)


def _bounds(starts: _Int64s, ends: _Int64s) -> npt.NDArray[np.int32]:
    """Offsets of which every other pair is a span: spans come in order."""
    bounds = np.empty(2 * len(starts) + 1, dtype=np.int32)
    bounds[0:-1:2], bounds[1::2] = starts, ends
    bounds[-1] = ends[-1] if len(ends) else 0
    return bounds


def _maps_with_repeated_keys(keys: pa.Array, counts: _Int64s) -> _Bools:
    repeated = np.zeros(len(counts), dtype=np.bool_)
    if len(counts) and counts.max() > 1:
        codes = keys.dictionary_encode()
        maps = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        both = np.sort(maps * len(codes.dictionary) + codes.indices.to_numpy())
        again = both[1:][both[1:] == both[:-1]]
        repeated[again // len(codes.dictionary)] = True
    return repeated
