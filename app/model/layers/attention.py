"""Attention over the paged cache, called from inside a transformers model.

``AttentionRoute`` is registered with transformers' ``AttentionInterface`` under its own name and
passes every layer's query, key and value to the current ``LayerAttention``: a probe that only notes
shapes, that of ``cpu``, or that of ``cuda``. The runner passes the step to the attention
(``begin``), since not every model passes unknown keyword arguments on.

Shapes: T tokens of all spans together, Hq query heads, Hk key heads, G = Hq / Hk, D dimensions.
"""

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from app.core.errors import UnsupportedModel
from app.core.step import StepInterrupted
from app.model.kv_storage import LayerShape
from app.model.layers.architecture import check_layers, chunk_sizes, is_plain_linear
from app.model.layers.model_call import logits_of, text_alone
from app.model.layers.recurrent import RecurrentRoute

if TYPE_CHECKING:
    from app.model.layers.latent import LatentHeads, LatentLayer


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Options of an attention layer besides query, key and value."""

    scale: float
    window: int | None
    """Keys at most ``window - 1`` positions back are seen; None: all."""
    softcap: float | None
    """Scores are squashed to ``softcap * tanh(score / softcap)``; None: as they are."""
    sinks: Tensor | None
    """Shape [Hq]: a score that takes part in the softmax and has no value; None: no sink."""
    latent: LatentHeads | None = None
    """Set if key and value are entries of a latent cache, to which the query is projected."""
    chunked: bool = False
    """The window does not slide: keys of the same ``window`` positions, from 0 on, are seen."""
    slopes: Tensor | None = None
    """Shape [Hq], float32: how much a key's score falls with each position that it is back (ALiBi;
    Press et al., 2022); None: it does not."""
    near: Tensor | None = None
    """Shape [T, Hq, E], float32: added to a token's scores of keys 0 to E - 1 positions back, none
    for farther keys. None: no such bias. Not combined with slopes or latents."""


class LayerAttention(Protocol):
    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Query [Hq, T, D], key and value [Hk, T, D] of the new tokens -> [T, Hq, Dv].

        With ``options.latent`` key [1, T, R + P] is the cache entry, and value [1, T, R] a view.
        """


