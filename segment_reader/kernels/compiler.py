"""How kernels are compiled: ahead of the first call, cached on disk, without the GIL."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba
import numba.extending
from numba import types

from segment_reader.kernels.source_stamp import source_stamp

__all__ = [
    "BYTES",
    "INT8S",
    "INT32S",
    "INT32_MATRIX",
    "INT64",
    "INT64S",
    "INT64_MATRIX",
    "READ_INT64S",
    "UINT8S",
    "VOID",
    "Int",
    "called",
    "compiled",
    "inlined",
    "intrinsic",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")

VOID: Final = types.void
INT64: Final = types.int64
BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
UINT8S: Final = types.Array(types.uint8, 1, "C")
INT8S: Final = types.Array(types.int8, 1, "C")
INT32S: Final = types.Array(types.int32, 1, "C")
INT64S: Final = types.Array(types.int64, 1, "C")
READ_INT64S: Final = types.Array(types.int64, 1, "C", readonly=True)
INT32_MATRIX: Final = types.Array(types.int32, 2, "C")
INT64_MATRIX: Final = types.Array(types.int64, 2, "C")


_njit: Final[Any] = numba.njit  # its own types tell nothing
intrinsic: Final[Any] = numba.extending.intrinsic

Int = Any
"""An integer inside a kernel: numba decides on its width and sign by what it is made of."""


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A part of kernels: compiled together with the kernel that calls it."""
    return cast(Callable[_P, _R], _njit(forceinline=True, error_model="numpy")(function))


def called(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A part of kernels that stays a function: for what is long, and not where the time goes."""
    return cast(Callable[_P, _R], _njit(error_model="numpy")(function))


def compiled(signature: object) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Compile with an explicit signature, so that no call ever compiles a second variant.

    The machine code is cached beside the module or, where that is read-only, in the user's cache
    directory, so that new worker processes only load it, until the source of the kernel or of
    anything that it is made of changes. Where neither can be written, each process compiles for
    itself.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        made = _njit(nogil=True, error_model="numpy")(function)
        try:
            made.enable_caching()
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
        else:  # numba itself looks at the kernel's own file, and not at those of its parts
            index = made._cache._cache_file
            index._source_stamp = (index._source_stamp, source_stamp(inspect.getfile(function)))
        made.compile(signature)
        made.disable_compile()
        return cast(Callable[_P, _R], made)

    return decorate
