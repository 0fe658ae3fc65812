"""Low-rank products: each row is multiplied with the weights of its token's adapter.

A program has 16 rows. It reads their slots, and for each adapter among them multiplies all rows,
with the rows of other adapters set to zero. Rows need no sorting, and the launches are the same
for any mix of adapters. Programs without adapter rows end at once. Two kernels::

    inner [shares, rows, modules * rank] = x [rows, depth]  a[slot] [modules, rank, depth]
    out [rows, width] += inner  b[slot] [width, rank]

Tiles and the order of sums depend on the weights alone, so a row's result does not depend on other
rows. The depth is split into shares, whose sums the second kernel adds in order. Modules with
adjacent columns in ``out`` share a launch.

This module needs triton; without CUDA, only its tests import it.
"""

# ruff: noqa: N803 (compile-time constants are written as constants)
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from app.model.adapters.peft import Pair
from app.model.adapters.targets import Target

_ROWS = 16
"""The minimum for tensor cores."""
_LEAST_RANK = 16
_COLUMNS = 64
_DEPTH_BYTES = 256
"""Bytes of a row loaded at a time."""
_STAGES = 3
"""Tiles in the pipeline of loads."""
_SHARED_BYTES = 90 << 10
"""Shared memory for these tiles: a program may have 99 KiB on every device since Ampere
(compute capability 8.6)."""
_SHARE = 1024
"""Depth that one program adds up."""


