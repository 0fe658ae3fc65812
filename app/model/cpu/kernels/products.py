"""Items of a product: a panel of 64 outputs for some of the rows, or a row that is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from app.model.cpu.kernels import amx
from app.model.cpu.kernels.compiled import compiled, widen
from app.model.cpu.kernels.llvm import I64, VOID, copy, declare, of_integers, pointer
from app.model.cpu.kernels.panels import MOST_ROWS, WIDTH
from app.model.cpu.kernels.records import WEIGHT, WIDENED, at, memory, tensor
from app.model.cpu.kernels.rounded_rows import round_row
from app.model.cpu.kernels.vectors import (
    FLOATS,
    LANES,
    LOG2_E,
    WORDS,
    exp2,
    filled,
    narrowed,
    widened,
)

ROWS = 96
"""Rows of an item: their sums stay in the L1 cache, their inputs in L2."""
INPUTS_AT_ONCE = 4096
"""Inputs of a panel multiplied at a time: they stay in the L2 cache for the next rows."""

_f32: Any = np.float32


@of_integers(types.void)
def _multiply(
    builder: Any, function: Any, rows: Any, x: Any, stride: Any, panel: Any, units: Any, sums: Any
) -> None:
    kind = ir.FunctionType(VOID, [I64] * 6)
    builder.call(pointer(builder, function, kind), [rows, x, stride, panel, units, sums])


def _places(builder: Any, address: Any, kind: Any) -> list[Any]:
    """Pointers to the vectors of a panel's outputs at an address, 16 of a ``kind`` each."""
    size = 4 * LANES if kind == FLOATS else 2 * LANES
    first = [builder.add(address, I64(size * i)) for i in range(WIDTH // LANES)]
    return [pointer(builder, place, kind) for place in first]


@of_integers(types.void)
def _swiglu(builder: Any, sums: Any, ups: Any) -> None:
    """``sums = silu(sums) * ups`` for a row of a panel."""
    for place, up in zip(*[_places(builder, each, FLOATS) for each in (sums, ups)], strict=True):
        x = builder.load(place, align=4)
        size = builder.call(declare(builder, FLOATS, [FLOATS], "llvm.fabs.v16f32"), [x])
        power = exp2(builder, builder.fmul(size, filled(-LOG2_E)))
        share = builder.fdiv(filled(1.0), builder.fadd(filled(1.0), power))
        positive = builder.fcmp_ordered(">=", x, filled(0.0))
        share = builder.select(positive, share, builder.fmul(power, share))
        silu = builder.fmul(x, share)
        builder.store(builder.fmul(silu, builder.load(up, align=4)), place, align=4)


@of_integers(types.void)
def _finish(builder: Any, sums: Any, residual: Any, out: Any) -> None:
    """Write a row's 64 sums, plus its 64 bfloat16 at ``residual`` unless that is 0, to ``out``."""
    kind = ir.VectorType(ir.IntType(16), LANES)
    with builder.if_then(builder.icmp_signed("!=", residual, I64(0))):
        for i, place in enumerate(_places(builder, sums, FLOATS)):
            # The sum is rounded before it is added, as a linear layer rounds what it gives.
            own = builder.bitcast(narrowed(builder, builder.load(place, align=4)), FLOATS)
            more = widened(builder, builder.add(residual, I64(2 * LANES * i)))
            builder.store(builder.fadd(own, more), place, align=4)
    pairs = zip(_places(builder, sums, FLOATS), _places(builder, out, kind), strict=True)
    for place, target in pairs:
        words = narrowed(builder, builder.load(place, align=4))
        shorts = builder.trunc(builder.lshr(words, ir.Constant(WORDS, [16] * LANES)), kind)
        builder.store(shorts, target, align=2)


@compiled()
def _panel_sums(job: Any, weight: Any, panel: int, first: int, rows: int, width: int) -> Any:
    """Rows of ``x`` times one panel, plus the bias: [rows, 64], of which ``width`` count."""
    many = max(weight.rounds, 1)
    lines = rows * many
    sums = np.zeros((lines, WIDTH), dtype=np.float32)
    stride = weight.units * weight.input_bytes
    x = job.x + first * many * stride
    begin = weight.panels + panel * weight.units * weight.unit_bytes
    multiply, most = weight.multiply, MOST_ROWS
    least = job.rounded_tiles_from if weight.rounds > 0 else job.tiles_from
    if least and lines >= least:
        multiply, most = weight.by_tiles, amx.MOST_ROWS
    groups = (lines + most - 1) // most
    size, larger = lines // groups, lines % groups
    for unit in range(0, weight.units, weight.units_at_once):
        units = min(weight.units_at_once, weight.units - unit)
        line = 0
        for group in range(groups):
            count = size + (group < larger)
            _multiply(
                multiply, count, x + line * stride + unit * weight.input_bytes, stride,
                begin + unit * weight.unit_bytes, units, sums.ctypes.data + line * 4 * WIDTH,
            )  # fmt: skip
            line += count
    if many == 2:
        for row in range(rows):
            for i in range(WIDTH):
                sums[row, i] = sums[2 * row, i] + sums[2 * row + 1, i]
    if weight.bias:
        bias = tensor(weight.bias + 2 * panel * WIDTH, (width,))
        for row in range(rows):
            for i in range(width):
                sums[row, i] += widen(bias[i])
    return sums


@compiled()
def weight_at(address: int) -> Any:
    return memory(at(address), (1,), WEIGHT)[0]


@compiled()
def multiply_item(job: Any, swiglu: bool, item: int) -> None:
    """``out = x weight + bias + residual`` for one item; ``residual`` may be ``out``.

    For SwiGLU, ``out = silu(x gate) * (x up)``: the weight has a panel of the gate's before each
    one of the up projection's.
    """
    weight = weight_at(job.weight)
    panel, block = item // job.blocks, item % job.blocks
    first = job.rows * block // job.blocks
    rows = job.rows * (block + 1) // job.blocks - first
    begin = panel * WIDTH
    width = min(WIDTH, weight.outputs - begin)
    sums = _panel_sums(job, weight, (1 + swiglu) * panel, first, rows, width)
    if swiglu:
        ups = _panel_sums(job, weight, 2 * panel + 1, first, rows, width)
        for row in range(rows):
            _swiglu(sums[row].ctypes.data, ups[row].ctypes.data)
    for row in range(rows):
        offset = 2 * ((first + row) * job.pitch + begin)
        residual = job.residual + offset if job.residual else 0
        if width == WIDTH:
            _finish(sums[row].ctypes.data, residual, job.out + offset)
        else:
            room = np.zeros(WIDTH, dtype=np.uint16)
            place = np.int64(room.ctypes.data)
            if residual:
                copy(residual, place, 2 * width)
            _finish(sums[row].ctypes.data, place if residual else 0, place)
            copy(place, job.out + offset, 2 * width)


@compiled()
def round_item(job: Any, row: int) -> None:
    weight = weight_at(job.weight)
    stride = weight.units * weight.input_bytes * abs(weight.rounds)
    x, out = job.x + 2 * weight.inputs * row, job.rounded + stride * row
    if weight.rounds == WIDENED:
        wide = memory(at(out), (weight.inputs,), np.float32)
        own = tensor(x, (weight.inputs,))
        for i in range(weight.inputs):
            wide[i] = widen(own[i])
    else:
        round_row(x, out, weight.units, weight.rounds)
