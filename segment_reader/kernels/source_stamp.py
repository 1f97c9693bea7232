"""What a kernel's machine code is made of: its module and the modules whose parts it takes in."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path
from typing import Final

__all__ = ["source_stamp"]

_ROOT: Final = Path(__file__).parents[2]
_IMPORT: Final = re.compile(r"^from (\S+) import (\([^)]*\)|.+)", re.MULTILINE)
"""At the head of a module. What is imported elsewhere, kernels can't use."""


def source_stamp(file: str) -> str:
    """Digest of a module's source and of all modules that it imports, directly or not, from its
    own package or from this one."""
    first = Path(file)
    own = first.relative_to(_ROOT).parts[0] if first.is_relative_to(_ROOT) else ""
    packages = frozenset({own, Path(__file__).relative_to(_ROOT).parts[0]})
    digests: dict[Path, bytes] = {}
    waiting = {first} if first.is_file() else set()  # in a zip file, numba's own stamp must do
    while waiting:
        path = waiting.pop()
        digests[path], imported = _source(path, packages)
        waiting |= imported - digests.keys()
    return hashlib.sha256(b"".join(sorted(digests.values()))).hexdigest()


@functools.cache
def _source(path: Path, packages: frozenset[str]) -> tuple[bytes, frozenset[Path]]:
    """A module's digest, and the files of what it imports from some packages."""
    text, files = path.read_bytes(), set()
    for module, names in _IMPORT.findall(text.decode()):
        if module.partition(".")[0] in packages:
            for name in re.findall(r"(\w+)(?: as \w+)?", names):
                files |= _files(f"{module}.{name}") or _files(module)
    return hashlib.sha256(text).digest(), frozenset(files)


def _files(module: str) -> set[Path]:
    path = _ROOT.joinpath(*module.split("."))
    return {each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()}
