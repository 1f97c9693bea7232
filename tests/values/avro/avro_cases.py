"""Random Avro schemas and values, and what fastavro's values should look like as columns."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import uuid
from collections.abc import Sequence
from typing import Any

import fastavro
from hypothesis import strategies as st

Schema = Any

EPOCH = datetime.datetime(1970, 1, 1)
MOST_MILLIS = 250_000_000_000_000  # in the year 9892; Python's datetime ends at 9999
LEAST_MILLIS = -62_000_000_000_000
NAN = st.just(float("nan"))  # other ones don't come back: see test_avro_bytes.py
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 63).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1)),
)
ALIKE = {
    **dict.fromkeys(["int", "long"], "whole"),
    **dict.fromkeys(["float", "double"], "floating"),
    **dict.fromkeys(["string", "enum"], "text"),
    **dict.fromkeys(["bytes", "fixed"], "bytes"),
    **dict.fromkeys(["map", "record"], "dict"),
}
"""Branches of one union must be told apart by the Python type of their values."""
ORDER = ["null", "boolean", "whole", "floating", "text", "bytes", "array", "dict"]


def kind_of(schema: Schema) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def is_nothing(schema: Schema) -> bool:
    """Whether a schema has no column."""
    kind = kind_of(schema)
    if kind == "union":
        others = [branch for branch in schema if branch != "null"]
        return not others or (len(schema) == 1 and is_nothing(others[0]))
    if kind == "record":
        return all(is_nothing(each["type"]) for each in schema["fields"])
    return kind == "null" or (kind == "fixed" and schema["size"] == 0)


def leaves(names: itertools.count[int]) -> st.SearchStrategy[Schema]:
    plain = ["boolean", "int", "long", "float", "double", "bytes", "string"]
    logical = [
        *[("int", name) for name in ("date", "time-millis", "unheard-of")],
        *[
            ("long", f"{name}-{unit}")
            for name in ("timestamp", "local-timestamp")
            for unit in UNITS
        ],
        ("long", "time-micros"),
        ("string", "uuid"),
        ("int", "timestamp-millis"),  # on the wrong type: no logical type at all
    ]
    symbols = st.lists(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,40}", fullmatch=True), min_size=1, unique=True
    )
    decimals = st.integers(1, 38).flatmap(
        lambda p: st.fixed_dictionaries({"precision": st.just(p), "scale": st.integers(0, p)})
    )
    return st.one_of(
        st.sampled_from(["null", *plain]),
        st.sampled_from(plain).map(lambda name: {"type": name}),
        st.sampled_from(logical).map(lambda of: {"type": of[0], "logicalType": of[1]}),
        symbols.map(lambda s: {"type": "enum", "name": f"E{next(names)}", "symbols": s}),
        st.integers(0, 40).map(lambda n: {"type": "fixed", "name": f"F{next(names)}", "size": n}),
        st.builds(
            lambda: {"type": "fixed", "name": f"F{next(names)}", "size": 16, "logicalType": "uuid"}
        ),
        decimals.map(lambda of: {"type": "bytes", "logicalType": "decimal", **of}),
        decimals.map(
            lambda of: (
                {"type": "fixed", "name": f"F{next(names)}", "size": 17, **of}
                | {"logicalType": "decimal"}
            )
        ),
    )


UNITS = ("millis", "micros", "nanos")


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, names: itertools.count[int] | None = None) -> Schema:
    """Any schema that has columns, or none at all."""
    names = names or itertools.count()
    inner = schemas(depth=depth - 1, names=names)
    kinds = ["leaf"] if depth == 0 else ["leaf", "record", "record", "array", "map", "union"]
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(leaves(names))
    if kind == "record":
        types = draw(st.lists(inner, max_size=5))
        fields = [{"name": f"f{i}", "type": each} for i, each in enumerate(types)]
        return {"type": "record", "name": f"R{next(names)}", "fields": fields}
    if kind == "union":
        return draw(unions(inner))
    key = "items" if kind == "array" else "values"
    return {"type": kind, key: draw(inner.filter(lambda each: not is_nothing(each)))}


@st.composite
def unions(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    drawn = draw(st.lists(inner, min_size=1, max_size=4))
    branches: dict[str, Schema] = {}
    for branch in drawn:
        kind = kind_of(branch)
        if kind != "union":
            branches.setdefault(ALIKE.get(kind, kind), branch)
    if draw(st.booleans()) or not branches:
        branches["null"] = "null"
    ordered = [branches[kind] for kind in ORDER if kind in branches]
    if "null" in branches and draw(st.booleans()):
        ordered = [*ordered[1:], ordered[0]]
    return ordered


def physical(schema: Schema) -> Schema:
    """A schema without its logical types."""
    if isinstance(schema, list):
        return [physical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {k: v for k, v in schema.items() if k not in ("logicalType", "precision", "scale")}
    for key in ("items", "values"):
        if key in bare:
            bare[key] = physical(bare[key])
    if "fields" in bare:
        bare["fields"] = [each | {"type": physical(each["type"])} for each in bare["fields"]]
    return bare


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Values as fastavro writes them with the physical schema."""
    kind = kind_of(schema)
    if kind == "union":
        return st.one_of([values(branch) for branch in schema])
    if kind == "record":
        return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=5)
    if kind == "map":
        return st.dictionaries(st.text(max_size=8), values(schema["values"]), max_size=4)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal":
        most = 10 ** schema["precision"] - 1
        return st.integers(-most, most).map(lambda n: decimal_bytes(n, schema))
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if logical == "uuid":
        return st.uuids().map(str)
    if logical == "date":
        return st.integers(-700_000, 2_900_000)
    if logical == "time-millis":
        return st.integers(0, 86_399_999)
    if logical == "time-micros":
        return st.integers(0, 86_399_999_999)
    if kind == "long" and logical is not None and not logical.endswith("nanos"):
        scale = 1 if logical.endswith("millis") else 1000
        return st.integers(LEAST_MILLIS * scale, MOST_MILLIS * scale)
    return PLAIN[kind]


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS,
    "float": st.floats(width=32, allow_nan=False) | NAN,
    "double": st.floats(allow_nan=False) | NAN,
    "bytes": st.binary(max_size=60),
    "string": st.text(max_size=60),
}


