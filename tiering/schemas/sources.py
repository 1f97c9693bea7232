"""What a topic's values and keys are made of, by its settings and, where they leave it open, by
what the registry has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from tiering.errors import BadInput
from tiering.topic_config import TopicConfig
from tiering.values.stored_schema import Part

__all__ = ["RAW", "PartSource", "SourceMode", "SubjectLookup", "part_source", "subject_of"]

SourceMode = Literal["raw", "schema_id_prefix", "schema_latest", "json"]
"""As `topic_config.PartMode`, with nothing left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSource:
    """What is done with one part of a topic's records.

    Attributes:
        subject: whose latest schema it is; empty in the other modes.
    """

    mode: SourceMode
    subject: str = ""


RAW = PartSource(mode="raw")


class SubjectLookup(Protocol):
    """What is asked of a registry here."""

    def has_subject(self, subject: str) -> bool:
        """Whether a subject has a version. Raises TransientError."""


def part_source(
    topic: str, part: Part, config: TopicConfig, registry: SubjectLookup | None
) -> PartSource:
    """What to do with a part; asks the registry only where the mode is `auto`.

    A subject that is registered later makes a raw topic one with the wire format from then on.
    Raises TransientError while the registry can't answer: the topic waits, since nobody knows.
    BadInput where a mode needs a registry and there is none.
    """
    mode = config.value if part == "value" else config.key
    if mode == "raw" or mode == "json":
        return PartSource(mode=mode)
    subject = subject_of(topic, part, config)
    if mode == "auto":
        if registry is None or not registry.has_subject(subject):
            return RAW
        return PartSource(mode="schema_id_prefix")
    if registry is None:
        raise BadInput(f"topic {topic}: {part} = {mode} needs a registry: set registry.url")
    return PartSource(mode=mode, subject=subject if mode == "schema_latest" else "")


def subject_of(topic: str, part: Part, config: TopicConfig) -> str:
    """The registry's name for a part's schemas (Confluent's subject name strategies)."""
    if part == "key":
        return config.key_subject or f"{topic}-key"
    if config.value_subject:
        return config.value_subject
    if config.subject_strategy == "record":
        return config.record_name
    if config.subject_strategy == "topic_record":
        return f"{topic}-{config.record_name}"
    return f"{topic}-value"
