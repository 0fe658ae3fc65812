"""What a GGUF file's metadata says of its model, as a configuration of transformers.

Whatever a file states has to be understood: a key that nobody takes is refused by name, since what
it changes would change answers. (transformers' own table knows fewer keys and skips the rest: it
would serve a Llama 3.1 without its scaled positions.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from app.core.errors import UnsupportedModel
from app.core.gguf_file import GgufFile

_Values = dict[str, Any]

_NOT_SERVED = MappingProxyType(
    {
        "t5": "an encoder-decoder",
        "t5encoder": "an encoder",
        "deci": "a model whose layers differ, which transformers lacks",
        "gemma4": "served from safetensors alone",
    }
)
"""What else transformers' own table of GGUF files has."""


class _Keys:
    """The metadata of one architecture; knows which keys were taken."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        prefix = f"{file.architecture}."
        self._left = {
            key.removeprefix(prefix): value
            for key, value in file.metadata.items()
            if key.startswith(prefix)
        }

    def take(self, key: str, *default: Any) -> Any:
        """Raises ``UnsupportedModel`` where it is not there and has no default."""
        if key not in self._left and not default:
            raise UnsupportedModel(f"{self.file.path} does not say {self.file.architecture}.{key}")
        return self._left.pop(key, *default)

    def number(self, key: str, *default: Any) -> Any:
        """What all layers share. Raises ``UnsupportedModel`` where they differ."""
        value = self.take(key, *default)
        if not isinstance(value, list):
            return value
        if len(set(value)) != 1:
            raise UnsupportedModel(
                f"{self.file.path} has layers whose {self.file.architecture}.{key} differ, which "
                "are not served"
            )
        return value[0]

    def expect(self, key: str, *values: Any) -> None:
        """Raises ``UnsupportedModel`` where it is there and none of ``values``."""
        found = self._left.pop(key, values[0])
        if found not in values:
            raise UnsupportedModel(
                f"{self.file.path} has {self.file.architecture}.{key} = {found}, which is served "
                f"for {' or '.join(map(str, values))} alone"
            )

    def has(self, tensor: str) -> bool:
        """Whether a layer has such a tensor, ``attn_q.bias`` for one."""
        return any(name.endswith("." + tensor) for name in self.file.tensors)

    def finish(self) -> None:
        """Raises ``UnsupportedModel`` where a key was not taken."""
        if self._left:
            key, value = next(iter(self._left.items()))
            raise UnsupportedModel(
                f"{self.file.path} has {self.file.architecture}.{key} = {str(value)[:40]}, which "
                "is not understood here: its answers could be wrong"
            )


def configuration(file: GgufFile) -> PretrainedConfig:
    """Raises ``UnsupportedModel`` for an architecture, or a statement on it, not known here."""
    build = ARCHITECTURES.get(file.architecture)
    if build is None:
        known = _NOT_SERVED.get(file.architecture)
        raise UnsupportedModel(
            f"{file.path} is of architecture {file.architecture}{', ' + known if known else ''}; "
            f"GGUF files of {', '.join(ARCHITECTURES)} are served, others from safetensors alone"
        )
    keys = _Keys(file)
    values = _common(keys) | build(keys)
    keys.finish()
    config: PretrainedConfig = AutoConfig.for_model(**values)
    return config


def layers_left_out(file: GgufFile) -> int:
    """How many of the last blocks are no layers: they guess tokens after the next."""
    return int(file.metadata.get(f"{file.architecture}.nextn_predict_layers", 0))


def _common(keys: _Keys) -> _Values:
    """What all architectures have."""
    file = keys.file
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise UnsupportedModel(f"{file.path} has no tensor token_embd.weight")
    keys.expect("vocab_size", embedding.shape[0])
    keys.expect("attention.causal", True)
    return {
        "vocab_size": embedding.shape[0],
        "hidden_size": keys.take("embedding_length"),
        "num_hidden_layers": keys.take("block_count") - keys.take("nextn_predict_layers", 0),
        "max_position_embeddings": keys.take("context_length"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "pad_token_id": None,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _attention(
    keys: _Keys, theta: float = 10000.0, *, eps: str = "rms_norm_eps", partial: bool = False
) -> _Values:
    """Heads, their rotation and norms, and the width between, as most have them.

    ``partial``: some of a head's numbers may be rotated and others not.
    """
    heads = keys.take("attention.head_count")
    hidden = keys.file.metadata[f"{keys.file.architecture}.embedding_length"]
    head_dim = keys.take("attention.key_length", hidden // heads)
    keys.expect("attention.value_length", head_dim)
    rotated = keys.take("rope.dimension_count", head_dim)
    if rotated != head_dim and not partial:
        raise UnsupportedModel(
            f"{keys.file.path} rotates {rotated} of {head_dim} numbers of a head, which is not "
            f"known of {keys.file.architecture}"
        )
    rms = keys.take("attention.layer_norm_rms_epsilon", None)
    layer = keys.take("attention.layer_norm_epsilon", rms)
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": keys.number("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": keys.number("feed_forward_length", None),
        "rope_parameters": _rope(keys, theta)
        | ({"partial_rotary_factor": rotated / head_dim} if partial else {}),
        eps: layer if rms is None else rms,
    }


def _rope(keys: _Keys, theta: float) -> _Values:
    """``rope_parameters``; llama.cpp spells those of Llama 3 as a tensor (see ``loading``)."""
    rope: _Values = {
        "rope_type": "default",
        "rope_theta": keys.take("rope.freq_base", theta),
    }
    kind = keys.take("rope.scaling.type", "none")
    original = keys.take("rope.scaling.original_context_length", None)
    if kind == "linear":
        rope |= {"rope_type": "linear", "factor": keys.take("rope.scaling.factor")}
    elif kind == "yarn":
        rope |= {
            "rope_type": "yarn",
            "factor": keys.take("rope.scaling.factor"),
            "original_max_position_embeddings": original,
        }
        for key in ("yarn_ext_factor", "yarn_attn_factor", "attn_factor"):
            keys.expect(f"rope.scaling.{key}", 1.0)
        for name in ("beta_fast", "beta_slow"):
            value = keys.take(f"rope.scaling.yarn_{name}", None)
            rope |= {} if value is None else {name: value}
    elif kind != "none":
        raise UnsupportedModel(f"positions scaled by {kind} are not read from GGUF files")
    keys.take("rope.scaling.finetuned", None)  # tells how it was trained
    return rope


def _experts(keys: _Keys, count: str = "num_experts") -> _Values:
    return {
        count: keys.take("expert_count"),
        "num_experts_per_tok": keys.take("expert_used_count"),
    }


def _unrouted(keys: _Keys) -> None:
    keys.expect("expert_count", 0)
    keys.expect("expert_used_count", 0)


def _llama(keys: _Keys) -> _Values:
    """Mistral's and Mixtral's files say that they are llama's, too."""
    values = _attention(keys)
    if keys.file.metadata.get("llama.expert_count", 0):
        return values | _experts(keys, "num_local_experts") | {"model_type": "mixtral"}
    _unrouted(keys)
    biases = {"attention_bias": keys.has("attn_output.bias"), "mlp_bias": keys.has("ffn_down.bias")}
    return values | biases | {"model_type": "llama"}


