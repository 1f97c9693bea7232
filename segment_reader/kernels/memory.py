"""Raw memory operations that numba has no spelling for. They check no bounds: callers do."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from segment_reader.kernels.compiler import intrinsic

__all__ = ["address_of", "byte_at", "copy_bytes", "load_u64"]


@intrinsic
def copy_bytes(
    typing_context: Any, target: Any, at: Any, source: Any, start: Any, length: Any
) -> Any:
    """memcpy(target + at, source + start, length)."""
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        into = _address(context, builder, sig.args[0], args[0], args[1])
        origin = _address(context, builder, sig.args[2], args[2], args[3])
        raw_memcpy: Any = cgutils.raw_memcpy
        raw_memcpy(builder, into, origin, args[4], 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def load_u64(typing_context: Any, source: Any, at: Any) -> Any:
    """The eight bytes at `source + at` as a little-endian integer, aligned or not."""
    signature = types.uint64(source, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = _address(context, builder, sig.args[0], args[0], args[1])
        pointer = builder.bitcast(address, ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return signature, codegen


@intrinsic
def address_of(typing_context: Any, source: Any) -> Any:
    """Where an array's bytes lie. Inner functions that take an address instead of the array spare
    numba the counting of references, which costs more than reading a record's fields."""
    signature = types.uint64(source)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return signature, codegen


@intrinsic
def byte_at(typing_context: Any, address: Any, at: Any) -> Any:
    """The byte `at` behind an address, as uint64."""
    signature = types.uint64(types.uint64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        byte = builder.load(builder.gep(pointer, [args[1]]))
        return builder.zext(byte, ir.IntType(64))

    return signature, codegen


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])
