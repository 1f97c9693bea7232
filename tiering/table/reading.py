"""One fresh reading of a topic's table, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiering.table.state import TableState

__all__ = ["TableReading"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """What proof, retirement and retention ask of a table.

    Attributes:
        state: watermarks and flags.
        metadata_location: the metadata file that was read.
        io_properties: FileIO properties without secrets, for workers.
        changed_by_others: somebody else has deleted or rewritten rows (SQL DELETE, UPDATE,
            MERGE), as far as snapshots and the table's pointer still tell.
        accepted: (partition, first offset, offset after the last) of rows whose changed content
            an operator has accepted.
        dropped: Kafka's columns that the table has no more, by field id; their first names.
        dead_letters_location: the metadata file of the table of the topic's bad records; empty
            where there is none.
    """

    state: TableState
    metadata_location: str
    io_properties: Mapping[str, str] = field(default_factory=dict)
    changed_by_others: bool = False
    accepted: tuple[tuple[int, int, int], ...] = ()
    dropped: tuple[str, ...] = ()
    dead_letters_location: str = ""

    def accepted_of(self, partition: int) -> tuple[tuple[int, int], ...]:
        """The accepted offset ranges of one partition."""
        return tuple((start, end) for of, start, end in self.accepted if of == partition)
