"""Keeping the list of manifests short: now and then an append merges the oldest small ones.

A tier that commits every second makes a manifest every second, and each commit writes the list of
all of them. Merged entries keep their snapshots and sequence numbers (Iceberg spec, "Manifest
Entry Fields"), so delete files apply as before and incremental readers see nothing new. PyIceberg's
own `merge_append` would rewrite everything up to 8 MiB again each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.utils.concurrent import ExecutorFactory

from tiering.errors import FatalError
from tiering.table.manifests import live_entries

__all__ = ["ENTRIES_MIN", "MANIFESTS_MAX", "MergingAppend", "entered", "to_merge"]

MANIFESTS_MAX: Final = 64
"""Small manifests of one partition spec that a list may have before some are merged."""
ENTRIES_MIN: Final = 512
"""Live entries from which on a manifest is large enough to be left alone."""


def to_merge(manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Which data manifests of a list (newest first) to merge into one; mostly none.

    They are of one partition spec, the oldest small ones, and as many as make a large one.
    """
    small: dict[int, list[ManifestFile]] = {}
    for manifest in reversed(manifests):
        count = _live_count(manifest)
        if manifest.content == ManifestContent.DATA and count is not None and count < ENTRIES_MIN:
            small.setdefault(manifest.partition_spec_id, []).append(manifest)
    crowd = max(small.values(), key=len, default=[])
    if len(crowd) <= MANIFESTS_MAX:
        return []
    chosen, entries = [], 0
    for manifest in crowd:
        chosen.append(manifest)
        entries += _live_count(manifest) or 0
        if entries >= ENTRIES_MIN:
            break
    return chosen


class MergingAppend(_FastAppendFiles):
    """A fast append that merges old manifests where `to_merge` says so."""

    def __init__(self, transaction: Transaction, summary: dict[str, str]) -> None:
        super().__init__(
            Operation.APPEND, transaction, transaction._table.io, snapshot_properties=summary
        )

    def _existing_manifests(self) -> list[ManifestFile]:
        existing = super()._existing_manifests()
        chosen = to_merge(existing)
        if len(chosen) < 2:
            return existing
        gone = {manifest.manifest_path for manifest in chosen}
        rest = [m for m in existing if m.manifest_path not in gone]
        return [*rest, self._merged(chosen)]

    def _merged(self, manifests: Sequence[ManifestFile]) -> ManifestFile:
        read = ExecutorFactory.get_or_create().map(lambda m: live_entries(self._io, m), manifests)
        with self.new_manifest_writer(self.spec(manifests[0].partition_spec_id)) as writer:
            for entries in read:
                for entry in entries:
                    writer.add_entry(
                        entered(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)
                    )
        merged = writer.to_manifest_file()
        if merged.existing_files_count != sum(_live_count(m) or 0 for m in manifests):
            raise FatalError(
                f"manifests of {self._transaction._table.name()} hold other files than their list "
                "says: nothing is committed until somebody has looked"
            )
        return merged


def entered(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None
) -> ManifestEntry:
    """`entry` as another manifest is to hold it, with the sequence numbers that it has."""
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _live_count(manifest: ManifestFile) -> int | None:
    """Live entries by the manifest list; None where it doesn't say."""
    added, existing = manifest.added_files_count, manifest.existing_files_count
    return None if added is None or existing is None else added + existing
