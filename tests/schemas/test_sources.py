"""What a topic's parts are made of: by its settings, and by the registry only where they say so."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import (
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from tiering.errors import BadInput, TransientError
from tiering.schemas.sources import PartSource, part_source, subject_of
from tiering.topic_config import TopicConfig


class Lookup:
    """Has these subjects; remembers what it was asked."""

    def __init__(self, *subjects: str, down: bool = False) -> None:
        self._subjects = subjects
        self._down = down
        self.asked: list[str] = []

    def has_subject(self, subject: str) -> bool:
        self.asked.append(subject)
        if self._down:
            raise TransientError("down")
        return subject in self._subjects


@pytest.mark.parametrize(
    ("config", "value", "asked"),
    [
        (TopicConfig(), PartSource(mode="schema_id_prefix"), ["orders-value"]),
        (TopicConfig(value_subject="none"), PartSource(mode="raw"), ["none"]),
        (
            TopicConfig(subject_strategy="record", record_name="shop.Order"),
            PartSource(mode="schema_id_prefix"),
            ["shop.Order"],
        ),
        (TopicConfig(value="raw"), PartSource(mode="raw"), []),
        (TopicConfig(value="json"), PartSource(mode="json"), []),
        (TopicConfig(value="schema_id_prefix"), PartSource(mode="schema_id_prefix"), []),
        (
            TopicConfig(value="schema_latest"),
            PartSource(mode="schema_latest", subject="orders-value"),
            [],
        ),
    ],
)
def test_values(config: TopicConfig, value: PartSource, asked: list[str]) -> None:
    lookup = Lookup("orders-value", "orders-key", "shop.Order")
    assert part_source("orders", "value", config, lookup) == value
    assert lookup.asked == asked
    assert part_source("orders", "key", config, lookup) == PartSource(mode="raw")
    assert lookup.asked == asked


def test_keys_have_modes_and_subjects_of_their_own() -> None:
    lookup = Lookup("orders-key")
    auto = TopicConfig(key="auto", subject_strategy="record", record_name="shop.Order")
    assert part_source("orders", "key", auto, lookup) == PartSource(mode="schema_id_prefix")
    assert lookup.asked == ["orders-key"]
    latest = TopicConfig(key="schema_latest", key_subject="ids")
    assert part_source("orders", "key", latest, lookup) == PartSource(
        mode="schema_latest", subject="ids"
    )


def test_without_a_registry_everything_is_raw_unless_it_must_not_be() -> None:
    for part in ("value", "key"):
        both = TopicConfig(value="auto", key="auto")
        assert part_source("orders", part, both, None) == PartSource(mode="raw")
    for mode in ("schema_id_prefix", "schema_latest"):
        with pytest.raises(BadInput, match=r"topic orders.*set registry\.url"):
            part_source("orders", "value", TopicConfig(value=mode), None)  # type: ignore[arg-type]


def test_while_the_registry_is_down_nobody_guesses() -> None:
    with pytest.raises(TransientError):
        part_source("orders", "value", TopicConfig(), Lookup(down=True))


def test_subjects_are_called_as_confluent_s_serializers_call_them() -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    record = "shop.Order"
    for strategy, theirs in (
        ("topic", topic_subject_name_strategy),
        ("record", record_subject_name_strategy),
        ("topic_record", topic_record_subject_name_strategy),
    ):
        config = TopicConfig(subject_strategy=strategy, record_name=record)  # type: ignore[arg-type]
        assert subject_of("orders", "value", config) == theirs(context, record)
    key_context = SerializationContext("orders", MessageField.KEY)
    assert subject_of("orders", "key", TopicConfig()) == topic_subject_name_strategy(
        key_context, record
    )
