"""Products by AMX, whose instructions multiply tiles: 16 rows of 64 bytes each, or fewer.

    sums [16 rows, 16 outputs]  +=  inputs [16 rows, 16 pairs]  x  weights [16 pairs, 16 outputs, 2]

Panels have their weights in this order. A tile's row is computed by itself: it has the same sums
beside any others. In bfloat16 these differ from the sums of ``panels`` by rounding (the 16 even and
the 16 odd products are summed first, apart, and denormal numbers are zeros), so that all rows of a
model have tiles, or none. Sums of whole numbers (``quantized_products``) are exact.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from app.core.kernels import AMX, has, runs_here
from app.model.cpu.kernels.compiled import address_of
from app.model.cpu.kernels.llvm import (
    I8,
    I64,
    VOID,
    declare,
    defined,
    of_integers,
    pointer,
    prefetch,
)
from app.model.cpu.kernels.panels import AHEAD, MULTIPLY, VECTORS, WIDTH
from app.model.cpu.kernels.vectors import WORDS, loop

ROWS = 16
"""Rows of a tile; also its pairs of inputs, or its words of four codes."""
MOST_ROWS = 2 * ROWS
"""Rows multiplied at a time."""
PITCH = 4 * WIDTH
"""Bytes from row to row of a panel and of sums."""
PREFIX = "llvm.x86."
"""Of the names of the instructions in LLVM."""

_SHORT = ir.IntType(16)
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""The system call, ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA."""


@functools.cache
def missing() -> str:
    """Why there are no products by tiles here, which a forked process tries; empty if there are."""
    if lacking := [feature for feature in AMX if not has(feature)]:
        lacks = "the loops were compiled without" if runs_here("amx") else "this processor has no"
        return f"{lacks} {', '.join(lacking)}"
    if ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA):
        return "the system does not permit AMX (arch_prctl)"
    multiply = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)(entry())
    ones = np.full((WIDTH, ROWS, 2), 0x3F80, dtype=np.uint16)  # in bfloat16: rows, and a panel
    place, sums = ones.ctypes.data, np.zeros((MOST_ROWS, WIDTH), dtype=np.float32)
    with warnings.catch_warnings(action="ignore"):  # that there are other threads
        child = os.fork()
    if not child:
        multiply(MOST_ROWS, place, ones.strides[0], place, ROWS, sums.ctypes.data)
        os._exit(int((sums != 2 * ROWS).any()))
    return "a trial of AMX failed" if os.waitpid(child, 0)[1] else ""


def entry() -> int:
    """The address of the product of 1 to ``MOST_ROWS`` rows with panels of bfloat16, see
    ``panels.MULTIPLY``; compiled on the first call."""
    return address_of(_bfloat16, MULTIPLY)


def _bfloat16(rows: int, x: int, stride: int, panel: int, pairs: int, sums: int) -> None:
    _multiply(rows, x, stride, panel, pairs, sums)


@of_integers(types.void)
def _multiply(
    builder: Any, rows: Any, x: Any, stride: Any, panel: Any, pairs: Any, sums: Any
) -> None:
    """In tiles of 16 pairs of inputs, and one of the pairs that are left."""
    whole = builder.ashr(pairs, I64(4))
    left = builder.and_(pairs, I64(ROWS - 1))
    last_x = builder.add(x, builder.mul(whole, I64(4 * ROWS)))
    last_panel = builder.add(panel, builder.mul(whole, I64(ROWS * PITCH)))
    few = builder.icmp_signed("<=", rows, I64(ROWS))
    for high, chosen in ((1, few), (2, builder.not_(few))):
        with builder.if_then(chosen):
            write = functools.partial(_write, high=high)
            function = defined(builder, f"tiles_bfloat16_{high}", [I64] * 7, write)
            with builder.if_then(builder.icmp_signed(">", whole, I64(0))):
                builder.call(function, [rows, x, stride, panel, I64(ROWS), whole, sums])
            with builder.if_then(builder.icmp_signed(">", left, I64(0))):
                builder.call(function, [rows, last_x, stride, last_panel, left, I64(1), sums])


