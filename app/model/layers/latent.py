"""Multi-head latent attention (DeepSeek-AI, DeepSeek-V2, 2024) with its cache in latent form.

Such a layer makes a token's keys and values from one small vector, the latent, by ``kv_b_proj``;
only a rotary part of the key, the same for all heads, comes from elsewhere. The cache holds these
two, as one key head that all query heads read::

    entry     | latent, R dimensions | rotary key, P |
    value     | latent               |                  the same memory

A head's key is ``keys @ latent``, so latents are scored with ``keys.T @ query``, and the sum of
weighted latents is projected to values once for each query. A layer is recognised by its structure,
not its model: the output of ``kv_b_proj`` must be the keys and values that reach attention.
Otherwise plain keys and values are cached.

Shapes: T tokens, Hq query heads, N dimensions of a key beside the P rotary ones, Dv of a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.model.kv_storage import LayerShape
from app.model.layers.architecture import is_plain_linear
from app.model.layers.attention import AttentionOptions, AttentionRoute, run_two_tokens


@dataclass(frozen=True, slots=True)
class LatentHeads:
    """Projections from the latents of a layer to keys and values of its heads."""

    keys: Tensor
    """Shape [Hq, N, R]."""
    values: Tensor
    """Shape [Hq, R, Dv]."""

    @property
    def rank(self) -> int:
        return self.keys.shape[2]

    def absorb(self, query: Tensor) -> Tensor:
        """Query [Hq, T, N + P], projected to score entries: [Hq, T, R + P]."""
        split = self.keys.shape[1]
        return torch.cat([torch.bmm(query[..., :split], self.keys), query[..., split:]], dim=-1)

    def results(self, sums: Tensor) -> Tensor:
        """Weighted sums of latents [T, Hq, R] -> of values [T, Hq, Dv]."""
        return torch.bmm(sums.transpose(0, 1), self.values).transpose(0, 1)

    def expand(self, entries: Tensor, heads: slice) -> tuple[Tensor, Tensor]:
        """Keys [h, L, N + P] and values [h, L, Dv] of some heads, of entries [L, R + P]."""
        keys, values = self.keys[heads], self.values[heads]
        latents = entries[:, : self.rank].expand(len(keys), -1, -1)
        rotary = entries[:, self.rank :].expand(len(keys), -1, -1)
        key = torch.cat([torch.bmm(latents, keys.transpose(1, 2)), rotary], dim=-1)
        return key, torch.bmm(latents, values)


class LatentLayer:
    """A layer's heads, and the latents that it has just made."""

    def __init__(self, heads: LatentHeads) -> None:
        self.heads = heads
        self.latents: Tensor | None = None
        """Shape [..., T, R]; None: taken."""

    def take_entries(self, key: Tensor) -> Tensor:
        """Cache entries of the tokens: [1, T, R + P]; rotary part: from ``key`` [Hq, T, N + P]."""
        assert self.latents is not None, "kv_b_proj has not run"
        latents, self.latents = self.latents, None
        rotary = key[0, :, self.heads.keys.shape[1] :]
        return torch.cat([latents.view(len(rotary), -1), rotary], dim=-1).unsqueeze(0)


class LatentProjection(nn.Module):
    """Replaces ``kv_b_proj``: stores the latents and computes nothing.

    While the route has no target it computes the projection that it replaces. Adapters cannot
    change it, as its result is not used.
    """

    def __init__(self, linear: nn.Linear, route: AttentionRoute, layer: LatentLayer) -> None:
        super().__init__()
        self.weight = linear.weight
        self._route = route
        self._layer = layer
        self._nothing = linear.weight.detach().new_zeros(())

    def forward(self, x: Tensor) -> Tensor:
        if self._route.target is None:
            return F.linear(x, self.weight)
        self._layer.latents = x
        return self._nothing.expand(*x.shape[:-1], len(self.weight))


def keep_latents(
    model: PreTrainedModel, route: AttentionRoute, shapes: Mapping[int, LayerShape]
) -> dict[int, LayerShape]:
    """Switch layers of a known structure to latent caches; returns all layers' shapes.

    Costs a forward pass over two tokens where there are such layers. Must come before weights are
    packed or quantised.
    """
    owners: dict[int, Any] = {}
    for module in model.modules():
        number, projection = (getattr(module, name, None) for name in ("layer_idx", "kv_b_proj"))
        # The format of a quantised projection is not known.
        plain = projection is not None and is_plain_linear(projection) and projection.bias is None
        if isinstance(number, int) and plain:
            owners[number] = module
    if not owners:
        return dict(shapes)
    probe = _Probe(owners)
    with ExitStack() as hooks:
        for number, owner in owners.items():
            hooks.enter_context(owner.kv_b_proj.register_forward_hook(partial(probe.note, number)))
        run_two_tokens(model, route, probe)
    found = dict(shapes)
    for number, heads in probe.found.items():
        rotary = shapes[number].key_dim - heads.keys.shape[1]
        shape = replace(
            shapes[number],
            kv_heads=1,
            key_dim=heads.rank + rotary,
            value_dim=heads.rank,
            group=len(heads.keys),
            latent=True,
        )
        if shape.token_bytes < shapes[number].token_bytes:
            layer = LatentLayer(heads)
            owner = owners[number]
            owner.kv_b_proj = LatentProjection(owner.kv_b_proj, route, layer)
            route.latents[number] = layer
            found[number] = shape
    return found


class _Probe:
    """Checks that ``kv_b_proj`` gives the keys and values that reach attention, unchanged.

    It outputs dummy numbers, all different, which attention must receive.
    """

    def __init__(self, owners: Mapping[int, Any]) -> None:
        self._owners = owners
        self._given: dict[int, Tensor] = {}
        self.found: dict[int, LatentHeads] = {}

    def note(self, layer: int, _: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        numbers = torch.linspace(-1, 1, output.numel(), device=output.device)
        self._given[layer] = given = numbers.view(output.shape).to(output.dtype)
        return given

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        given = self._given.get(layer)
        count, tokens, value_dim = value.shape
        if given is not None and len(query) == len(key) == count:
            parts = given.view(tokens, count, -1).transpose(0, 1)
            split = parts.shape[2] - value_dim
            rotary = key[:, :, split:]
            if (
                0 < split < key.shape[2]
                and torch.equal(parts[..., :split], key[..., :split])
                and torch.equal(parts[..., split:], value)
                and torch.equal(rotary, rotary[:1].expand_as(rotary))
            ):
                self.found[layer] = _heads(self._owners[layer].kv_b_proj.weight, count, split)
        return query.new_zeros(tokens, count, value_dim)


def _heads(weight: Tensor, count: int, split: int) -> LatentHeads:
    """``weight`` [Hq * (N + Dv), R], cut at N = ``split``."""
    parts = weight.detach().view(count, -1, weight.shape[1])
    values = parts[:, split:].transpose(1, 2)
    if weight.device.type == "cpu":
        # oneDNN's products of few rows take up to ten times as long with the transposed half.
        values = values.contiguous()
    return LatentHeads(parts[:, :split], values)
