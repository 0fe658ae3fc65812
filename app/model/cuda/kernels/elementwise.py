"""Kernels between a layer's products: norms, rotation with the cache write, activation.

Each value is rounded to the model's type where transformers rounds it, and is float32 in between.
Launches set ``enable_fp_fusion=False``: a product and a sum fused into one instruction would skip
the rounding between them (measured on an H100: a quarter of bfloat16 values differ).
A program processes one token, in an order fixed by the model's shape, so no result depends on
other tokens of a step. Compile-time constants depend on the model alone, and no argument is an
integer: nothing is compiled again while serving.

This module needs triton; without CUDA, only its tests import it.
"""

# ruff: noqa: N803 (compile-time constants are written as constants)
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from app.model.cuda.kernels.attention import rounded_to_fp8, scale_of
from app.model.layers.architecture import Norm

_NORM_WARP_ELEMENTS = 512
_HEAD_PAIRS = 1024
"""Pairs of dimensions that one program rotates."""
_ACTIVATION_BLOCK = 1024

Kept = tuple[Tensor, Tensor, Tensor, Tensor]
"""A layer's keys and values [slots, Hk, D] and scales [slots, Hk]; any tensors if it has none."""


@triton.jit  # type: ignore[untyped-decorator]
def _normed(
    x: tl.tensor, weight: tl.tensor, mean_square: tl.tensor, eps: tl.tensor,
    SHIFTED: tl.constexpr, DTYPE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    x = x * tl.rsqrt(mean_square + eps)
    if SHIFTED:
        return (x * (1.0 + weight)).to(DTYPE)
    return (x.to(DTYPE).to(tl.float32) * weight).to(DTYPE)


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(
    hidden: tl.tensor, added: tl.tensor, added_weight: tl.tensor, weight: tl.tensor,
    total: tl.tensor, out: tl.tensor, added_eps: tl.tensor, eps: tl.tensor,
    WIDTH: tl.constexpr, PAD: tl.constexpr,
    ADDS: tl.constexpr, NORMS_ADDED: tl.constexpr, SHIFTED: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * WIDTH
    d = tl.arange(0, PAD)
    real = d < WIDTH
    dtype: tl.constexpr = out.dtype.element_ty
    x = tl.load(hidden + row + d, mask=real, other=0.0).to(tl.float32)
    if ADDS:
        y = tl.load(added + row + d, mask=real, other=0.0).to(tl.float32)
        if NORMS_ADDED:
            w = tl.load(added_weight + d, mask=real, other=0.0).to(tl.float32)
            mean_square = tl.sum(y * y, 0) / WIDTH
            y = _normed(y, w, mean_square, added_eps, SHIFTED, dtype).to(tl.float32)
        rounded = (x + y).to(dtype)
        tl.store(total + row + d, rounded, mask=real)
        x = rounded.to(tl.float32)
    w = tl.load(weight + d, mask=real, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, 0) / WIDTH
    tl.store(out + row + d, _normed(x, w, mean_square, eps, SHIFTED, dtype), mask=real)


@triton.jit(do_not_specialize_on_alignment=["slots"])  # type: ignore[untyped-decorator]
def _rotate_and_store(
    heads: tl.tensor, cos: tl.tensor, sin: tl.tensor, slots: tl.tensor,
    query_weight: tl.tensor, key_weight: tl.tensor, query_eps: tl.tensor, key_eps: tl.tensor,
    query: tl.tensor, keys: tl.tensor, values: tl.tensor,
    key_scales: tl.tensor, value_scales: tl.tensor,
    QUERY_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr,
    TILE: tl.constexpr, NORMS: tl.constexpr, SHIFTED: tl.constexpr, SCALED: tl.constexpr,
) -> None:  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * TILE + tl.arange(0, TILE)
    d = tl.arange(0, HALF_PAD)
    dim: tl.constexpr = 2 * HALF
    all_heads: tl.constexpr = QUERY_HEADS + 2 * KV_HEADS
    dtype: tl.constexpr = query.dtype.element_ty
    within = d < HALF
    real = (head < all_heads)[:, None] & within[None, :]
    is_query = (head < QUERY_HEADS)[:, None]
    is_value = (head >= QUERY_HEADS + KV_HEADS)[:, None]

    # The halves of a head: dimensions d and d + HALF are rotated together.
    at = (token * all_heads + head)[:, None] * dim + d[None, :]
    first = tl.load(heads + at, mask=real, other=0.0)
    second = tl.load(heads + at + HALF, mask=real, other=0.0)
    x, y = first.to(tl.float32), second.to(tl.float32)
    if NORMS:
        mean_square = ((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / dim)[:, None]
        eps = tl.where(is_query, query_eps, key_eps)
        query_w = tl.load(query_weight + d, mask=within, other=0.0).to(tl.float32)[None, :]
        key_w = tl.load(key_weight + d, mask=within, other=0.0).to(tl.float32)[None, :]
        w = tl.where(is_query, query_w, key_w)
        x = _normed(x, w, mean_square, eps, SHIFTED, dtype).to(tl.float32)
        query_w = tl.load(query_weight + HALF + d, mask=within, other=0.0).to(tl.float32)[None, :]
        key_w = tl.load(key_weight + HALF + d, mask=within, other=0.0).to(tl.float32)[None, :]
        w = tl.where(is_query, query_w, key_w)
        y = _normed(y, w, mean_square, eps, SHIFTED, dtype).to(tl.float32)

    turn = token * dim + d
    c = tl.load(cos + turn, mask=within, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + turn, mask=within, other=0.0).to(tl.float32)[None, :]
    left, right = (x * c).to(dtype).to(tl.float32), (y * s).to(dtype).to(tl.float32)
    turned_first = (left - right).to(dtype)
    c = tl.load(cos + turn + HALF, mask=within, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + turn + HALF, mask=within, other=0.0).to(tl.float32)[None, :]
    left, right = (y * c).to(dtype).to(tl.float32), (x * s).to(dtype).to(tl.float32)
    turned_second = (left + right).to(dtype)

    to = query + (token * QUERY_HEADS + head)[:, None] * dim + d[None, :]
    tl.store(to, turned_first, mask=real & is_query)
    tl.store(to + HALF, turned_second, mask=real & is_query)
    place = tl.load(slots + token).to(tl.int64) * KV_HEADS + head - QUERY_HEADS
    if SCALED:
        turned_first, turned_second, scale = _rounded(turned_first, turned_second)
        is_key_head = (head >= QUERY_HEADS) & (head < QUERY_HEADS + KV_HEADS)
        tl.store(key_scales + place, scale, mask=is_key_head)
        first, second, scale = _rounded(first, second)
        is_value_head = (head >= QUERY_HEADS + KV_HEADS) & (head < all_heads)
        tl.store(value_scales + place - KV_HEADS, scale, mask=is_value_head)
    to = keys + place[:, None] * dim + d[None, :]
    is_key = (head >= QUERY_HEADS)[:, None] & (head < QUERY_HEADS + KV_HEADS)[:, None]
    tl.store(to, turned_first, mask=real & is_key)
    tl.store(to + HALF, turned_second, mask=real & is_key)
    to = values + (place - KV_HEADS)[:, None] * dim + d[None, :]
    tl.store(to, first, mask=real & is_value)
    tl.store(to + HALF, second, mask=real & is_value)


@triton.jit  # type: ignore[untyped-decorator]
def _rounded(first: tl.tensor, second: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Halves of heads [H, D / 2] in E4M3, and the scale of each head: [H]."""
    largest = tl.maximum(
        tl.max(tl.abs(first.to(tl.float32)), 1), tl.max(tl.abs(second.to(tl.float32)), 1)
    )
    scale = scale_of(largest)
    return rounded_to_fp8(first, scale[:, None]), rounded_to_fp8(second, scale[:, None]), scale


@triton.jit  # type: ignore[untyped-decorator]
def _activate(
    gate_up: tl.tensor, out: tl.tensor,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, GELU: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = d < WIDTH
    gate = tl.load(gate_up + row * (2 * WIDTH) + d, mask=real, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * (2 * WIDTH) + WIDTH + d, mask=real, other=0.0).to(tl.float32)
    if GELU:
        # The tanh approximation: (1 + tanh(x)) / 2 is sigmoid(2 x), sqrt(2 / pi) is 0.79788456.
        gate = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    else:
        gate = gate * tl.sigmoid(gate)
    dtype: tl.constexpr = out.dtype.element_ty
    tl.store(out + row * WIDTH + d, (gate.to(dtype).to(tl.float32) * up).to(dtype), mask=real)


def rms_norm(hidden: Tensor, norm: Norm) -> Tensor:
    """``hidden`` [T, H] after ``norm``. One launch."""
    out = torch.empty_like(hidden)
    _launch_norm(hidden, None, None, norm, hidden, out)
    return out


def add_norm(hidden: Tensor, added: Tensor, post: Norm | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """The sum ``hidden + added``, and the sum after ``norm``; both [T, H]. One launch.

    ``post`` is a norm applied to ``added`` before the sum (Gemma 2 and 3); None: no norm.
    """
    total, out = torch.empty_like(hidden), torch.empty_like(hidden)
    _launch_norm(hidden, added, post, norm, total, out)
    return total, out


def _launch_norm(
    hidden: Tensor, added: Tensor | None, post: Norm | None, norm: Norm, total: Tensor, out: Tensor
) -> None:
    tokens, width = hidden.shape
    assert hidden.is_contiguous()
    assert added is None or added.is_contiguous()
    pad = triton.next_power_of_2(width)
    _add_norm[(tokens,)](
        hidden, hidden if added is None else added,
        norm.weight if post is None else post.weight, norm.weight, total, out,
        0.0 if post is None else post.eps, norm.eps,
        WIDTH=width, PAD=pad,
        ADDS=added is not None, NORMS_ADDED=post is not None, SHIFTED=norm.shifted,
        num_warps=max(1, min(16, pad // _NORM_WARP_ELEMENTS)), enable_fp_fusion=False,
    )  # fmt: skip


def rotate_and_store(
    heads: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    kept: Kept,
    norms: tuple[Norm, Norm] | None,
) -> Tensor:
    """Rotate queries and keys, and write keys and values to the cache. One launch.

    ``heads`` [T, (Hq + 2 Hk) * D] are queries, keys and values, the result of one product;
    ``norms`` are applied to queries and keys before the rotation (RoPE; Su et al., 2021). ``cos``
    and ``sin`` are [T, D]; ``slots`` [T] are the slots in ``kept``, the layer's cache.
    Returns the queries, [T, Hq, D].
    """
    keys, values, key_scales, value_scales = kept
    kv_heads, dim = keys.shape[1:]
    tokens, all_heads = len(heads), heads.shape[1] // dim
    assert cos.shape == sin.shape == (tokens, dim), "only whole heads are rotated"
    assert all(part.is_contiguous() for part in (heads, cos, sin, slots, keys, values))
    query = heads.new_empty(tokens, all_heads - 2 * kv_heads, dim)
    half_pad = triton.next_power_of_2(dim // 2)
    tile = max(1, min(_HEAD_PAIRS // half_pad, triton.next_power_of_2(all_heads)))
    of_query, of_key = norms or (None, None)
    _rotate_and_store[(tokens, triton.cdiv(all_heads, tile))](
        heads, cos, sin, slots,
        heads if of_query is None else of_query.weight,
        heads if of_key is None else of_key.weight,
        0.0 if of_query is None else of_query.eps,
        0.0 if of_key is None else of_key.eps,
        query, keys, values, key_scales, value_scales,
        QUERY_HEADS=query.shape[1], KV_HEADS=kv_heads, HALF=dim // 2, HALF_PAD=half_pad,
        TILE=tile, NORMS=norms is not None, SHIFTED=of_query is not None and of_query.shifted,
        SCALED=keys.dtype != heads.dtype,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return query


def activate(gate_up: Tensor, *, gelu: bool) -> Tensor:
    """SiLU, or GELU's tanh approximation, of each row's first half, times the second: [T, I].

    ``gate_up`` is [T, 2 I]. One launch.
    """
    tokens, width = len(gate_up), gate_up.shape[1] // 2
    assert gate_up.is_contiguous()
    out = gate_up.new_empty(tokens, width)
    _activate[(tokens, triton.cdiv(width, _ACTIVATION_BLOCK))](
        gate_up, out, WIDTH=width, BLOCK=_ACTIVATION_BLOCK, GELU=gelu,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out
