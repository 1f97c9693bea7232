"""How a topic's table is laid out, as its settings say: partition spec and optional columns.

What was applied is written down in the table's properties, so that it is applied once: whatever
somebody changes afterwards stays as they want it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from tiering.errors import BadInput, TransientError
from tiering.partition_terms import PartitionTerm
from tiering.redaction import redact
from tiering.topic_config import METADATA_COLUMNS, TopicConfig

__all__ = ["PARTITION_PROPERTY", "lay_out"]

PARTITION_PROPERTY: Final = "onecopy.partition-by"
"""The setting `partition_by` that the table's partition spec was made from."""

_log: Final = logging.getLogger(__name__)
_PLAIN: Final[dict[str, Transform[Any, Any]]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}


def lay_out(table: Table, config: TopicConfig) -> Table:
    """Give the table the partition spec and the columns that were asked for, once.

    A spec over columns that come with the first schema is made when they are all there; columns
    are left out of tables that hold nothing yet.

    Raises BadInput where the spec can't be made of the table's columns, TransientError where the
    catalog doesn't take it.
    """
    if table.current_snapshot() is None:
        table = _without_columns(table, config)
    wanted = ", ".join(config.partition_by)
    inside = next((term for term in config.partition_terms if "." in term.column), None)
    if inside is not None:
        raise BadInput(f"partition_by: {inside}: a column inside a struct can't be used")
    if table.properties.get(PARTITION_PROPERTY, "") == wanted:
        return table
    names = {field.name for field in table.schema().fields}
    if not all(term.column in names for term in config.partition_terms):
        return table  # they come with a schema, or never: files are unpartitioned until then
    return _partitioned(table, config.partition_terms, wanted)


def _without_columns(table: Table, config: TopicConfig) -> Table:
    superfluous = [
        name
        for name in METADATA_COLUMNS
        if name not in config.metadata_columns and name in table.schema().column_names
    ]
    if not superfluous:
        return table
    try:
        with table.update_schema(allow_incompatible_changes=True) as update:
            for name in superfluous:
                update.delete_column(name)
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        raise _refused(table, "its columns can't be left out", error) from None
    return table


def _partitioned(table: Table, terms: Sequence[PartitionTerm], wanted: str) -> Table:
    try:
        with table.transaction() as transaction:
            with transaction.update_spec() as update:
                for field in table.spec().fields:
                    update.remove_field(field.name)
                for term in terms:
                    update.add_field(term.column, _transform(term))
            transaction.set_properties({PARTITION_PROPERTY: wanted})
    except ValueError as error:
        raise BadInput(f"table {'.'.join(table.name())}: partition_by: {error}") from error
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        raise _refused(table, "its partition spec can't be set", error) from None
    _log.info("table %s is partitioned by %s", ".".join(table.name()), wanted or "nothing")
    return table


def _transform(term: PartitionTerm) -> Transform[Any, Any]:
    if term.transform == "bucket":
        return BucketTransform(term.width)
    if term.transform == "truncate":
        return TruncateTransform(term.width)
    return _PLAIN[term.transform]


def _refused(table: Table, what: str, error: Exception) -> TransientError:
    text = f"table {'.'.join(table.name())}: {what}: {type(error).__name__}: {error}"
    return TransientError(redact(text, table.catalog.properties))
