"""The manifest in front of an upload: what the broker says of a segment and its parts. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tiering.errors import BadInput
from tiering.segments import INDEX_PARTS, LOG_PART, SegmentId, SegmentMetadata
from tiering.service.limits import ServiceLimits

__all__ = ["Manifest", "parse_manifest"]

_VERSION: Final = 1
_OPTIONAL: Final = "transaction_index"
_ENTRY_BYTES: Final = {
    "offset_index": 8,
    "time_index": 12,
    "transaction_index": 34,
    "verdicts": 34,
}
"""Parts that are made of entries of one size: any other length is a damaged file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checked manifest; `parts` holds (name, size in bytes) in body order, the log last."""

    metadata: SegmentMetadata
    parts: tuple[tuple[str, int], ...]

    @property
    def index_parts(self) -> tuple[tuple[str, int], ...]:
        """All parts but the log: the layout of the indexes object."""
        return self.parts[:-1]


def parse_manifest(
    data: bytes, segment: SegmentId, *, parts_bytes: int, limits: ServiceLimits
) -> Manifest:
    """Decode and check a manifest for the segment that the request's path names.

    `parts_bytes` is what the body's length leaves for the parts; their sizes must sum to it.
    Raises BadInput saying which field is wrong.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadInput("manifest: not JSON") from error
    if not isinstance(raw, dict):
        raise BadInput("manifest: not a JSON object")
    if raw.get("version") != _VERSION:
        raise BadInput(f"manifest: version is not {_VERSION}")
    _check_identity(raw, segment)
    parts = _parse_parts(raw.get("parts"), limits)
    if sum(size for _, size in parts) != parts_bytes:
        raise BadInput(f"manifest: parts don't sum to the {parts_bytes} bytes of the body")
    metadata = SegmentMetadata(
        id=segment,
        topic=_text(raw, "topic"),
        start_offset=segment.base_offset,
        end_offset=_integer(raw, "end_offset", 0, 2**63),
        max_timestamp_ms=_integer(raw, "max_timestamp_ms", -(2**63), 2**63),
        broker_id=_integer(raw, "broker_id", -(2**31), 2**31),
        size_bytes=_integer(raw, "segment_size_bytes", 1, limits.log_bytes_max + 1),
        leader_epochs=_parse_epochs(raw.get("leader_epochs")),
    )
    if metadata.size_bytes != parts[-1][1]:
        raise BadInput(
            f"manifest: segment_size_bytes is {metadata.size_bytes}, the log {parts[-1][1]} bytes"
        )
    return Manifest(metadata=metadata, parts=parts)


def _check_identity(raw: dict[str, Any], segment: SegmentId) -> None:
    told = (
        _text(raw, "topic_id"),
        _integer(raw, "partition", 0, 2**31),
        _integer(raw, "start_offset", 0, 2**63),
        _text(raw, "segment_id"),
    )
    if told != (segment.topic_id, segment.partition, segment.base_offset, segment.segment_id):
        raise BadInput(f"manifest: it is of another segment than the path {segment.path}")


def _parse_parts(raw: object, limits: ServiceLimits) -> tuple[tuple[str, int], ...]:
    if not isinstance(raw, list) or not 0 < len(raw) <= len(INDEX_PARTS) + 1:
        raise BadInput("manifest: parts is not a list of the segment's parts")
    parts = tuple(_parse_part(item) for item in raw)
    names = [name for name, _ in parts]
    wanted = {*INDEX_PARTS, LOG_PART}
    if len(set(names)) != len(names) or not wanted - {_OPTIONAL} <= set(names) <= wanted:
        raise BadInput(f"manifest: parts must be {', '.join((*INDEX_PARTS, LOG_PART))}, each once")
    if names[-1] != LOG_PART:
        raise BadInput("manifest: the log must be the last part")
    if sum(size for _, size in parts[:-1]) > limits.indexes_bytes_max:
        raise BadInput(f"manifest: indexes of more than {limits.indexes_bytes_max} bytes")
    return parts


def _parse_part(item: object) -> tuple[str, int]:
    if not isinstance(item, dict):
        raise BadInput("manifest: a part is not an object")
    name = _text(item, "name")
    size = _integer(item, "size", 0, 2**31)
    if size % _ENTRY_BYTES.get(name, 1):
        raise BadInput(f"manifest: {name} of {size} bytes is no multiple of its entry's size")
    return name, size


def _parse_epochs(raw: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(raw, list) or not raw:
        raise BadInput("manifest: leader_epochs is not a list of [epoch, start offset]")
    epochs: list[tuple[int, int]] = []
    for item in raw:
        if not isinstance(item, list) or len(item) != 2:
            raise BadInput("manifest: leader_epochs is not a list of [epoch, start offset]")
        pair = {"epoch": item[0], "start": item[1]}
        epoch, start = _integer(pair, "epoch", 0, 2**31), _integer(pair, "start", 0, 2**63)
        if epochs and not (epoch > epochs[-1][0] and start >= epochs[-1][1]):
            raise BadInput("manifest: leader_epochs don't ascend")
        epochs.append((epoch, start))
    return tuple(epochs)


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str):
        raise BadInput(f"manifest: {name} is not a string")
    return value


def _integer(raw: dict[str, Any], name: str, low: int, high: int) -> int:
    """An integer in [low, high); JSON's true is none."""
    value = raw.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < high:
        raise BadInput(f"manifest: {name} is not an integer from {low} to {high - 1}")
    return value
