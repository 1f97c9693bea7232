"""Loads and stores of several bytes at an address, aligned or not. They check no bounds."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types

from segment_reader.kernels.compiler import intrinsic

__all__ = [
    "copy_16",
    "load_16",
    "load_32",
    "load_64",
    "store_16",
    "store_32",
    "store_64",
    "trailing_zeros",
]

_BYTE: Final = ir.IntType(8)


def _loader(bits: int) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any, at: Any) -> Any:
        signature = types.uint64(types.uint64, types.int64)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(_pointer(builder, args[0], args[1], bits), align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return signature, codegen

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, at: Any, value: Any) -> Any:
        signature = types.void(types.uint64, types.int64, types.uint64)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = args[2] if bits == 64 else builder.trunc(args[2], ir.IntType(bits))
            builder.store(value, _pointer(builder, args[0], args[1], bits), align=1)
            return context.get_dummy_value()

        return signature, codegen

    return store


load_16, load_32, load_64 = _loader(16), _loader(32), _loader(64)
store_16, store_32, store_64 = _storer(16), _storer(32), _storer(64)


@intrinsic
def copy_16(typing_context: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    """Copy 16 bytes between addresses."""
    signature = types.void(types.uint64, types.int64, types.uint64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(_pointer(builder, args[2], args[3], 128), align=1)
        builder.store(value, _pointer(builder, args[0], args[1], 128), align=1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def trailing_zeros(typing_context: Any, number: Any) -> Any:
    """How many low bits of a uint64 are 0; 64 for 0."""
    signature = types.int64(types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return signature, codegen


@intrinsic
def reversed_bits(typing_context: Any, number: Any) -> Any:
    """The bits of a uint64 in reverse order."""
    signature = types.uint64(types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitreverse(args[0])

    return signature, codegen


def _pointer(builder: Any, address: Any, at: Any, bits: int) -> Any:
    place = builder.gep(builder.inttoptr(address, _BYTE.as_pointer()), [at])
    return builder.bitcast(place, ir.IntType(bits).as_pointer())
