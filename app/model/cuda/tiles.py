"""Sizes of the attention's tiles, limited by a device's shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch

from app.core.errors import UnsupportedModel

_LEAST_ROWS = 16
"""The minimum for tensor cores."""
_SHORT_KEYS = 64
_LONG_ROWS = 128
_INVARIANT_ROWS = 64
_SUMS = 128 * 128
"""Sums that a program of eight warps keeps in registers, 64 in each thread."""
_ADDRESS = 8
_RESERVED = 2048
"""Bytes that the compiler adds, for barriers and reductions."""


@dataclass(frozen=True, slots=True)
class Device:
    """Device properties that determine tile sizes; see ``this_device``."""

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
    """Dimensions of a key, rounded up to a power of two."""
    value_pad: int
    item_bytes: int
    latent: bool = False
    """A key begins with its value; ``key_pad`` counts the dimensions after it. ``group`` is the
    number of query heads processed together, of all that share the one key head."""
    near: bool = False
    """Scores have offsets by distance, each loaded from its own address."""

    @property
    def query_pad(self) -> int:
        return self.key_pad + (self.value_pad if self.latent else 0)


@dataclass(frozen=True, slots=True)
class TileShape:
    rows: int
    """Query tokens times G, rounded up to a power of two."""
    keys: int
    """Keys processed at a time."""
    stages: int
    """Tiles of keys in the pipeline, including the one in use."""
    warps: int

    def shared_bytes(self, heads: Heads, capability: int) -> int:
        """Upper bound of the kernel's shared memory; a test compares it with the compiler's."""
        whole = self.keys * (heads.key_pad + heads.value_pad) * heads.item_bytes
        queries = self.rows * heads.query_pad * heads.item_bytes
        if heads.near:
            queries += self.rows * self.keys * _ADDRESS
        if capability >= 9 and self.rows >= 64 and heads.item_bytes == 2:
            return self.stages * whole + queries + _RESERVED
        weights = self.rows * self.keys * heads.item_bytes
        return max(1, self.stages - 1) * whole + queries + weights + _RESERVED


def this_device(device: torch.device) -> Device:
    """Properties of the GPU; fixed ones on the CPU, where kernels are interpreted."""
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
    """The tile for decodes, leaps and drafts: the minimum of rows for tensor cores."""
    rows = max(_LEAST_ROWS, power_of_2(heads.group))
    return _first_fitting([rows], _SHORT_KEYS, heads, device)


def long_tile(heads: Heads, device: Device, *, batch_invariant: bool) -> TileShape:
    """The tile for prompt chunks, as large as registers allow; batch-invariant: for all spans."""
    most = _INVARIANT_ROWS if batch_invariant else _LONG_ROWS
    if heads.item_bytes > 2:
        most //= 2
    most = min(most, max(_LEAST_ROWS, _SUMS // heads.value_pad))
    least = max(_LEAST_ROWS, power_of_2(heads.group))
    rows = [max(most >> i, least) for i in range(4)]
    return _first_fitting(rows, 64, heads, device)


def heads_together(query_heads: int, value_pad: int) -> int:
    """The most query heads that fit in a tile with their sums: a divisor of ``query_heads``."""
    fits = [
        count
        for count in range(1, query_heads + 1)
        if query_heads % count == 0 and power_of_2(count) * value_pad <= _SUMS
    ]
    return max(fits, default=1)


def power_of_2(value: int) -> int:
    """``value`` rounded up to a power of two."""
    return 1 << (value - 1).bit_length()


def _first_fitting(rows: list[int], keys: int, heads: Heads, device: Device) -> TileShape:
    """The largest tile that fits: reduces first stages, then keys, then rows.

    Raises ``UnsupportedModel`` if none fits.
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
