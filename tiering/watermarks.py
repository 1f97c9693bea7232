"""Watermarks: up to where each partition of a topic is in the table. Pure.

A watermark says where conversion goes on; it is never proof of coverage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tiering.errors import FatalError

__all__ = [
    "COLUMNS_VERSION_PROPERTY",
    "COMPACTION_SUMMARY",
    "CYCLE_ID_SUMMARY",
    "MOVED_SUMMARY",
    "REASON_SUMMARY",
    "REPLAY_SUMMARY",
    "TOPIC_ID_PROPERTY",
    "TOPIC_PROPERTY",
    "WATERMARKS_PROPERTY",
    "Watermark",
    "decode_watermarks",
    "encode_watermarks",
]

TOPIC_PROPERTY: Final = "onecopy.topic"
TOPIC_ID_PROPERTY: Final = "onecopy.topic-id"
COLUMNS_VERSION_PROPERTY: Final = "onecopy.columns-version"
WATERMARKS_PROPERTY: Final = "onecopy.watermarks"
"""Table property *and* snapshot summary key: JSON of every partition's watermark."""
CYCLE_ID_SUMMARY: Final = "onecopy.cycle-id"
"""Snapshot summary key: the cycle that made the snapshot."""
MOVED_SUMMARY: Final = "onecopy.moved-partitions"
"""Snapshot summary key: the partitions whose watermarks it moved, `0,3`."""
REASON_SUMMARY: Final = "onecopy.reason"
"""Snapshot summary key: why a snapshot of ours took data files out."""
COMPACTION_SUMMARY: Final = "onecopy.compaction"
"""Summary key: set on the snapshots of our compaction, which neither bring nor take rows."""

REPLAY_SUMMARY: Final = "onecopy.replay"
"""Summary key: id of the replay that brought rows of bad records, below the watermarks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Where a partition's conversion goes on.

    Attributes:
        offset: the next one to convert.
        leader_epochs: (epoch, start offset) of those known below it.
        rewinds: how often it was moved back. So a plan made before never takes the mark that
            came back to the same place for its own. Only commits count it.
    """

    offset: int
    leader_epochs: tuple[tuple[int, int], ...] = ()
    rewinds: int = 0

    def until(self, offset: int) -> Watermark:
        """The mark moved back to `offset`: epochs that start there or later are forgotten."""
        epochs = tuple((epoch, start) for epoch, start in self.leader_epochs if start < offset)
        return Watermark(offset=offset, leader_epochs=epochs, rewinds=self.rewinds)


def encode_watermarks(watermarks: Mapping[int, Watermark]) -> str:
    """Encode {partition: watermark} as compact JSON, partitions ascending."""
    return json.dumps(
        {str(partition): _plain(mark) for partition, mark in sorted(watermarks.items())},
        separators=(",", ":"),
    )


def decode_watermarks(text: str | None, *, table: str) -> dict[int, Watermark]:
    """Inverse of `encode_watermarks`; None gives no watermarks.

    Raises FatalError naming `table`: nothing is guessed from a property somebody broke.
    """
    if text is None:
        return {}
    try:
        return {
            int(partition): Watermark(
                offset=int(raw["offset"]),
                leader_epochs=tuple((int(e), int(o)) for e, o in raw["epochs"]),
                rewinds=int(raw.get("rewinds", 0)),
            )
            for partition, raw in json.loads(text).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FatalError(
            f"table {table}: property {WATERMARKS_PROPERTY} is damaged ({error!r}); restore it "
            "from the newest snapshot summary that carries it"
        ) from error


def _plain(mark: Watermark) -> dict[str, object]:
    plain: dict[str, object] = {"offset": mark.offset, "epochs": mark.leader_epochs}
    return {**plain, "rewinds": mark.rewinds} if mark.rewinds else plain
