"""A topic's table name: injective, readable, accepted by engines."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.errors import BadInput
from tiering.table.schema import raw_schema, sort_order, table_name

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(
    lambda t: t not in {".", ".."}
)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("order_items", "order_items"),
        ("a.b", "a__pb"),
        ("a-b", "a__mb"),
        ("a__b", "a__u__ub"),
        ("_a_", "__ua__u"),
        ("Orders", "__korders"),
        ("7days", "__n7days"),
    ],
)
def test_names(topic: str, name: str) -> None:
    assert table_name(topic) == name


@settings(deadline=None)
@given(TOPICS)
def test_a_name_is_an_identifier_everywhere(topic: str) -> None:
    assert re.fullmatch(r"[a-z_][a-z0-9_]{0,199}", table_name(topic))


@settings(deadline=None)
@given(TOPICS, TOPICS)
def test_different_topics_never_meet(one: str, other: str) -> None:
    assert (table_name(one) == table_name(other)) == (one == other)


@settings(deadline=None)
@given(st.text(alphabet="a_.-A1", min_size=1, max_size=6), st.text(alphabet="a_.-A1", min_size=1))
def test_different_topics_of_awkward_letters_never_meet(one: str, other: str) -> None:
    if {one, other} & {".", ".."}:
        return
    assert (table_name(one) == table_name(other)) == (one == other)


@settings(deadline=None)
@given(TOPICS, TOPICS, st.from_regex(r"[0-9a-f]{8}", fullmatch=True))
def test_former_tables_and_dead_letters_never_meet_a_topic(one: str, two: str, digits: str) -> None:
    assert table_name(one) not in {f"{table_name(two)}__{digits}", f"{table_name(two)}__dlq"}


def test_long_names_end_in_a_hash() -> None:
    one, other = table_name("a" * 249), table_name("a" * 248 + "b")
    assert len(one) <= 200
    assert one != other


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "ä", "a" * 250, "a\n"])
def test_illegal_topics_are_refused(topic: str) -> None:
    with pytest.raises(BadInput):
        table_name(topic)


def test_rows_are_sorted_by_partition_and_offset() -> None:
    names = [raw_schema().find_column_name(f.source_id) for f in sort_order().fields]
    assert names == ["kafka_partition", "kafka_offset"]
    assert [f.name for f in raw_schema().fields if f.required] == names
