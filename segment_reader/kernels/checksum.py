"""CRC-32C over many batches in one call, with the processor's own instruction where it has one.

A call into a library costs more than the checksum of a one-record batch, and a segment may hold a
million of those.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import binding, ir
from numba import types

from segment_reader.kernels.compiler import (
    BYTES,
    INT64,
    INT64S,
    READ_INT64S,
    VOID,
    Int,
    compiled,
    inlined,
    intrinsic,
)
from segment_reader.kernels.memory import load_u64

__all__ = ["HAS_INSTRUCTION", "checksums", "extended", "first_mismatch"]

_POLYNOMIAL: Final = 0x82F63B78


def _architecture() -> str:
    """ "x86" or "arm" where the processor has a CRC-32C instruction, else ""."""
    if os.environ.get("NUMBA_CPU_NAME") or os.environ.get("NUMBA_CPU_FEATURES"):
        return ""  # code for some other processor was asked for
    features = binding.get_host_cpu_features()
    machine = platform.machine().lower()
    if machine in {"x86_64", "amd64"} and features.get("sse4.2"):
        return "x86"
    return "arm" if machine in {"arm64", "aarch64"} and features.get("crc") else ""


_ARCHITECTURE: Final = _architecture()
HAS_INSTRUCTION: Final = _ARCHITECTURE != ""
_WORD, _HALF, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)


def _tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Slicing-by-8 tables: row k is the checksum of a byte followed by k zero bytes."""
    rows = np.zeros((8, 256), dtype=np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        rows[0, byte] = crc
    for row in range(1, 8):
        rows[row] = (rows[row - 1] >> 8) ^ rows[0][rows[row - 1] & 0xFF]
    return rows


_TABLES: Final = _tables()

_LANE_BYTES: Final = 1024
_SHORT_LANE_BYTES: Final = 128


def _shift_tables(zero_bytes: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Tables that move a checksum over zero bytes (a power of two of them): row k is for byte k.

    Moving is linear: it is known by what becomes of each bit.
    """
    bits = [int(_TABLES[0, 1 << i]) if i < 8 else 1 << (i - 8) for i in range(32)]

    def moved(crc: int) -> int:
        result = 0
        for i in range(32):
            if crc >> i & 1:
                result ^= bits[i]
        return result

    for _ in range(zero_bytes.bit_length() - 1):
        bits = [moved(bit) for bit in bits]
    return np.array(
        [[moved(byte << (8 * row)) for byte in range(256)] for row in range(4)], np.uint32
    )


_SHIFT: Final = _shift_tables(_LANE_BYTES)
_SHORT_SHIFT: Final = _shift_tables(_SHORT_LANE_BYTES)


@intrinsic
def _step8_instruction(typing_context: Any, crc: Any, word: Any) -> Any:
    signature = types.uint64(types.uint64, types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _ARCHITECTURE == "x86":
            kind = ir.FunctionType(_WORD, [_WORD, _WORD])
            return _call(builder, "llvm.x86.sse42.crc32.64.64", kind, args)
        kind = ir.FunctionType(_HALF, [_HALF, _WORD])
        halved = [builder.trunc(args[0], _HALF), args[1]]
        return builder.zext(_call(builder, "llvm.aarch64.crc32cx", kind, halved), _WORD)

    return signature, codegen


@intrinsic
def _step1_instruction(typing_context: Any, crc: Any, byte: Any) -> Any:
    signature = types.uint64(types.uint64, types.uint8)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        crc = builder.trunc(args[0], _HALF)
        if _ARCHITECTURE == "x86":
            kind = ir.FunctionType(_HALF, [_HALF, _BYTE])
            result = _call(builder, "llvm.x86.sse42.crc32.32.8", kind, [crc, args[1]])
        else:
            kind = ir.FunctionType(_HALF, [_HALF, _HALF])
            widened = [crc, builder.zext(args[1], _HALF)]
            result = _call(builder, "llvm.aarch64.crc32cb", kind, widened)
        return builder.zext(result, _WORD)

    return signature, codegen


def _call(builder: Any, name: str, kind: Any, args: Any) -> Any:
    return builder.call(builder.module.declare_intrinsic(name, fnty=kind), args)


@inlined
def _step1_table(crc: Int, byte: Int) -> Int:
    return np.uint64(_TABLES[0, (crc ^ byte) & 0xFF]) ^ (np.uint64(crc) >> np.uint64(8))


@inlined
def _step8_table(crc: Int, word: Int) -> Int:
    mixed = np.uint64(word) ^ np.uint64(crc)
    result = np.uint64(0)
    for row in range(8):
        result ^= np.uint64(_TABLES[7 - row, mixed & np.uint64(0xFF)])
        mixed >>= np.uint64(8)
    return result


_step1: Callable[..., Int] = _step1_instruction if HAS_INSTRUCTION else _step1_table
_step8: Callable[..., Int] = _step8_instruction if HAS_INSTRUCTION else _step8_table


@inlined
def _moved(crc: Int, tables: Any) -> Int:
    mixed = tables[0, crc & np.uint64(0xFF)] ^ tables[1, (crc >> np.uint64(8)) & np.uint64(0xFF)]
    mixed ^= tables[2, (crc >> np.uint64(16)) & np.uint64(0xFF)] ^ tables[3, crc >> np.uint64(24)]
    return np.uint64(mixed)


@inlined
def _three_lanes(crc: Int, buffer: Any, at: Int, lane: int, tables: Any) -> Int:
    """Over 3 * `lane` bytes: the instruction takes three cycles, but begins in every one."""
    second: Int = np.uint64(0)
    third: Int = np.uint64(0)
    for _ in range(lane // 8):
        crc = _step8(crc, load_u64(buffer, at))
        second = _step8(second, load_u64(buffer, at + lane))
        third = _step8(third, load_u64(buffer, at + 2 * lane))
        at += 8
    return _moved(_moved(crc, tables) ^ second, tables) ^ third


@inlined
def extended(crc: Int, buffer: Any, at: Int, end: Int) -> Int:
    """The checksum of what `crc` is that of, followed by buffer[at:end]."""
    state: Int = np.uint64(crc) ^ np.uint64(0xFFFFFFFF)
    while at + 3 * _LANE_BYTES <= end:
        state = _three_lanes(state, buffer, at, _LANE_BYTES, _SHIFT)
        at += 3 * _LANE_BYTES
    while at + 3 * _SHORT_LANE_BYTES <= end:
        state = _three_lanes(state, buffer, at, _SHORT_LANE_BYTES, _SHORT_SHIFT)
        at += 3 * _SHORT_LANE_BYTES
    while at + 8 <= end:
        state = _step8(state, load_u64(buffer, at))
        at += 8
    while at < end:
        state = _step1(state, buffer[at])
        at += 1
    return np.int64(state ^ np.uint64(0xFFFFFFFF))


@compiled(INT64(BYTES, INT64S, INT64S, INT64S, INT64))
def first_mismatch(
    buffer: np.ndarray[Any, np.dtype[np.uint8]],
    starts: np.ndarray[Any, np.dtype[np.int64]],
    ends: np.ndarray[Any, np.dtype[np.int64]],
    expected: np.ndarray[Any, np.dtype[np.int64]],
    length_max: int,
) -> int:
    """Index of the first range whose CRC-32C isn't the expected one, or -1.

    Ranges longer than `length_max` are passed over (a library is faster for those).
    """
    for i in range(len(starts)):
        at = starts[i]
        end = ends[i]
        if end - at > length_max:
            continue
        if extended(np.int64(0), buffer, at, end) != expected[i]:
            return i
    return -1


@compiled(VOID(BYTES, READ_INT64S, READ_INT64S, INT64S))
def checksums(
    buffer: np.ndarray[Any, np.dtype[np.uint8]],
    starts: np.ndarray[Any, np.dtype[np.int64]],
    ends: np.ndarray[Any, np.dtype[np.int64]],
    crcs: np.ndarray[Any, np.dtype[np.int64]],
) -> None:
    """Extend each of `crcs` (CRC-32C, 0 of nothing) by the bytes of its range."""
    for i in range(len(starts)):
        crcs[i] = extended(crcs[i], buffer, starts[i], ends[i])
