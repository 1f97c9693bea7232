"""Compaction: small files of the topics' tables into large ones, and their side files with them.

It runs beside the engine, in a process of its own. A rewrite is a commit on top of the engine's,
which leaves the rows and the watermarks as they are; where both commit at once, one of them comes
second and tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from tiering.errors import BadInput, NotFound, TieringError, TransientError
from tiering.ledger import Ledger
from tiering.offset_reader.limits import DEFAULT_LIMITS
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.redaction import redact
from tiering.store import ObjectStore
from tiering.table.loading import load_table, state_of
from tiering.table.rewriting import make_ready_for_rewrites
from tiering.upkeep.compaction_plan import CompactionLimits, Rewrite, plan_rewrites
from tiering.upkeep.side_bundles import BundleLimits, merge_side_files
from tiering.watermarks import TOPIC_ID_PROPERTY, TOPIC_PROPERTY

__all__ = ["CompactionReport", "Rewriter", "RewrittenFiles", "TableReport", "compact"]

_log: Final = logging.getLogger(__name__)
_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFiles:
    """What one rewrite did: files that went, files that came, bytes that were read."""

    removed: int
    added: int
    size_bytes: int


class Rewriter(Protocol):
    """Writes files of a table anew and commits, wherever."""

    def rewrite(self, table: Table, rewrite: Rewrite, limits: CompactionLimits) -> RewrittenFiles:
        """Carry out one rewrite; rows are sorted by (partition, offset) then.

        Raises TransientError when it was not committed: nothing has changed then.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table before and after: data files, their bytes, and what became of the side files."""

    topic: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rewrites: int = 0
    bundles: int = 0
    bundled_segments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What a compaction did, by table; `problems` maps a table to what stopped it."""

    tables: Mapping[str, TableReport] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def compact(
    catalog: Catalog,
    namespace: str,
    store: ObjectStore,
    topics: Collection[str],
    *,
    rewriter: Rewriter,
    limits: CompactionLimits,
    bundle_limits: BundleLimits,
    progress: Callable[[str], None] = lambda text: None,
    reached: Callable[[str], None] = lambda step: None,
) -> CompactionReport:
    """One pass over the tables of `topics` (all, if empty); safe to run again, and at any time.

    Raises BadInput for a topic without a table, TransientError when catalog or store are out.
    """
    tables: dict[str, TableReport] = {}
    problems: dict[str, str] = {}
    entries = list(Ledger(store).scan())
    for table in _topic_tables(catalog, namespace, topics):
        name, topic_id = table.name()[-1], table.properties[TOPIC_ID_PROPERTY]
        progress(name)
        try:
            flagged = state_of(table).flagged
            if flagged is not None:
                problems[name] = flagged
                continue
            done = _compact_table(table, rewriter, limits, problems)
            merged = merge_side_files(
                store,
                [e for e in entries if e.metadata.id.topic_id == topic_id],
                bundle_limits,
                reached=reached,
            )
        except (TieringError, OSError) as error:
            problems[name] = redact(str(error), catalog.properties)
            continue
        after = _view(load_table(catalog, tuple(table.name())))
        before, rewrites = done
        tables[name] = TableReport(
            topic=table.properties[TOPIC_PROPERTY],
            files_before=before.index.file_count,
            files_after=after.index.file_count,
            bytes_before=_size(before),
            bytes_after=_size(after),
            rewrites=rewrites,
            bundles=merged.bundles,
            bundled_segments=merged.segments,
        )
    return CompactionReport(tables=tables, problems=problems)


def _compact_table(
    table: Table, rewriter: Rewriter, limits: CompactionLimits, problems: dict[str, str]
) -> tuple[SnapshotView, int]:
    """Rewrite what is worth it; returns the table as it was, and the number of rewrites."""
    before = _view(table)
    plan = plan_rewrites(before.index.all_files, limits)
    if plan:
        make_ready_for_rewrites(table)
    done = 0
    for each in plan:
        try:
            _rewrite(table, each, rewriter, limits)
            done += 1
        except TransientError as error:
            _log.warning("table %s: %s", ".".join(table.name()), error)
            problems[table.name()[-1]] = str(error)
    return before, done


def _rewrite(table: Table, rewrite: Rewrite, rewriter: Rewriter, limits: CompactionLimits) -> None:
    """The engine may commit so often that a rewrite loses its own tries: give it some more."""
    for attempt in range(1, _TRIES + 1):
        try:
            rewriter.rewrite(table, rewrite, limits)
        except TransientError as error:
            if attempt == _TRIES:
                raise
            _log.info("table %s: once more after: %s", ".".join(table.name()), error)
        else:
            return


def _topic_tables(catalog: Catalog, namespace: str, topics: Collection[str]) -> Iterator[Table]:
    """Onecopy's tables in the namespace, former ones of a topic that was made again, too."""
    try:
        names: Sequence[tuple[str, ...]] = sorted(catalog.list_tables(namespace))
    except NoSuchNamespaceError:
        names = ()
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        text = f"the tables of {namespace} can't be listed: {type(error).__name__}: {error}"
        raise TransientError(redact(text, catalog.properties)) from None
    tables: list[Table] = []
    for name in names:
        try:
            table = load_table(catalog, name)
        except NotFound:
            continue  # dropped or renamed meanwhile
        if {TOPIC_PROPERTY, TOPIC_ID_PROPERTY} <= table.properties.keys():
            tables.append(table)
    known = {table.properties[TOPIC_PROPERTY] for table in tables}
    missing = sorted(set(topics) - known)
    if missing:
        listed = ", ".join(sorted(known)) or "none yet"
        raise BadInput(f"no table for topic {', '.join(missing)}; topics with one: {listed}")
    yield from (t for t in tables if not topics or t.properties[TOPIC_PROPERTY] in topics)


def _view(table: Table) -> SnapshotView:
    return SnapshotView.of(table, MAIN, DEFAULT_LIMITS)


def _size(view: SnapshotView) -> int:
    return sum(file.size_bytes for file in view.index.all_files)
