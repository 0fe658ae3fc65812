"""Attention of a step on the CPU: groups of like spans over gathered blocks.

Spans of the same length are taken together as long as what is gathered for them stays in the
processor's cache: one call for 32 short decodes costs a third of 32 calls, while gathering 32
long ones at once costs several times as much as one after the other (measured for 64 to 1024
positions, 2 to 8 key heads). The G query heads of a key head are rows of one matrix, so keys and
values are never repeated. For a group of n spans with q tokens each, over L positions::

    query [n, Hk, G * q, D]    keys [n, Hk, L, D]    mask [n, 1, G * q, L]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from app.model.attention import AttentionOptions
from app.model.inputs import Ints, SpanLayout, StepArrays
from app.model.kv_storage import KvStorage

_GATHERED_BYTES = 1 << 20
"""Most that the keys of a group of several spans may take."""
_PACKED_TOKENS = 16
"""Spans longer than this are taken alone, and their mask is shared by the G heads."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Spans attended to in one call, for one width of window."""

    count: int
    length: int
    """Tokens in each span."""
    rows: torch.Tensor
    """Shape [count * length]: the spans' rows among the step's tokens."""
    blocks: torch.Tensor
    """Shape [count * blocks of the longest]: what to gather, shorter spans filled up."""
    mask: torch.Tensor
    """What is added to the scores: [count, 1, G * length, L], or [length, L] of a long span."""


class CpuAttention:
    """Attends over the cache with torch's fused kernel; softcap and sinks step by step."""

    def __init__(self, storage: KvStorage) -> None:
        self._storage = storage
        self._step: StepArrays | None = None
        self._slots = torch.empty(0, dtype=torch.long)
        self._groups: dict[tuple[int | None, int, int], list[_Group]] = {}

    def begin(self, step: StepArrays) -> None:
        """Set the step that the following calls of ``attend`` belong to."""
        self._step = step
        self._slots = torch.from_numpy(step.slots)
        self._groups.clear()

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        keys.index_copy_(0, self._slots, key.transpose(0, 1))
        values.index_copy_(0, self._slots, value.transpose(0, 1))
        out = query.new_empty(query.shape[1], query.shape[0], value.shape[2])
        for group in self._grouped(query, keys, options.window):
            found = _attend_group(
                group,
                query.index_select(1, group.rows),
                self._gather(keys, group),
                self._gather(values, group),
                options,
            )
            out.index_copy_(0, group.rows, found)
        return out

    def _gather(self, pool: torch.Tensor, group: _Group) -> torch.Tensor:
        """Keys or values of a group: [count, Hk, L, D], a view on [count, L, Hk, D]."""
        _, heads, dim = pool.shape
        by_block = pool.view(-1, self._storage.block_size * heads * dim)
        found = by_block.index_select(0, group.blocks)
        return found.view(group.count, -1, heads, dim).transpose(1, 2)

    def _grouped(self, query: torch.Tensor, keys: torch.Tensor, window: int | None) -> list[_Group]:
        """The step's groups; made by the first layer of each kind and kept for the others."""
        repeats = query.shape[0] // keys.shape[1]
        position_bytes = keys[0].numel() * keys.itemsize
        kind = (window, repeats, position_bytes)
        groups = self._groups.get(kind)
        if groups is None:
            assert self._step is not None, "no step has begun"
            most = _GATHERED_BYTES // (position_bytes * self._storage.block_size)
            groups = [
                self._make_group(spans, window, repeats, query.dtype)
                for spans in _alike(self._step.spans, most)
            ]
            self._groups[kind] = groups
        return groups

    def _make_group(
        self, spans: Sequence[SpanLayout], window: int | None, repeats: int, dtype: torch.dtype
    ) -> _Group:
        size, count, length = self._storage.block_size, len(spans), spans[0].length
        starts = np.array([span.start for span in spans], dtype=np.int64)
        skipped = np.zeros(count, dtype=np.int64)
        if window is not None:
            skipped = np.maximum(0, starts - window + 1) // size
        seen = [span.blocks[n:] for span, n in zip(spans, skipped.tolist(), strict=True)]
        width = max(map(len, seen))
        # What fills up a shorter span is masked, but must be numbers: the spare block is.
        blocks: Ints = np.full((count, width), self._storage.spare_block, dtype=np.int64)
        for filled, own in zip(blocks, seen, strict=True):
            filled[: len(own)] = own

        rows = np.array([span.row for span in spans], dtype=np.int64)[:, None] + np.arange(length)
        asking = (starts[:, None] + np.arange(length))[:, :, None]
        asked = (skipped[:, None] * size + np.arange(width * size))[:, None, :]
        hidden = asked > asking
        if window is not None:
            hidden |= asking - asked >= window
        mask = torch.zeros(hidden.shape, dtype=dtype)
        mask.masked_fill_(torch.from_numpy(hidden), float("-inf"))
        packed = length <= _PACKED_TOKENS
        return _Group(
            count=count,
            length=length,
            rows=torch.from_numpy(rows.reshape(-1)),
            blocks=torch.from_numpy(blocks.reshape(-1)),
            mask=mask.repeat(1, repeats, 1).unsqueeze(1) if packed else mask[0],
        )


def _alike(spans: Sequence[SpanLayout], most_blocks: int) -> Iterator[list[SpanLayout]]:
    """Cut ``spans`` into groups of one length that gather at most so many blocks each.

    A span that is larger than that is alone, and so is one too long to be packed.
    """
    ordered = sorted(spans, key=lambda span: (span.length, len(span.blocks)))
    for length, members in groupby(ordered, key=lambda span: span.length):
        group: list[SpanLayout] = []
        for span in members:  # ascending, so the last one is the widest
            fits = (len(group) + 1) * len(span.blocks) <= most_blocks
            if group and (length > _PACKED_TOKENS or not fits):
                yield group
                group = []
            group.append(span)
        yield group


def _attend_group(
    group: _Group,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    options: AttentionOptions,
) -> torch.Tensor:
    """Query [Hq, n * q, D] over key and value [n, Hk, L, D] -> [n * q, Hq, Dv]."""
    n, q, heads, dim = group.count, group.length, key.shape[1], query.shape[2]
    if group.mask.dim() == 4:
        rows = query.view(heads, -1, n, q, dim).permute(2, 0, 1, 3, 4).reshape(n, heads, -1, dim)
    else:
        # A long span: G heads as a batch over keys seen through a view, one mask for all.
        rows = query.view(heads, -1, q, dim)
        repeats = rows.shape[1]
        key = key.transpose(0, 1).expand(-1, repeats, -1, -1)
        value = value.transpose(0, 1).expand(-1, repeats, -1, -1)
    if options.softcap is None and options.sinks is None:
        out = F.scaled_dot_product_attention(
            rows, key, value, attn_mask=group.mask, scale=options.scale
        )
    else:
        out = _attend_exactly(rows, key, value, group, options)
    # [n, Hk, G * q, Dv], or [Hk, G, q, Dv] with n = 1: the same once split.
    return out.reshape(n, -1, q, value.shape[3]).transpose(1, 2).flatten(0, 1)


def _attend_exactly(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    group: _Group,
    options: AttentionOptions,
) -> torch.Tensor:
    """Softcap and sinks, which the fused kernel does not know: the same, step by step."""
    scores = (query @ key.transpose(2, 3)).float() * options.scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores = scores + group.mask
    if options.sinks is None:
        weights = scores.softmax(-1)
    else:
        by_head = options.sinks.float().repeat_interleave(group.length)
        sinks = by_head.expand(group.count, -1).reshape(*scores.shape[:-1], 1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
    return weights.to(value.dtype) @ value
