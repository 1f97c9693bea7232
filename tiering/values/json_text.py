"""Values that are JSON without a schema: one column with the text, as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from tiering.values.codec import WHOLE_VALUE, Decoded, Fault
from tiering.values.json_grammar import documents_valid
from tiering.values.payload_bytes import PayloadBytes, payload_bytes, texts_valid

__all__ = ["JsonText", "document_faults"]

_SCHEMA: Final = Schema(NestedField(1, WHOLE_VALUE, StringType(), required=False))
_ARROW: Final = pa.struct([pa.field(WHOLE_VALUE, pa.string())])


class JsonText:
    """The codec of any JSON document. Exact by construction: the column holds the very bytes."""

    @property
    def schema(self) -> Schema:
        """One string."""
        return _SCHEMA

    @property
    def arrow(self) -> pa.StructType:
        """One string."""
        return _ARROW

    @property
    def aliases(self) -> Mapping[int, tuple[str, ...]]:
        """None."""
        return {}

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """See `ValueCodec`. BAD_TEXT for what isn't UTF-8, BAD_DOCUMENT for what isn't JSON."""
        faults = document_faults(payload_bytes(payloads))
        bad = faults != Fault.NONE
        _, offsets, data = payloads.buffers()
        texts = pa.Array.from_buffers(
            *(pa.string(), len(payloads), [None, offsets, data]), offset=payloads.offset
        )
        mask = None
        if bad.any():
            taken = pa.array(np.arange(len(payloads)), mask=bad)
            texts, mask = texts.take(taken), pa.array(bad)
        columns = pa.StructArray.from_arrays([texts], fields=list(_ARROW), mask=mask)
        return Decoded(columns=columns, faults=faults, inexact=np.zeros(len(payloads), np.bool_))

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """See `ValueCodec`."""
        return columns.flatten()[0].cast(pa.binary())


def document_faults(payloads: PayloadBytes) -> npt.NDArray[np.uint8]:
    """A `Fault` per payload: NONE for what is JSON in UTF-8."""
    count = len(payloads.starts)
    texts, documents = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
    longest = int((payloads.ends - payloads.starts).max(initial=0))
    stack = np.empty(longest + 1, np.uint8)
    spans = (payloads.data, payloads.starts, payloads.ends)
    texts_valid(*spans, texts)
    documents_valid(*spans, stack, documents)
    faults = np.where(documents, Fault.NONE, Fault.BAD_DOCUMENT)
    return np.where(texts, faults, Fault.BAD_TEXT).astype(np.uint8)
