"""Converts a GGUF file's metadata to a configuration of transformers.

Every key about the model must be known: an unknown one is refused by name, since ignoring it could
change answers. (transformers' own table knows fewer keys and skips the rest: it
would serve a Llama 3.1 without its scaled positions.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from app.core.errors import LeapjsonError, UnsupportedModel
from app.core.gguf_file import GgufFile

_Values = dict[str, Any]

_NOT_SERVED = MappingProxyType(
    {
        "t5": "an encoder-decoder",
        "t5encoder": "an encoder",
        "deci": "a model whose layers differ, which transformers lacks",
        "gemma4": "supported only as safetensors",
    }
)
"""Other architectures in transformers' own table of GGUF files."""


class _Keys:
    """The metadata of one architecture; records which keys were taken."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        prefix = f"{file.architecture}."
        self.all = {
            key.removeprefix(prefix): value
            for key, value in file.metadata.items()
            if key.startswith(prefix)
        }
        self._left = dict(self.all)

    def take(self, key: str, *default: Any) -> Any:
        """Take a key. Raises ``UnsupportedModel`` if it is missing and there is no default."""
        if key not in self._left and not default:
            raise UnsupportedModel(f"{self.file.path} lacks {self.file.architecture}.{key}")
        return self._left.pop(key, *default)

    def shared(self, key: str, *default: Any) -> Any:
        """``take`` a value that all layers share. Raises ``UnsupportedModel`` if they differ."""
        value = self.take(key, *default)
        if isinstance(value, list) and len(set(value)) != 1:
            raise UnsupportedModel(
                f"{self.file.path} has layers with different {self.file.architecture}.{key}, "
                "which is not supported"
            )
        return value[0] if isinstance(value, list) else value

    def expect(self, key: str, value: Any) -> None:
        """Take a key. Raises ``UnsupportedModel`` if it is present and not ``value``."""
        found = self._left.pop(key, value)
        if found != value:
            raise UnsupportedModel(
                f"{self.file.path} has {self.file.architecture}.{key} = {found}; only {value} is "
                "supported"
            )

    def has(self, tensor: str) -> bool:
        """Whether a layer has such a tensor, ``attn_q.bias`` for one."""
        return any(name.endswith("." + tensor) for name in self.file.tensors)

    def biases(self) -> _Values:
        return {
            "attention_bias": self.has("attn_output.bias"),
            "mlp_bias": self.has("ffn_down.bias"),
        }

    def finish(self) -> None:
        """Raises ``UnsupportedModel`` where a key was not taken."""
        if self._left:
            key, value = next(iter(self._left.items()))
            raise UnsupportedModel(
                f"{self.file.path} has the unknown metadata {self.file.architecture}.{key} = "
                f"{str(value)[:40]}; refused, because answers could be wrong"
            )


def configuration(file: GgufFile) -> PretrainedConfig:
    """The configuration. Raises ``UnsupportedModel`` for unknown architectures or metadata."""
    if file.architecture not in ARCHITECTURES:
        known = _NOT_SERVED.get(file.architecture)
        raise UnsupportedModel(
            f"{file.path} has the architecture "
            f"{file.architecture}{', ' + known if known else ''}; GGUF files of "
            f"{', '.join(ARCHITECTURES)} are supported, others only as safetensors"
        )
    kind, build = ARCHITECTURES[file.architecture]
    keys = _Keys(file)
    try:
        values = {"model_type": kind} | _common(keys) | build(keys)
        keys.finish()
        config: PretrainedConfig = AutoConfig.for_model(**values)
    except LeapjsonError:
        raise
    except Exception as error:  # values of any type, in our sums and in transformers' checks
        raise UnsupportedModel(f"cannot read the metadata of {file.path}: {error}") from error
    return config


def layers_left_out(file: GgufFile) -> int:
    """Number of last blocks that are not loaded: layers for multi-token prediction."""
    return int(file.metadata.get(f"{file.architecture}.nextn_predict_layers", 0))


def _common(keys: _Keys) -> _Values:
    """Settings of all architectures."""
    file = keys.file
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise UnsupportedModel(f"{file.path} has no tensor token_embd.weight")
    blocks = keys.take("block_count")
    if blocks > len(file.tensors):
        raise ValueError(f"it has {blocks} blocks but {len(file.tensors)} tensors")
    keys.expect("vocab_size", embedding.shape[0])
    keys.expect("attention.causal", True)
    return {
        "vocab_size": embedding.shape[0],
        "hidden_size": keys.take("embedding_length"),
        "num_hidden_layers": blocks - keys.take("nextn_predict_layers", 0),
        "max_position_embeddings": keys.take("context_length"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "pad_token_id": None,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _attention(
    keys: _Keys, *, theta: float = 10000.0, eps: str = "rms_norm_eps", partial: bool = False
) -> _Values:
    """Heads, RoPE, norms and the MLP's width, as most architectures have them.

    ``partial``: RoPE may rotate only some of a head's dimensions.
    """
    heads = keys.take("attention.head_count")
    head_dim = keys.take("attention.key_length", keys.all["embedding_length"] // heads)
    keys.expect("attention.value_length", head_dim)
    rotated = keys.take("rope.dimension_count", head_dim)
    if rotated != head_dim and not partial:
        raise UnsupportedModel(
            f"{keys.file.path} rotates {rotated} of {head_dim} dimensions of a head, which is not "
            f"supported for {keys.file.architecture}"
        )
    rope = _rope(keys, theta) | ({"partial_rotary_factor": rotated / head_dim} if partial else {})
    layer = keys.take("attention.layer_norm_epsilon", None)
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": keys.shared("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": keys.shared("feed_forward_length", None),
        "rope_parameters": rope,
        eps: keys.take("attention.layer_norm_rms_epsilon", layer),
    }


def _dense(keys: _Keys) -> _Values:
    keys.expect("expert_count", 0)
    keys.expect("expert_used_count", 0)
    return _attention(keys)


def _rope(keys: _Keys, theta: float) -> _Values:
    """``rope_parameters``; llama.cpp spells those of Llama 3 as a tensor (see ``loading``)."""
    rope: _Values = {"rope_type": "default", "rope_theta": keys.take("rope.freq_base", theta)}
    kind = keys.take("rope.scaling.type", "none")
    original = keys.take("rope.scaling.original_context_length", keys.all["context_length"])
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
        raise UnsupportedModel(f"RoPE scaling of type {kind} is not supported in GGUF files")
    keys.take("rope.scaling.finetuned", None)  # about training
    return rope


def _experts(keys: _Keys, *, partial: bool = False) -> _Values:
    return _attention(keys, partial=partial) | {
        "num_local_experts": keys.take("expert_count"),
        "num_experts_per_tok": keys.take("expert_used_count"),
    }


def _of_qwen(keys: _Keys) -> _Values:
    """Experts, of which one may be shared."""
    shared = keys.take("expert_shared_feed_forward_length", None)
    return {
        "num_experts": keys.take("expert_count"),
        "num_experts_per_tok": keys.take("expert_used_count"),
        "moe_intermediate_size": keys.take("expert_feed_forward_length"),
        "norm_topk_prob": shared is None,
    } | ({} if shared is None else {"shared_expert_intermediate_size": shared})


def _llama(keys: _Keys) -> _Values:
    """Also for Mistral and Mixtral, whose files name the architecture llama."""
    if keys.all.get("expert_count", 0):
        return _experts(keys) | {"model_type": "mixtral"}
    return _dense(keys) | keys.biases()


def _granite(keys: _Keys) -> _Values:
    scales = {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
    }
    values = _experts(keys) if keys.file.architecture == "granitemoe" else _dense(keys)
    return values | {name: keys.take(key, 1.0) for name, key in scales.items()} | keys.biases()


def _qwen35(keys: _Keys) -> _Values:
    values = _attention(keys, partial=True)
    interval = keys.take("full_attention_interval", 4)
    layers = range(keys.all["block_count"] - layers_left_out(keys.file))
    recurrent = keys.take("attention.recurrent_layers", [(n + 1) % interval != 0 for n in layers])
    sections = [section for section in keys.take("rope.dimension_sections", []) if section]
    values["rope_parameters"] |= {"mrope_section": sections, "mrope_interleaved": True}
    heads = keys.take("ssm.time_step_rank")
    return values | {
        "layer_types": ["linear_attention" if recurrent[n] else "full_attention" for n in layers],
        "linear_conv_kernel_dim": keys.take("ssm.conv_kernel"),
        "linear_key_head_dim": keys.take("ssm.state_size"),
        "linear_num_key_heads": keys.take("ssm.group_count"),
        "linear_num_value_heads": heads,
        "linear_value_head_dim": keys.take("ssm.inner_size") // heads,
    }


def _gemma2(keys: _Keys) -> _Values:
    values = _attention(keys)
    return values | {
        "query_pre_attn_scalar": _query_scale(keys, values, largest=46),
        "attn_logit_softcapping": keys.take("attn_logit_softcapping"),
        "final_logit_softcapping": keys.take("final_logit_softcapping"),
        "sliding_window": keys.take("attention.sliding_window"),
    }


def _gemma3(keys: _Keys) -> _Values:
    values = _attention(keys, theta=1_000_000.0)
    local = {"rope_type": "default", "rope_theta": keys.take("rope.freq_base_swa", 10000.0)}
    every = keys.take("attention.sliding_window_pattern", 6)
    layers = range(keys.all["block_count"])
    near = [(n + 1) % every != 0 for n in layers] if isinstance(every, int) else every
    return values | {
        "query_pre_attn_scalar": _query_scale(keys, values, largest=62),
        "final_logit_softcapping": keys.take("final_logit_softcapping", None),
        "sliding_window": keys.take("attention.sliding_window"),
        "layer_types": ["sliding_attention" if near[n] else "full_attention" for n in layers],
        "rope_parameters": {
            "full_attention": values["rope_parameters"],
            "sliding_attention": local,
        },
    }


def _query_scale(keys: _Keys, values: _Values, largest: int) -> int:
    """Not in the file: as in llama.cpp, the 27B is recognised by its number of layers."""
    if keys.all["block_count"] == largest:
        return int(keys.all["embedding_length"] // values["num_attention_heads"])
    return int(values["head_dim"])


def _phi3(keys: _Keys) -> _Values:
    """Some have other RoPE factors for texts beyond the original length."""
    original = keys.all.get("rope.scaling.original_context_length")
    values = _attention(keys, partial=True)
    factor, tensors = keys.take("rope.scaling.attn_factor", None), keys.file.tensors
    if "rope_factors_long.weight" in tensors:
        values["rope_parameters"] |= {
            "rope_type": "longrope",
            "original_max_position_embeddings": original,
            "factor": keys.all["context_length"] / original,
            "attention_factor": factor,
        }
        for name in ("long", "short"):
            factors = tensors[f"rope_factors_{name}.weight"].rows()[0].view("<f4")
            values["rope_parameters"][f"{name}_factor"] = factors.tolist()
    return values | {"sliding_window": keys.take("attention.sliding_window", 0) or None}


def _gpt_oss(keys: _Keys) -> _Values:
    values = _experts(keys)
    keys.expect("expert_feed_forward_length", values["intermediate_size"])
    keys.take("attention.sliding_window_pattern", None)  # every other layer in all known files
    values["rope_parameters"] |= {"truncate": False}
    return values | {"sliding_window": keys.take("attention.sliding_window")}


def _minimax_m2(keys: _Keys) -> _Values:
    keys.expect("expert_gating_func", 2)
    values = _experts(keys, partial=True)
    width = keys.take("expert_feed_forward_length", values["intermediate_size"])
    return values | {"intermediate_size": width}


def _lfm2(keys: _Keys) -> _Values:
    heads = keys.take("attention.head_count_kv")
    return _attention(keys, eps="norm_eps") | {
        "num_key_value_heads": max(heads),
        "layer_types": ["full_attention" if each else "conv" for each in heads],
        "block_auto_adjust_ff_dim": False,  # the file has the adjusted width
        "conv_L_cache": keys.take("shortconv.l_cache"),
        "conv_bias": keys.has("shortconv.in_proj.bias"),
    }


def _stablelm(keys: _Keys) -> _Values:
    return _attention(keys, eps="layer_norm_eps", partial=True) | {
        "use_qkv_bias": keys.has("attn_q.bias"),
        "use_parallel_residual": keys.take(
            "use_parallel_residual", not keys.has("ffn_norm.weight")
        ),
    }


def _starcoder2(keys: _Keys) -> _Values:
    return _attention(keys, eps="norm_epsilon") | {"use_bias": keys.has("attn_output.bias")}


def _nemotron(keys: _Keys) -> _Values:
    return _attention(keys, eps="norm_eps", partial=True) | keys.biases()


def _falcon(keys: _Keys) -> _Values:
    keys.expect("tensor_data_layout", "jploski")
    values = _attention(keys, eps="layer_norm_epsilon")
    groups = values["num_key_value_heads"]
    return {name: values[name] for name in ("num_attention_heads", "layer_norm_epsilon")} | {
        "ffn_hidden_size": values["intermediate_size"],
        "num_kv_heads": groups,
        "multi_query": True,
        "new_decoder_architecture": groups > 1,
        "num_ln_in_parallel_attn": 2 if keys.has("attn_norm_2.weight") else 1,
        "parallel_attn": True,
        "bias": keys.has("attn_output.bias"),
    }


def _gpt2(keys: _Keys) -> _Values:
    """GPT-2, and Bloom, whose MLP is four times as wide."""
    values = _attention(keys, eps="layer_norm_epsilon")
    return {
        "n_head": values["num_attention_heads"],
        "n_inner": values["intermediate_size"],
        "layer_norm_epsilon": values["layer_norm_epsilon"],
    }


def _mamba(keys: _Keys) -> _Values:
    for key in ("feed_forward_length", "attention.head_count", "ssm.dt_b_c_rms"):
        keys.expect(key, 0)
    return {
        "layer_norm_epsilon": keys.take("attention.layer_norm_rms_epsilon"),
        "conv_kernel": keys.take("ssm.conv_kernel"),
        "state_size": keys.take("ssm.state_size"),
        "time_step_rank": keys.take("ssm.time_step_rank"),
        "expand": keys.take("ssm.inner_size") // keys.all["embedding_length"],
    }


ARCHITECTURES: Mapping[str, tuple[str, Callable[[_Keys], _Values]]] = MappingProxyType(
    {
        "llama": ("llama", _llama),
        "qwen2": ("qwen2", _dense),
        "qwen2moe": ("qwen2_moe", lambda keys: _attention(keys) | _of_qwen(keys)),
        "qwen3": ("qwen3", _dense),
        "qwen3moe": ("qwen3_moe", lambda keys: _attention(keys) | _of_qwen(keys)),
        "qwen35": ("qwen3_5_text", _qwen35),
        "qwen35moe": ("qwen3_5_moe_text", lambda keys: _qwen35(keys) | _of_qwen(keys)),
        "gemma": ("gemma", _attention),
        "gemma2": ("gemma2", _gemma2),
        "gemma3": ("gemma3_text", _gemma3),
        "phi3": ("phi3", _phi3),
        "granite": ("granite", _granite),
        "granitemoe": ("granitemoe", _granite),
        "gpt-oss": ("gpt_oss", _gpt_oss),
        "minimax-m2": ("minimax_m2", _minimax_m2),
        "lfm2": ("lfm2", _lfm2),
        "mamba": ("mamba", _mamba),
        "falcon": ("falcon", _falcon),
        "stablelm": ("stablelm", _stablelm),
        "starcoder2": ("starcoder2", _starcoder2),
        "nemotron": ("nemotron", _nemotron),
        "bloom": ("bloom", _gpt2),
        "gpt2": ("gpt2", _gpt2),
    }
)
"""By llama.cpp's name: transformers' model type, and the function for its settings."""
