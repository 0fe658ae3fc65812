"""The memory that holds keys and values: per layer two tensors of slots, cut into blocks.

    slot    0 ............ block_size ............ num_blocks * block_size
            |   block 0    |   block 1   | ...     |   spare block   |

The engine hands out a group's blocks 0 to ``num_blocks - 1``. The spare block behind them takes
what the padding of a CUDA graph writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

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
    """A token reads keys at most ``window - 1`` positions back; None: all."""

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

    @property
    def nbytes(self) -> int:
        """Memory of all of it."""
        return sum(part.nbytes for part in (*self.keys.values(), *self.values.values()))


def allocate(
    shapes: Mapping[int, LayerShape], *, num_blocks: int, block_size: int, device: torch.device
) -> KvStorage:
    """Zeroed storage. On the CPU the system commits pages only as they are first used."""
    slots = (num_blocks + 1) * block_size
    keys, values = {}, {}
    groups = (CacheGroup(tuple(shapes), num_blocks),)
    for layer, shape in shapes.items():
        keys[layer] = _zeros((slots, shape.kv_heads, shape.key_dim), shape.dtype, device)
        values[layer] = _zeros((slots, shape.kv_heads, shape.value_dim), shape.dtype, device)
    return KvStorage(block_size=block_size, groups=groups, keys=keys, values=values)


def blocks_within(budget: int, shapes: Mapping[int, LayerShape], block_size: int) -> int:
    """How many blocks fit in ``budget`` bytes, the spare one not counted.

    Raises ``UnsupportedModel`` where not even one fits.
    """
    block_bytes = block_size * sum(shape.token_bytes for shape in shapes.values())
    count = budget // block_bytes - 1
    if count < 1:
        raise UnsupportedModel(
            f"{budget} bytes of cache hold no block of {block_size} tokens; "
            f"give at least {2 * block_bytes}"
        )
    return count


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch writes its zeros, which takes a second for every few gigabytes; numpy asks the
    # system for pages that are zero already.
    memory = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(memory).view(dtype).view(shape)
