"""Matrix products in bfloat16 for few rows: weights in panels, read once, in order of memory.

A step has few rows, so a product takes the time to read its weights. oneDNN reads them at 12 GB/s
(one core, Zen 4, 1 row), these loops at 20 GB/s and more; with many rows they do 205 to 225
GFLOP/s, and oneDNN 180 to 200::

    weight [N, K]  ->  panels [N / 64, K / 2, 64, 2]    64 outputs side by side, two inputs deep

This is the shape that AVX512-BF16's dot product takes: 16 outputs an instruction, two inputs each.
Without that instruction the two are widened and added by ``fma``. Sums are float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from torch import Tensor

from app.core.kernels import PROCESSORS, has
from app.model.cpu.kernels.compiled import address_of, compiled
from app.model.cpu.kernels.llvm import I32, I64, defined, of_integers, pointer, prefetch
from app.model.cpu.kernels.vectors import (
    FLOATS,
    LANES,
    WORDS,
    dot,
    fma,
    loop,
    registers,
    split,
    spread,
)

WIDTH = 64
"""Outputs of a panel."""
VECTORS = WIDTH // LANES
MOST_ROWS = 6
"""Rows multiplied at a time: 24 sums, 4 weights and an input fill the 32 registers of AVX-512."""

MULTIPLY = "void(int64, int64, int64, int64, int64, int64)"
"""``f(rows, x, stride, panel, units, sums)``: add 1 to ``MOST_ROWS`` rows at ``x`` times a panel to
``sums`` [rows, 64], float32. ``x``, ``panel`` and ``sums`` are addresses, ``stride`` is from row to
row in bytes; a unit is as many inputs as a turn of the loop takes."""

AHEAD = 8192
"""Distance in bytes at which weights are prefetched."""


def runs_here() -> bool:
    """Whether this processor has the instructions, and the system the calls of ``team``."""
    return not missing()


def missing() -> list[str]:
    """Names of the features that these loops and those of ``quantized_products`` need."""
    found = [feature.upper() for feature in PROCESSORS["avx2"][1] if not has(feature)]
    return found if sys.platform == "linux" else [*found, "Linux"]


def widened() -> bool:
    """Whether rows of inputs are float32 and not bfloat16."""
    return not has("avx512bf16")


def input_bytes() -> int:
    """Bytes of a pair of inputs in a row."""
    return 8 if widened() else 4


def columns(rows: int) -> list[range]:
    """Vectors of a panel's outputs that are summed together: as many as registers hold."""
    together = next(each for each in (VECTORS, 2, 1) if rows * each <= registers() - 2)
    return [range(first, first + together) for first in range(0, VECTORS, together)]


def pack(weight: Tensor) -> Tensor:
    """``weight`` [N, K], bfloat16, as panels; N is filled up with zeros. K must be even."""
    outputs, inputs = weight.shape
    if outputs % WIDTH:
        weight = F.pad(weight, (0, 0, 0, -outputs % WIDTH))
    pairs = weight.contiguous().view(torch.int32).view(-1, WIDTH, inputs // 2)
    side_by_side = pairs.transpose(1, 2).contiguous()
    return side_by_side.view(torch.bfloat16).view(-1, inputs // 2, WIDTH, 2)


def row_reader(panels: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from ids to these rows of the weight in ``panels``: the inverse of ``pack``.

    It raises ``IndexError`` for an id that no panel has.
    """
    pairs = panels.view(torch.int32)[..., 0].numpy()

    def read(ids: Tensor) -> Tensor:
        out = torch.empty(len(ids), panels.shape[1], dtype=torch.int32)
        _gather(pairs, ids.numpy(), out.numpy())
        return out.view(torch.bfloat16)

    return read


@compiled()
def _gather(pairs: Any, ids: Any, out: Any) -> None:
    for place in range(len(ids)):
        if not 0 <= ids[place] < WIDTH * len(pairs):
            raise IndexError("an id is out of range of the weight")
        panel, row = ids[place] // WIDTH, ids[place] % WIDTH
        for pair in range(out.shape[1]):
            out[place, pair] = pairs[panel, pair, row]


def entry() -> int:
    """The address of the product with these panels, see ``MULTIPLY``; compiled on the first call.

    The unit of panels and rows is a pair of inputs.
    """
    return address_of(_bfloat16, MULTIPLY)


def by_rows(
    name: str, write: Callable[..., None], write_tiles: Callable[[Any], None] | None = None
) -> Any:
    """``MULTIPLY`` by a function for each number of rows; ``write`` writes it for one (``rows``).

    On processors with AMX ``write_tiles`` writes that for more rows.
    """

    @of_integers(types.void)
    def multiply(
        builder: Any, rows: Any, x: Any, stride: Any, panel: Any, units: Any, sums: Any
    ) -> None:
        for count in range(1, MOST_ROWS + 1):
            function = defined(builder, f"{name}_{count}", [I64] * 5, partial(write, rows=count))
            with builder.if_then(builder.icmp_signed("==", rows, I64(count))):
                builder.call(function, [x, stride, panel, units, sums])
        if write_tiles is not None and has("amx-int8"):
            function = defined(builder, f"{name}_tiles", [I64] * 6, write_tiles)
            with builder.if_then(builder.icmp_signed(">", rows, I64(MOST_ROWS))):
                builder.call(function, [rows, x, stride, panel, units, sums])

    return multiply


def _bfloat16(rows: int, x: int, stride: int, panel: int, pairs: int, sums: int) -> None:
    _multiply(rows, x, stride, panel, pairs, sums)


def _write(function: Any, rows: int) -> None:
    """The loops over pairs of inputs, with sums in registers."""
    x, stride, weights, pairs, sums = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    lines = [builder.add(x, builder.mul(stride, I64(row))) for row in range(rows)]
    for own in columns(rows):

        def turn(pair: Any, running: list[Any], own: range = own) -> list[Any]:
            panel = builder.add(weights, builder.mul(pair, I64(4 * WIDTH)))
            for i in own:
                prefetch(builder, builder.add(panel, I64(AHEAD + 64 * i)))
            places = [pointer(builder, builder.add(panel, I64(64 * i)), WORDS) for i in own]
            loaded = [builder.load(place, align=64) for place in places]
            added: list[Any] = []
            for line in lines:
                place = builder.add(line, builder.mul(pair, I64(input_bytes())))
                offsets = [I64(4 * i) for i in range(input_bytes() // 4)]
                inputs = [everywhere(builder, builder.add(place, offset)) for offset in offsets]
                for word in loaded:
                    total = running[len(added)]
                    if widened():
                        for weight, x in zip(split(builder, word), inputs, strict=True):
                            total = fma(builder, builder.bitcast(x, FLOATS), weight, total)
                    else:
                        total = dot(builder, inputs[0], word, total)
                    added.append(total)
            return added

        places = [
            pointer(builder, builder.add(sums, I64(4 * WIDTH * row + 64 * i)), FLOATS)
            for row in range(rows)
            for i in own
        ]
        first = [builder.load(place, align=4) for place in places]
        added = loop(builder, I64(0), pairs, 1, first, turn)
        for place, value in zip(places, added, strict=True):
            builder.store(value, place, align=4)
    builder.ret_void()


_multiply = by_rows("bfloat16", _write)


def everywhere(builder: Any, address: Any) -> Any:
    """The 32 bits at ``address`` in every lane."""
    return spread(builder, builder.load(pointer(builder, address, I32), align=4))
