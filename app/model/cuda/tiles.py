"""How large the attention's tiles are: what a device's shared memory and registers hold."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch

from app.core.errors import UnsupportedModel

_LEAST_ROWS = 16
"""Tensor cores multiply no fewer."""
_SHORT_KEYS = 64
_LONG_ROWS = 128
_INVARIANT_ROWS = 64
_SUMS = 128 * 128
"""Unfinished sums that a program of eight warps keeps in registers, 64 in each thread."""
_ADDRESS = 8
_RESERVED = 2048
"""Bytes that the compiler takes besides what is reckoned here: barriers, reductions."""


@dataclass(frozen=True, slots=True)
class Device:
    """What shapes the tiles; see ``this_device``."""

    multiprocessors: int
    shared_bytes: int
    """Shared memory that one program may use."""
    capability: int
    """Major number: 8 for A100, L4 and RTX 4090, 9 for H100 and H200, 10 for B200."""


@dataclass(frozen=True, slots=True)
class Heads:
    """One layer's heads; G query heads for each key head."""

    group: int
    key_pad: int
    """Dimensions of a key, up to the next power of two."""
    value_pad: int
    item_bytes: int
    latent: bool = False
    """A key begins with its value; ``key_pad`` counts the dimensions behind it. ``group`` are the
    query heads that are worked on together, of all that share the one key head."""
    near: bool = False
    """Scores gain by distance, from an address each."""

    @property
    def query_pad(self) -> int:
        return self.key_pad + (self.value_pad if self.latent else 0)


@dataclass(frozen=True, slots=True)
class TileShape:
    rows: int
    """Query tokens times G, up to the next power of two."""
    keys: int
    """Keys at a time."""
    stages: int
    """Tiles of keys on their way at a time, that in use included."""
    warps: int

    def shared_bytes(self, heads: Heads, capability: int) -> int:
        """At most what the compiled kernel uses; a test holds it against the compiler's word."""
        whole = self.keys * (heads.key_pad + heads.value_pad) * heads.item_bytes
        queries = self.rows * heads.query_pad * heads.item_bytes
        if heads.near:
            queries += self.rows * self.keys * _ADDRESS
        if capability >= 9 and self.rows >= 64 and heads.item_bytes == 2:
            return self.stages * whole + queries + _RESERVED
        weights = self.rows * self.keys * heads.item_bytes
        return max(1, self.stages - 1) * whole + queries + weights + _RESERVED


def this_device(device: torch.device) -> Device:
    """The GPU's own figures; on the CPU, where kernels are interpreted, those of a small one."""
    if device.type != "cuda":
        return Device(multiprocessors=1, shared_bytes=227 << 10, capability=9)
    from triton.runtime import driver

    index = torch.cuda.current_device() if device.index is None else device.index
    found = driver.active.utils.get_device_properties(index)
    return Device(
        multiprocessors=found["multiprocessor_count"],
        shared_bytes=found["max_shared_mem"],
        capability=torch.cuda.get_device_capability(index)[0],
    )


def short_tile(heads: Heads, device: Device) -> TileShape:
    """For decodes, leaps and drafts: as few rows as tensor cores take."""
    rows = max(_LEAST_ROWS, power_of_2(heads.group))
    return _first_fitting([rows], _SHORT_KEYS, heads, device)


def long_tile(heads: Heads, device: Device, *, batch_invariant: bool) -> TileShape:
    """For prompt chunks: as many rows as registers hold. Batch-invariant: for all spans."""
    most = _INVARIANT_ROWS if batch_invariant else _LONG_ROWS
    if heads.item_bytes > 2:
        most //= 2
    most = min(most, max(_LEAST_ROWS, _SUMS // heads.value_pad))
    least = max(_LEAST_ROWS, power_of_2(heads.group))
    rows = [max(most >> i, least) for i in range(4)]
    return _first_fitting(rows, 64, heads, device)


def heads_together(query_heads: int, value_pad: int) -> int:
    """The most query heads that divide all, and whose unfinished sums for a token fit a tile."""
    fits = [
        count
        for count in range(1, query_heads + 1)
        if query_heads % count == 0 and power_of_2(count) * value_pad <= _SUMS
    ]
    return max(fits, default=1)


def power_of_2(value: int) -> int:
    """The lowest power of two that is not below ``value``."""
    return 1 << (value - 1).bit_length()


def _first_fitting(rows: list[int], keys: int, heads: Heads, device: Device) -> TileShape:
    """The largest that fits, fewer tiles on their way before fewer keys before fewer rows.

    Raises ``UnsupportedModel`` where none does.
    """
    for count, most_keys, stages in product(rows, (keys, keys // 2, keys // 4), (3, 2)):
        large = count * heads.value_pad > _SUMS // 2 or heads.value_pad >= 256
        shape = TileShape(count, most_keys, stages, warps=8 if large else 4)
        if shape.shared_bytes(heads, device.capability) <= device.shared_bytes:
            return shape
    raise UnsupportedModel(
        f"attention heads of {heads.key_pad} and {heads.value_pad} dimensions, {heads.group} for "
        f"each key head, do not fit in the {device.shared_bytes} bytes of this GPU's shared memory"
    )
