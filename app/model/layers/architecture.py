"""Decides which models can run exactly as ragged steps, and removes effects of the batch on a row.

A model qualifies when every layer is causal attention, full or within a sliding window, that goes
through transformers' ``AttentionInterface``, a recurrent mixer that ``recurrent`` knows, or both,
or has neither and works token by token. Configurations are checked here, before any weight is read;
``attention.probe_layers`` and ``self_check`` check forward passes.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from app.core.errors import UnsupportedModel

_BY_TOKEN = frozenset({"mlp", "moe"})
"""Layers without attention or state."""
SUPPORTED_LAYER_TYPES = _BY_TOKEN | {
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "indexed_attention",
    "linear_attention",  # Mamba's, too
    "conv",
    "hybrid",  # attention and a mixer
    "hybrid_sliding",
}

_NOT_CAUSAL = {
    "diffusion_gemma": "generates text by diffusion",
    "gemma4_assistant": "is a draft model that needs the keys and values of another model",
    "gemma4_unified_assistant": "is a draft model that needs the keys and values of another model",
    "kyutai_speech_to_text": "takes audio with every token",
    "paligemma": "reads its prompt in both directions",
    "voxtral_realtime": "takes audio with every token",
    "xlnet": "reads its text in a permuted order",
}
"""Unsupported model types whose forward pass looks causal."""

_PICKED = ("keep_window_size",)
_PICKED_OF_INDEXED = ("index_topk", "indexer_budget")
"""Names of the configuration's field with the number of keys that a sparse layer reads."""

_POSITION_LIMITS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len")


def check_config(config: PretrainedConfig) -> None:
    """Refuse models that are unsupported by their configuration.

    Raises ``UnsupportedModel`` for encoder-decoders, models that are not causal, and layers of an
    unknown type.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(f"{config.model_type} is an encoder-decoder; serve a causal LM")
    if config.model_type in _NOT_CAUSAL:
        raise UnsupportedModel(f"{config.model_type} {_NOT_CAUSAL[config.model_type]}")
    text = config.get_text_config()
    if getattr(text, "use_bidirectional_attention", None) in (True, "all"):
        raise UnsupportedModel(f"{text.model_type} reads its text in both directions")
    if getattr(text, "prefix_lm", False):
        raise UnsupportedModel(f"{text.model_type} reads its prompt in both directions")
    unknown = sorted(set(getattr(text, "layer_types", None) or ()) - SUPPORTED_LAYER_TYPES)
    if unknown:
        raise UnsupportedModel(
            f"{text.model_type} has layers of type {', '.join(unknown)}; only "
            f"{', '.join(sorted(SUPPORTED_LAYER_TYPES))} can be run"
        )


def check_layers(model: PreTrainedModel, routed: Collection[int]) -> None:
    """Refuse a model with a layer that is neither routed, by its index, nor works token by token.

    Raises ``UnsupportedModel`` with the name of its class.
    """
    types = getattr(model.config.get_text_config(), "layer_types", None) or ()
    by_token = {layer for layer, kind in enumerate(types) if kind in _BY_TOKEN}
    # Layers that run several times in a pass (HRM) are counted as often, but there once.
    numbers = [getattr(each, "layer_idx", None) for each in model.modules()]
    there = {number for number in numbers if isinstance(number, int)}
    missing = [
        layer
        for layer in range(layer_count(model.config))
        if layer not in by_token | {*routed} and (layer in there or not there)
    ]
    if missing:
        layers = layers_of(model)
        kind = f", a {type(layers[missing[0]]).__name__}" if layers else ""
        raise UnsupportedModel(
            f"{len(missing)} of {layer_count(model.config)} layers of {type(model).__name__} "
            f"(layer {missing[0]}{kind}) neither use transformers' "
            "attention interface nor are a known kind of recurrent layer"
        )


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of ``model``; none if they are not in one list."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return next((list(layers) for layers in lists if len(layers) == count), [])


def chunk_sizes(config: PretrainedConfig) -> Mapping[int, int]:
    """Positions of a chunk, by layer with chunked attention."""
    text = config.get_text_config()
    types = getattr(text, "layer_types", None) or ()
    size = getattr(text, "attention_chunk_size", None)
    return {layer: size for layer, kind in enumerate(types) if kind == "chunked_attention" and size}


def picked_keys(config: PretrainedConfig) -> int | None:
    """Number of keys that a sparse layer reads of a sequence; None: no layer is sparse."""
    text = config.get_text_config()
    blocks = getattr(text, "index_topk_blocks", None)
    if blocks:
        return int(blocks * text.index_block_size)
    indexed = "indexed_attention" in (getattr(text, "layer_types", None) or ())
    named = (*_PICKED, *(_PICKED_OF_INDEXED if indexed else ()))
    return next((found for name in named if (found := getattr(text, name, None))), None)


def position_limit(config: PretrainedConfig) -> int | None:
    """Positions the model was made for, or None where its configuration names no limit.

    With sparse attention no more than the keys that it picks; see ``sparse``.
    """
    text = config.get_text_config()
    limits = [getattr(text, name, None) for name in _POSITION_LIMITS]
    named = [limit for limit in limits if isinstance(limit, int) and limit > 0][:1]
    picked = picked_keys(config)
    return min([*named, *([] if picked is None else [picked])], default=None)


def layer_count(config: PretrainedConfig) -> int:
    return int(config.get_text_config().num_hidden_layers)


@dataclass(frozen=True, slots=True)
class Norm:
    """An RMSNorm (Zhang and Sennrich, 2019)."""

    weight: Tensor
    eps: float
    shifted: bool
    """As in Gemma: scales by ``1 + weight`` and rounds once, at the end."""


def is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether the weight is a plain matrix, not in the format of a quantiser."""
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter


