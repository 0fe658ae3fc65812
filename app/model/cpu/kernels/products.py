"""Items of a product: a panel of 64 outputs for some of the rows, or a row that is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from app.model.cpu.kernels.by_row import silu
from app.model.cpu.kernels.compiled import compiled, narrow, widen
from app.model.cpu.kernels.llvm import I64, VOID, of_integers, pointer
from app.model.cpu.kernels.panels import MOST_ROWS, WIDTH
from app.model.cpu.kernels.records import WEIGHT, WIDENED, at, memory, tensor
from app.model.cpu.kernels.rounded_rows import round_row

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


@compiled()
def _panel_sums(job: Any, weight: Any, panel: int, first: int, rows: int, width: int) -> Any:
    """Rows of ``x`` times one panel, plus the bias: [rows, 64], of which ``width`` count."""
    many = max(weight.rounds, 1)
    lines = rows * many
    sums = np.zeros((lines, WIDTH), dtype=np.float32)
    stride = weight.units * weight.input_bytes
    x = job.x + first * many * stride
    begin = weight.panels + panel * weight.units * weight.unit_bytes
    groups = (lines + MOST_ROWS - 1) // MOST_ROWS
    for unit in range(0, weight.units, weight.units_at_once):
        units = min(weight.units_at_once, weight.units - unit)
        for group in range(groups):
            a, b = lines * group // groups, lines * (group + 1) // groups
            _multiply(
                weight.multiply, b - a, x + a * stride + unit * weight.input_bytes, stride,
                begin + unit * weight.unit_bytes, units, sums.ctypes.data + a * 4 * WIDTH,
            )  # fmt: skip
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
    if swiglu:
        sums = _panel_sums(job, weight, 2 * panel, first, rows, width)
        ups = _panel_sums(job, weight, 2 * panel + 1, first, rows, width)
        for row in range(rows):
            for i in range(width):
                sums[row, i] = silu(sums[row, i]) * ups[row, i]
    else:
        sums = _panel_sums(job, weight, panel, first, rows, width)
    for row in range(rows):
        offset = 2 * ((first + row) * job.pitch + begin)
        own = sums[row]
        if job.residual:
            more = tensor(job.residual + offset, (width,))
            for i in range(width):
                # The sum is rounded before it is added, as a linear layer rounds what it gives.
                own[i] = widen(narrow(own[i], more[i])) + widen(more[i])
        out = tensor(job.out + offset, (width,))
        for i in range(width):
            out[i] = narrow(own[i], out[i])


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
