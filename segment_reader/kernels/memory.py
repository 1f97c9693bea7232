"""Raw memory operations that numba has no spelling for. They check no bounds: callers do."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from segment_reader.kernels.compiler import intrinsic

__all__ = [
    "address_of",
    "byte_at",
    "copy",
    "copy_bytes",
    "int32_at",
    "int64_at",
    "load_u64",
    "same_bytes",
    "significant_bits",
    "store_byte",
]


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


@intrinsic
def int32_at(typing_context: Any, address: Any, i: Any) -> Any:
    """Element `i` of the int32s at an address, aligned or not, as int64."""
    signature = types.int64(types.uint64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.sext(_element(builder, ir.IntType(32), args), ir.IntType(64))

    return signature, codegen


@intrinsic
def int64_at(typing_context: Any, address: Any, i: Any) -> Any:
    """Element `i` of the int64s at an address, aligned or not."""
    signature = types.int64(types.uint64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _element(builder, ir.IntType(64), args)

    return signature, codegen


@intrinsic
def store_byte(typing_context: Any, address: Any, at: Any, byte: Any) -> Any:
    """Put the lowest byte of an integer `at` behind an address."""
    signature = types.void(types.uint64, types.int64, types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(builder, args[0], args[1])
        builder.store(builder.trunc(args[2], ir.IntType(8)), pointer)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy(typing_context: Any, target: Any, at: Any, source: Any, start: Any, length: Any) -> Any:
    """memcpy(target + at, source + start, length) for addresses."""
    signature = types.void(types.uint64, types.int64, types.uint64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        into, origin = _pointer(builder, args[0], args[1]), _pointer(builder, args[2], args[3])
        raw_memcpy: Any = cgutils.raw_memcpy
        raw_memcpy(builder, into, origin, args[4], 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def same_bytes(typing_context: Any, one: Any, at: Any, other: Any, start: Any, length: Any) -> Any:
    """memcmp(one + at, other + start, length) == 0 for addresses."""
    signature = types.boolean(types.uint64, types.int64, types.uint64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [pointer, pointer, word])
        get_function: Any = cgutils.get_or_insert_function
        memcmp = get_function(builder.module, kind, "memcmp")
        places = [_pointer(builder, args[0], args[1]), _pointer(builder, args[2], args[3])]
        result = builder.call(memcmp, [*places, args[4]])
        return builder.icmp_signed("==", result, ir.Constant(ir.IntType(32), 0))

    return signature, codegen


@intrinsic
def significant_bits(typing_context: Any, number: Any) -> Any:
    """How many bits a uint64 needs; 1 for 0."""
    signature = types.int64(types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        number = builder.or_(args[0], ir.Constant(word, 1))
        leading = builder.ctlz(number, ir.Constant(ir.IntType(1), 1))
        return builder.sub(ir.Constant(word, 64), leading)

    return signature, codegen


def _element(builder: Any, kind: Any, args: Any) -> Any:
    pointer = builder.inttoptr(args[0], kind.as_pointer())
    return builder.load(builder.gep(pointer, [args[1]]), align=1)


def _pointer(builder: Any, address: Any, at: Any) -> Any:
    return builder.gep(builder.inttoptr(address, ir.IntType(8).as_pointer()), [at])


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])
