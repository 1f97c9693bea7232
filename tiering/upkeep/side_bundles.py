"""Merging the side files of retired segments: many small objects become few.

The bundle is durable before any ledger entry names it, and each entry changes by compare-and-set:
a crash leaves a bundle that nothing names, or some entries with the bundle and some without, both
of which read right. The objects that were merged stay: `leftovers` removes what nothing names.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from tiering.errors import FatalError, NotFound
from tiering.ledger import Ledger, LedgerEntry, SegmentState
from tiering.side_files import bundle
from tiering.store import ObjectStore

__all__ = ["BundleLimits", "Bundled", "merge_side_files", "plan_bundles"]

_log: Final = logging.getLogger(__name__)
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """What is worth a bundle.

    Attributes:
        objects_min: so many must lie side by side.
        segments_max, bytes_max: of one bundle: whoever opens one segment reads the footer whole.
    """

    objects_min: int = 5
    segments_max: int = 256
    bytes_max: int = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """What a pass did: bundles written, segments in them, objects that nothing needs any more."""

    bundles: int = 0
    segments: int = 0
    objects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Neighbours that share their side objects: one segment, or a bundle's."""

    entries: tuple[LedgerEntry, ...]
    size_bytes: int


def plan_bundles(
    entries: Iterable[LedgerEntry], sizes: Mapping[str, int], limits: BundleLimits
) -> list[tuple[LedgerEntry, ...]]:
    """Entries to bundle together, in offset order. Pure.

    Only retired segments that the broker keeps. Bundles are taken again until they are half full,
    but not for a few segments more.

    Args:
        sizes: of the side objects, by key; a segment with one that isn't there is left alone.
    """
    plans: list[tuple[LedgerEntry, ...]] = []
    wanted = sorted(filter(_is_settled, entries), key=lambda e: e.metadata.id)
    for _, partition in groupby(wanted, key=_place):
        for run in _runs(_units(partition, sizes), limits):
            chosen = _without_heavy_head(run)
            if len(chosen) >= limits.objects_min:
                plans.append(tuple(e for unit in chosen for e in unit.entries))
    return plans


def merge_side_files(
    store: ObjectStore,
    entries: Iterable[LedgerEntry],
    limits: BundleLimits,
    *,
    new_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    reached: Callable[[str], None] = lambda step: None,
) -> Bundled:
    """Bundle what is worth it. Raises TransientError when the store is out.

    A side file that is damaged or gone is said in the log and left out of every bundle.
    """
    ledger = Ledger(store)
    chosen = [entry for entry in entries if _is_settled(entry)]
    sizes: dict[str, int] = {}
    for topic_id, partition in sorted({_place(entry) for entry in chosen}):
        listed = store.list(f"side/{topic_id}/{partition}/")
        sizes |= {info.key: info.size_bytes for info in listed}
    total = Bundled()
    for plan in plan_bundles(chosen, sizes, limits):
        first = plan[0].metadata.id
        name = f"bundle-{first.base_offset:020d}-{new_name()}.puffin"
        key = f"side/{first.topic_id}/{first.partition}/{name}"
        try:
            bundle(store, [(e.metadata.id, e.side) for e in plan], key)
        except (NotFound, FatalError) as error:
            _log.warning("side files not merged: %s", error)
            continue
        reached("bundled")
        moved = [entry for entry in plan if _move(ledger, entry, key, reached)]
        total = Bundled(
            bundles=total.bundles + 1,
            segments=total.segments + len(moved),
            objects=total.objects + len({side for entry in moved for side in entry.side}),
        )
    return total


def _move(ledger: Ledger, entry: LedgerEntry, key: str, reached: Callable[[str], None]) -> bool:
    """Point one entry at the bundle, unless it has changed meanwhile."""

    def change(found: LedgerEntry) -> LedgerEntry:
        same = found.side == entry.side and _is_settled(found)
        return replace(found, side=(key,)) if same else found

    try:
        moved = ledger.update(entry.metadata.id, change).side == (key,)
    except NotFound:
        return False
    reached("side_moved")
    return moved


def _is_settled(entry: LedgerEntry) -> bool:
    """Nothing takes it back any more, and the broker wants it."""
    retired = entry.state is SegmentState.RETIRED
    return retired and bool(entry.side) and not entry.delete_requested


def _place(entry: LedgerEntry) -> tuple[str, int]:
    return entry.metadata.id.topic_id, entry.metadata.id.partition


def _units(entries: Iterable[LedgerEntry], sizes: Mapping[str, int]) -> Iterator[_Unit]:
    for side, group in groupby(entries, key=lambda e: e.side):
        if all(key in sizes for key in side):
            yield _Unit(entries=tuple(group), size_bytes=sum(sizes[key] for key in side))


def _without_heavy_head(run: Sequence[_Unit]) -> Sequence[_Unit]:
    """The run from where on no unit outweighs all after it, as with data files: a bundle comes
    again only once as much has come after it."""
    head, segments = 0, sum(len(unit.entries) for unit in run)
    while head < len(run) - 1 and len(run[head].entries) * 2 > segments:
        segments -= len(run[head].entries)
        head += 1
    return run[head:]


def _runs(units: Iterable[_Unit], limits: BundleLimits) -> Iterator[Sequence[_Unit]]:
    """Neighbours that fit into one bundle and are not half one already."""
    run: list[_Unit] = []
    segments = size = 0
    for unit in units:
        is_large = (
            len(unit.entries) * 2 > limits.segments_max or unit.size_bytes * 2 > limits.bytes_max
        )
        full = (
            segments + len(unit.entries) > limits.segments_max
            or size + unit.size_bytes > limits.bytes_max
        )
        if run and (is_large or full):
            yield run
            run, segments, size = [], 0, 0
        if not is_large:
            run.append(unit)
            segments += len(unit.entries)
            size += unit.size_bytes
    if run:
        yield run
