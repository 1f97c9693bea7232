"""Reading a table from its catalog, with patience."""

from __future__ import annotations

import logging
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tiering.errors import NotFound, TransientError
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.redaction import redact
from tiering.table.state import TableState, read_state

__all__ = ["load_state", "load_table", "state_of"]

_log: Final = logging.getLogger(__name__)


def state_of(table: Table) -> TableState:
    """The state of a table as it was loaded."""
    return read_state(tuple(table.name()), table.metadata)


def load_state(
    catalog: Catalog, identifier: tuple[str, ...], *, pacing: Pacing = SYSTEM_PACING
) -> TableState:
    """Read a table's state. Raises NotFound, or TransientError when the catalog is out."""
    return state_of(load_table(catalog, identifier, pacing=pacing))


def load_table(
    catalog: Catalog, identifier: tuple[str, ...], *, pacing: Pacing = SYSTEM_PACING
) -> Table:
    """Load a table, trying again while the catalog is out.

    Raises NotFound when there is none, TransientError when it can't be known.
    """
    name = ".".join(identifier)
    started = pacing.clock()
    attempt = 0
    while True:
        try:
            return catalog.load_table(identifier)
        except NoSuchTableError as error:
            raise NotFound(f"table {name} does not exist") from error
        except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
            attempt += 1
            if attempt >= pacing.loads_max or pacing.is_out_of_patience(started):
                text = f"table {name} can't be read: {type(error).__name__}: {error}"
                raise TransientError(redact(text, catalog.properties)) from None
            _log.info("table %s: reading it again (%s)", name, type(error).__name__)
        pacing.pause(attempt)
