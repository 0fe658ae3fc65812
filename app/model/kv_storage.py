"""The memory that holds keys and values: per layer two tensors of slots, cut into blocks.

    slot    0 ............ block_size ............ num_blocks * block_size
            |   block 0    |   block 1   | ...     |   spare block   |

The engine hands out a group's blocks 0 to ``num_blocks - 1``. The spare block behind them takes
what the padding of a CUDA graph writes. Layers with a sliding window have fewer blocks than those
that read everything: the engine gives back what is out of the window (see ``core.cache``).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from app.core.cache import window_blocks
from app.core.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Keys and values of one token in one layer, as a forward pass produced them."""

    kv_heads: int
    key_dim: int
    value_dim: int
    """Differs from ``key_dim`` in multi-head latent attention."""
    group: int
    """Query heads for each key head."""
    dtype: torch.dtype

    @property
    def token_bytes(self) -> int:
        return self.kv_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers whose blocks are handed out together: a sequence has one table for all of them."""

    layers: tuple[int, ...]
    num_blocks: int
    """Blocks the engine may use; the spare block is one more."""
    window: int | None = None
    """Keys at most ``window - 1`` positions back are read; None: all."""

    @property
    def spare_block(self) -> int:
        return self.num_blocks


@dataclass(frozen=True)
class KvStorage:
    """Keys and values of every layer, by layer index; tensors [slots, kv_heads, dim]."""

    block_size: int
    groups: tuple[CacheGroup, ...]
    keys: Mapping[int, Tensor]
    values: Mapping[int, Tensor]

    @cached_property
    def group_of(self) -> Mapping[int, int]:
        """By layer, the index of its group."""
        return {layer: i for i, group in enumerate(self.groups) for layer in group.layers}


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What a cache is to be shared out for."""

    longest: int | None
    """Tokens of the longest sequence; None: as many as the cache holds."""
    asked: int | None
    """Tokens of a sequence that has to fit; None: none was named."""
    running: int
    """Sequences that run at a time."""
    step_tokens: int
    """Tokens computed in one step, all sequences together."""


def one_group(layers: Iterable[int], num_blocks: int) -> tuple[CacheGroup]:
    """Of all layers, with no blocks given back."""
    return (CacheGroup(tuple(layers), num_blocks),)


def allocate(
    shapes: Mapping[int, LayerShape],
    groups: Sequence[CacheGroup],
    *,
    block_size: int,
    device: torch.device,
) -> KvStorage:
    """Zeroed storage. On the CPU the system commits pages only as they are first used."""
    keys, values = {}, {}
    for group in groups:
        slots = (group.num_blocks + 1) * block_size
        for layer in group.layers:
            shape = shapes[layer]
            keys[layer] = _zeros((slots, shape.kv_heads, shape.key_dim), shape.dtype, device)
            values[layer] = _zeros((slots, shape.kv_heads, shape.value_dim), shape.dtype, device)
    return KvStorage(block_size=block_size, groups=tuple(groups), keys=keys, values=values)


def groups_within(
    budget: int,
    shapes: Mapping[int, LayerShape],
    windows: Mapping[int, int | None],
    block_size: int,
    use: CacheUse,
) -> tuple[CacheGroup, ...]:
    """Groups of layers, the one that reads most first, with as many blocks as ``budget`` bytes hold.

    A window gets what ``use.running`` sequences read at a time, each of them longer than the
    window; full attention gets the rest, and never fewer. Where memory is too short for that all
    have the same number of blocks, unless a sequence of ``use.asked`` tokens would not fit then:
    windows get fewer for it, which leaves room for fewer short sequences at a time. Where all
    layers have windows, memory is not short, and all have the same number, too.

    Raises ``UnsupportedModel`` where not even one block fits.
    """
    groups = _by_window(windows, use.longest)
    costs = {
        window: block_size * sum([shapes[layer].token_bytes for layer in layers])
        for window, layers in groups.items()
    }
    even = budget // sum(costs.values()) - 1
    if even < 1:
        raise UnsupportedModel(
            f"{budget} bytes of cache hold no block of {block_size} tokens; "
            f"give at least {2 * sum(costs.values())}"
        )
    if None not in costs:
        return tuple([CacheGroup(layers, even, window) for window, layers in groups.items()])
    step = -(-use.step_tokens // block_size)
    asked = -(-(use.asked or 0) // block_size)

    def counts(full: int, running: int) -> dict[int | None, int]:
        """Blocks of each group; beside what sequences hold one each is left free to go on with."""
        return {
            window: full
            if window is None
            else min(full, running * (window_blocks(window, block_size) + 2) + step)
            for window in groups
        }

    def cost(full: int, running: int) -> int:
        found = counts(full, running)
        return sum([costs[window] * (count + 1) for window, count in found.items()])

    def most(running: int) -> int:
        """Blocks with full attention."""
        return bisect_right(range(budget // costs[None]), budget, key=lambda n: cost(n, running)) - 1

    running = use.running
    if most(running) < asked:
        running = max(1, bisect_left(range(running), -asked, key=lambda r: -most(r)) - 1)
    found = counts(most(running), running)
    return tuple([CacheGroup(layers, found[window], window) for window, layers in groups.items()])


def _by_window(
    windows: Mapping[int, int | None], longest: int | None
) -> dict[int | None, tuple[int, ...]]:
    """Layers by the width of their window, the widest first; None where they read everything."""
    found: dict[int | None, list[int]] = {}
    for layer, window in windows.items():
        whole = window is None or (longest is not None and window >= longest)
        found.setdefault(None if whole else window, []).append(layer)
    order = sorted(found, key=lambda window: math.inf if window is None else window, reverse=True)
    return {window: tuple(found[window]) for window in order}


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch writes its zeros, which takes a second for every few gigabytes; numpy asks the
    # system for pages that are zero already.
    memory = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(memory).view(dtype).view(shape)
