"""Values (or keys) as they were produced, from the columns that a table has of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tiering.values.codec import UnsupportedSchema, ValueCodec
from tiering.values.codecs import codec_for
from tiering.values.framing import framed
from tiering.values.projection import ColumnBinding
from tiering.values.stored_schema import Framing, Part, StoredSchema

__all__ = ["bound_codec", "written_values"]


def bound_codec(stored: StoredSchema) -> tuple[ValueCodec, ColumnBinding] | None:
    """A schema's codec and where its columns are in the table; None where it has no columns."""
    if not stored.columns:
        return None
    return _bound(_Source(stored))


def written_values(
    raw: pa.Array,
    ids: pa.Array,
    columns: Sequence[pa.Array],
    fields: Sequence[pa.Field],
    schemas: Mapping[tuple[Part, int], StoredSchema],
    part: Part,
) -> pa.Array:
    """What is in `raw` where it isn't null, else what the typed columns give.

    Args:
        raw: binary, values kept as they are.
        ids: int32, the schema that each value was written with; null without one.
        columns: the typed columns.
        fields: one for each of them, with its field id and those of what is inside.

    Returns a binary array: null where all of these are, where the schema isn't known, and where
    it can't write what the columns hold.
    """
    typed = ids.is_valid().to_numpy(zero_copy_only=False)
    typed &= raw.is_null().to_numpy(zero_copy_only=False)
    if not typed.any():
        return raw
    numbers = ids.fill_null(0).to_numpy()
    wanted = np.unique(numbers[typed]).tolist()
    if len(wanted) == 1 and typed.all():
        return _written(schemas.get((part, wanted[0])), columns, fields, len(raw))
    pieces, places = [raw], np.arange(len(raw))
    given = len(raw)
    for schema_id in wanted:
        chosen = np.flatnonzero(typed & (numbers == schema_id))
        rows = pa.array(chosen)
        taken = [column.take(rows) for column in columns]
        pieces.append(_written(schemas.get((part, schema_id)), taken, fields, len(chosen)))
        places[chosen] = given + np.arange(len(chosen))
        given += len(chosen)
    return pa.concat_arrays(pieces).take(pa.array(places))


def _written(
    stored: StoredSchema | None, columns: Sequence[Any], fields: Sequence[Any], count: int
) -> Any:
    bound = None if stored is None else bound_codec(stored)
    if stored is None or bound is None:
        return pa.nulls(count, pa.binary())
    codec, binding = bound
    payloads = codec.encode(binding.from_table(columns, fields))
    return framed(payloads, stored.schema_id) if stored.framing is Framing.PREFIX else payloads


class _Source:
    """A stored schema as a key: equal to one that gives the same codec and binding."""

    def __init__(self, stored: StoredSchema) -> None:
        self.stored = stored
        columns = tuple(sorted(stored.columns.items()))
        self._key = (stored.format, stored.definition, stored.references, columns)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and self._key == other._key


@lru_cache(maxsize=1024)
def _bound(source: _Source) -> tuple[ValueCodec, ColumnBinding] | None:
    try:
        codec = codec_for(source.stored)
    except UnsupportedSchema:
        return None
    return codec, ColumnBinding(codec=codec, columns=source.stored.columns)
