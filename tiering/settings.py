"""Settings from plain values: frozen dataclasses made of what a file or another process says.

A class's annotations say what may be given: text, integers, booleans, literals, lists of texts,
tables of texts, other such classes and tables of them. Unknown keys are faults, so that a slip of
the pen never means a default.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from tiering.errors import BadInput

__all__ = ["BadSetting", "build", "dotted"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_S = TypeVar("_S")


class BadSetting(BadInput):
    """A setting that can't be taken.

    Attributes:
        path: the keys that lead to it, from the outermost table known.
        told: what is wrong with it.
    """

    def __init__(self, path: tuple[str, ...], told: str) -> None:
        super().__init__(f"{dotted(path)}: {told}" if path else told)
        self.path = path
        self.told = told

    def below(self, *outer: str) -> BadSetting:
        """The same, seen from further out."""
        return BadSetting((*outer, *self.path), self.told)


def dotted(path: tuple[str, ...]) -> str:
    """Keys as TOML joins them."""
    return ".".join(key if _BARE.fullmatch(key) else f'"{key}"' for key in path)


def build(kind: type[_S], raw: object) -> _S:
    """Make a dataclass of plain values. Raises BadSetting."""
    if not isinstance(raw, Mapping):
        raise BadSetting((), "must be a table of keys")
    hints = get_type_hints(kind)
    for key in raw:
        if key not in hints:
            raise BadSetting((str(key),), f"unknown key; known are {', '.join(hints)}")
    values = {key: _inner(key, hints[key], raw[key]) for key in hints if key in raw}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a dataclass
        if field.name not in values and not _has_default(field):
            raise BadSetting((field.name,), "missing")
    return kind(**values)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _inner(key: str, hint: Any, value: object) -> object:
    try:
        return _taken(hint, value)
    except BadSetting as error:
        raise error.below(key) from None


def _taken(hint: Any, value: object) -> object:
    """`value` as the annotation wants it."""
    if dataclasses.is_dataclass(hint):
        return build(hint, value) if isinstance(hint, type) else value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in arguments or not isinstance(value, str):
            raise BadSetting((), f"{value!r} is none of {', '.join(arguments)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise BadSetting((), "must be a list of strings")
        return tuple(value)
    if origin is not None and issubclass(origin, Mapping):
        return _table(arguments[1], value)
    if type(value) is not hint:
        raise BadSetting((), f"must be {hint.__name__}, not {value!r}")
    return value


def _table(inner: Any, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise BadSetting((), "must be a table of keys")
    if inner is str and not all(isinstance(v, str) for v in value.values()):
        raise BadSetting((), "must be a table of strings")
    return {str(key): _inner(str(key), inner, each) for key, each in value.items()}
