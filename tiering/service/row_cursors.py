"""Cursors over table rows that are kept where they stopped, for whoever reads on from there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from queue import SimpleQueue
from typing import Final

from tiering.history import RecordCursor
from tiering.service.table_views import TableView

__all__ = ["Place", "RowCursors"]

Place = tuple[str, int, int]
"""Topic id, partition, and the next offset."""
_END: Final = None


class RowCursors:
    """Up to `count_max` cursors, those longest unused go first. For several threads.

    Cursors are closed in a thread of their own: closing waits for what is being read ahead, and
    one of a topic whose reads hang must not hold up another topic's.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[Place, tuple[TableView, RecordCursor]] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._unused: SimpleQueue[RecordCursor | None] = SimpleQueue()
        threading.Thread(target=self._close_unused, name="close-cursors", daemon=True).start()

    def take(self, place: Place, view: TableView) -> RecordCursor:
        """The cursor that stopped there, if it reads `view`; else a new one. It is the caller's."""
        with self._lock:
            kept_view, cursor = self._kept.pop(place, (None, None))
        if cursor is not None and kept_view is not view:
            self.drop(cursor)
            cursor = None
        return view.records.cursor(place[1], scan=False) if cursor is None else cursor

    def keep(self, place: Place, view: TableView, cursor: RecordCursor) -> None:
        """Keep a cursor of `view` that has stopped at `place`."""
        unused = []
        with self._lock:
            _, known = self._kept.pop(place, (None, None))
            if known is not None:
                unused.append(known)
            self._kept[place] = view, cursor
            while len(self._kept) > (0 if self._closed else self._count_max):
                unused.append(self._kept.popitem(last=False)[1][1])
        for surplus in unused:
            self.drop(surplus)

    def drop(self, cursor: RecordCursor) -> None:
        """Close a cursor, soon."""
        if self._closed:
            cursor.close()
        else:
            self._unused.put(cursor)

    def close(self) -> None:
        """Close all cursors, soon."""
        with self._lock:
            kept = [cursor for _, cursor in self._kept.values()]
            self._kept.clear()
            self._closed = True
        for cursor in kept:
            self._unused.put(cursor)
        self._unused.put(_END)

    def _close_unused(self) -> None:
        while (cursor := self._unused.get()) is not _END:
            cursor.close()