def decimal_bytes(number: int, schema: Schema) -> bytes:
    """As Java's BigInteger.toByteArray; fastavro takes a byte too much for -128 and the like."""
    size = schema.get("size") or ((number if number >= 0 else ~number).bit_length() // 8 + 1)
    return number.to_bytes(size, "big", signed=True)


def written(schema: Schema, datum: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, parsed(physical(schema)), datum)
    return target.getvalue()


def read(schema: Schema, payload: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(payload), parsed(schema), None)


def parsed(schema: Schema) -> Schema:
    return fastavro.parse_schema(schema)


def expected_row(schema: Schema, value: Any) -> Any:
    """The row that a value of fastavro's is, as `to_pylist` gives it."""
    if kind_of(schema) == "record":
        return expected(schema, value)
    return {} if is_nothing(schema) else {"value": expected(schema, value)}


def expected(schema: Schema, value: Any) -> Any:
    kind = kind_of(schema)
    if kind == "record":
        return {
            each["name"]: expected(each["type"], value[each["name"]])
            for each in schema["fields"]
            if not is_nothing(each["type"])
        }
    if kind == "array":
        return [expected(schema["items"], item) for item in value]
    if kind == "map":
        return [(key, expected(schema["values"], item)) for key, item in value.items()]
    if kind == "union":
        return _expected_union(schema, value)
    return plain_value(value, schema.get("logicalType") if isinstance(schema, dict) else None)


def _expected_union(schema: Sequence[Schema], value: Any) -> Any:
    others = [branch for branch in schema if branch != "null"]
    if value is None:
        return None
    if len(others) == 1 and not is_nothing(others[0]):
        return expected(others[0], value)
    if len(schema) == 1:
        return None
    tag = next(i for i, branch in enumerate(others) if _is_of(branch, value))
    row: dict[str, Any] = {"tag": tag}
    for i, branch in enumerate(others):
        if not is_nothing(branch):
            row[f"field{i}"] = expected(branch, value) if i == tag else None
    return row


_TIMES = (datetime.datetime, datetime.date, datetime.time)
_CLASSES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "whole": (int, *_TIMES),
    "floating": (float,),
    "text": (str, uuid.UUID),
    "bytes": (bytes, decimal.Decimal),
    "array": (list,),
    "dict": (dict,),
}


def _is_of(branch: Schema, value: Any) -> bool:
    kind = kind_of(branch)
    kind = ALIKE.get(kind, kind)
    return isinstance(value, _CLASSES[kind]) and (kind == "boolean") == isinstance(value, bool)


def plain_value(value: Any, logical: str | None) -> Any:
    """A leaf as `to_pylist` gives it, both sides alike: times of day as numbers (as columns hold
    them), uuids as text, and zones told by their offset alone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        assert value.utcoffset() == datetime.timedelta(0)
        return ("UTC", value.replace(tzinfo=None))
    if isinstance(value, datetime.time):
        micros = (value.hour * 60 + value.minute) * 60 + value.second
        micros = micros * 1_000_000 + value.microsecond
        return micros // 1000 if logical == "time-millis" else micros
    return str(value) if isinstance(value, uuid.UUID) else value


def alike(value: Any) -> Any:
    """Rows of `to_pylist`, with leaves as in `plain_value`."""
    if isinstance(value, dict):
        return {key: alike(item) for key, item in value.items()}
    if isinstance(value, list):
        return [alike(item) for item in value]
    if isinstance(value, tuple):
        return tuple(alike(item) for item in value)
    return plain_value(value, None)
