"""The table of a topic's bad records: `<table>__dlq`.

It is made as a topic's own table is, and holds the records as they are: key, value and headers in
bytes, with what is wrong with each. Its watermarks say up to where bad records are in it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
)
from pyiceberg.types import IntegerType, NestedField, StringType

from tiering.errors import TransientError
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.redaction import redact
from tiering.table.catalog import ensure_table
from tiering.table.loading import load_table
from tiering.table.schema import (
    ERROR_CLASS_FIELD,
    ERROR_PART_FIELD,
    ERROR_REASON_FIELD,
    SCHEMA_ID_FIELD,
    raw_schema,
)

__all__ = ["dead_letters_identifier", "ensure_dead_letters"]

_COLUMNS: Final = (
    NestedField(ERROR_CLASS_FIELD, "error_class", StringType(), doc="what kind of fault it is"),
    NestedField(ERROR_REASON_FIELD, "error_reason", StringType(), doc="what is wrong, in words"),
    NestedField(ERROR_PART_FIELD, "error_part", StringType(), doc="value or key"),
    NestedField(SCHEMA_ID_FIELD, "kafka_schema_id", IntegerType(), doc="that it names, if any"),
)
_VALUE: Final = raw_schema().find_field("value").field_id


def dead_letters_identifier(identifier: tuple[str, ...]) -> tuple[str, ...]:
    """The name of the table of bad records beside a topic's table."""
    return (*identifier[:-1], f"{identifier[-1]}__dlq")


def ensure_dead_letters(
    catalog: Catalog,
    identifier: tuple[str, ...],
    topic: str,
    topic_id: str,
    warehouse: str,
    *,
    pacing: Pacing = SYSTEM_PACING,
) -> Table:
    """The table of bad records, made if there is none; safe beside others that do the same.

    Args:
        identifier: (namespace..., table name) of the topic's own table.

    Raises as `ensure_table`.
    """
    name = dead_letters_identifier(identifier)
    table = ensure_table(catalog, name, topic, topic_id, warehouse, pacing=pacing)
    for attempt in range(pacing.loads_max):
        if attempt:
            pacing.pause(attempt)
            table = load_table(catalog, name, pacing=pacing)
        if ERROR_CLASS_FIELD in table.schema().field_ids:
            return table
        with suppress(Exception):
            # Whether it has landed is seen in the table, whatever the catalog answers.
            _add_columns(catalog, table)
    text = f"table {'.'.join(name)}: its columns can't be added"
    raise TransientError(redact(text, catalog.properties))


def _add_columns(catalog: Catalog, table: Table) -> None:
    """Once in a table's life: what somebody drops of them later stays dropped."""
    current = table.schema()
    fields = [
        NestedField(f.field_id, "kafka_value", f.field_type) if f.field_id == _VALUE else f
        for f in current.fields
    ]
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=current.schema_id),  # type: ignore[call-arg]
    )
    made = Schema(*fields, *_COLUMNS, schema_id=current.schema_id + 1)
    updates = (AddSchemaUpdate(schema=made), SetCurrentSchemaUpdate(schema_id=-1))  # type: ignore[call-arg]
    catalog.commit_table(table, requirements, updates)
