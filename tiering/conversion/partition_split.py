"""Rows grouped by the partition values of an Iceberg partition spec, whole columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType

from tiering.conversion.record_columns import TableColumns
from tiering.errors import FatalError

__all__ = ["PartitionSplit"]

_HOUR_US: Final = 3_600_000_000
_Array = Any
_Value = Callable[[_Array], _Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSplit:
    """Splits rows by a partition spec.

    Attributes:
        spec_id: the spec's id.
        fields: per partition field, the place of its source column (None where the files don't
            have that column: its value is null) and the transform of a whole column.
    """

    spec_id: int
    fields: tuple[tuple[int | None, _Value], ...]

    @classmethod
    def of(cls, spec_json: str, columns: TableColumns) -> PartitionSplit:
        """Prepare the spec (JSON of the spec); raises FatalError for an unknown transform."""
        spec = PartitionSpec.model_validate_json(spec_json)
        return cls(
            spec_id=spec.spec_id,
            fields=tuple(_field(field, columns) for field in spec.fields),
        )

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[object, ...], pa.RecordBatch]]:
        """(partition tuple, its rows in their order), by the order of the tuples' first rows.

        Values are as manifests hold them: hours, days, months, years and timestamps as numbers.
        """
        if not self.fields:
            yield (), rows
            return
        values = [self._values(rows, *field).dictionary_encode("encode") for field in self.fields]
        codes, firsts = _distinct(values)
        for group in np.argsort(firsts).tolist():
            first = int(firsts[group])
            key = tuple(_plain(column[first]) for column in values)
            if len(firsts) == 1:
                yield key, rows
                return
            yield key, rows.take(pa.array(np.flatnonzero(codes == group)))

    def _values(self, rows: Any, source: int | None, transform: _Value) -> _Array:
        if source is None:
            return pa.nulls(rows.num_rows, pa.int32())
        return transform(rows.column(source))


def _distinct(
    columns: list[Any],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(group of each row, first row of each group) over several dictionary-encoded columns."""
    combined = np.zeros(len(columns[0]), np.int64)
    firsts = np.zeros(1, np.int64)
    for column in columns:
        size = len(column.dictionary)
        combined = combined * size + column.indices.to_numpy()
        # Made dense again after each field, so that the product never overflows.
        _, firsts, combined = np.unique(combined, return_index=True, return_inverse=True)
    return combined, firsts


def _plain(scalar: Any) -> object:
    value = scalar.as_py()
    return value if value is None or isinstance(value, (int, str, bytes)) else str(value)


def _field(field: PartitionField, columns: TableColumns) -> tuple[int | None, _Value]:
    source = columns.index(field.source_id)
    kind = None if source is None else columns.arrow.field(source).type
    transform = field.transform
    if source is None or isinstance(transform, VoidTransform):
        return None, _identity
    typed = columns.table.find_type(field.source_id)
    found = _temporal(transform, kind) or _by_value(transform, kind, typed)
    if found is None:
        raise FatalError(f"partition field {field.name}: can't compute {transform} of {kind}")
    return source, found


def _temporal(transform: Transform[Any, Any], kind: Any) -> _Value | None:
    if isinstance(transform, HourTransform):
        return lambda column: _floored(column, _HOUR_US)
    if isinstance(transform, DayTransform):
        if pa.types.is_date(kind):
            return _numbers
        return lambda column: _floored(column, 24 * _HOUR_US)
    if isinstance(transform, MonthTransform):
        return lambda column: _calendar(column, "M")
    if isinstance(transform, YearTransform):
        return lambda column: _calendar(column, "Y")
    return None


def _by_value(transform: Transform[Any, Any], kind: Any, typed: IcebergType) -> _Value | None:
    number = pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    plain = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if isinstance(transform, IdentityTransform):
        if number:
            return _numbers
        return _identity if plain or pa.types.is_boolean(kind) else None
    if isinstance(transform, TruncateTransform):
        width = transform.width
        if pa.types.is_integer(kind):
            return lambda column: _masked(column, lambda v: v - v % width)
        if pa.types.is_string(kind):
            return lambda column: pc.utf8_slice_codeunits(column, 0, width)
        return (lambda column: pc.binary_slice(column, 0, width)) if plain else None
    if isinstance(transform, BucketTransform):
        buckets = transform.num_buckets
        if number:
            return lambda column: _masked(column, lambda v: _hashed(v) % buckets)
        return _bucketed(transform, typed) if plain else None
    return None


def _identity(column: _Array) -> _Array:
    return column


def _numbers(column: _Array) -> _Array:
    if pa.types.is_date(column.type):
        return column.view(pa.int32())
    return column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _masked(
    column: _Array, change: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]
) -> _Array:
    """Apply `change` to the numbers of a column, nulls left null."""
    numbers = _numbers(column).cast(pa.int64())
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(change(numbers.fill_null(0).to_numpy()), pa.int64(), mask=missing)


def _floored(column: _Array, unit_us: int) -> _Array:
    return _masked(column, lambda us: us // unit_us)


def _calendar(column: _Array, unit: str) -> _Array:
    """Whole months or years since 1970, as numpy counts them."""
    have = "D" if pa.types.is_date(column.type) else "us"
    return _masked(
        column,
        lambda v: v.view(f"datetime64[{have}]").astype(f"datetime64[{unit}]").astype(np.int64),
    )


def _hashed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Murmur3 (x86, 32 bits, seed 0) of 8-byte integers, without the sign (spec, Appendix B)."""
    halves = np.ascontiguousarray(values, "<i8").view("<u4").reshape(-1, 2)
    state = np.zeros(len(values), np.uint32)
    for word in (halves[:, 0], halves[:, 1]):
        mixed = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        state = _rotated(state ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(8)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)
    return (state & np.uint32(0x7FFFFFFF)).astype(np.int64)


def _rotated(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _bucketed(transform: BucketTransform[Any], typed: IcebergType) -> _Value:
    """Buckets of text and binary columns: hashed once per distinct value of a batch."""
    hashed = transform.transform(typed)

    def bucket(column: _Array) -> _Array:
        coded = column.dictionary_encode()
        buckets = pa.array([hashed(v) for v in coded.dictionary.to_pylist()], pa.int64())
        return buckets.take(coded.indices)

    return bucket
