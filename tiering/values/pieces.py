"""Payloads made of pieces: bytes per row, joined row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segment_reader.kernels.compiler import INT64_MATRIX, INT64S, UINT8S, VOID, compiled
from segment_reader.kernels.memory import address_of, copy

__all__ = ["Pieces", "constant_pieces", "joined", "pieces_array"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Int64s = np.ndarray[Any, np.dtype[np.int64]]

_ARROW_SIZE_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Row `i` has `data[offsets[i]:offsets[i + 1]]`. One offset more than rows."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.offsets) - 1


def constant_pieces(piece: bytes, rows: int) -> Pieces:
    """The same bytes in each row."""
    data = np.frombuffer(piece * rows, dtype=np.uint8)
    return Pieces(data=data, offsets=np.arange(rows + 1, dtype=np.int64) * len(piece))


def joined(parts: Sequence[Pieces], rows: int) -> Pieces:
    """Each row's pieces behind each other, in the order of `parts`."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.zeros((max(len(parts), 1), rows + 1), dtype=np.int64)
    for i, part in enumerate(parts):
        offsets[i] = part.offsets
    addresses = np.array([part.data.ctypes.data for part in parts], dtype=np.int64)
    data = np.empty(int((offsets[:, -1] - offsets[:, 0]).sum()), dtype=np.uint8)
    ends = np.zeros(rows + 1, dtype=np.int64)
    _join(addresses, offsets, data, ends)
    return Pieces(data=data, offsets=ends)


def pieces_array(pieces: Pieces, null: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """As an Arrow array of byte strings, null where told."""
    if pieces.offsets[-1] > _ARROW_SIZE_MAX:
        raise pa.ArrowCapacityError("payloads of more than 2 GiB at once")
    validity = pa.array(~null).buffers()[1] if null.any() else None
    offsets = pa.py_buffer(pieces.offsets.astype(np.int32))
    buffers = [validity, offsets, pa.py_buffer(pieces.data)]
    return pa.Array.from_buffers(pa.binary(), pieces.rows, buffers)


@compiled(VOID(INT64S, INT64_MATRIX, UINT8S, INT64S))
def _join(addresses: _Int64s, offsets: _Int64s, data: _Bytes, ends: _Int64s) -> None:
    target, at = address_of(data), np.int64(0)
    for row in range(len(ends) - 1):
        for part in range(len(addresses)):
            start = offsets[part, row]
            length = offsets[part, row + 1] - start
            if length > 0:
                copy(target, at, np.uint64(addresses[part]), start, length)
                at += length
        ends[row + 1] = at
