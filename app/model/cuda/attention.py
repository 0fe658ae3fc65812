"""Attention of a step on CUDA: one kernel over all spans, straight from the paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.model.attention import AttentionOptions
from app.model.cuda.kernels.attention import merge_splits, paged_attention
from app.model.inputs import Ints, SpanLayout, StepArrays
from app.model.kv_storage import KvStorage

_TILE_ROWS = 64
"""Rows (query tokens times heads of a group) a tile of a long span has."""
_TILE_KEYS = 64
_MOST_SPLITS = 16
_PROGRAMS_WANTED = 264
"""Two for each multiprocessor of an H100 or H200; fewer programs than this split their keys."""


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A step as the kernel reads it: integers on the device, S spans, B tiles, T tokens."""

    slots: Tensor
    """Shape [T]: where new keys and values go."""
    span_row: Tensor
    """Shape [S]: row of a span's first token."""
    span_length: Tensor
    """Shape [S]; 0 for a span that is only padding."""
    span_start: Tensor
    """Shape [S]: position of a span's first token."""
    table_start: Tensor
    """Shape [S]: where in ``tables`` a span's blocks begin."""
    tables: Tensor
    """Cache blocks of all spans, one after the other."""
    tile_span: Tensor
    """Shape [B]: whose queries a tile holds."""
    tile_first: Tensor
    """Shape [B]: the tile's first token, counted from the span's first."""
    tile: int
    """Query tokens in a tile."""


class TritonAttention:
    """Writes new keys and values to the cache and attends over it; the steps' ``attend``."""

    def __init__(self, storage: KvStorage, group: int) -> None:
        """``group`` is G, query heads for each key head, at most; it shapes the tiles."""
        self._storage = storage
        self._group = group
        self._device = next(iter(storage.keys.values())).device
        self._step: DeviceStep | None = None

    def begin(self, step: StepArrays) -> None:
        tile = self.tile(max(span.length for span in step.spans))
        self.begin_on_device(upload(step, tile, self._device))

    def begin_on_device(self, step: DeviceStep) -> None:
        """The same for a step whose tensors are on the device already (a CUDA graph's)."""
        self._step = step

    def tile(self, longest: int) -> int:
        """Query tokens in a tile where the longest span has that many."""
        return max(1, min(power_of_2(longest), _TILE_ROWS // self._group))

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        step = self._step
        assert step is not None, "no step has begun"
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        keys.index_copy_(0, step.slots, key.transpose(0, 1))
        values.index_copy_(0, step.slots, value.transpose(0, 1))
        return attend_paged(
            query,
            keys,
            values,
            step,
            options,
            block_size=self._storage.block_size,
        )


def power_of_2(value: int) -> int:
    """The lowest power of two that is not below ``value``."""
    return 1 << (value - 1).bit_length()


def attend_paged(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    step: DeviceStep,
    options: AttentionOptions,
    *,
    block_size: int,
    splits: int | None = None,
    tile_keys: int | None = None,
) -> Tensor:
    """Query [Hq, T, D] over the cache -> [T, Hq, Dv]; rows that are padding come out as zeros.

    ``splits`` None spreads the keys of few queries over the whole device; ``tile_keys`` None
    takes as many keys at a time as registers hold.
    """
    q_heads, tokens, key_dim = query.shape
    kv_heads, value_dim = values.shape[1], values.shape[2]
    group = q_heads // kv_heads
    tiles = len(step.tile_span)
    if splits is None:
        splits = max(1, min(_MOST_SPLITS, _PROGRAMS_WANTED // (tiles * kv_heads)))
    if query.stride(2) != 1:
        query = query.contiguous()
    out = query.new_zeros(tokens, q_heads, value_dim)
    rows = tokens * q_heads
    partial_rows = rows * splits if splits > 1 else 0
    partial_out = torch.zeros(partial_rows, value_dim, dtype=torch.float32, device=query.device)
    partial_max = torch.full((partial_rows,), -torch.inf, device=query.device)
    partial_sum = torch.zeros(partial_rows, device=query.device)
    value_pad = max(16, power_of_2(value_dim))
    paged_attention[(tiles, kv_heads, splits)](
        query, keys, values, out, partial_out, partial_max, partial_sum,
        step.tile_span, step.tile_first, step.span_row, step.span_length, step.span_start,
        step.table_start, step.tables,
        query if options.sinks is None else options.sinks,
        options.scale, options.softcap or 0.0, options.window or 0,
        query.stride(0), query.stride(1), rows,
        GROUP=group, KEY_DIM=key_dim, VALUE_DIM=value_dim,
        KEY_PAD=max(16, power_of_2(key_dim)), VALUE_PAD=value_pad, BLOCK=block_size,
        TILE=step.tile, TILE_ROWS=max(16, power_of_2(step.tile * group)),
        TILE_KEYS=tile_keys or (_TILE_KEYS if key_dim <= 128 else _TILE_KEYS // 2),
        SPLITS=splits,
        WINDOWED=options.window is not None,
        CAPPED=options.softcap is not None,
        SINKS=options.sinks is not None,
        # Tensor cores round float32 to 10 bits unless told not to.
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    if splits > 1:
        merge_splits[(rows,)](
            partial_out, partial_max, partial_sum, out, rows,
            VALUE_DIM=value_dim, VALUE_PAD=value_pad, SPLITS=splits,
        )  # fmt: skip
    return out


def upload(step: StepArrays, tile: int, device: torch.device) -> DeviceStep:
    """Bring a step to the device, in one copy."""
    spans = step.spans
    tiles = [(i, at) for i, span in enumerate(spans) for at in range(0, span.length, tile)]
    parts = [
        step.slots[0],
        np.array([span.row for span in spans], dtype=np.int64),
        *span_numbers(spans),
        *np.array(tiles, dtype=np.int64).T,
    ]
    packed = torch.from_numpy(np.concatenate(parts))
    if device.type == "cuda":
        packed = packed.pin_memory().to(device, non_blocking=True)
    ends = np.cumsum([len(part) for part in parts])
    slots, row, length, start, table_start, tables, tile_span, tile_first = packed.tensor_split(
        torch.from_numpy(ends[:-1])
    )
    return DeviceStep(
        slots=slots,
        span_row=row,
        span_length=length,
        span_start=start,
        table_start=table_start,
        tables=tables,
        tile_span=tile_span,
        tile_first=tile_first,
        tile=tile,
    )


def span_numbers(spans: Sequence[SpanLayout]) -> tuple[Ints, Ints, Ints, Ints]:
    """Length and start of each span, where its blocks begin in ``tables``, and these tables."""
    blocks = np.array([len(span.blocks[0]) for span in spans], dtype=np.int64)
    return (
        np.array([span.length for span in spans], dtype=np.int64),
        np.array([span.start for span in spans], dtype=np.int64),
        np.cumsum(blocks) - blocks,
        np.concatenate([np.empty(0, dtype=np.int64), *(span.blocks[0] for span in spans)]),
    )
