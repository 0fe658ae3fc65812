"""Long spans of layers that keep latents: absorbed, or with keys and values made again.

Each query head against each entry takes R + P and R products instead of N + P and Dv, three to
four times as many. So where a span is long, its keys and values are made of the latents once, some
heads at a time; where it is short beside what it reads, that would take longer than it saves. One
counts the products, and takes the way with fewer: of 1,024 tokens of a prompt with 16 heads (R 512,
P 64, N and Dv 128, bfloat16, two cores) a layer takes 0.62 s expanded and 1.2 s absorbed, of 64
tokens after 960 it is 0.14 and 0.07, of 4 tokens 0.11 and 0.01.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from app.model.layers.attention import AttentionOptions
from app.model.layers.latent import LatentHeads

Attend = Callable[[Tensor, Tensor, Tensor, AttentionOptions], Tensor]
"""Query [h, q, D], key and value [Hk, 1, L, D] -> [q, h, D]."""

_EXPANDED_BYTES = 64 << 20
"""What keys and values of the heads that are worked on together may take."""


def is_better_expanded(tokens: int, positions: int, heads: LatentHeads, entry_dim: int) -> bool:
    """Whether a span of ``tokens`` that sees ``positions`` takes fewer products expanded."""
    _, nope, rank = heads.keys.shape
    projection = rank * (nope + heads.values.shape[2])
    key_dim = nope + entry_dim - rank
    # Values are made as wide as keys, see ``_padded``.
    absorbed = tokens * (2 * positions * entry_dim + projection)
    return tokens * 2 * positions * key_dim + positions * projection < absorbed


def attend_absorbed(
    query: Tensor, entries: Tensor, options: AttentionOptions, heads: LatentHeads, attend: Attend
) -> Tensor:
    """Query [Hq, q, N + P] over entries [L, R + P] -> [q, Hq, Dv]."""
    whole = entries[None, None]
    # torch's fused kernel wants values of the keys' width; what is too much is cut off.
    sums = attend(heads.absorb(query), whole, whole, options)
    return heads.results(sums[..., : heads.rank])


def attend_expanded(
    query: Tensor, entries: Tensor, options: AttentionOptions, heads: LatentHeads, attend: Attend
) -> Tensor:
    """The same by keys and values of each head."""
    count, _, key_dim = query.shape
    size = len(entries) * (2 * key_dim + heads.values.shape[2]) * entries.itemsize
    step = max(1, _EXPANDED_BYTES // size)
    parts = []
    for first in range(0, count, step):
        chosen = slice(first, first + step)
        key, value = heads.expand(entries, chosen)
        values = _padded(value, key_dim).unsqueeze(1)
        own = options if options.sinks is None else replace(options, sinks=options.sinks[chosen])
        result = attend(query[chosen], key.unsqueeze(1), values, own)
        parts.append(result[..., : value.shape[2]])
    return torch.cat(parts, dim=1)


def _padded(value: Tensor, dim: int) -> Tensor:
    """``value`` as wide as keys are, without which torch's fused kernel does not take it."""
    return F.pad(value, (0, dim - value.shape[2])) if value.shape[2] < dim else value
