"""Attention over the paged cache, called from inside a transformers model.

``AttentionRoute`` is registered with transformers' ``AttentionInterface`` under a name of its
own and hands every layer's query, key and value to the current ``LayerAttention``: a probe that
only notes shapes, the CPU attention below, or the CUDA one of ``triton_attention``. What a step
looks like reaches the attention from its runner (``begin``), not through the model's keyword
arguments, since not every model passes unknown ones on.

Shapes: T tokens of all spans together, Hq query heads, Hk key heads, G = Hq / Hk, D dimensions.
"""

from __future__ import annotations

import uuid
import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from transformers import AttentionInterface, PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.architecture import layer_count
from app.model.inputs import SpanLayout, StepArrays
from app.model.kv_storage import KvStorage, LayerShape

_PACKED_ROWS = 16
"""Up to this many query tokens, G heads are folded into the rows of one matrix."""


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """What a layer asks for besides query, key and value."""

    scale: float
    window: int | None
    """Keys at most ``window - 1`` positions back are seen; None: all."""
    softcap: float | None
    """Scores are squashed to ``softcap * tanh(score / softcap)``; None: as they are."""
    sinks: torch.Tensor | None
    """Shape [Hq]: a score that takes part in the softmax and has no value; None: no sink."""


class LayerAttention(Protocol):
    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        """Query [Hq, T, D], key and value [Hk, T, D] of the new tokens -> [T, Hq, Dv]."""


