"""The topics' tables as engine, status and command line use them: one catalog, one namespace."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tiering.config import TierConfig
from tiering.errors import NotFound, TransientError
from tiering.table.catalog import (
    CatalogConfig,
    ensure_table,
    former_identifier,
    open_catalog,
    table_target,
)
from tiering.table.commit import (
    AppendOutcome,
    TableAppend,
    TableState,
    append,
    load_table,
    state_of,
)
from tiering.table.dead_letters import dead_letters_identifier, ensure_dead_letters
from tiering.table.evolution import Arrival
from tiering.table.evolve import evolve_table
from tiering.table.layout import lay_out
from tiering.table.replace import ReplaceOutcome, TableReplacement, replace
from tiering.table.schema import table_name
from tiering.tasks import TableTarget
from tiering.watermarks import TOPIC_ID_PROPERTY, TOPIC_PROPERTY

__all__ = ["CatalogTables"]


class CatalogTables:
    """Tables of a tier by topic and topic id. The catalog is opened at the first use."""

    def __init__(self, config: TierConfig) -> None:
        self._config = config
        self._catalog: Catalog | None = None
        self._tables: dict[tuple[str, ...], Table] = {}

    @property
    def catalog(self) -> Catalog:
        """The catalog; raises BadInput or TransientError when it can't be opened."""
        if self._catalog is None:
            self._catalog = open_catalog(
                CatalogConfig(
                    name=self._config.catalog_name, properties=self._config.catalog_properties()
                )
            )
        return self._catalog

    def identifier(self, topic: str) -> tuple[str, str]:
        """(namespace, table name) of a topic."""
        return self._config.namespace, self._config.topic(topic).table or table_name(topic)

    def ensure(self, topic: str, topic_id: str) -> TableState:
        """State of the topic id's table, made if there is none."""
        table = ensure_table(
            self.catalog, self.identifier(topic), topic, topic_id, self._config.warehouse
        )
        return self._remembered(lay_out(table, self._config.topic(topic)))

    def state(self, topic: str, topic_id: str) -> TableState:
        """State of the topic id's table; NotFound if there is none."""
        return self._remembered(self.table(topic, topic_id))

    def table(self, topic: str, topic_id: str) -> Table:
        """The topic id's table under its present or its former name; NotFound if there is none."""
        table = self._found(self.identifier(topic), topic_id)
        if table is None:
            raise NotFound(f"topic {topic} (id {topic_id}) has no table yet")
        return table

    def dead_letters(self, topic: str, topic_id: str) -> TableState | None:
        """State of the table of the topic id's bad records; None if there is none."""
        table = self._found(dead_letters_identifier(self.identifier(topic)), topic_id)
        return None if table is None else self._remembered(table)

    def ensure_dead_letters(self, topic: str, topic_id: str) -> TableState:
        """State of the table of the topic id's bad records, made if there is none."""
        table = ensure_dead_letters(
            self.catalog, self.identifier(topic), topic, topic_id, self._config.warehouse
        )
        return self._remembered(table)

    def evolve(self, state: TableState, arrivals: Sequence[Arrival]) -> None:
        """Take writers' schemas into the table that `state` was read from; `target` and
        `loaded` then give it as it is with them."""
        table = evolve_table(self.catalog, state.identifier, state.topic_id, arrivals)
        topic = table.properties.get(TOPIC_PROPERTY, "")
        self._tables[state.identifier] = lay_out(table, self._config.topic(topic))

    def _found(self, current: tuple[str, ...], topic_id: str) -> Table | None:
        """The topic id's table under its present or its former name."""
        for identifier in (current, former_identifier(current, topic_id)):
            try:
                table = load_table(self.catalog, identifier)
            except NotFound:
                continue
            if table.properties.get(TOPIC_ID_PROPERTY) == topic_id:
                return table
        return None

    def target(self, state: TableState) -> TableTarget:
        """Where workers write files for the table that `state` was read from."""
        return table_target(self.loaded(state))

    def loaded(self, state: TableState) -> Table:
        """The table that `state` was read from."""
        table = self._tables.get(state.identifier)
        if table is None:
            raise TransientError(f"table {'.'.join(state.identifier)} was not read in this cycle")
        return table

    def append(self, plan: TableAppend) -> AppendOutcome:
        """Commit files and watermarks in one snapshot."""
        return append(self.catalog, plan)

    def replace(self, plan: TableReplacement) -> ReplaceOutcome:
        """Take files out, or exchange them, in one snapshot."""
        return replace(self.catalog, plan)

    def files(self, state: TableState) -> tuple[int, int]:
        """(data files, their bytes) of the current snapshot, from its summary."""
        snapshot = self._tables[state.identifier].current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return 0, 0
        summary = snapshot.summary
        return int(summary["total-data-files"] or 0), int(summary["total-files-size"] or 0)

    def _remembered(self, table: Table) -> TableState:
        state = state_of(table)
        self._tables[state.identifier] = table
        return state
