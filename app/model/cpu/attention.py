"""Attention of a step on the CPU, by compiled loops over keys and values where they lie.

A token's result depends on its own position alone, bit for bit (``kernels.attention``). Long spans
of layers with latent caches are gathered and computed one by one, by torch::

    query [Hk, G, q, D]    keys [Hk, G, L, D], a view    mask [q, L]

The tokens of a tree are short spans of one token each, whose blocks are single slots: those of the
computed positions, then those of its ancestors. So other branches do not change its result. In
layers with latent caches a tree is a long span.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from app.model.adapters.targets import AdapterRows, adapter_rows
from app.model.cpu.kernels import attention as kernels
from app.model.cpu.kernels.compiled import spreading
from app.model.cpu.kernels.records import share
from app.model.inputs import NO_INTS, Ints, SpanLayout, StepArrays, depths_of
from app.model.kv_storage import KvStorage
from app.model.layers.attention import AttentionOptions
from app.model.layers.latent import LatentHeads

_PIECE = 64
"""Tokens of a span that are one work item."""
_SHORT_TOKENS_OF_LATENTS = 4
"""Maximum tokens of a short span over latents: all query heads read one key head, many rows."""
_SPREAD_WORK = 1 << 20
"""Products of queries with keys from which several threads are used: 0.2 ms of one thread."""

_NO_HEADS = torch.empty(0)


@dataclass(frozen=True, slots=True)
class ShortSpans:
    spans: Ints
    """Shape [n, 4]: row, tokens, first position, and where the span's blocks begin."""
    blocks: tuple[Ints, ...]
    """Blocks of the spans, by cache group."""
    block_size: int
    """Slots of a block: 1 if there are trees in the step."""
    positions: int
    """Keys seen by all their tokens together."""


@dataclass(frozen=True, slots=True)
class _LongSpan:
    rows: slice
    blocks: Tensor
    mask: Tensor
    """Mask that is added to the scores: [tokens, positions]."""
    distances: Tensor | None
    """How far back each key is, for slopes: [tokens, positions]."""


