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
    "CYCLE_ID_SUMMARY",
    "MOVED_SUMMARY",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Next offset to convert, and the leader epochs (epoch, start offset) known below it."""

    offset: int
    leader_epochs: tuple[tuple[int, int], ...] = ()


def encode_watermarks(watermarks: Mapping[int, Watermark]) -> str:
    """Encode {partition: watermark} as compact JSON, partitions ascending."""
    return json.dumps(
        {
            str(partition): {"offset": mark.offset, "epochs": mark.leader_epochs}
            for partition, mark in sorted(watermarks.items())
        },
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
            )
            for partition, raw in json.loads(text).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FatalError(
            f"table {table}: property {WATERMARKS_PROPERTY} is damaged ({error!r}); restore it "
            "from the newest snapshot summary that carries it"
        ) from error
