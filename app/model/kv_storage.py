"""The memory that holds keys and values: per layer two tensors of slots, cut into blocks.

Layers that keep latents (see ``latent``) have one: their values are part of their keys. Where they
are kept in 8 bits, a tensor of scales lies beside each of them.

    slot    0 ............ block_size ............ num_blocks * block_size
            |   block 0    |   block 1   | ...     |   spare block   |

The engine hands out a group's blocks 0 to ``num_blocks - 1``. The padding of a CUDA graph writes to
the spare block behind them. Layers with a sliding window have fewer blocks than those that read
everything: the engine gives back blocks out of the window (see ``core.cache``).
"""

from __future__ import annotations

import contextlib
import math
import mmap
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from app.core.cache import window_blocks
from app.core.errors import UnsupportedModel
from app.core.memory import return_freed_memory

_SCALE = torch.float32


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
    window: int | None = None
    """Keys at most ``window - 1`` positions back are read; None: all."""
    latent: bool = False
    """Values are the first ``value_dim`` dimensions of the keys, in the same memory."""
    fp8: bool = False
    """Kept in 8 bits: numbers of type E4M3 (Micikevicius et al., FP8 Formats for Deep Learning,
    2022) and a float32 scale for each head of a token, keys and values apart."""
    near: bool = False
    """Scores gain by distance; see ``AttentionOptions.near``."""

    @property
    def kept_dtype(self) -> torch.dtype:
        """Type of keys and values in the cache."""
        return torch.float8_e4m3fn if self.fp8 else self.dtype

    @property
    def token_bytes(self) -> int:
        dims = self.key_dim + (0 if self.latent else self.value_dim)
        scales = (1 if self.latent else 2) * _SCALE.itemsize if self.fp8 else 0
        return self.kv_heads * (dims * self.kept_dtype.itemsize + scales)


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers whose blocks are handed out together: a sequence has one table for all of them."""

    layers: tuple[int, ...]
    num_blocks: int
    """Blocks the engine may use; the spare block is one more."""
    window: int | None = None
    """Keys at most ``window - 1`` positions back are read; None: all."""


@dataclass(frozen=True)
class KvStorage:
    """Keys and values of every layer, by layer index; tensors [slots, kv_heads, dim].

    Values of a layer that keeps latents are a view of its keys.
    """

    block_size: int
    device: torch.device
    groups: tuple[CacheGroup, ...]
    """Empty if the model has no attention."""
    keys: Mapping[int, Tensor]
    values: Mapping[int, Tensor]
    key_scales: Mapping[int, Tensor] = field(default_factory=dict)
    value_scales: Mapping[int, Tensor] = field(default_factory=dict)
    """Scales of 8-bit keys and values, [slots, kv_heads], by layer with such. Latent values share
    the scales of their keys."""

    @cached_property
    def group_of(self) -> Mapping[int, int]:
        """Index of a layer's group, by layer."""
        return {layer: i for i, group in enumerate(self.groups) for layer in group.layers}

    def of_layer(self, layer: int) -> Iterator[Tensor]:
        """All tensors of a layer that are indexed by slot; some may share their memory."""
        for parts in (self.keys, self.values, self.key_scales, self.value_scales):
            if layer in parts:
                yield parts[layer]

    def is_latent(self, layer: int) -> bool:
        """Whether the layer's values are part of its keys."""
        keys, values = self.keys[layer], self.values[layer]
        return values.untyped_storage().data_ptr() == keys.untyped_storage().data_ptr()

    @property
    def nbytes(self) -> int:
        """Memory of all tensors."""
        parts = [part for layer in self.keys for part in self.of_layer(layer)]
        storages = [part.untyped_storage() for part in parts]
        return sum({each.data_ptr(): each.nbytes() for each in storages}.values())


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Requirements that decide the size of cache groups."""

    required: int | None
    """Length of a sequence that has to fit, in tokens; None: not set."""
    limit: int | None
    """Maximum length of a sequence, in tokens; None: not known."""
    running: int
    """Sequences that run at a time."""
    step_tokens: int
    """Tokens computed in one step, all sequences together."""


def allocate(
    shapes: Mapping[int, LayerShape], *, num_blocks: int, block_size: int, device: torch.device
) -> KvStorage:
    """Zeroed storage in which every group has the same number of blocks."""
    windows = _by_window(shapes, None)
    groups = [CacheGroup(layers, num_blocks, window) for window, layers in windows.items()]
    return allocate_groups(shapes, groups, block_size=block_size, device=device)


def allocate_groups(
    shapes: Mapping[int, LayerShape],
    groups: Sequence[CacheGroup],
    *,
    block_size: int,
    device: torch.device,
) -> KvStorage:
    """Zeroed storage. On the CPU the system commits pages only as they are first used."""
    keys, values = {}, {}
    key_scales, value_scales = {}, {}
    for group in groups:
        slots = (group.num_blocks + 1) * block_size
        for layer in group.layers:
            shape = shapes[layer]
            heads = (slots, shape.kv_heads)
            keys[layer] = zeros((*heads, shape.key_dim), shape.kept_dtype, device)
            if shape.fp8:
                key_scales[layer] = value_scales[layer] = zeros(heads, _SCALE, device)
            if shape.latent:
                values[layer] = keys[layer][..., : shape.value_dim]
                continue
            values[layer] = zeros((*heads, shape.value_dim), shape.kept_dtype, device)
            if shape.fp8:
                value_scales[layer] = zeros(heads, _SCALE, device)
    return KvStorage(block_size, device, tuple(groups), keys, values, key_scales, value_scales)


def groups_within(
    budget: int, shapes: Mapping[int, LayerShape], block_size: int, use: CacheUse
) -> tuple[CacheGroup, ...]:
    """Groups of layers, the widest window first, with as many blocks as ``budget`` bytes hold.

    A window gets the blocks that ``use.running`` sequences hold at a time, all longer than the
    window, and full attention the rest. If full attention had fewer blocks than a window, all get
    the same number, as without windows. Only if a sequence of ``use.required`` tokens would not fit
    do windows get fewer blocks, so that fewer short sequences run at a time. If all layers have a
    window, all groups get the same number.

    Raises ``UnsupportedModel`` if not even one block fits. Without attention there is no group.
    """
    if not shapes:
        return ()
    layers = _by_window(shapes, use.required or use.limit)
    costs = {
        window: block_size * sum([shapes[layer].token_bytes for layer in group])
        for window, group in layers.items()
    }
    whole = sum(costs.values())
    even = budget // whole - 1
    if even < 1:
        raise UnsupportedModel(
            f"kv_cache_bytes is {budget}, too little for a block of {block_size} tokens; set it "
            f"to at least {2 * whole}"
        )
    counts = dict.fromkeys(layers, even)
    if None in layers:
        for running in range(use.running, 0, -1):
            counts = _shared_out(budget, costs, block_size, running, use.step_tokens)
            if counts[None] * block_size >= (use.required or 0):
                break
    return tuple([CacheGroup(group, counts[window], window) for window, group in layers.items()])


def _shared_out(
    budget: int, costs: Mapping[int | None, int], block_size: int, running: int, step_tokens: int
) -> dict[int | None, int]:
    """Blocks by window for ``running`` sequences; ``costs``: bytes of one; None: full attention.

    Each sequence holds a window and the block its step ends in, and one block stays free for it
    (see ``Scheduler``). Two steps may be in flight.
    """
    step = -(-2 * step_tokens // block_size)

    def counts(full: int) -> dict[int | None, int]:
        return {
            window: full
            if window is None
            else min(full, running * (window_blocks(window, block_size) + 2) + step)
            for window in costs
        }

    def cost(full: int) -> int:
        return sum([costs[window] * (count + 1) for window, count in counts(full).items()])

    return counts(bisect_right(range(budget // costs[None]), budget, key=cost) - 1)


def _by_window(
    shapes: Mapping[int, LayerShape], longest: int | None
) -> dict[int | None, tuple[int, ...]]:
    """Layers by window, the widest first; None: no window, or one of ``longest`` or more."""
    found: dict[int | None, list[int]] = {}
    for layer, shape in shapes.items():
        window = shape.window
        if window is not None and longest is not None and window >= longest:
            window = None
        found.setdefault(window, []).append(layer)
    order = sorted(found, key=lambda window: math.inf if window is None else window, reverse=True)
    return {window: tuple(found[window]) for window in order}


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that on the CPU take memory only as they are first used.

    Raises ``UnsupportedModel`` if the CPU's system refuses that much memory.
    """
    if device.type != "cpu":
        size = (*shape[:-1], shape[-1] * dtype.itemsize)  # not all types can be filled everywhere
        return torch.zeros(size, dtype=torch.uint8, device=device).view(dtype)
    # torch writes its zeros, a second for every few gigabytes, and freed memory, which an allocator
    # returns for shapes like these, is in use already.
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        return fresh_pages(nbytes).view(dtype).view(shape)
    except OSError as error:
        raise UnsupportedModel(
            f"the system refuses {nbytes} bytes for one layer of the cache; lower kv_cache_bytes"
        ) from error


def fresh_pages(nbytes: int) -> Tensor:
    """[nbytes] zeros, uint8, on huge pages if the system has them; raises ``OSError``.

    Memory is taken as they are first used, and freed memory is given back before.
    """
    return_freed_memory()
    pages = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):  # a system without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)[:nbytes]