class CpuAttention:
    """Attends over the cache. Used by one thread."""

    def __init__(self, storage: KvStorage, *, batch_invariant: bool = False) -> None:
        self.storage = storage
        self._longest = sys.maxsize
        if any(storage.is_latent(layer) for layer in storage.keys):
            assert not batch_invariant, "latents are not kept batch-invariant"
            self._longest = _SHORT_TOKENS_OF_LATENTS
        self.slots: tuple[Ints, ...] = ()
        """Slots of the step's tokens, by cache group."""
        self.short = ShortSpans(np.empty((0, 4), dtype=np.int64), (), storage.block_size, 0)
        self.adapters: AdapterRows = ()
        """Adapters of the step's rows; see ``adapters.slots.CpuBank``."""
        self.later: tuple[Ints, ...] = ()
        """``StepImages.ends`` by cache group, or empty arrays."""
        self._long: list[tuple[SpanLayout, Ints | None]] = []
        """Long spans, with the ancestors of their tokens if they are trees."""
        self._long_by_window: dict[tuple[int, int | None, bool], list[_LongSpan]] = {}

    def begin(self, step: StepArrays) -> None:
        """Set the step that the following calls of ``attend`` belong to."""
        self.slots = step.slots
        self.adapters = adapter_rows(step.adapters)
        if not step.slots:  # the model has no attention
            return
        ends = [step.ends(windowed=group.window is not None) for group in self.storage.groups]
        self.later = tuple([NO_INTS if each is None else each for each in ends])
        self._long_by_window.clear()
        spans = [(span, step.ancestors_of(span)) for span in step.spans]
        self._long = [each for each in spans if each[0].length > self._longest]
        short = [each for each in spans if each[0].length <= self._longest]
        groups, size = len(step.slots), self.storage.block_size
        if step.ancestors is None:
            self.short = _short_spans([span for span, _ in short], groups, size)
        else:
            self.short = _by_slot(short, groups, size)

    @property
    def has_long(self) -> bool:
        """Whether the step has spans for ``attend_long``."""
        return bool(self._long)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        keys, values = self.storage.keys[layer], self.storage.values[layer]
        group = self.storage.group_of[layer]
        self._write(key, keys, group)
        if options.latent is not None:
            return self._attend_latents(layer, query, options, options.latent)
        self._write(value, values, group)
        out = query.new_empty(query.shape[1], query.shape[0], value.shape[2])
        if len(self.short.spans):
            later = self.later[group]
            self._attend_short(layer, query, values, self.short.spans, later, options, out)
        self.attend_long(layer, query, options, out)
        return out

    def _attend_short(
        self,
        layer: int,
        query: Tensor,
        values: Tensor,
        spans: Ints,
        later: Ints,
        options: AttentionOptions,
        out: Tensor,
    ) -> None:
        """Fill the rows of ``out`` [T, Hq, Dv] of short ``spans``, see ``ShortSpans``.

        ``later`` has ``StepImages.ends`` of the rows of ``query``, or is empty.
        """
        keys, group = self.storage.keys[layer], self.storage.group_of[layer]
        rows = _by_token(query)
        assert query.dtype == values.dtype == out.dtype == keys.dtype
        by_distance = options.slopes if options.near is None else options.near
        slopes = _NO_HEADS if by_distance is None else by_distance.float().contiguous()
        sinks = None if options.sinks is None else options.sinks.float().contiguous()
        work = self.short.positions * query.shape[0] * query.shape[2]
        with spreading(work > _SPREAD_WORK) as threads:
            chunks = min(threads, keys.shape[1])
            fields = {
                "query": rows.data_ptr(),
                "query_pitch": rows[0].nbytes,
                "heads": rows.shape[1],
                "kv_heads": keys.shape[1],
                "dim": rows.shape[2],
                "keys": keys.data_ptr(),
                "values": values.data_ptr(),
                "slot_bytes": keys[0].nbytes,
                "value_slot_bytes": values[0].nbytes,
                "value_dim": out.shape[2],
                "out": out.data_ptr(),
                "spans": spans.ctypes.data,
                "span_count": len(spans),
                "blocks": self.short.blocks[group].ctypes.data,
                "block_size": self.short.block_size,
                "later": later.ctypes.data,
                "later_count": len(later),
                "chunks": chunks,
                "window": options.window or 0,
                "chunked": options.chunked,
                "sinks": 0 if sinks is None else sinks.data_ptr(),
                "slopes": slopes.data_ptr(),
                "slope_count": slopes.numel(),
                "extent": 0 if options.near is None else options.near.shape[2],
                "scale": options.scale,
                "softcap": options.softcap or 0.0,
            }
            call = kernels.new_call(keys.dtype)
            for name, value in fields.items():
                call[name] = value
            share(kernels.entry(), call.ctypes.data, len(spans) * chunks, threads > 1)

    def _write(self, rows: Tensor, pool: Tensor, group: int) -> None:
        """Put keys or values [Hk, T, D] into the slots of the step's tokens."""
        rows = _by_token(rows)
        assert rows.dtype == pool.dtype
        kernels.write(rows.data_ptr(), self.slots[group], pool.data_ptr(), pool[0].nbytes)

    def _attend_latents(
        self, layer: int, query: Tensor, options: AttentionOptions, heads: LatentHeads
    ) -> Tensor:
        """Attention over latents: [T, Hq, Dv]; the entries are written already."""
        entries, group = self.storage.keys[layer], self.storage.group_of[layer]
        out = query.new_empty(query.shape[1], query.shape[0], heads.values.shape[2])
        if len(self.short.spans):
            spans = self.short.spans.copy()
            lengths = spans[:, 1]
            first = np.cumsum(lengths) - lengths
            rows = np.arange(lengths.sum()) + np.repeat(spans[:, 0] - first, lengths)
            spans[:, 0] = first
            absorbed = heads.absorb(query[:, rows] if self._long else query)
            sums = query.new_empty(len(rows), query.shape[0], heads.rank)
            # An entry begins with its value, and the loops take as much of it as ``sums`` holds.
            later = self.later[group]
            own = later[rows] if len(later) else later
            self._attend_short(layer, absorbed, entries, spans, own, options, sums)
            if not self._long:
                return heads.results(sums)
            out[rows] = heads.results(sums)
        for span in self._long_spans(query.dtype, group, options):
            queries, found = query[:, span.rows], self._gather(entries, span.blocks)[0, 0]
            attend = (
                attend_expanded
                if is_better_expanded(queries.shape[1], len(found), heads, found.shape[1])
                else attend_absorbed
            )
            out[span.rows] = attend(queries, found, options, heads, partial(_attend_long, span))
        return out

    def attend_long(
        self, layer: int, query: Tensor, options: AttentionOptions, out: Tensor
    ) -> None:
        """Fill the long spans' rows of ``out`` [T, Hq, Dv]; keys and values are written already."""
        for span in self._long_spans(query.dtype, self.storage.group_of[layer], options):
            out[span.rows] = _attend_long(
                span,
                query[:, span.rows],
                self._gather(self.storage.keys[layer], span.blocks),
                self._gather(self.storage.values[layer], span.blocks),
                options,
            )

    def _gather(self, pool: Tensor, blocks: Tensor) -> Tensor:
        """Keys or values of a span: [Hk, 1, L, D], a view on [L, Hk, D]."""
        _, heads, dim = pool.shape
        found = pool.view(-1, self.storage.block_size * heads * dim).index_select(0, blocks)
        return found.view(-1, heads, dim).transpose(0, 1).unsqueeze(1)

    def _long_spans(
        self, dtype: torch.dtype, group: int, options: AttentionOptions
    ) -> list[_LongSpan]:
        """Made by the first layer of each group and kind of window, and kept for the others."""
        key = group, options.window, options.chunked
        spans = self._long_by_window.get(key)
        if spans is None:
            size = self.storage.block_size
            later = self.later[group]
            spans = [_long_span(*span, later, group, options, size, dtype) for span in self._long]
            self._long_by_window[key] = spans
        return spans