class AttentionRoute:
    """The way from a model's layers to a ``LayerAttention``; one for each runner."""

    def __init__(self) -> None:
        self.name = f"leapjson_paged_{uuid.uuid4().hex}"
        self.target: LayerAttention | None = None
        # transformers keeps the function for ever; a weak reference lets the cache be freed.
        route = weakref.ref(self)

        def attend(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
            owner = route()
            assert owner is not None, "the runner of this model is gone"
            return owner._attend(*args, **kwargs), None

        AttentionInterface.register(self.name, attend)

    def _attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        if attention_mask is not None or position_bias is not None:
            raise UnsupportedModel(f"{type(module).__name__} builds an attention mask of its own")
        assert self.target is not None, "no step has begun"
        options = AttentionOptions(
            scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
            window=sliding_window or None,
            softcap=softcap or None,
            sinks=s_aux,
        )
        out = self.target.attend(module.layer_idx, query[0], key[0], value[0], options)
        return out.unsqueeze(0)


class _ShapeProbe:
    """Computes nothing; notes the shapes of every layer's keys and values."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        if layer in self.shapes:
            raise UnsupportedModel(f"layer {layer} runs attention twice in one forward pass")
        self.shapes[layer] = LayerShape(
            kv_heads=key.shape[0],
            key_dim=key.shape[2],
            value_dim=value.shape[2],
            group=query.shape[0] // key.shape[0],
            dtype=key.dtype,
        )
        return query.new_zeros(query.shape[1], query.shape[0], value.shape[2])


@torch.inference_mode()
def probe_layers(model: PreTrainedModel, route: AttentionRoute) -> dict[int, LayerShape]:
    """Shapes of keys and values by layer, from one forward pass over two tokens.

    Configurations name these dimensions in too many ways to read them there. Raises
    ``UnsupportedModel`` unless every layer's attention came by ``route``.
    """
    probe = _ShapeProbe()
    model.set_attn_implementation(route.name)
    route.target = probe
    try:
        ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
        positions = torch.arange(2, device=model.device).unsqueeze(0)
        model(input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=1)
    finally:
        route.target = None
    expected = layer_count(model.config)
    if len(probe.shapes) != expected:
        raise UnsupportedModel(
            f"{len(probe.shapes)} of {expected} layers of {type(model).__name__} run through "
            "transformers' attention interface; all must"
        )
    return probe.shapes


class CpuAttention:
    """Attention of one step on the CPU: span by span over gathered blocks.

    Fastest of what was measured for few long sequences of unequal length: scaled dot product
    attention of each span on its own, with the G query heads of a key head as rows of one matrix,
    so that keys and values are neither repeated nor padded.
    """

    def __init__(self, storage: KvStorage) -> None:
        self._storage = storage
        self._step: StepArrays | None = None
        self._slots = torch.empty(0, dtype=torch.long)
        self._blocks: dict[tuple[int, int], torch.Tensor] = {}
        self._masks: dict[tuple[int, int | None, int], torch.Tensor] = {}

    def begin(self, step: StepArrays) -> None:
        """Set the step that the following calls of ``attend`` belong to."""
        self._step = step
        self._slots = torch.from_numpy(step.slots)
        self._blocks.clear()
        self._masks.clear()

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        assert self._step is not None
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        keys.index_copy_(0, self._slots, key.transpose(0, 1))
        values.index_copy_(0, self._slots, value.transpose(0, 1))
        out = query.new_empty(query.shape[1], query.shape[0], value.shape[2])
        group = query.shape[0] // key.shape[0]
        for index, span in enumerate(self._step.spans):
            first = _first_key(span, options.window)
            repeats = group if span.length <= _PACKED_ROWS else 1
            rows = slice(span.row, span.row + span.length)
            out[rows] = _attend_span(
                query[:, rows],
                self._gather(keys, index, span, first),
                self._gather(values, index, span, first),
                self._mask(index, span, options.window, repeats, query.dtype),
                options,
            ).transpose(0, 1)
        return out

    def _gather(self, pool: torch.Tensor, index: int, span: SpanLayout, first: int) -> torch.Tensor:
        """Keys or values of positions ``first`` to ``span.end - 1``: [Hk, positions, D]."""
        size = self._storage.block_size
        skipped = first // size
        blocks = self._blocks.get((index, skipped))
        if blocks is None:
            blocks = torch.from_numpy(span.blocks[skipped:])
            self._blocks[index, skipped] = blocks
        by_block = pool.view(-1, size * pool.shape[1] * pool.shape[2])
        found = by_block.index_select(0, blocks).view(-1, pool.shape[1], pool.shape[2])
        return found[first - skipped * size : span.end - skipped * size].transpose(0, 1)

    def _mask(
        self, index: int, span: SpanLayout, window: int | None, repeats: int, dtype: torch.dtype
    ) -> torch.Tensor | None:
        """What is added to the scores, [repeats * length, positions]; None for a single token.

        A single token sees all that is gathered for it. Kept for the step: layers share it.
        """
        if span.length == 1:
            return None
        mask = self._masks.get((index, window, repeats))
        if mask is None:
            asking = torch.arange(span.start, span.end).unsqueeze(1)
            asked = torch.arange(_first_key(span, window), span.end)
            hidden = asked > asking
            if window is not None:
                hidden |= asking - asked >= window
            mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
            mask = mask.repeat(repeats, 1)
            self._masks[index, window, repeats] = mask
        return mask


def _first_key(span: SpanLayout, window: int | None) -> int:
    return 0 if window is None else max(0, span.start - window + 1)


def _attend_span(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    options: AttentionOptions,
) -> torch.Tensor:
    """Query [Hq, n, D] over key and value [Hk, m, D] -> [Hq, n, Dv].

    ``mask`` is [G * n, m] for short spans and [n, m] for long ones.
    """
    q_heads, length, dim = query.shape
    kv_heads = key.shape[0]
    group = q_heads // kv_heads
    if length <= _PACKED_ROWS:
        query = query.reshape(kv_heads, group * length, dim)
    else:
        # A view: keys and values are shared by the G heads without being repeated in memory.
        query = query.reshape(kv_heads, group, length, dim)
        key = key.unsqueeze(1).expand(-1, group, -1, -1)
        value = value.unsqueeze(1).expand(-1, group, -1, -1)
    if options.softcap is not None or options.sinks is not None:
        out = _attend_exactly(query, key, value, mask, options)
    else:
        batched = query.dim() == 4
        out = F.scaled_dot_product_attention(
            query if batched else query.unsqueeze(0),
            key if batched else key.unsqueeze(0),
            value if batched else value.unsqueeze(0),
            attn_mask=mask,
            scale=options.scale,
        )
    return out.reshape(q_heads, length, value.shape[-1])


def _attend_exactly(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    options: AttentionOptions,
) -> torch.Tensor:
    """Softcap and sinks, which the fused kernel does not know: the same, step by step."""
    scores = (query @ key.transpose(-1, -2)).float() * options.scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    if mask is not None:
        scores = scores + mask
    if options.sinks is not None:
        by_row = options.sinks.float().view(key.shape[0], -1, 1)
        by_row = by_row.expand(-1, -1, scores[0].numel() // scores.shape[-1] // by_row.shape[1])
        sinks = by_row.reshape(*scores.shape[:-1], 1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return weights.to(value.dtype) @ value
