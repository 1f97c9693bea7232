"""A topic's settings that have a grammar of their own, and what refuses them."""

from __future__ import annotations

import pytest
from pyiceberg.transforms import parse_transform

from tiering.errors import BadInput
from tiering.partition_terms import PartitionTerm, parse_terms
from tiering.topic_config import TopicConfig


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("region", PartitionTerm(transform="identity", column="region")),
        ("address.city", PartitionTerm(transform="identity", column="address.city")),
        ("hour(kafka_timestamp)", PartitionTerm(transform="hour", column="kafka_timestamp")),
        (" day ( at ) ", PartitionTerm(transform="day", column="at")),
        ("bucket(16, id)", PartitionTerm(transform="bucket", column="id", width=16)),
        ("truncate(4,code)", PartitionTerm(transform="truncate", column="code", width=4)),
    ],
)
def test_a_term_is_read_and_written(text: str, term: PartitionTerm) -> None:
    assert parse_terms((text,)) == (term,)
    assert parse_terms((str(term),)) == (term,)


@pytest.mark.parametrize("text", ["identity(c)", "year(c)", "month(c)", "day(c)", "hour(c)"])
def test_each_transform_is_one_of_iceberg(text: str) -> None:
    (term,) = parse_terms((text,))
    assert str(parse_transform(term.transform)) == term.transform


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bucket(id)",
        "bucket(0, id)",
        "bucket(2147483648, id)",
        "bucket(-1, id)",
        "bucket(id, 16)",
        "hour(3, id)",
        "days(id)",
        "void(id)",
        "hour(id",
        "hour(id))",
        "hour(hour(id))",
        "a..b",
        "a.",
        "1a",
        "a b",
        "a;drop",
        "a\n,b",
    ],
)
def test_what_is_no_term_is_named(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_terms(("region", text))
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "terms",
    [
        ("region", "region"),
        ("region", "identity(region)"),
        ("day(at)", "hour(at)"),
        ("bucket(4, id)", "bucket(4,id)"),
    ],
)
def test_two_terms_that_say_the_same_are_refused(terms: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="says nothing beside"):
        TopicConfig(partition_by=terms)


def test_terms_on_several_columns_go_together() -> None:
    terms = ("day(at)", "hour(other)", "bucket(4, id)", "bucket(8, id)", "truncate(4, id)", "id")
    assert len(TopicConfig(partition_by=terms).partition_terms) == len(terms)
    with pytest.raises(BadInput, match="17 terms"):
        TopicConfig(partition_by=tuple(f"c{i}" for i in range(17)))


@pytest.mark.parametrize("table", ["orders", "_x", "o__p1", "x__0123abc", "x__0123abcde", "dlq"])
def test_names_that_tables_may_have(table: str) -> None:
    assert TopicConfig(table=table).table == table


@pytest.mark.parametrize(
    "table", ["Orders", "1x", "a.b", "a-b", "x" * 201, "x__dlq", "x__01234567", "__dlq", "é"]
)
def test_names_that_tables_may_not_have(table: str) -> None:
    with pytest.raises(BadInput, match="table: "):
        TopicConfig(table=table)


def test_strategies_by_record_need_its_name_or_the_subject_itself() -> None:
    for strategy in ("record", "topic_record"):
        with pytest.raises(BadInput, match="needs record_name"):
            TopicConfig(subject_strategy=strategy)  # type: ignore[arg-type]
    TopicConfig(subject_strategy="record", record_name="shop.Order")
    TopicConfig(subject_strategy="record", value_subject="orders")
    with pytest.raises(BadInput, match="no full name"):
        TopicConfig(record_name="shop Order")
    with pytest.raises(BadInput, match="no subject"):
        TopicConfig(value_subject="a\nb")


def test_choices_are_checked_for_those_who_don_t_check_types() -> None:
    for name in ("value", "key", "subject_strategy", "on_error", "on_unknown_schema"):
        with pytest.raises(BadInput, match=f"{name}: 'other' is none of "):
            TopicConfig(**{name: "other"})  # type: ignore[arg-type]


def test_metadata_columns_are_those_that_can_go() -> None:
    assert "kafka_offset" not in TopicConfig().metadata_columns
    assert TopicConfig(metadata_columns=()).metadata_columns == ()
    for columns in (("kafka_partition",), ("value",), ("kafka_key", "kafka_key")):
        with pytest.raises(BadInput, match="metadata_columns: "):
            TopicConfig(metadata_columns=columns)
