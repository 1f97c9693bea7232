"""The snapshots that proofs read, kept for the next proof of the same table."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tiering.offset_reader.limits import DEFAULT_LIMITS
from tiering.offset_reader.snapshot_view import MAIN, SnapshotView
from tiering.table.pointers import open_at_metadata
from tiering.tasks import ProofTask

__all__ = ["TableSnapshots"]

_TABLES_MAX: Final = 4

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    metadata_location: str
    view: SnapshotView


class TableSnapshots:
    """The last view of each of the last few tables, so that no manifest is read twice.

    Metadata files and manifests never change: a view is good as long as its files exist.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[_Key, _Held] = OrderedDict()
        self._lock = threading.Lock()

    def view(self, task: ProofTask) -> SnapshotView:
        """The main branch at the task's metadata file. Credentials: the environment's.

        Raises NotFound or MissingFile when the file, or one it names, is gone, TransientError.
        """
        key = _key(task)
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.metadata_location == task.metadata_location:
                self._held.move_to_end(key)
                return held.view
        table = open_at_metadata(task.metadata_location, task.table, task.io_properties)
        previous = held.view if held is not None else None
        if previous is not None and previous.metadata.table_uuid != table.metadata.table_uuid:
            previous = None
        view = SnapshotView.of(table, MAIN, DEFAULT_LIMITS, previous)
        with self._lock:
            self._held[key] = _Held(metadata_location=task.metadata_location, view=view)
            self._held.move_to_end(key)
            while len(self._held) > _TABLES_MAX:
                self._held.popitem(last=False)
        return view

    def forget(self, task: ProofTask) -> None:
        """Read the task's table from scratch next time."""
        with self._lock:
            self._held.pop(_key(task), None)


def _key(task: ProofTask) -> _Key:
    directory = task.metadata_location.rpartition("/")[0]
    return directory, tuple(sorted(task.io_properties.items()))
