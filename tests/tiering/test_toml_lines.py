"""Lines of keys: each key that the standard library's reader finds, in every way to write it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.toml_lines import key_lines, line_of

TEXT = """\
# a = 1
store = "s3://x" # store = 2

[catalog]
"type" = 'rest'
list = [
  "[not.a.table]", # nor = this
  { a = 1, b = [1, 2] },
]
[ service . tls ]   # a comment
cert="a=b"
long = \"\"\"
[nothing]
port = 1 \\"\"\" still
\"\"\"
raw = \'\'\'
port = 2\'\'\'
inner . "dotted key" = 1979-05-27T07:32:00Z
[topics."web.clicks"]
table = "x"
[topics]
'a "b"' = { value = "raw", "k" = { key = "json" } }
"qu\\u00e9\\"" = 5
"""
LINES = {
    ("store",): 2,
    ("catalog",): 4,
    ("catalog", "type"): 5,
    ("catalog", "list"): 6,
    ("service", "tls"): 10,
    ("service", "tls", "cert"): 11,
    ("service", "tls", "long"): 12,
    ("service", "tls", "raw"): 16,
    ("service", "tls", "inner", "dotted key"): 18,
    ("topics", "web.clicks"): 19,
    ("topics", "web.clicks", "table"): 20,
    ("topics",): 21,
    ("topics", 'a "b"'): 22,
    ("topics", 'a "b"', "value"): 22,
    ("topics", 'a "b"', "k"): 22,
    ("topics", 'a "b"', "k", "key"): 22,
    ("topics", 'qué"'): 23,
}


def leaves(raw: dict[str, object], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)


def test_every_form_of_a_key_is_found() -> None:
    assert key_lines(TEXT) == LINES
    assert set(leaves(tomllib.loads(TEXT))) <= LINES.keys()
    assert key_lines(TEXT.replace("\n", "\r\n")) == LINES


def test_a_key_that_isn_t_there_has_its_table_s_line() -> None:
    assert line_of(TEXT, ("catalog", "uri")) == 4
    assert line_of(TEXT, ("topics", "web.clicks", "value")) == 19
    assert line_of(TEXT, ("warehouse",)) is None
    assert line_of(TEXT, ("service", "port")) is None


def test_no_line_is_better_than_a_wrong_one() -> None:
    assert line_of("[[a]]\nb = 1\n[[a]]\nb = 2\n", ("a", "b")) is None
    for text in ("a = 1\n[b", "a = 1\nb =\n", "a = 1\n= 2", 'a = 1\nb = "x', "a = 1\nb = [1"):
        assert key_lines(text) == {}


NAMES = ["a", "b-1", "c d", "e.f", 'g"h', "i'j", "[k]", "l#m", "n=o", "é"]
VALUES = ["1", "'x # y'", '"[z]"', "[1, [2, '],'], {q = 1}]", '"""\n[t]\nu = 1\n"""', "true"]


def quoted(name: str, how: int) -> str:
    if how == 0 and name.isascii() and name.replace("-", "").isalnum():
        return name
    if how == 1 and "'" not in name:
        return f"'{name}'"
    return '"' + name.replace('"', '\\"') + '"'


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[tuple[str, ...], int]]:
    """A text of one value a key, and each key's line as it was laid down."""
    names, hows = st.sampled_from(NAMES), st.integers(0, 2)
    paths = draw(st.lists(st.tuples(names, names, names), unique=True, max_size=8))
    lines: list[str] = []
    expected = {}
    for path in paths:
        lines += draw(st.sampled_from([[], [""], ["# x = [1"]]))
        keys = [quoted(name, draw(hows)) for name in path]
        value = draw(st.sampled_from(VALUES))
        expected[path] = len(lines) + 1
        lines += f"{draw(st.sampled_from(['.', ' . '])).join(keys)} = {value}".split("\n")
    return "\n".join(lines), expected


@given(documents())
@pytest.mark.filterwarnings("error")
def test_the_lines_are_those_that_were_written(
    document: tuple[str, dict[tuple[str, ...], int]],
) -> None:
    text, expected = document
    assert set(leaves(tomllib.loads(text))) == expected.keys()
    assert key_lines(text) == expected