def _granite(keys: _Keys) -> _Values:
    scales = {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
    }
    return (
        _attention(keys)
        | {name: keys.take(key, 1.0) for name, key in scales.items()}
        | {"model_type": "granite", "attention_bias": keys.has("attn_output.bias")}
    )


def _granite_moe(keys: _Keys) -> _Values:
    keys.expect("expert_shared_feed_forward_length", 0)
    return _granite(keys) | _experts(keys, "num_local_experts") | {"model_type": "granitemoe"}


def _qwen2(keys: _Keys) -> _Values:
    _unrouted(keys)
    return _attention(keys) | {"model_type": "qwen2"}


def _qwen3(keys: _Keys) -> _Values:
    return _qwen2(keys) | {"model_type": "qwen3"}


def _qwen2_moe(keys: _Keys) -> _Values:
    return (
        _attention(keys)
        | _experts(keys)
        | {
            "model_type": "qwen2_moe",
            "moe_intermediate_size": keys.take("expert_feed_forward_length"),
            "shared_expert_intermediate_size": keys.take("expert_shared_feed_forward_length"),
            "norm_topk_prob": False,
        }
    )


def _qwen3_moe(keys: _Keys) -> _Values:
    return (
        _attention(keys)
        | _experts(keys)
        | {
            "model_type": "qwen3_moe",
            "moe_intermediate_size": keys.take("expert_feed_forward_length"),
            "norm_topk_prob": True,
        }
    )