def _write(function: Any, high: int) -> None:
    """Rows of ``high`` tiles times a panel, in ``turns`` tiles of ``depth`` pairs of inputs."""
    rows, x, stride, panel, depth, turns, sums = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    heights = [rows] if high == 1 else [I64(ROWS), builder.sub(rows, I64(ROWS))]
    wide = VECTORS // high
    inputs = [high * wide + block for block in range(high)]
    weights = [number for number in range(8) if number > inputs[-1]]
    shapes = [(height, I64(64)) for height in heights for _ in range(wide)]
    shapes += [(height, builder.mul(depth, I64(4))) for height in heights]
    configure(builder, shapes + [(depth, I64(64)) for _ in weights])
    for first in range(0, VECTORS, wide):
        tiles = {
            (block, first + i): (
                block * wide + i,
                builder.add(sums, I64(ROWS * PITCH * block + 64 * (first + i))),
            )
            for block in range(high)
            for i in range(wide)
        }
        for tile, place in tiles.values():
            load(builder, tile, place, I64(PITCH))

        def turn(number: Any, _: Any, first: int = first, tiles: Any = tiles) -> list[Any]:
            here = builder.add(panel, builder.mul(number, I64(ROWS * PITCH)))
            for line in range(ROWS):
                for i in range(first, first + wide):
                    prefetch(builder, builder.add(here, I64(AHEAD + PITCH * line + 64 * i)))
            for block, tile in enumerate(inputs):
                row = builder.add(x, builder.mul(stride, I64(ROWS * block)))
                load(builder, tile, builder.add(row, builder.mul(number, I64(4 * ROWS))), stride)
            for i in range(first, first + wide):
                weight = weights[i % len(weights)]
                load(builder, weight, builder.add(here, I64(64 * i)), I64(PITCH))
                for block, tile in enumerate(inputs):
                    tile_call(builder, "tdpbf16ps", tiles[block, i][0], tile, weight)
            return []

        loop(builder, I64(0), turns, 1, [], turn)
        for tile, place in tiles.values():
            store(builder, tile, place, I64(PITCH))
    tile_call(builder, "tilerelease")
    builder.ret_void()


def configure(builder: Any, shapes: list[tuple[Any, Any]]) -> None:
    """Set rows and bytes of a row of the tiles, from the first on; all become zero."""
    config = builder.ptrtoint(builder.alloca(WORDS), I64)
    builder.store(ir.Constant(WORDS, [0] * 16), pointer(builder, config, WORDS), align=4)
    builder.store(I8(1), pointer(builder, config, I8))
    for tile, (rows, size) in enumerate(shapes):
        place = pointer(builder, builder.add(config, I64(16 + 2 * tile)), _SHORT)
        builder.store(builder.trunc(size, _SHORT), place, align=2)
        place = pointer(builder, builder.add(config, I64(48 + tile)), I8)
        builder.store(builder.trunc(rows, I8), place)
    tile_call(builder, "ldtilecfg", pointer(builder, config, I8))


def load(builder: Any, tile: int, address: Any, stride: Any) -> None:
    tile_call(builder, "tileloadd64", tile, pointer(builder, address, I8), stride)


def store(builder: Any, tile: int, address: Any, stride: Any) -> None:
    tile_call(builder, "tilestored64", tile, pointer(builder, address, I8), stride)


def tile_call(builder: Any, name: str, *arguments: Any) -> None:
    """An instruction of AMX; ints are numbers of tiles."""
    values = [I8(each) if isinstance(each, int) else each for each in arguments]
    kinds = [each.type for each in values]
    builder.call(declare(builder, VOID, kinds, f"{PREFIX}{name}"), values)
