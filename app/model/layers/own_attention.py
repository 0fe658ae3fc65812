"""Older models, whose attention does not go through transformers' ``AttentionInterface``.

Falcon, Bloom and MPT have projections and attention in one ``forward``; GPT-J and its kin have an
``_attn`` between them. While a step runs, these hand queries, keys and values to the
``AttentionRoute``; at other times they are unchanged. The scale of scores and their slope by
distance (ALiBi; Press et al., 2022) come from the models' own functions.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.layers.attention import AttentionOptions, AttentionRoute
from app.model.layers.model_call import code_names, put_in_steps

Projected = tuple[Tensor, Tensor, Tensor]
"""Query [1, Hq, T, D], key and value [1, Hk, T, D]."""


def route_own_attention(model: PreTrainedModel, route: AttentionRoute) -> None:
    """Route the attentions known here through ``route``, numbered as the layers are."""
    for part in model.modules():  # BigBird: its first short text switches it to that anyway
        set_type: Any = getattr(part, "set_attention_type", None)
        if isinstance(part, PreTrainedModel) and set_type is not None:
            set_type("original_full")
    for kind, replace in _KINDS.items():
        modules = [each for each in model.modules() if type(each).__name__ == kind]
        for layer, module in enumerate(modules):
            replace(module, layer, route)
    for module in model.modules():
        if type(module).__name__ not in _KINDS and (names := _projections(module)):
            _replace_projected(module, names, route)


def _replace_forward(
    project: Callable[..., Projected], options_of: Callable[[Any], AttentionOptions], output: str
) -> Callable[[Any, int, AttentionRoute], None]:
    """For attentions that are one ``forward``; ``output`` names their last projection."""

    def replace(module: Any, layer: int, route: AttentionRoute) -> None:
        options = options_of(module)

        @put_in_steps(module, "forward", route)
        def forward(hidden: Tensor, residual: Tensor | None = None, **others: Any) -> Any:
            query, key, value = project(module, hidden, others)
            attended = route.attend(layer, query[0], key[0], value[0], options)
            out = getattr(module, output)(attended.flatten(2))
            return out if residual is None else out + residual, None

    return replace


def _replace_attn(module: Any, layer: int, route: AttentionRoute) -> None:
    """For attentions with an ``_attn(query, key, value, ...)`` of heads as a route takes them."""
    if not hasattr(module, "_attn"):  # GPT-J and CodeGen from transformers 5.24 on: an interface
        return
    options = AttentionOptions(_scale_of(module), _window_of(module), None, None)

    @put_in_steps(module, "_attn", route)
    def attn(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        # float32 rotary tables may have widened them; the cache has the model's type.
        query, key = query.to(value.dtype), key.to(value.dtype)
        return route.attend(layer, query[0], key[0], value[0], options).transpose(1, 2), None


def _projections(module: Any) -> tuple[str, ...]:
    """Names of the query, key, value and output projections of an attention that does not use the
    attention interface; none for other modules."""
    called = code_names(module)
    if "softmax" not in called or "get_interface" in called:
        return ()
    found = (names for names in _PROJECTED if all(hasattr(module, name) for name in names[:3]))
    return next(found, ())


def _replace_projected(module: Any, names: tuple[str, ...], route: AttentionRoute) -> None:
    """For attentions with three projections, maybe RoPE, and an output projection: BERT and BART.

    Keys of an encoder (``encoder_hidden_states``) are ignored.
    """
    layer = next(getattr(module, name) for name in _LAYERS if hasattr(module, name))
    heads = next(getattr(module, name) for name in _HEADS if hasattr(module, name))
    scale = (getattr(module, names[0]).out_features // heads) ** -0.5
    options = AttentionOptions(scale, None, None, None)
    signature = inspect.signature(module.forward)

    @put_in_steps(module, "forward", route)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        hidden: Tensor = next(iter(given.values()))
        # Looked up at each call: linear layers are replaced by packed ones.
        query, key, value = [
            getattr(module, name)(hidden).unflatten(-1, (heads, -1)).transpose(1, 2)
            for name in names[:3]
        ]
        table = given.get("sinusoidal_pos")
        if table is not None:
            rotate = module.apply_rotary_position_embeddings
            query, key, *turned = rotate(table, query, key, *[value] * module.rotary_value)
            value = turned[0] if turned else value
        attended = route.attend(layer, query[0], key[0], value[0], options).flatten(2)
        return (getattr(module, names[3])(attended) if len(names) > 3 else attended), None


def _replace_openai(module: Any, layer: int, route: AttentionRoute) -> None:
    """Its ``_attn`` takes keys [1, H, D, T]."""
    size = module.split_size // module.n_head
    options = AttentionOptions(size**-0.5 if module.scale else 1.0, None, None, None)

    @put_in_steps(module, "_attn", route)
    def attn(query: Tensor, key: Tensor, value: Tensor, *args: Any) -> Any:
        attended = route.attend(layer, query[0], key[0].transpose(1, 2), value[0], options)
        return [attended.transpose(1, 2)]


def _falcon(module: Any, hidden: Tensor, others: Mapping[str, Any]) -> Projected:
    split = module._split_heads(module.query_key_value(hidden))
    query, key, value = [heads.transpose(1, 2) for heads in split]
    if module.new_decoder_architecture:  # its keys were repeated for the queries of a group
        repeats = module.num_heads // module.num_kv_heads
        key, value = key[:, ::repeats], value[:, ::repeats]
    rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
    query, key = rotate(query, key, *others["position_embeddings"])
    return query, key, value


def _bloom(module: Any, hidden: Tensor, _: Mapping[str, Any]) -> Projected:
    query, key, value = module._reshape(module.query_key_value(hidden))
    return query, key, value


def _mpt(module: Any, hidden: Tensor, _: Mapping[str, Any]) -> Projected:
    mixed = module.Wqkv(hidden)
    if module.clip_qkv:
        mixed = mixed.clamp(min=-module.clip_qkv, max=module.clip_qkv)
    parts = mixed.view(*hidden.shape[:2], 3, module.n_heads, module.head_dim)
    query, key, value = parts.permute(2, 0, 3, 1, 4)
    return query, key, value


def _falcon_options(module: Any) -> AttentionOptions:
    if module.config.alibi:
        raise UnsupportedModel(
            "Falcon with ALiBi is not supported: transformers' attention implementations "
            "disagree on it (the eager one adds the bias twice)"
        )
    return AttentionOptions(module.head_dim**-0.5, None, None, None)


def _bloom_options(module: Any) -> AttentionOptions:
    build = sys.modules[type(module).__module__].build_alibi_tensor
    two = torch.ones(1, 2, dtype=torch.long, device=module.dense.weight.device)
    slopes = _slopes(build(two, module.num_heads, torch.float32).view(-1, 2)) * module.beta
    return AttentionOptions(module.inv_norm_factor, None, None, None, slopes=slopes)


def _mpt_options(module: Any) -> AttentionOptions:
    build = sys.modules[type(module).__module__].build_mpt_alibi_tensor
    biases = build(module.n_heads, 2, device=module.out_proj.weight.device).view(-1, 2)
    return AttentionOptions(module.softmax_scale, None, None, None, slopes=_slopes(biases))


def _slopes(biases: Tensor) -> Tensor:
    """Difference between the biases of two consecutive positions [Hq, 2]: the slope."""
    return (biases[:, 1] - biases[:, 0]).float().contiguous()


@torch.inference_mode()
def _scale_of(module: Any) -> float:
    """Scale of the products of queries and keys, measured with the keys 0 and 1."""
    heads = torch.zeros(1, 1, 2, 8, device=next(module.parameters()).device)
    heads[..., 1, 0] = 1.0
    _, weights = module._attn(heads, heads, heads)
    return float((weights[0, 0, 1, 1] / weights[0, 0, 1, 0]).log())


def _window_of(module: Any) -> int | None:
    """The width of the window in the module's own causal mask, if it has one of them."""
    mask = getattr(module, "bias", None)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        return None
    seen = int(mask[0, 0, -1].sum())
    return seen if seen < mask.shape[-1] else None


_PROJECTED = (
    ("query", "key", "value"),
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
)
_LAYERS = ("layer_idx", "layer_id")
_HEADS = ("num_attention_heads", "num_heads", "n_heads")

_KINDS: Mapping[str, Callable[[Any, int, AttentionRoute], None]] = {
    "Attention": _replace_openai,
    "BloomAttention": _replace_forward(_bloom, _bloom_options, "dense"),
    "CodeGenAttention": _replace_attn,
    "FalconAttention": _replace_forward(_falcon, _falcon_options, "dense"),
    "GPTJAttention": _replace_attn,
    "GPTNeoSelfAttention": _replace_attn,
    "GPTNeoXJapaneseAttention": _replace_attn,
    "MptAttention": _replace_forward(_mpt, _mpt_options, "out_proj"),
}