def _qwen35(keys: _Keys) -> _Values:
    interval = keys.take("full_attention_interval", 4)
    blocks = keys.file.metadata[f"{keys.file.architecture}.block_count"] - layers_left_out(
        keys.file
    )
    recurrent = keys.take("attention.recurrent_layers", None)
    recurrent = recurrent or [(number + 1) % interval != 0 for number in range(blocks)]
    value_heads = keys.take("ssm.time_step_rank")
    values = _attention(keys, partial=True)
    sections = [section for section in keys.take("rope.dimension_sections", []) if section]
    values["rope_parameters"] |= {"mrope_section": sections, "mrope_interleaved": True}
    return values | {
        "model_type": "qwen3_5_text",
        "layer_types": [
            "linear_attention" if each else "full_attention" for each in recurrent[:blocks]
        ],
        "linear_conv_kernel_dim": keys.take("ssm.conv_kernel"),
        "linear_key_head_dim": keys.take("ssm.state_size"),
        "linear_num_key_heads": keys.take("ssm.group_count"),
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": keys.take("ssm.inner_size") // value_heads,
    }


def _qwen35_moe(keys: _Keys) -> _Values:
    return (
        _qwen35(keys)
        | _experts(keys)
        | {
            "model_type": "qwen3_5_moe_text",
            "moe_intermediate_size": keys.take("expert_feed_forward_length"),
            "shared_expert_intermediate_size": keys.take("expert_shared_feed_forward_length"),
        }
    )


def _gemma(keys: _Keys) -> _Values:
    return _attention(keys) | {"model_type": "gemma"}


def _gemma2(keys: _Keys) -> _Values:
    values = _attention(keys)
    return values | {
        "model_type": "gemma2",
        "query_pre_attn_scalar": _query_scale(keys, values, largest=46),
        "attn_logit_softcapping": keys.take("attn_logit_softcapping"),
        "final_logit_softcapping": keys.take("final_logit_softcapping"),
        "sliding_window": keys.take("attention.sliding_window"),
    }


def _gemma3(keys: _Keys) -> _Values:
    values = _attention(keys, 1_000_000.0)
    local = {"rope_type": "default", "rope_theta": keys.take("rope.freq_base_swa", 10000.0)}
    pattern = keys.take("attention.sliding_window_pattern", 6)
    layers = range(keys.file.metadata["gemma3.block_count"])
    if isinstance(pattern, int):
        pattern = [number % pattern != pattern - 1 for number in layers]
    return values | {
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": _query_scale(keys, values, largest=62),
        "final_logit_softcapping": keys.take("final_logit_softcapping", None),
        "sliding_window": keys.take("attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if pattern[number] else "full_attention" for number in layers
        ],
        "rope_parameters": {
            "full_attention": values["rope_parameters"],
            "sliding_attention": local,
        },
    }