def is_plain_embedding(module: nn.Module) -> bool:
    """Whether its outputs are rows of the weight, or rows times a number, as in Gemma."""
    known = type(module) is nn.Embedding or hasattr(module, "scalar_embed_scale")
    return known and isinstance(module, nn.Embedding)


def remove_batch_effects(model: PreTrainedModel, max_model_len: int | None) -> None:
    """Remove code that makes a row depend on the rest of its batch, or stalls a device.

    Rotary embeddings that choose their frequencies by the longest position in the batch
    (``longrope``, ``dynamic``) are frozen to one choice for the process: the long factors where
    sequences may pass the original context, the short ones otherwise. A warning about padding
    (GPT-2's), which would read the token ids back from the device at every step, is removed. A
    length that is counted over tokens other than padding (XLM's) becomes that of the whole row.
    Raises ``UnsupportedModel`` for such embeddings kept by layer type.
    """
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            vars(module)["warn_if_padding_and_no_attention_mask"] = lambda *_: None
            if "lengths" in inspect.signature(type(module).forward).parameters:
                module.register_forward_pre_hook(_count_all, with_kwargs=True)
        rope_type = getattr(module, "rope_type", None)
        if isinstance(rope_type, dict):
            if any(_follows_batch(kind) for kind in rope_type.values()):
                raise UnsupportedModel(
                    f"{type(module).__name__} has RoPE that depends on the batch in a layer type"
                )
        elif isinstance(rope_type, str) and _follows_batch(rope_type):
            _freeze_rope(module, rope_type, max_model_len)


def _count_all(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    ids: Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    return args, kwargs | {"lengths": ids.new_full(ids.shape[:1], ids.shape[1])}


def _follows_batch(rope_type: Any) -> bool:
    return isinstance(rope_type, str) and (rope_type == "longrope" or "dynamic" in rope_type)


def _freeze_rope(module: nn.Module, rope_type: str, max_model_len: int | None) -> None:
    # ``dynamic`` only rescales past max_position_embeddings, which no sequence reaches.
    if rope_type == "longrope":
        config: Any = module.config
        original = config.rope_parameters["original_max_position_embeddings"]
        limit = max_model_len or position_limit(config) or original
        frequencies: Any = module.inv_freq
        chosen, _ = ROPE_INIT_FUNCTIONS["longrope"](
            config, frequencies.device, seq_len=original + 1 if limit > original else original
        )
        with torch.no_grad():
            frequencies.copy_(chosen)
    module.rope_type = "default"  # type: ignore[assignment]
