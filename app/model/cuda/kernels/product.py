"""Batch-invariant products: a row's result does not depend on the number of rows or its index.

Libraries choose kernel, tile and order of sums by the number of rows, so a token's values depend
on the other tokens of the step. Here tiles and the order of sums depend on the weight's shape alone
("Defeating nondeterminism in LLM inference", Thinking Machines, 2025): a program computes 64 rows
by ``columns`` over one share of the depth; if a weight has too few columns to keep a device busy,
the depth is split into ``shares``, whose sums are added in order::

    x [rows, depth]        weight [columns of out, depth]        out [rows, columns of out]

This module needs triton; without CUDA, only its tests import it.
"""

# ruff: noqa: N803 (compile-time constants are written as constants)
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from app.model.cuda.tiles import this_device

_TILE_ROWS = 64
_PROGRAMS_WANTED = 192
"""Below this, tiles are narrower, then the depth is split. An H200 has 132 multiprocessors."""
_MOST_SHARES = 4
_LEAST_SHARE = 512
"""Minimum depth of a share; the merge costs more than a smaller one saves."""
_ROWS_AT_ONCE = 1024
"""Maximum rows of a launch with shares; bounds the memory of partial sums."""
_MERGE_BLOCK = 1024
_MOST_STAGES = 4
_SHARED_BYTES = 99 << 10
"""Shared memory that a program may have on every device since Ampere (compute capability 8.6)."""
_SHARED_SLACK = 1 << 10


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiling of the product with one weight; depends on the weight alone."""

    columns: int
    """Columns of the result that a program computes."""
    depth: int
    """Depth of a tile."""
    shares: int
    """Programs that split the depth between them, for one tile of the result."""
    stages: int
    """Tiles in the pipeline of loads; no effect on the result."""


def tiling(weight: Tensor) -> Tiling:
    """The tiling for a ``weight`` [N, K]. Of its fields, only ``stages`` depends on the device."""
    shared_bytes = min(this_device(weight.device).shared_bytes, _SHARED_BYTES)
    width, whole_depth = weight.shape
    depth = 128 // weight.element_size()
    columns = 128 if weight.element_size() < 4 and width >= 128 * _PROGRAMS_WANTED else 64
    shares = 1
    while (
        shares < _MOST_SHARES
        and triton.cdiv(width, columns) * shares < _PROGRAMS_WANTED
        and whole_depth >= 2 * shares * _LEAST_SHARE
    ):
        shares *= 2
    stage = (_TILE_ROWS + columns) * depth * weight.element_size()
    stages = min(_MOST_STAGES, (shared_bytes - _SHARED_SLACK) // stage)
    return Tiling(columns, depth, shares, stages)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _product(
    x: tl.tensor, weight: tl.tensor, bias: tl.tensor, out: tl.tensor, rows: tl.tensor,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLUMNS: tl.constexpr, TILE_DEPTH: tl.constexpr,
    SHARE: tl.constexpr, BIASED: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    m = (tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)).to(tl.int64)
    n = (tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)).to(tl.int64)
    share = tl.program_id(2)
    k = tl.arange(0, TILE_DEPTH)
    real_rows, real_columns = m < rows, n < WIDTH
    low = share * SHARE
    left = x + m[:, None] * DEPTH + (low + k)[None, :]
    right = weight + n[None, :] * DEPTH + (low + k)[:, None]
    sums = tl.zeros([TILE_ROWS, TILE_COLUMNS], tl.float32)
    for step in range(SHARE // TILE_DEPTH):
        if DEPTH % SHARE == 0:
            a = tl.load(left, mask=real_rows[:, None], other=0.0)
            b = tl.load(right, mask=real_columns[None, :], other=0.0)
        else:
            inside = low + step * TILE_DEPTH + k < DEPTH
            a = tl.load(left, mask=real_rows[:, None] & inside[None, :], other=0.0)
            b = tl.load(right, mask=real_columns[None, :] & inside[:, None], other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION)
        left += TILE_DEPTH
        right += TILE_DEPTH
    if BIASED:
        sums += tl.load(bias + n, mask=real_columns, other=0.0).to(tl.float32)[None, :]
    to = out + (share.to(tl.int64) * rows + m[:, None]) * WIDTH + n[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=real_rows[:, None] & real_columns[None, :])


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _merge(
    partial: tl.tensor, bias: tl.tensor, out: tl.tensor, rows: tl.tensor,
    WIDTH: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = n < WIDTH
    sums = tl.load(partial + row * WIDTH + n, mask=real, other=0.0)
    for share in tl.static_range(1, SHARES):
        sums += tl.load(partial + (share * rows + row) * WIDTH + n, mask=real, other=0.0)
    if BIASED:
        sums += tl.load(bias + n, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + n, sums.to(out.dtype.element_ty), mask=real)


def product(x: Tensor, weight: Tensor, bias: Tensor | None, tiles: Tiling) -> Tensor:
    """``x`` [T, K] times the transposed ``weight`` [N, K], plus ``bias`` [N]: [T, N].

    Sums are float32, rounded once. One launch, or two for every 1,024 rows if the depth is split.
    """
    rows, width = len(x), len(weight)
    assert x.is_contiguous()
    assert weight.is_contiguous()
    out = x.new_empty(rows, width)
    if rows == 0:
        return out
    if tiles.shares == 1:
        _launch(x, weight, bias, out, tiles)
        return out
    at_once = min(rows, _ROWS_AT_ONCE)
    partial = x.new_empty(tiles.shares * at_once * width, dtype=torch.float32)
    for first in range(0, rows, _ROWS_AT_ONCE):
        part = out[first : first + _ROWS_AT_ONCE]
        _launch(x[first : first + _ROWS_AT_ONCE], weight, None, partial, tiles)
        _merge[(len(part), triton.cdiv(width, _MERGE_BLOCK))](
            partial, out if bias is None else bias, part, len(part),
            WIDTH=width, SHARES=tiles.shares, BLOCK=_MERGE_BLOCK, BIASED=bias is not None,
            num_warps=4,
        )  # fmt: skip
    return out


def _launch(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, tiles: Tiling) -> None:
    rows, depth = x.shape
    width = len(weight)
    steps = triton.cdiv(depth, tiles.depth)
    _product[(triton.cdiv(rows, _TILE_ROWS), triton.cdiv(width, tiles.columns), tiles.shares)](
        x, weight, weight if bias is None else bias, out, rows,
        WIDTH=width, DEPTH=depth,
        TILE_ROWS=_TILE_ROWS, TILE_COLUMNS=tiles.columns, TILE_DEPTH=tiles.depth,
        SHARE=triton.cdiv(steps, tiles.shares) * tiles.depth, BIASED=bias is not None,
        # By default tensor cores round float32 to 10 bits.
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
        num_warps=4, num_stages=tiles.stages,
    )  # fmt: skip
