"""Committing new schemas to a topic's table, whatever the catalog answers.

The table's columns and its stored schemas change in one commit, on condition that the columns are
those that the change was planned from. After any answer, also a good one, the table is read again
and planned for again: it has landed when nothing is left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from tiering.errors import CommitConflict, TransientError
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.redaction import redact
from tiering.table.commit_protocol import _delete_old_metadata
from tiering.table.evolution import Arrival, Evolution, evolve
from tiering.table.loading import load_table
from tiering.watermarks import TOPIC_ID_PROPERTY

__all__ = ["evolve_table"]

_log: Final = logging.getLogger(__name__)


def evolve_table(
    catalog: Catalog,
    identifier: tuple[str, ...],
    topic_id: str,
    arrivals: Sequence[Arrival],
    *,
    pacing: Pacing = SYSTEM_PACING,
) -> Table:
    """The table with all of `arrivals` among its stored schemas.

    Safe beside others that do the same; a schema that they have brought is found and kept.

    Args:
        identifier: (namespace..., table name).
        topic_id: whose table it must be.

    Raises:
        NotFound: there is no such table.
        CommitConflict: it is another topic id's.
        FatalError: as `evolve`.
        TransientError: the catalog is out, or others were always faster; a last try may land yet,
            which does no harm.
    """
    name = ".".join(identifier)
    started = pacing.clock()
    problem: Exception | None = None
    for attempt in range(pacing.attempts_max + 1):
        if attempt:
            pacing.pause(attempt)
        table = load_table(catalog, identifier, pacing=pacing)
        found = table.properties.get(TOPIC_ID_PROPERTY)
        if found != topic_id:
            raise CommitConflict(f"table {name} is of topic id {found}, expected was {topic_id}")
        evolution = evolve(table.metadata, arrivals)
        if not evolution.is_change:
            return table
        if attempt == pacing.attempts_max or pacing.is_out_of_patience(started):
            break
        try:
            response = catalog.commit_table(table, _requirements(table), _updates(evolution))
        except Exception as error:  # noqa: BLE001 - whatever it was, only the table knows
            problem = error
            _log.info("table %s: looking for its new columns after %s", name, type(error).__name__)
        else:
            _delete_old_metadata(table, response.metadata)
    text = f"table {name}: new columns not landed: {type(problem).__name__}: {problem}"
    raise TransientError(redact(text, catalog.properties))


def _requirements(table: Table) -> tuple[TableRequirement, ...]:
    metadata = table.metadata
    # mypy sees the aliases only; PyIceberg's models take the fields' own names, too.
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),  # type: ignore[call-arg]
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),  # type: ignore[call-arg]
    )


def _updates(evolution: Evolution) -> tuple[TableUpdate, ...]:
    updates: list[TableUpdate] = []
    if evolution.is_new:
        updates.append(AddSchemaUpdate(schema=evolution.schema))
    schema_id = -1 if evolution.is_new else evolution.schema.schema_id
    updates.append(SetCurrentSchemaUpdate(schema_id=schema_id))  # type: ignore[call-arg]
    if evolution.properties:
        updates.append(SetPropertiesUpdate(updates=dict(evolution.properties)))
    return tuple(updates)