class AttentionRoute:
    """Passes the attention calls of a model's layers to a ``LayerAttention``; one a runner."""

    def __init__(self) -> None:
        self.name = f"leapjson_paged_{uuid.uuid4().hex}"
        self._target: LayerAttention | None = None
        self._seen: set[int] = set()
        self._further_calls = 0
        self._probing = False
        self.near = False
        """Whether layers give their position bias by distance; see ``nearness``."""
        self.interrupted: Callable[[], bool] | None = None
        """Called before each layer: whether to abandon the pass; None: never."""
        self.options: dict[int, AttentionOptions] = {}
        """Options of the last forward pass, by layer."""
        self.latents: dict[int, LatentLayer] = {}
        """Layers whose cache is in latent form; see ``latent``."""
        self.chunks: Mapping[int, int] = {}
        """By layer with chunked attention, the positions of a chunk."""
        # transformers keeps the function for ever; a weak reference lets the cache be freed.
        route = weakref.ref(self)

        def attend(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
            owner = route()
            assert owner is not None, "the runner of this model is gone"
            return owner._attend(*args, **kwargs), None

        AttentionInterface.register(self.name, attend)

    @property
    def target(self) -> LayerAttention | None:
        return self._target

    @target.setter
    def target(self, target: LayerAttention | None) -> None:
        """Set for each forward pass anew."""
        self._target = target
        self._seen.clear()
        self._further_calls = 0

    @contextlib.contextmanager
    def probing(self, probe: LayerAttention) -> Iterator[None]:
        """Within the block ``probe`` is the target, and the masks of layers are checked."""
        self.target, self._probing = probe, True
        try:
            yield
        finally:
            self.target, self._probing = None, False

    def _attend(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        position_bias: Tensor | None = None,
        sinks: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        if not hasattr(module, "layer_idx") and not module.is_causal:  # over a token's own states
            return F.scaled_dot_product_attention(query, key, value, scale=scale).transpose(1, 2)
        layer = -1 if module.layer_idx is None else module.layer_idx
        query, key, value = query[0], key[0], value[0]
        near = None
        if position_bias is not None and self.near:
            near, position_bias = position_bias[0].transpose(0, 1).float().contiguous(), None
        if sinks is not None:
            query, key = _with_sinks(query, key, sinks[0, :, :, 0], scale)
            s_aux = query.new_zeros(len(query))
        if attention_mask is not None and _is_by_key(attention_mask, query.shape[1]):
            query, key = _with_bias(query, key, attention_mask[0, :, 0], scale)
        elif attention_mask is not None and self._probing and not _is_causal(attention_mask):
            # Checked only for the two tokens of a probe, since it reads the mask.
            position_bias = attention_mask
        if position_bias is not None:
            raise UnsupportedModel(f"{type(module).__name__} builds an attention mask of its own")
        chunk = self.chunks.get(layer)
        options = AttentionOptions(
            scale=scale,
            window=chunk or sliding_window or None,
            softcap=softcap or None,
            sinks=s_aux,
            chunked=chunk is not None,
            near=near,
        )
        return self.attend(layer, query, key, value, options)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Query [Hq, T, D], key [Hk, T, D], value [Hk, T, Dv] -> [1, T, Hq, Dv], by the target."""
        assert self.target is not None, "no step has begun"
        self.check()
        layer = self._place(layer)
        latent = self.latents.get(layer)
        if latent is not None:
            options = replace(options, latent=latent.heads)
            key = latent.take_entries(key)
            value = key[..., : latent.heads.rank]
        self.options[layer] = replace(options, near=None)  # large, and of this step alone
        return self.target.attend(layer, query, key, value, options).unsqueeze(0)

    def check(self) -> None:
        """Raises ``StepInterrupted`` if the pass is to be abandoned."""
        if self.interrupted is not None and self.interrupted():
            raise StepInterrupted

    def _place(self, layer: int) -> int:
        """Index under which keys and values of this call are cached, unique within a pass.

        That is the layer, except for a layer's second call (DiffLlama), and for one attention in
        several layers (Zamba 2), whose index is always -1: these get -1, -2 and so on, in their
        order.
        """
        if layer >= 0 and layer not in self._seen:
            self._seen.add(layer)
            return layer
        self._further_calls += 1
        return -self._further_calls


def _is_causal(mask: Tensor) -> bool:
    """Whether a mask [..., T, T] hides later tokens and nothing else.

    Some models (Kosmos-2) make their own. An empty mask counts as causal: see ``sparse``.
    """
    seen = mask if mask.dtype == torch.bool else mask == 0
    shape = seen.shape[-2:]
    return bool((seen == torch.ones(shape, dtype=torch.bool, device=mask.device).tril()).all())


def _is_by_key(mask: Tensor, tokens: int) -> bool:
    """Whether a mask [1, H, 1, T] has one number for each key, the same for all queries."""
    return mask.is_floating_point() and mask.shape[-2:] == (1, tokens) and mask.shape[1] > 1


def _with_bias(query: Tensor, key: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Add ``bias`` [Hq, T] to the scores of keys, by an extra dimension of queries and keys.

    The bias is the same for all query heads of a key head.
    """
    shares = (bias[:: query.shape[0] // key.shape[0], :, None] / scale).to(key)
    ones = query.new_ones((*query.shape[:2], 1))
    return torch.cat([query, ones], -1), torch.cat([key, shares], -1)


def _with_sinks(query: Tensor, key: Tensor, sinks: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Subtract ``sinks`` [Hq, T] from each token's scores, so that a sink of 0 replaces them."""
    shares = (sinks[..., None] / -scale).to(query)
    return torch.cat([query, shares], -1), torch.cat([key, key.new_ones((*key.shape[:2], 1))], -1)


class _ShapeProbe:
    """Computes nothing; notes the shapes of every layer's keys and values."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        self.shapes[layer] = LayerShape(
            kv_heads=key.shape[0],
            key_dim=key.shape[2],
            value_dim=value.shape[2],
            group=query.shape[0] // key.shape[0],
            dtype=key.dtype,
            window=options.window,
            near=options.near is not None,
        )
        return query.new_zeros(query.shape[1], query.shape[0], value.shape[2])


def probe_layers(
    model: PreTrainedModel, route: AttentionRoute, recurrent: RecurrentRoute
) -> dict[int, LayerShape]:
    """Shapes of keys and values by layer, from one forward pass over two tokens.

    ``recurrent`` notes the shapes of states. Configurations name these dimensions in too many ways
    to read them there. Raises ``UnsupportedModel`` unless every layer called one of the routes, or
    both.
    """
    probe = _ShapeProbe()
    route.chunks = chunk_sizes(model.config)
    with recurrent.probing(), _without_products(model):
        run_two_tokens(model, route, probe)
    check_layers(model, {*probe.shapes, *recurrent.shapes})
    return probe.shapes


@contextlib.contextmanager
def _without_products(model: PreTrainedModel) -> Iterator[None]:
    """Linear layers return zeros: a pass that is made for shapes need not read their weights."""
    from app.model.layers.quantized import QuantizedLinear  # it imports this module

    layers: list[Any] = [
        each
        for each in model.modules()
        if (is_plain_linear(each) or isinstance(each, QuantizedLinear))
        and "forward" not in vars(each)  # set by compressed-tensors
    ]
    for layer in layers:
        layer.forward = lambda x, width=layer.out_features: x.new_zeros(*x.shape[:-1], width)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def set_attention(model: PreTrainedModel, name: str) -> None:
    """Have the language part use the attention ``name``; towers beside it keep theirs."""
    text = model.config.get_text_config()
    parts = [key for key in model.config.sub_configs if getattr(model.config, key) is text]
    model.set_attn_implementation({"": name, **dict.fromkeys(parts, name)} if parts else name)


@torch.inference_mode()
def run_two_tokens(model: PreTrainedModel, route: AttentionRoute, probe: LayerAttention) -> None:
    """A forward pass whose attention is ``probe``. Leaves the model set to the route."""
    set_attention(model, route.name)
    positions = torch.arange(2, device=model.device).unsqueeze(0)
    ids = positions + 1  # 0 may be padding, which is embedded as zeros
    with route.probing(probe), text_alone(model):
        logits_of(model, ids, positions, torch.tensor([1], device=model.device))