@dataclass(frozen=True, slots=True)
class RankTiles:
    """Tiling of the products of one bank."""

    depth: int
    """Depth of a tile."""
    share: int
    """Depth that one program adds up."""
    shares: int
    column_tiles: int
    """Number of tiles of the widest module."""

    @staticmethod
    def of(depth: int, width: int, rank: int, dtype: torch.dtype) -> RankTiles:
        """``rank`` is the padded rank, ``width`` that of the widest module."""
        fitting = _SHARED_BYTES // (_STAGES * (_ROWS + rank) * dtype.itemsize)
        most = min(_DEPTH_BYTES // dtype.itemsize, 1 << (fitting.bit_length() - 1))
        tile = min(most, max(16, triton.next_power_of_2(depth)))
        share = min(_SHARE, triton.cdiv(depth, tile) * tile)
        return RankTiles(tile, share, triton.cdiv(depth, share), triton.cdiv(width, _COLUMNS))


def padded_rank(rank: int) -> int:
    """Rank of the slots: ``rank`` rounded up to a power of two, at least ``_LEAST_RANK``."""
    return max(_LEAST_RANK, 1 << (rank - 1).bit_length())


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def shrink(
    x: tl.tensor, a: tl.tensor, adapters: tl.tensor, inner: tl.tensor, rows: tl.tensor,
    DEPTH: tl.constexpr, RANK: tl.constexpr, PARTS: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, TILE_DEPTH: tl.constexpr, SHARE: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = m < rows
    which = tl.load(adapters + m, mask=real, other=0)
    if tl.max(which, 0) > 0:
        part = tl.program_id(1)
        share = tl.program_id(2)
        m64 = m.to(tl.int64)
        r = tl.arange(0, RANK)
        k = tl.arange(0, TILE_DEPTH)
        low = share * SHARE
        sums = tl.zeros([ROWS, RANK], tl.float32)
        for slot in range(SLOTS):
            mine = which == slot + 1
            if tl.max(mine.to(tl.int32), 0) > 0:
                weights = a + (slot * PARTS + part).to(tl.int64) * RANK * DEPTH
                for step in range(SHARE // TILE_DEPTH):
                    at = low + step * TILE_DEPTH + k
                    inside = at < DEPTH
                    left = tl.load(
                        x + m64[:, None] * DEPTH + at[None, :],
                        mask=mine[:, None] & inside[None, :],
                        other=0.0,
                    )
                    right = tl.load(
                        weights + r[None, :] * DEPTH + at[:, None],
                        mask=inside[:, None],
                        other=0.0,
                    )
                    sums = tl.dot(left, right, sums, input_precision=PRECISION)
        to = inner + ((share * rows + m64[:, None]) * PARTS + part) * RANK + r[None, :]
        tl.store(to, sums, mask=real[:, None])


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def expand(
    inner: tl.tensor, b: tl.tensor, adapters: tl.tensor, columns: tl.tensor, out: tl.tensor,
    rows: tl.tensor,
    WIDTH: tl.constexpr, RANK: tl.constexpr, PARTS: tl.constexpr, SLOTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SHARES: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    part = tl.program_id(2)
    first = tl.load(columns + part) + tl.program_id(1) * COLUMNS
    end = tl.load(columns + part + 1)
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    which = tl.load(adapters + m, mask=m < rows, other=0)
    if (tl.max(which, 0) > 0) & (first < end):
        m64 = m.to(tl.int64)
        r = tl.arange(0, RANK)
        n = first + tl.arange(0, COLUMNS)
        real = n < end
        own = which > 0
        summed = tl.zeros([ROWS, RANK], tl.float32)
        for share in range(SHARES):
            at = inner + ((share * rows + m64[:, None]) * PARTS + part) * RANK + r[None, :]
            summed += tl.load(at, mask=own[:, None], other=0.0)
        left = summed.to(b.dtype.element_ty)
        sums = tl.zeros([ROWS, COLUMNS], tl.float32)
        for slot in range(SLOTS):
            mine = which == slot + 1
            if tl.max(mine.to(tl.int32), 0) > 0:
                right = tl.load(
                    b + (slot * WIDTH + n[None, :]).to(tl.int64) * RANK + r[:, None],
                    mask=real[None, :],
                    other=0.0,
                )
                chosen = tl.where(mine[:, None], left, 0.0).to(b.dtype.element_ty)
                sums = tl.dot(chosen, right, sums, input_precision=PRECISION)
        to = out + m64[:, None] * WIDTH + n[None, :]
        mask = own[:, None] & real[None, :]
        added = tl.load(to, mask=mask, other=0.0).to(tl.float32) + sums
        tl.store(to, added.to(out.dtype.element_ty), mask=mask)


def add_low_rank(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    columns: Tensor,
    adapters: Tensor,
    out: Tensor,
    tiles: RankTiles,
) -> None:
    """Add the adapter's product with ``x`` [T, K] to each row of ``out`` [T, N] with an adapter.

    ``a`` [slots, modules, rank, K] and ``b`` [slots, N, rank]; ``columns`` [modules + 1], int32,
    are the bounds of the modules' columns; ``adapters`` [T], int32, is the slot of each row: 1 is
    the first, 0 means none. Sums are float32.
    """
    rows = len(x)
    slots, parts, rank, depth = a.shape
    assert x.is_contiguous()
    assert out.is_contiguous()
    if rows == 0:
        return
    inner = x.new_empty(tiles.shares * rows * parts * rank, dtype=torch.float32)
    # By default tensor cores round float32 to 10 bits.
    precision = "ieee" if x.dtype == torch.float32 else "tf32"
    row_tiles = triton.cdiv(rows, _ROWS)
    shrink[(row_tiles, parts, tiles.shares)](
        x, a, adapters, inner, rows,
        DEPTH=depth, RANK=rank, PARTS=parts, SLOTS=slots,
        ROWS=_ROWS, TILE_DEPTH=tiles.depth, SHARE=tiles.share, PRECISION=precision,
        num_warps=4, num_stages=_STAGES,
    )  # fmt: skip
    expand[(row_tiles, tiles.column_tiles, parts)](
        inner, b, adapters, columns, out, rows,
        WIDTH=b.shape[1], RANK=rank, PARTS=parts, SLOTS=slots,
        ROWS=_ROWS, COLUMNS=_COLUMNS, SHARES=tiles.shares, PRECISION=precision,
        num_warps=4, num_stages=_STAGES,
    )  # fmt: skip


class CudaBank:
    """See ``Bank``: two tensors hold all slots, at addresses that are fixed for graphs.

    They have ``count * padded rank * (modules * K + N)`` numbers. An adapter that is loaded later
    is copied into them.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        count: int,
        rank: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        widths = [target.width for target in targets]
        self._bounds = [sum(widths[:i]) for i in range(len(widths) + 1)]
        depth, rank = targets[0].depth, padded_rank(rank)
        self._a = torch.zeros(count, len(widths), rank, depth, dtype=dtype, device=device)
        self._b = torch.zeros(count, self._bounds[-1], rank, dtype=dtype, device=device)
        self._columns = torch.tensor(self._bounds, dtype=torch.int32, device=device)
        self._tiles = RankTiles.of(depth, max(widths), rank, dtype)

    def put(self, slot: int, pairs: Sequence[Pair | None]) -> None:
        a, b = self._a[slot - 1], self._b[slot - 1]
        a.zero_()
        b.zero_()
        for part, pair in enumerate(pairs):
            if pair is not None:
                a[part, : pair.rank].copy_(pair.a)
                b[self._bounds[part] : self._bounds[part + 1], : pair.rank].copy_(pair.b)

    def add(self, x: Tensor, out: Tensor, adapters: Tensor) -> None:
        add_low_rank(x.contiguous(), self._a, self._b, self._columns, adapters, out, self._tiles)

    def adapters(self, slots: Sequence[int]) -> Tensor:
        return torch.tensor(slots, dtype=torch.int32, device=self._a.device)
