"""Tables of topics that were deleted and made again under the same name.

Such a table carries the former topic id and was renamed when the new one took its name. Under the
policy `kafka` it goes with its last segment: table, files and all. A table that still has its
topic's name is never dropped, however empty: its topic may be alive and just have no history.

The table of its bad records is renamed and dropped with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table

from tiering.errors import FatalError, TransientError
from tiering.ledger import LedgerEntry
from tiering.redaction import redact
from tiering.store import ObjectStore
from tiering.table.catalog import former_identifier
from tiering.table.dead_letters import dead_letters_identifier
from tiering.watermarks import TOPIC_ID_PROPERTY

__all__ = ["drop_former", "is_over", "rename_with"]

_log: Final = logging.getLogger(__name__)


def is_over(
    table: Table, current: tuple[str, ...], topic_id: str, entries: Iterable[LedgerEntry]
) -> bool:
    """Whether `table` is a former topic's, none of whose segments Kafka has any more.

    Args:
        current: identifier that the topic's present table has.
        entries: all ledger entries of the topic id.
    """
    renamed = tuple(table.name()) == former_identifier(current, topic_id)
    own = table.properties.get(TOPIC_ID_PROPERTY) == topic_id
    return renamed and own and all(entry.delete_requested for entry in entries)


def rename_with(
    catalog: Catalog, table: Table, dead: Table, current: tuple[str, ...], topic_id: str
) -> None:
    """Give the table of a former topic's bad records a former name, as its own table has one.

    Raises TransientError when the catalog is out. Where somebody else was faster nothing happens.

    Args:
        table, dead: the topic id's own table, and that of its bad records.
        current: identifier that the topic's present table has.
    """
    name = dead_letters_identifier(current)
    renamed = tuple(table.name()) == former_identifier(current, topic_id)
    if not renamed or tuple(dead.name()) != name:
        return
    try:
        catalog.rename_table(name, former_identifier(name, topic_id))
    except (NoSuchTableError, TableAlreadyExistsError):
        return
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        text = f"table {'.'.join(name)} can't be renamed: {error}"
        raise TransientError(redact(text, catalog.properties)) from None


def drop_former(
    catalog: Catalog, table: Table, topic_id: str, store: ObjectStore, *, warehouse: str
) -> int:
    """Drop the table, then delete everything below its location; returns how many objects went.

    A crash in between leaves files that nothing names: harmless, but nobody's to remove.

    Args:
        store: opened at the table's location.
        warehouse: the location below which the table must lie.

    Raises FatalError for a table whose location isn't one that was made for this topic id below
    the warehouse: nothing is deleted on its word. TransientError when catalog or store are out.
    """
    location = table.metadata.location.rstrip("/")
    inside = location.startswith(warehouse.rstrip("/") + "/")
    if not inside or not location.endswith(f"-{topic_id}"):
        raise FatalError(f"table {'.'.join(table.name())}: its location {location} isn't its own")
    try:
        catalog.drop_table(tuple(table.name()))
    except NoSuchTableError:
        _log.info("table %s is gone already", ".".join(table.name()))
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        text = f"table {'.'.join(table.name())} can't be dropped: {error}"
        raise TransientError(redact(text, catalog.properties)) from None
    keys = [info.key for info in store.list("")]
    for key in keys:
        store.delete(key)
    _log.info("table %s went with its topic's last segment", ".".join(table.name()))
    return len(keys)
