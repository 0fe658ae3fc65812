"""Matrix products in bfloat16 for few rows: weights in panels, read once, in order of memory.

A step has few rows, so what a product takes is the time to read its weights. oneDNN reads them at
12 GB/s (one core, Zen 4, 1 row), these loops at 20 GB/s and more; with many rows they do 205 to 225
GFLOP/s, and oneDNN 180 to 200::

    weight [N, K]  ->  panels [N / 64, K / 2, 64, 2]    64 outputs side by side, two inputs deep

which is the shape that AVX512-BF16's dot product takes: 16 outputs an instruction, two inputs each.
Sums are float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F  # noqa: N812
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from torch import Tensor

from app.core.kernels import has
from app.model.cpu.kernels.compiled import address_of
from app.model.cpu.kernels.llvm import (
    FLOAT,
    I8,
    I32,
    I64,
    VOID,
    declare,
    emit_prefetch,
    of_integers,
    pointer,
)

WIDTH = 64
"""Outputs of a panel."""
MOST_ROWS = 6
"""Rows multiplied at a time: 24 sums, 4 weights and an input fill the 32 registers."""

MULTIPLY = "void(int64, int64, int64, int64, int64, int64)"
"""``f(rows, x, stride, panel, units, sums)``: add 1 to ``MOST_ROWS`` rows at ``x`` times a panel to
``sums`` [rows, 64], float32. ``x``, ``panel`` and ``sums`` are addresses, ``stride`` is from row to
row in bytes; a unit is as many inputs as a turn of the loop takes."""

_LANES = 16
_VECTORS = WIDTH // _LANES
_AHEAD = 8192
"""Bytes before its use at which a weight is asked for."""


class _Bfloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bfloat)

    def __hash__(self) -> int:
        return hash(_Bfloat)


_SUMS = ir.VectorType(FLOAT, _LANES)
_WORDS = ir.VectorType(I32, _LANES)
BFLOATS = ir.VectorType(_Bfloat(), 2 * _LANES)
DOT = "llvm.x86.avx512bf16.dpbf16ps.512"
"""``sums + a b`` of ``BFLOATS`` a and b, whose products are added by twos to 16 sums."""


def runs_here() -> bool:
    """Whether this processor has the instructions, and the system the calls of ``team``."""
    return sys.platform == "linux" and has("avx512bf16")


def pack(weight: Tensor) -> Tensor:
    """``weight`` [N, K], bfloat16, as panels; N is filled up with zeros. K must be even."""
    outputs, inputs = weight.shape
    full = F.pad(weight, (0, 0, 0, -outputs % WIDTH))
    return full.view(-1, WIDTH, inputs // 2, 2).permute(0, 2, 1, 3).contiguous()


def entry() -> int:
    """The address of the product with these panels, see ``MULTIPLY``; compiled on the first call.

    The unit of panels and rows is a pair of inputs.
    """
    return address_of(_bfloat16, MULTIPLY)


def by_rows(
    builder: Any, rows: Any, arguments: list[Any], name: str, write: Callable[[Any, int], None]
) -> None:
    """Call the function for ``rows`` rows; ``write`` writes it for a number of them."""
    for count in range(1, MOST_ROWS + 1):
        function = declare(builder, VOID, [I64] * 5, f"leapjson_multiply_{name}_{count}")
        if function.is_declaration:
            # A function of its own, that the compiler copies nowhere.
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")
            write(function, count)
        with builder.if_then(builder.icmp_signed("==", rows, I64(count))):
            builder.call(function, arguments)


@of_integers(types.void)
def _multiply(
    builder: Any, rows: Any, x: Any, stride: Any, panel: Any, pairs: Any, sums: Any
) -> None:
    by_rows(builder, rows, [x, stride, panel, pairs, sums], "bfloat16", _write)


def _bfloat16(rows: int, x: int, stride: int, panel: int, pairs: int, sums: int) -> None:
    _multiply(rows, x, stride, panel, pairs, sums)


def _write(function: Any, rows: int) -> None:
    """The loop over pairs of inputs, with all sums in registers."""
    x, stride, weights, pairs, sums = function.args
    before = function.append_basic_block("entry")
    loop, after = function.append_basic_block("pair"), function.append_basic_block("done")
    builder = ir.IRBuilder(before)
    dot = declare(builder, _SUMS, [_SUMS, BFLOATS, BFLOATS], DOT)
    places = [builder.add(sums, I64(64 * i)) for i in range(rows * _VECTORS)]
    first = [builder.load(pointer(builder, place, _SUMS), align=4) for place in places]
    lines = [builder.add(x, builder.mul(stride, I64(row))) for row in range(rows)]
    builder.branch(loop)

    builder.position_at_end(loop)
    pair = builder.phi(I64)
    pair.add_incoming(I64(0), before)
    running = [builder.phi(_SUMS) for _ in first]
    for phi, value in zip(running, first, strict=True):
        phi.add_incoming(value, before)
    panel = builder.add(weights, builder.mul(pair, I64(4 * WIDTH)))
    for line in range(4 * WIDTH // 64):
        emit_prefetch(builder, pointer(builder, builder.add(panel, I64(_AHEAD + 64 * line)), I8))
    loaded = [
        builder.bitcast(
            builder.load(pointer(builder, builder.add(panel, I64(64 * i)), _WORDS), align=64),
            BFLOATS,
        )
        for i in range(_VECTORS)
    ]
    added = []
    for row, line in enumerate(lines):
        place = builder.add(line, builder.mul(pair, I64(4)))
        both = builder.bitcast(everywhere(builder, place), BFLOATS)
        for i in range(_VECTORS):
            added.append(builder.call(dot, [running[row * _VECTORS + i], both, loaded[i]]))
    following = builder.add(pair, I64(1))
    pair.add_incoming(following, loop)
    for phi, value in zip(running, added, strict=True):
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_unsigned("<", following, pairs), loop, after)

    builder.position_at_end(after)
    for place, value in zip(places, added, strict=True):
        builder.store(value, pointer(builder, place, _SUMS), align=4)
    builder.ret_void()


def everywhere(builder: Any, address: Any) -> Any:
    """The 32 bits at ``address`` in every lane."""
    return spread(builder, builder.load(pointer(builder, address, I32), align=4), _WORDS)


def spread(builder: Any, value: Any, kind: Any) -> Any:
    """A vector of 16 times the same."""
    nothing = ir.Constant(kind, ir.Undefined)
    single = builder.insert_element(nothing, value, I32(0))
    return builder.shuffle_vector(single, nothing, ir.Constant(_WORDS, [0] * _LANES))