def _by_token(rows: Tensor) -> Tensor:
    """[heads, T, D] as the loops take it: [T, heads, D] without gaps, as most models have it."""
    return rows.transpose(0, 1).contiguous()


def _by_slot(
    spans: Sequence[tuple[SpanLayout, Ints | None]], groups: int, block_size: int
) -> ShortSpans:
    """Short spans with blocks of one slot; each token of a tree becomes a span."""
    single: list[SpanLayout] = []
    for span, ancestors in spans:
        within = np.arange(block_size)
        slots = [(each[:, None] * block_size + within).ravel()[: span.end] for each in span.blocks]
        if ancestors is None:
            single.append(replace(span, blocks=tuple(slots)))
            continue
        start = span.start
        for index, seen in enumerate(ancestors):
            way = start + np.flatnonzero((seen >> np.arange(span.length)) & 1)
            blocks = [np.concatenate([each[:start], each[way]]) for each in slots]
            single.append(SpanLayout(span.row + index, 1, start + len(way) - 1, tuple(blocks)))
    return _short_spans(single, groups, 1)


def _short_spans(spans: list[SpanLayout], groups: int, block_size: int) -> ShortSpans:
    begins = np.cumsum([0, *(len(span.blocks[0]) for span in spans)])
    rows = [
        (span.row + at, min(_PIECE, span.length - at), span.start + at, begin)
        for span, begin in zip(spans, begins.tolist(), strict=False)
        for at in range(0, span.length, _PIECE)
    ]
    blocks = [np.concatenate([s.blocks[i] for s in spans] or [NO_INTS]) for i in range(groups)]
    return ShortSpans(
        spans=np.array(rows, dtype=np.int64).reshape(-1, 4),
        blocks=tuple(blocks),
        block_size=block_size,
        positions=sum(span.length * span.end for span in spans),
    )


def _long_span(
    span: SpanLayout,
    ancestors: Ints | None,
    later: Ints,
    group: int,
    options: AttentionOptions,
    block_size: int,
    dtype: torch.dtype,
) -> _LongSpan:
    window = options.window
    skipped = 0 if window is None else max(0, span.start - window + 1) // block_size
    queries = np.arange(span.start, span.end)[:, None]
    keys = np.arange(skipped * block_size, len(span.blocks[group]) * block_size)[None]
    hidden = keys > queries
    if len(later):
        hidden &= keys >= later[span.row : span.row + span.length, None]
    if ancestors is not None:
        own = slice(span.start - skipped * block_size, span.end - skipped * block_size)
        hidden[:, own] = (ancestors[:, None] >> np.arange(span.length)) & 1 == 0
        queries = span.start + depths_of(ancestors)[:, None]
        keys[:, own] = queries.T
    if window is not None:
        chunked = options.chunked
        hidden |= queries // window != keys // window if chunked else queries - keys >= window
    by_distance = options.slopes is not None or options.near is not None
    # float32 if biases by distance are added: the model's type does not hold all positions.
    mask = torch.zeros(hidden.shape, dtype=torch.float32 if by_distance else dtype)
    mask.masked_fill_(torch.from_numpy(hidden), float("-inf"))
    return _LongSpan(
        rows=slice(span.row, span.row + span.length),
        blocks=torch.from_numpy(span.blocks[group][skipped:]),
        mask=mask,
        distances=torch.from_numpy(queries - keys) if by_distance else None,
    )


