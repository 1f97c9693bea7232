"""PyIceberg's SQL catalog without the costs that grow with a table's history.

A metadata file never changes and its name has a random part, so what was read or written once is
kept for the next load; and a commit copies only what it changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import Identifier
from pyiceberg.utils.datetime import datetime_to_millis

__all__ = ["LeanSqlCatalog"]

_SNAPSHOTS_KEPT: Final = 5_000
"""Snapshots in all kept metadata together; one takes some KiB."""


class LeanSqlCatalog(SqlCatalog):
    """An SQL catalog that keeps each table's last metadata. Metadata is never changed in place."""

    def __init__(self, name: str, **properties: str) -> None:
        self._known = _KnownMetadata()
        super().__init__(name, **properties)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location
        known = None if location is None else self._known.get(location)
        if known is None or location is None:
            table = super()._convert_orm_to_iceberg(orm_table)
            self._known.put(table.metadata_location, table.metadata)
            return table
        return Table(
            identifier=(
                *Catalog.identifier_to_tuple(orm_table.table_namespace),
                orm_table.table_name,
            ),
            metadata=known,
            metadata_location=location,
            io=self._load_file_io(known.properties, location),
            catalog=self,
        )

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(
                current_table, table_identifier, requirements, updates
            )
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        metadata = _updated(current_table, updates)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        provider = load_location_provider(metadata.location, metadata.properties)
        location = provider.new_table_metadata_file_location(version)
        return StagedTable(
            identifier=table_identifier,
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(properties=metadata.properties, location=location),
            catalog=self,
        )

    # PyIceberg's is static and called with keywords.
    def _write_metadata(  # type: ignore[override]
        self, metadata: TableMetadata, io: FileIO, metadata_path: str
    ) -> None:
        SqlCatalog._write_metadata(metadata, io, metadata_path)
        self._known.put(metadata_path, metadata)


def _updated(table: Table, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """As PyIceberg's `update_table_metadata`, but for its copy of everything at the end."""
    context = _TableMetadataUpdateContext()
    base = changed = table.metadata
    for update in updates:
        changed = _apply_table_update(update, changed, context)
    if context.has_changes():
        location = table.metadata_location
        changed = _update_table_metadata_log(changed, location, base.last_updated_ms)
        if base.last_updated_ms == changed.last_updated_ms:
            now_ms = datetime_to_millis(datetime.now().astimezone())
            changed = changed.model_copy(update={"last_updated_ms": now_ms})
    changed.spec().check_compatible(changed.schema())
    changed.sort_order().check_compatible(changed.schema())
    return changed


class _KnownMetadata:
    """Metadata by the location of its file, bounded by its snapshots. Safe for several threads."""

    def __init__(self) -> None:
        self._by_location: OrderedDict[str, TableMetadata] = OrderedDict()
        self._snapshots = 0
        self._lock = threading.Lock()

    def get(self, location: str) -> TableMetadata | None:
        with self._lock:
            metadata = self._by_location.get(location)
            if metadata is not None:
                self._by_location.move_to_end(location)
            return metadata

    def put(self, location: str, metadata: TableMetadata) -> None:
        with self._lock:
            if location not in self._by_location:
                self._by_location[location] = metadata
                self._snapshots += 1 + len(metadata.snapshots)
            while self._snapshots > _SNAPSHOTS_KEPT and len(self._by_location) > 1:
                _, oldest = self._by_location.popitem(last=False)
                self._snapshots -= 1 + len(oldest.snapshots)
