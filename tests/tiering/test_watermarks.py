"""Watermarks: encoded, decoded, and never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.errors import FatalError
from tiering.watermarks import Watermark, decode_watermarks, encode_watermarks

OFFSETS = st.integers(0, 2**63 - 1)
EPOCHS = st.lists(st.tuples(st.integers(0, 2**31 - 1), OFFSETS), max_size=4).map(tuple)
MARKS = st.dictionaries(
    st.integers(0, 2**31 - 1), st.builds(Watermark, offset=OFFSETS, leader_epochs=EPOCHS)
)


@settings(deadline=None)
@given(MARKS)
def test_decoding_is_the_inverse_of_encoding(marks: dict[int, Watermark]) -> None:
    assert decode_watermarks(encode_watermarks(marks), table="t") == marks


def test_the_same_watermarks_have_the_same_text() -> None:
    one, two = Watermark(offset=1, leader_epochs=((0, 0),)), Watermark(offset=2)
    assert encode_watermarks({10: two, 9: one}) == encode_watermarks({9: one, 10: two})
    assert encode_watermarks({9: one}) == '{"9":{"offset":1,"epochs":[[0,0]]}}'


def test_no_property_means_no_watermarks() -> None:
    assert decode_watermarks(None, table="t") == {}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", "null", '{"x":{}}', '{"0":5}', '{"0":{"offset":1}}',
     '{"0":{"offset":"x","epochs":[]}}', '{"0":{"offset":1,"epochs":[1]}}'],
)  # fmt: skip
def test_a_damaged_property_is_fatal_and_names_the_table(text: str) -> None:
    with pytest.raises(FatalError, match=r"table kafka\.orders: property onecopy\.watermarks"):
        decode_watermarks(text, table="kafka.orders")
