"""What the engine works on, as Protocols: its effects come in from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from tiering.ledger import LedgerEntry, SegmentState
from tiering.segments import SegmentId
from tiering.table.commit import AppendOutcome, TableAppend, TableState
from tiering.table.reading import TableReading
from tiering.tasks import TableTarget, TypedValues
from tiering.values.stored_schema import Part

__all__ = ["Custody", "Schemas", "Segments", "Tables"]


class Segments(Protocol):
    """The native segments that the engine converts: the ledger, or a foreign tier's directory."""

    @property
    def damaged(self) -> Mapping[str, str]:
        """{key: what is wrong} of the segments that the last scan could not read."""

    def scan(self) -> Iterable[LedgerEntry]:
        """Every segment there is."""

    def update(
        self, segment: SegmentId, change: Callable[[LedgerEntry], LedgerEntry]
    ) -> LedgerEntry:
        """Change one segment's entry atomically; NotFound if it is gone."""

    def advance(self, segment: SegmentId, state: SegmentState) -> LedgerEntry:
        """Move one segment's entry forward to `state`; NotFound if it is gone."""


class Tables(Protocol):
    """The catalog as conversion uses it."""

    def ensure(self, topic: str, topic_id: str) -> TableState:
        """State of the topic id's table, made if there is none."""

    def target(self, state: TableState) -> TableTarget:
        """Where workers write files for it."""

    def append(self, plan: TableAppend) -> AppendOutcome:
        """Commit files and watermarks in one snapshot."""


class Schemas(Protocol):
    """How values and keys become columns. All raise TransientError and BadInput where a topic
    must wait."""

    def plan(self, topic: str, state: TableState) -> TypedValues | None:
        """What workers must know of a topic, but for where its bad records go; None where its
        records are kept as they are."""

    def learn(self, topic: str, state: TableState, schemas: Collection[tuple[Part, int]]) -> None:
        """Bring schemas that values were written with into the topic's table."""

    def buried(self, topic: str, state: TableState) -> TableState | None:
        """The table of the topic's bad records, if there is one."""

    def bury(self, topic: str, state: TableState) -> TableState:
        """The table of the topic's bad records, made if there is none."""


class Custody(Protocol):
    """What proof, retirement and retention need of tables and native objects."""

    def read(self, topic: str, topic_id: str) -> TableReading:
        """Read the table afresh; NotFound if there is none, TransientError when it can't be."""

    def coverage(self, reading: TableReading, partition: int, start: int, end: int) -> str:
        """Digest of the files that hold offsets [start, end), each of which was seen to exist.

        Raises FatalError when one of them is gone, TransientError.
        """

    def announce(self, reading: TableReading, topic_id: str) -> None:
        """Tell readers of the history which metadata file to start from."""

    def withdraw(
        self, reading: TableReading, topic: str, partition: int, offset: int, reason: str
    ) -> None:
        """Take all rows of `partition` from `offset` on out of the table and move its watermark
        back to it, in one commit. Raises as commits do."""

    def hold(self, topic_ids: Collection[str]) -> None:
        """Let no snapshot of these topic ids' tables expire, until told otherwise."""

    def expel(self, reading: TableReading, topic: str, entries: Sequence[LedgerEntry]) -> int:
        """Remove the files all of whose rows Kafka and the topic's policy have given up.

        `entries` are all of the topic id's. Returns how many files went.
        """

    def delete_native(self, segment: SegmentId) -> None:
        """Delete the native objects of one segment; nothing happens where there are none."""

    def sweep(self, entries: Sequence[LedgerEntry]) -> None:
        """Remove leftovers that nothing names any more and whose grace is over."""
