"""Records whose values (or keys) were written with schemas, as rows with typed columns.

Every value is written again from its columns right away, as the table will hold them: where that
doesn't give its bytes, they are kept beside (the column of field id 8, for keys 6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiering.conversion.record_columns import TableColumns, field_ids
from tiering.tasks import PartPlan, TypedValues
from tiering.values.arrow_fields import field_id
from tiering.values.codec import Fault
from tiering.values.framing import NO_SCHEMA, payloads_of, schema_ids
from tiering.values.stored_schema import Framing, Part, StoredSchema
from tiering.values.written_values import bound_codec

__all__ = ["BadRecords", "TypedRecords", "TypedRows", "UnknownSchemas"]

_NO_PREFIX: Final = "no_schema_id"
_UNKNOWN: Final = "unknown_schema"
_REFUSED: Final = "incompatible_schema"

Bools = npt.NDArray[np.bool_]


class UnknownSchemas(Exception):
    """Values were written with schemas that the table doesn't know yet.

    Attributes:
        schemas: (part, schema id).
    """

    def __init__(self, schemas: Sequence[tuple[Part, int]]) -> None:
        listed = ", ".join(f"{part} {schema_id}" for part, schema_id in schemas)
        super().__init__(f"schemas that the table doesn't know yet: {listed}")
        self.schemas = tuple(schemas)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecords:
    """Records that gave no row, and why.

    Attributes:
        records: RECORD_SCHEMA.
        parts, causes, reasons: string, one for each.
        schema_ids: int32; null where there is none.
    """

    records: pa.RecordBatch
    parts: pa.Array
    causes: pa.Array
    reasons: pa.Array
    schema_ids: pa.Array

    def from_offset(self, offset: int) -> BadRecords:
        """Those of this offset and later ones."""
        first = int(np.searchsorted(self.records.column("offset").to_numpy(), offset))
        return BadRecords(
            records=self.records.slice(first),
            parts=self.parts.slice(first),
            causes=self.causes.slice(first),
            reasons=self.reasons.slice(first),
            schema_ids=self.schema_ids.slice(first),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedRecords:
    """One batch of records, ready for the table.

    Attributes:
        columns: arrays by field id, for all records: keys and values as far as they are kept,
            schema ids, typed columns.
        bad: which records are bad (and have nulls in the typed columns).
        why: (part, cause, reason) of each bad one, by place.
        typed: which records' values were written with a schema.
        kept: which of their values are kept as they are.
    """

    columns: Mapping[int, pa.Array]
    bad: Bools
    why: Mapping[int, tuple[Part, str, str]]
    typed: Bools
    kept: Bools

    def slice(self, first: int, count: int) -> TypedRecords:
        """`count` records from `first` on."""
        chosen = slice(first, first + count)
        return TypedRecords(
            columns={i: column.slice(first, count) for i, column in self.columns.items()},
            bad=self.bad[chosen],
            why={i - first: said for i, said in self.why.items() if first <= i < first + count},
            typed=self.typed[chosen],
            kept=self.kept[chosen],
        )

    def causes(self) -> Counter[str]:
        """How many bad records there are of each cause."""
        return Counter(cause for _, cause, _ in self.why.values())

    def first_fault(self, records: pa.RecordBatch) -> str:
        """What is wrong with the first bad one of `records`, which these were made of."""
        place = min(self.why)
        part, cause, reason = self.why[place]
        return f"the {part} at offset {records.column('offset')[place]}: {reason} ({cause})"

    def bad_records(self, records: pa.RecordBatch) -> BadRecords:
        """The bad ones among `records`, which these were made of."""
        places = np.flatnonzero(self.bad)
        said = [self.why[i] for i in places.tolist()]
        ids = [self.columns.get(_ID_COLUMN[part]) for part, _, _ in said]
        numbers = [
            None if column is None else column[i].as_py()
            for column, i in zip(ids, places.tolist(), strict=True)
        ]
        return BadRecords(
            records=records.take(pa.array(places)),
            parts=pa.array([part for part, _, _ in said], pa.string()),
            causes=pa.array([cause for _, cause, _ in said], pa.string()),
            reasons=pa.array([reason for _, _, reason in said], pa.string()),
            schema_ids=pa.array(numbers, pa.int32()),
        )


@dataclass(slots=True)
class _PartRows:
    """What is known of one part (keys or values) of a batch of records.

    Attributes:
        kept: which ones must be kept as they are.
        why: (cause, reason) of the bad ones, by place.
        pieces: typed columns of the rows at some places, for each schema.
    """

    values: Any
    ids: npt.NDArray[np.int32]
    kept: Bools
    bad: Bools
    why: dict[int, tuple[str, str]] = field(default_factory=dict)
    pieces: list[tuple[npt.NDArray[np.int64], list[Any]]] = field(default_factory=list)

    def fault(self, places: npt.NDArray[np.int64], cause: str, reason: str) -> None:
        self.bad[places] = True
        self.kept[places] = True
        self.why.update((i, (cause, reason)) for i in places.tolist())


class TypedRows:
    """Makes typed columns of records. For one thread."""

    def __init__(self, columns: TableColumns, typed: TypedValues) -> None:
        self._columns = columns
        self._unknown = frozenset(typed.unknown)
        self._fields = [columns.arrow.field(i) for i in columns.typed]
        plans: dict[Part, PartPlan] = {"value": typed.value, "key": typed.key}
        self._plans = {part: plan for part, plan in plans.items() if plan.mode != "raw"}

    def of(self, records: pa.RecordBatch) -> TypedRecords:
        """Columns for records (RECORD_SCHEMA). Raises UnknownSchemas."""
        done = {
            part: self._part(part, plan, records.column(part)) for part, plan in self._plans.items()
        }
        bad = np.zeros(records.num_rows, np.bool_)
        why: dict[int, tuple[Part, str, str]] = {}
        for part, rows in done.items():
            bad |= rows.bad
            why.update((i, (part, *said)) for i, said in rows.why.items())
        columns: dict[int, Any] = {}
        for part, rows in done.items():
            columns.update(self._own_columns(part, rows))
        columns.update(self._typed_columns(done.values(), records.num_rows))
        first = next(iter(done.values()))
        return TypedRecords(
            columns=columns,
            bad=bad,
            why=why,
            typed=(first.ids != NO_SCHEMA) & ~first.bad,
            kept=first.kept,
        )

    def _part(self, part: Part, plan: PartPlan, values: Any) -> _PartRows:
        there = values.is_valid().to_numpy(zero_copy_only=False)
        rows = _PartRows(
            values=values,
            ids=_ids(plan, values, there),
            kept=there.copy(),
            bad=np.zeros(len(values), np.bool_),
        )
        if plan.mode == "schema_id_prefix":
            places = np.flatnonzero(there & (rows.ids == NO_SCHEMA))
            if len(places):
                rows.fault(places, _NO_PREFIX, f"the {part} has no schema id in front")
        wanted = np.unique(rows.ids[rows.ids != NO_SCHEMA]).tolist()
        self._check_known(part, wanted)
        for schema_id in wanted:
            self._decode(part, schema_id, rows)
        return rows

    def _check_known(self, part: Part, wanted: Sequence[int]) -> None:
        missing = [
            (part, i)
            for i in wanted
            if (part, i) not in self._columns.schemas and (part, i) not in self._unknown
        ]
        if missing:
            raise UnknownSchemas(missing)

    def _decode(self, part: Part, schema_id: int, rows: _PartRows) -> None:
        places = np.flatnonzero(rows.ids == schema_id)
        stored = self._columns.schemas.get((part, schema_id))
        if stored is None:
            rows.fault(places, _UNKNOWN, f"the registry doesn't know schema {schema_id}")
            return
        if stored.refused:
            rows.fault(places, _REFUSED, f"schema {schema_id}: {stored.refused}")
            return
        bound = bound_codec(stored)
        if bound is None:
            return
        codec, binding = bound
        payloads = _payloads(stored, rows.values, places)
        decoded = codec.decode(payloads)
        arrays = binding.to_table(decoded.columns, self._fields)
        written = codec.encode(binding.from_table(arrays, self._fields))
        exact = _same(written, payloads) & ~decoded.inexact
        if self._columns.index(_ID_COLUMN[part]) is not None:
            # Without their schema's id (somebody has dropped its column) columns give no value.
            rows.kept[places] = ~exact
        rows.pieces.append((places, arrays))
        for fault in np.unique(decoded.faults[decoded.faults != Fault.NONE]).tolist():
            reason = f"schema {schema_id}: {_REASONS[Fault(fault)]}"
            rows.fault(places[decoded.faults == fault], Fault(fault).name.lower(), reason)

    def _own_columns(self, part: Part, rows: _PartRows) -> Iterator[tuple[int, Any]]:
        """The part as far as it is kept, and its schema ids, by field id."""
        yield _RAW_COLUMN[part], _where(rows.values, rows.kept)
        if self._columns.index(_ID_COLUMN[part]) is not None:
            yield _ID_COLUMN[part], pa.array(rows.ids, mask=rows.ids == NO_SCHEMA)

    def _typed_columns(self, parts: Any, count: int) -> Iterator[tuple[int, Any]]:
        pieces = [piece for rows in parts for piece in rows.pieces]
        for i, each in enumerate(self._fields):
            yield field_id(each), _gathered([(p, a[i]) for p, a in pieces], each.type, count)


def _ids(plan: PartPlan, values: Any, there: Bools) -> npt.NDArray[np.int32]:
    if plan.mode == "schema_id_prefix":
        return schema_ids(values)
    return np.where(there, plan.schema_id, NO_SCHEMA).astype(np.int32)


def _payloads(stored: StoredSchema, values: Any, places: npt.NDArray[np.int64]) -> Any:
    if stored.framing is Framing.PREFIX:
        return payloads_of(values, places)
    return values if len(places) == len(values) else values.take(pa.array(places))


def _same(written: Any, payloads: Any) -> Bools:
    """Which ones are equal, null being equal to nothing."""
    if written.null_count == 0 and written.equals(payloads):
        return np.ones(len(payloads), np.bool_)
    equal: Bools = pc.equal(written, payloads).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


def _where(values: Any, kept: Bools) -> Any:
    if not kept.any():
        return pa.nulls(len(values), pa.binary())
    if kept.all():
        return values
    return pc.if_else(pa.array(kept), values, pa.scalar(None, pa.binary()))


def _gathered(pieces: Sequence[tuple[npt.NDArray[np.int64], Any]], kind: Any, count: int) -> Any:
    """One column of pieces that are at some places each; null elsewhere.

    Keys and values never share a column, so of two pieces at one place one is all null.
    """
    held = [(places, array) for places, array in pieces if array.null_count < len(array)]
    if not held:
        return pa.nulls(count, kind)
    if len(held) == 1 and len(held[0][0]) == count:
        return held[0][1]
    at = np.zeros(count, np.int64)
    given = 1
    for places, array in held:
        at[places] = given + np.arange(len(places))
        given += len(array)
    arrays = [pa.nulls(1, kind), *(array for _, array in held)]
    return _concatenated(arrays, kind).take(pa.array(at))


def _concatenated(arrays: Sequence[Any], kind: Any) -> Any:
    if isinstance(kind, pa.ExtensionType):
        joined = pa.concat_arrays([each.storage for each in arrays])
        return pa.ExtensionArray.from_storage(kind, joined)
    return pa.concat_arrays(arrays)


_RAW_COLUMN: Final[Mapping[Part, int]] = {"value": field_ids().value, "key": field_ids().key}
_ID_COLUMN: Final[Mapping[Part, int]] = {
    "value": field_ids().schema_id,
    "key": field_ids().key_schema_id,
}
_REASONS: Final[Mapping[Fault, str]] = {
    Fault.TRUNCATED: "the payload ends before its schema does",
    Fault.TRAILING_BYTES: "the payload goes on behind what its schema describes",
    Fault.BAD_LENGTH: "a length or count is negative, too large or too long",
    Fault.BAD_INDEX: "a union branch or an enum symbol that the schema doesn't have",
    Fault.BAD_TEXT: "a string is not UTF-8",
    Fault.BAD_DOCUMENT: "the payload isn't of the schema's format",
    Fault.BAD_TYPE: "a value is of another type than the schema says",
}