def _query_scale(keys: _Keys, values: _Values, largest: int) -> int:
    """A file does not say it: llama.cpp, too, tells the 27B by its number of layers."""
    metadata, name = keys.file.metadata, keys.file.architecture
    if metadata[f"{name}.block_count"] == largest:
        return int(metadata[f"{name}.embedding_length"] // values["num_attention_heads"])
    return int(values["head_dim"])


def _phi3(keys: _Keys) -> _Values:
    values = _attention(keys, partial=True)
    window = keys.take("attention.sliding_window", 0)
    values["rope_parameters"] |= _long_rope(keys)
    return values | {"model_type": "phi3", "sliding_window": window or None}


def _long_rope(keys: _Keys) -> _Values:
    """Phi's positions, which are divided by other factors in texts beyond the original length."""
    metadata, tensors = keys.file.metadata, keys.file.tensors
    factor = keys.take("rope.scaling.attn_factor", None)
    if "rope_factors_long.weight" not in tensors:
        return {}
    factors = {
        f"{name}_factor": tensors[f"rope_factors_{name}.weight"].rows.view("<f4").tolist()
        for name in ("long", "short")
    }
    original = metadata["phi3.rope.scaling.original_context_length"]
    return factors | {
        "rope_type": "longrope",
        "original_max_position_embeddings": original,
        "factor": metadata["phi3.context_length"] / original,
        "attention_factor": factor,
    }


def _gpt_oss(keys: _Keys) -> _Values:
    values = _attention(keys)
    keys.expect("expert_feed_forward_length", values["intermediate_size"])
    keys.take("attention.sliding_window_pattern", None)  # every other layer, in all there are
    values["rope_parameters"] |= {"truncate": False}
    window = keys.take("attention.sliding_window")
    return (
        values
        | _experts(keys, "num_local_experts")
        | {"model_type": "gpt_oss", "sliding_window": window}
    )


def _minimax_m2(keys: _Keys) -> _Values:
    values = _attention(keys, partial=True)
    keys.expect("expert_gating_func", 2)
    width = keys.take("expert_feed_forward_length", values["intermediate_size"])
    values |= _experts(keys, "num_local_experts")
    return values | {"model_type": "minimax_m2", "intermediate_size": width}


def _lfm2(keys: _Keys) -> _Values:
    heads = keys.take("attention.head_count_kv")
    values = _attention(keys, eps="norm_eps")
    return values | {
        "model_type": "lfm2",
        "num_key_value_heads": max(heads),
        "layer_types": ["full_attention" if each else "conv" for each in heads],
        "block_auto_adjust_ff_dim": False,  # the width is the one that it would come to
        "conv_L_cache": keys.take("shortconv.l_cache"),
        "conv_bias": keys.has("shortconv.in_proj.bias"),
    }


def _stablelm(keys: _Keys) -> _Values:
    return _attention(keys, eps="layer_norm_eps", partial=True) | {
        "model_type": "stablelm",
        "use_qkv_bias": keys.has("attn_q.bias"),
        "use_parallel_residual": keys.take(
            "use_parallel_residual", not keys.has("ffn_norm.weight")
        ),
    }


def _starcoder2(keys: _Keys) -> _Values:
    return _attention(keys, eps="norm_epsilon") | {
        "model_type": "starcoder2",
        "use_bias": keys.has("attn_output.bias"),
    }


def _nemotron(keys: _Keys) -> _Values:
    return _attention(keys, eps="norm_eps", partial=True) | {
        "model_type": "nemotron",
        "attention_bias": keys.has("attn_output.bias"),
        "mlp_bias": keys.has("ffn_down.bias"),
    }


def _falcon(keys: _Keys) -> _Values:
    keys.expect("tensor_data_layout", "jploski")
    values = _attention(keys, eps="layer_norm_epsilon")
    del values["head_dim"]  # it is worked out there
    groups = values.pop("num_key_value_heads")
    return values | {
        "model_type": "falcon",
        "ffn_hidden_size": values.pop("intermediate_size"),
        "num_kv_heads": groups,
        "multi_query": True,
        "new_decoder_architecture": groups > 1,
        "num_ln_in_parallel_attn": 2 if keys.has("attn_norm_2.weight") else 1,
        "parallel_attn": True,
        "bias": keys.has("attn_output.bias"),
    }


def _bloom(keys: _Keys) -> _Values:
    values = _attention(keys, eps="layer_norm_epsilon")
    return {
        "model_type": "bloom",
        "n_head": values["num_attention_heads"],
        "layer_norm_epsilon": values["layer_norm_epsilon"],
    }


def _gpt2(keys: _Keys) -> _Values:
    values = _attention(keys, eps="layer_norm_epsilon")
    return {
        "model_type": "gpt2",
        "n_head": values["num_attention_heads"],
        "n_inner": values["intermediate_size"],
        "layer_norm_epsilon": values["layer_norm_epsilon"],
    }


def _mamba(keys: _Keys) -> _Values:
    for key in ("feed_forward_length", "attention.head_count", "ssm.dt_b_c_rms"):
        keys.expect(key, 0)
    return {
        "model_type": "mamba",
        "layer_norm_epsilon": keys.take("attention.layer_norm_rms_epsilon"),
        "conv_kernel": keys.take("ssm.conv_kernel"),
        "state_size": keys.take("ssm.state_size"),
        "time_step_rank": keys.take("ssm.time_step_rank"),
        "expand": keys.take("ssm.inner_size") // keys.file.metadata["mamba.embedding_length"],
    }


ARCHITECTURES: Mapping[str, Callable[[_Keys], _Values]] = MappingProxyType(
    {
        "llama": _llama,
        "qwen2": _qwen2,
        "qwen2moe": _qwen2_moe,
        "qwen3": _qwen3,
        "qwen3moe": _qwen3_moe,
        "qwen35": _qwen35,
        "qwen35moe": _qwen35_moe,
        "gemma": _gemma,
        "gemma2": _gemma2,
        "gemma3": _gemma3,
        "phi3": _phi3,
        "granite": _granite,
        "granitemoe": _granite_moe,
        "gpt-oss": _gpt_oss,
        "minimax-m2": _minimax_m2,
        "lfm2": _lfm2,
        "mamba": _mamba,
        "falcon": _falcon,
        "stablelm": _stablelm,
        "starcoder2": _starcoder2,
        "nemotron": _nemotron,
        "bloom": _bloom,
        "gpt2": _gpt2,
    }
)
"""By llama.cpp's names."""
