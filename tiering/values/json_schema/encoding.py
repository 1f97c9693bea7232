"""Arrow columns -> compact JSON: no white space, UTF-8, properties in the schema's order.

A null is an absent property, or, where the schema demands the property and allows null, an explicit
one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiering.values.codec import Fault
from tiering.values.json_schema.layout import Form, Node, Property
from tiering.values.json_schema.text_writing import bracketed, prefixed, quoted
from tiering.values.json_text import document_faults
from tiering.values.list_elements import list_elements, validity
from tiering.values.payload_bytes import payload_bytes
from tiering.values.pieces import Pieces, joined

__all__ = ["DocumentWriter"]

_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_MISSING: Final = "JSON values need optional packages: pip install 'onecopy[schemas]'"
_WORDS: Final = np.frombuffer(b"truefalsenull", dtype=np.uint8)


class DocumentWriter:
    """Writes values.

    Attributes:
        unwritable: per payload: it has something that JSON has none of (a NaN).
    """

    def __init__(self, payloads: int) -> None:
        self.unwritable = np.zeros(payloads, dtype=np.bool_)

    def value(self, node: Node, column: pa.Array, rows: _Int64s) -> Pieces:
        """A value per element; any bytes where it's null. `rows`: whose payload each is in."""
        if node.form is Form.OBJECT:
            return self.object(node, column.flatten(), rows)
        if node.form in (Form.MAP, Form.ARRAY):
            return self._elements(node, column, rows)
        if node.form is Form.BOOLEAN:
            truth = column.fill_null(False).to_numpy(zero_copy_only=False)
            everywhere = np.ones(len(truth), np.bool_)
            starts, ends = np.where(truth, 0, 4), np.where(truth, 4, 9)
            return prefixed(b"", _WORDS, starts, ends, everywhere)
        if node.form is Form.NUMBER:
            return self._numbers(column, rows)
        texts = payload_bytes(column if node.form is not Form.INTEGER else column.cast(pa.string()))
        if node.form is Form.STRING:
            return quoted(texts.data, texts.starts, texts.ends)
        valid = validity(column)
        if node.form is Form.JSON:
            self._refuse(valid & (document_faults(texts) != Fault.NONE), rows)
        return prefixed(b"", texts.data, texts.starts, texts.ends, valid)

    def object(self, node: Node, columns: list[pa.Array], rows: _Int64s) -> Pieces:
        """An object per row of the columns."""
        parts = []
        for each, column in zip(node.properties, columns, strict=True):
            parts += self._property(each, column, rows)
        made = joined(parts, len(rows))
        return bracketed(made, made.offsets[:-1], made.offsets[1:], b"{}")

    def _property(self, of: Property, column: pa.Array, rows: _Int64s) -> list[Pieces]:
        name = of.name.encode()
        letters = np.frombuffer(name, dtype=np.uint8)
        zero, size = np.zeros(1, np.int64), np.array([len(name)])
        prefix = b"," + quoted(letters, zero, size).data.tobytes() + b":"
        return self._prefixed(prefix, of.node, column, rows, nulls=of.null_written)

    def _prefixed(
        self, prefix: bytes, node: Node, column: pa.Array, rows: _Int64s, *, nulls: bool
    ) -> list[Pieces]:
        made = self.value(node, column, rows)
        valid = validity(column)
        parts = [prefixed(prefix, made.data, made.offsets[:-1], made.offsets[1:], valid)]
        if nulls and not valid.all():
            starts = np.full(len(valid), 9, dtype=np.int64)
            parts.append(prefixed(prefix, _WORDS, starts, starts + 4, ~valid))
        return parts

    def _elements(self, node: Node, column: pa.Array, rows: _Int64s) -> Pieces:
        assert node.inside is not None  # noqa: S101 - maps and arrays have it
        is_map = node.form is Form.MAP
        counts, children = list_elements(column)
        bounds = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=bounds[1:])
        inside = np.repeat(rows, counts)
        parts: list[Pieces] = []
        if is_map:
            names = payload_bytes(children[0])
            made = quoted(names.data, names.starts, names.ends)
            everywhere = np.ones(len(inside), np.bool_)
            parts.append(prefixed(b",", made.data, made.offsets[:-1], made.offsets[1:], everywhere))
        prefix = b":" if is_map else b","
        parts += self._prefixed(prefix, node.inside, children[-1], inside, nulls=True)
        whole = joined(parts, len(inside))
        first, last = whole.offsets[bounds[:-1]], whole.offsets[bounds[1:]]
        return bracketed(whole, first, last, b"{}" if is_map else b"[]")

    def _numbers(self, column: pa.Array, rows: _Int64s) -> Pieces:
        """The shortest digits that give the number again."""
        try:
            import orjson
        except ImportError as error:
            raise ImportError(_MISSING) from error
        values = np.ascontiguousarray(column.fill_null(0.0).to_numpy(zero_copy_only=False))
        self._refuse(~np.isfinite(values), rows)
        text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
        data = np.frombuffer(text, dtype=np.uint8)
        if not len(values):
            return Pieces(data=data[:0], offsets=np.zeros(1, dtype=np.int64))
        commas = np.flatnonzero(data == ord(","))
        starts, ends = np.append(0, commas) + 1, np.append(commas, len(data) - 1)
        return prefixed(b"", data, starts, ends, np.ones(len(values), np.bool_))

    def _refuse(self, bad: _Bools, rows: _Int64s) -> None:
        if bad.any():
            self.unwritable[rows[bad]] = True