def _attend_long(
    span: _LongSpan, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
) -> Tensor:
    """Query [Hq, q, D] over key and value [Hk, 1, L, D] -> [q, Hq, Dv].

    The G heads are a batch over keys seen through a view, with one mask for all.
    """
    rows = query.view(key.shape[0], -1, *query.shape[1:])
    repeats = rows.shape[1]
    key, value = key.expand(-1, repeats, -1, -1), value.expand(-1, repeats, -1, -1)
    if span.distances is not None:
        added = _added(span, span.distances, options).view(*rows.shape[:2], *span.mask.shape)
        out = _attend_exactly(rows, key, value, span.mask + added, options)
    elif options.softcap is None and options.sinks is None:
        out = F.scaled_dot_product_attention(
            rows, key, value, attn_mask=span.mask, scale=options.scale
        )
    else:
        out = _attend_exactly(rows, key, value, span.mask, options)
    return out.flatten(0, 1).transpose(0, 1)


def _added(span: _LongSpan, distances: Tensor, options: AttentionOptions) -> Tensor:
    """Biases of scores by the distance of keys: [Hq, q, L], float32."""
    if options.near is None:
        assert options.slopes is not None
        return options.slopes.view(-1, 1, 1) * -distances
    near = options.near[span.rows].float().transpose(0, 1)
    extent = near.shape[2]
    places = distances.clamp(0, extent - 1).expand(len(near), -1, -1)
    return near.gather(2, places).masked_fill(distances >= extent, 0.0)


def _attend_exactly(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, options: AttentionOptions
) -> Tensor:
    """Attention step by step, with softcap and sinks, which the fused kernel does not support."""
    scores = (query @ key.transpose(2, 3)).float() * options.scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores = scores + mask
    if options.sinks is None:
        weights = scores.softmax(-1)
    else:
        sinks = options.sinks.float().view(*query.shape[:2], 1, 1).expand(-1, -1, query.shape[2], 1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
    return weights.to(value.dtype) @ value


Attend = Callable[[Tensor, Tensor, Tensor, AttentionOptions], Tensor]
"""Query [h, q, D], key and value [Hk, 1, L, D] -> [q, h, D]."""

_EXPANDED_BYTES = 64 << 20
"""Maximum bytes of keys and values of the heads that are computed together."""


def is_better_expanded(tokens: int, positions: int, heads: LatentHeads, entry_dim: int) -> bool:
    """Whether a span of ``tokens`` that sees ``positions`` takes fewer products expanded.

    Each query head against each entry takes R + P and R products instead of N + P and Dv, three to
    four times as many. So where a span is long, its keys and values are made of the latents once,
    some heads at a time; where it is short beside what it reads, that would take longer than it
    saves. Of 1,024 tokens of a prompt with 16 heads (R 512, P 64, N and Dv 128, bfloat16, two
    cores) a layer takes 0.62 s expanded and 1.2 s absorbed, of 64 after 960 it is 0.14 and 0.07.
    """
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
    # torch's fused kernel requires values of the keys' width; the rest is cut off.
    sums = attend(heads.absorb(query), whole, whole, options)
    return heads.results(sums[..., : heads.rank])


def attend_expanded(
    query: Tensor, entries: Tensor, options: AttentionOptions, heads: LatentHeads, attend: Attend
) -> Tensor:
    """As ``attend_absorbed``, by expanded keys and values of each head."""
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
    """``value`` padded to the width of keys, which torch's fused kernel requires."""
    return F.pad(value, (0, dim - value.shape[2])) if value.shape[2] < dim else value
