"""In which line of a TOML file a key stands: the standard library's reader doesn't tell.

A small scan, for texts that the standard library has read already. Where it is unsure it says
nothing rather than something wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["key_lines", "line_of"]

Path = tuple[str, ...]

_BLANK: Final = re.compile(r"[ \t]*")
_FILLING: Final = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEXTS: Final = (
    re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
_PLAIN_VALUE: Final = re.compile(r"""[^,\]}\n#"']+""")


class _LostError(ValueError):
    """The text isn't what the scan thinks it is."""


def line_of(text: str, path: Path) -> int | None:
    """Line (from 1) of a key; of its table's header where the key isn't in the text itself.

    None where neither is found or where it isn't clear which is meant.
    """
    lines = key_lines(text)
    for wanted in (path, path[:-1]):
        if wanted in lines:
            return lines[wanted]
    return None


def key_lines(text: str) -> dict[Path, int]:
    """Lines of all tables' headers and all keys; without those that stand there several times."""
    found: dict[Path, int] = {}
    repeated: set[Path] = set()
    try:
        for path, at in _Scan(text).places():
            if path in found:
                repeated.add(path)
            found[path] = text.count("\n", 0, at) + 1
    except _LostError:
        return {}
    return {path: line for path, line in found.items() if path not in repeated}


class _Scan:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def places(self) -> Iterator[tuple[Path, int]]:
        """(keys, where) of each header and each key with a value."""
        table: Path = ()
        self._skip(_FILLING)
        while self._at < len(self._text):
            start = self._at
            if self._takes("["):
                several = self._takes("[")
                table = self._key()
                self._must_take("]]" if several else "]")
                yield table, start
            else:
                yield from self._pair(table)
            self._skip(_FILLING)

    def _pair(self, table: Path) -> Iterator[tuple[Path, int]]:
        start = self._at
        path = table + self._key()
        self._must_take("=")
        self._skip(_BLANK)
        yield path, start
        yield from self._value(path)

    def _value(self, path: Path) -> Iterator[tuple[Path, int]]:
        """Goes behind a value; the keys of a table in braces are keys like others."""
        if self._takes("{"):
            self._skip(_FILLING)
            while not self._takes("}"):
                yield from self._pair(path)
                self._skip(_FILLING)
        elif self._takes("["):
            self._skip(_FILLING)
            while not self._takes("]"):
                for _ in self._value(path):  # tables in a list have no path of their own
                    pass
                self._skip(_FILLING)
        elif self._text_here() is None and not self._skip(_PLAIN_VALUE):
            raise _LostError

    def _key(self) -> Path:
        parts = [self._part()]
        while self._takes("."):
            parts.append(self._part())
        return tuple(parts)

    def _part(self) -> str:
        self._skip(_BLANK)
        quoted = self._text_here()
        part = quoted if quoted is not None else self._skip(_BARE_KEY)
        if quoted is None and not part:
            raise _LostError
        self._skip(_BLANK)
        return _unquoted(part) if quoted is not None else part

    def _text_here(self) -> str | None:
        """Goes behind a text in quotes, if there is one here."""
        for pattern in _TEXTS:
            if found := self._skip(pattern):
                return found
        return None

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _takes(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _must_take(self, mark: str) -> None:
        if not self._takes(mark):
            raise _LostError


def _unquoted(part: str) -> str:
    """A key in single or double quotes as it is meant."""
    if part.startswith("'"):
        return part[1:-1]
    try:
        # JSON knows the same escapes but for \U, which is one more that the scan may give up on.
        return str(json.loads(part))
    except ValueError as error:
        raise _LostError from error
