"""A tiered segment's identity and metadata, and the keys of its objects in the store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tiering.errors import BadInput

__all__ = [
    "CHECKSUMS_PART",
    "INDEX_PARTS",
    "LOG_PART",
    "SegmentId",
    "SegmentMetadata",
    "check_topic_name",
]

INDEX_PARTS: Final = (
    "offset_index",
    "time_index",
    "transaction_index",
    "producer_snapshot",
    "leader_epochs",
    "verdicts",
)
LOG_PART: Final = "log"
CHECKSUMS_PART: Final = "log_checksums"
"""The part of the indexes object that the service adds: a checksum per block of the log."""

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_NAME: Final = re.compile(r"(?P<base>\d{20})-(?P<segment>[A-Za-z0-9_-]{22})")


def check_topic_name(topic: str) -> str:
    """Return `topic` if it is a legal Kafka topic name, else raise BadInput.

    Names come from listings and from the network, so they are checked wherever they enter.
    """
    if topic in {".", ".."} or not _TOPIC.fullmatch(topic):
        raise BadInput(
            f"topic name {topic!r} is not legal in Kafka: 1 to 249 letters, digits, '.', '_' or '-'"
        )
    return topic


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SegmentId:
    """What names one copy of one segment: KIP-405's RemoteLogSegmentId plus the base offset.

    `topic_id` and `segment_id` are Kafka Uuids in their text form (22 characters, base64url).
    """

    topic_id: str
    partition: int
    base_offset: int
    segment_id: str

    def __post_init__(self) -> None:
        for name, value in (("topic id", self.topic_id), ("segment id", self.segment_id)):
            if not _UUID.fullmatch(value):
                raise BadInput(f"{name} {value!r} is not a Kafka Uuid of 22 base64url characters")
        if not 0 <= self.partition < 2**31 or not 0 <= self.base_offset < 2**63:
            raise BadInput(f"partition {self.partition} or offset {self.base_offset} out of range")

    @property
    def name(self) -> str:
        """`<base offset, 20 digits>-<segment id>`."""
        return f"{self.base_offset:020d}-{self.segment_id}"

    @property
    def path(self) -> str:
        """`<topic id>/<partition>/<name>`: the same below every prefix of the store."""
        return f"{self.topic_id}/{self.partition}/{self.name}"

    @property
    def log_key(self) -> str:
        """Key of the native log object."""
        return f"native/{self.path}.log"

    @property
    def indexes_key(self) -> str:
        """Key of the object that holds all index parts back to back (sizes: the ledger)."""
        return f"native/{self.path}.indexes"

    @property
    def side_prefix(self) -> str:
        """What the keys of the segment's own side files begin with."""
        return f"side/{self.path}"

    @property
    def ledger_key(self) -> str:
        """Key of the segment's ledger object."""
        return f"ledger/{self.path}.json"

    @classmethod
    def parse(cls, path: str) -> SegmentId:
        """Inverse of `path`; raises BadInput."""
        parts = path.split("/")
        match = _NAME.fullmatch(parts[-1])
        if len(parts) != 3 or match is None or not parts[1].isascii() or not parts[1].isdigit():
            raise BadInput(
                f"{path!r} is not <topic id>/<partition>/<base offset, 20 digits>-<segment id>"
            )
        return cls(
            topic_id=parts[0],
            partition=int(parts[1]),
            base_offset=int(match["base"]),
            segment_id=match["segment"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMetadata:
    """What the broker said of a segment when it copied it (KIP-405 RemoteLogSegmentMetadata).

    `end_offset` is inclusive. `leader_epochs` holds (epoch, start offset), ascending.
    """

    id: SegmentId
    topic: str
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    size_bytes: int
    leader_epochs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        if not 0 <= self.start_offset <= self.end_offset:
            raise BadInput(
                f"segment {self.id.path}: offsets {self.start_offset}..{self.end_offset} "
                "are not a range"
            )

    def __str__(self) -> str:
        offsets = f"[{self.start_offset}..{self.end_offset}]"
        return f"{self.topic}-{self.id.partition} {offsets} {self.id.name}"
