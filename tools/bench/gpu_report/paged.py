"""Steps over a paged cache of random keys and values, and a plain attention as a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.core.step import Span
from app.model.cuda.attention import TritonAttention
from app.model.cuda.tiles import Device
from app.model.cuda.trial_steps import fill_with_noise
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage, LayerShape, allocate
from app.model.layers.attention import AttentionOptions

BLOCK_SIZE = 16
MOST_CONTEXT = 131_072
A_HOPPER = Device(multiprocessors=132, shared_bytes=227 << 10, capability=9)
"""The device that tiles are chosen for if there is no GPU."""

Lengths = Sequence[tuple[int, int]]
"""Tokens and first position of each span."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The sizes of one layer's attention."""

    name: str
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    fp8: bool = False
    """Keys and values are kept in 8 bits."""

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def layer(self) -> LayerShape:
        return LayerShape(
            self.kv_heads, self.key_dim, self.value_dim, self.group, self.dtype, self.window,
            fp8=self.fp8,
        )  # fmt: skip

    def options(self, device: torch.device) -> AttentionOptions:
        sinks = torch.randn(self.heads, device=device) if self.sinks else None
        return AttentionOptions(self.key_dim**-0.5, self.window, self.softcap, sinks)


def plan_of(lengths: Lengths, vocabulary: int = 1000) -> tuple[Sequence[Span], int]:
    """A step of these spans, with logits of the last token of each; and the blocks it needs.

    Blocks are assigned in random order; tokens are random.
    """
    chance = np.random.default_rng(0)
    needed = [-((length + start) // -BLOCK_SIZE) for length, start in lengths]
    blocks = chance.permutation(sum(needed))
    tables = np.split(blocks, np.cumsum(needed)[:-1])
    spans = [
        Span(
            chance.integers(0, vocabulary, length).tolist(),
            start,
            [table.tolist()],
            rows=(length - 1,),
        )
        for (length, start), table in zip(lengths, tables, strict=True)
    ]
    return spans, len(blocks)


def step_of(lengths: Lengths) -> tuple[StepArrays, int]:
    plan, blocks = plan_of(lengths)
    return lay_out(plan, BLOCK_SIZE), blocks


def random_storage(heads: Heads, blocks: int, layers: int, device: torch.device) -> KvStorage:
    storage = allocate(
        dict.fromkeys(range(layers), heads.layer),
        num_blocks=blocks,
        block_size=BLOCK_SIZE,
        device=device,
    )
    for layer in range(layers):
        for kept in storage.of_layer(layer):
            fill_with_noise(kept)
    return storage


def attention_over(
    heads: Heads, storage: KvStorage, *, batch_invariant: bool = False
) -> TritonAttention:
    """Attention for sequences of up to ``MOST_CONTEXT`` tokens."""
    return TritonAttention(
        storage,
        dict.fromkeys(storage.keys, heads.layer),
        max_model_len=MOST_CONTEXT,
        batch_invariant=batch_invariant,
        device=None if storage.device.type == "cuda" else A_HOPPER,
    )


def random_tokens(heads: Heads, tokens: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a step's new tokens, each [heads, tokens, dim]."""
    sizes = (
        (heads.heads, heads.key_dim), (heads.kv_heads, heads.key_dim),
        (heads.kv_heads, heads.value_dim),
    )  # fmt: skip
    query, key, value = (
        torch.randn(count, tokens, dim, device=device, dtype=heads.dtype) for count, dim in sizes
    )
    return query, key, value


def plain_attention(
    query: Tensor, storage: KvStorage, step: StepArrays, options: AttentionOptions
) -> Tensor:
    """Attention [T, Hq, Dv] of layer 0 in float32, span by span, with all scores written out."""
    keys, values = _widened(storage)
    heads, tokens, group = query.shape[0], query.shape[1], query.shape[0] // keys.shape[1]
    out = torch.empty(tokens, heads, values.shape[2], device=query.device)
    for span in step.spans:
        blocks = torch.from_numpy(span.blocks[0]).to(query.device)
        within = torch.arange(storage.block_size, device=query.device)
        slots = (blocks[:, None] * storage.block_size + within).flatten()[: span.end]
        k, v = (pool[slots].float().repeat_interleave(group, 1) for pool in (keys, values))
        rows = slice(span.row, span.row + span.length)
        scores = torch.einsum("htd,lhd->htl", query[:, rows].float(), k) * options.scale
        if options.softcap is not None:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        asking = torch.arange(span.start, span.end, device=query.device)[:, None]
        asked = torch.arange(span.end, device=query.device)[None]
        hidden = asked > asking
        if options.window is not None:
            hidden |= asking - asked >= options.window
        scores.masked_fill_(hidden, -torch.inf)
        if options.sinks is not None:
            sinks = options.sinks.float()[:, None, None].expand(-1, span.length, 1)
            scores = torch.cat([scores, sinks], -1)
        weights = scores.softmax(-1)[..., : span.end]
        out[rows] = torch.einsum("htl,lhd->thd", weights, v)
    return out


def _widened(storage: KvStorage) -> tuple[Tensor, Tensor]:
    """Keys and values of layer 0, dequantised if they are kept in 8 bits."""
    keys, values = storage.keys[0], storage.values[0]
    if not storage.key_scales:
        return keys, values
    return (
        keys.float() * storage.key_scales[0][..., None],
        values.float() * storage.value_scales[0][..., None],
    )


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference divided by the norm of ``expected`` (Euclidean)."""
    return float((found.float() - expected).norm() / expected.norm())
