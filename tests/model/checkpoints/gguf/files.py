"""Tiny models as GGUF files, written with llama.cpp's own package in its converter's layout.

Tensors and metadata were compared with the converter's files of the same models, for each
architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
import transformers
from torch import Tensor

from tests.model.tiny import VOCAB

Kind = gguf.GGMLQuantizationType
Metadata = dict[str, Any]

TOKENS = ("<unk>", "<s>", "<|im_end|>", *(chr(33 + number) for number in range(VOCAB - 3)))

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Model(NamedTuple):
    config: str
    """Name of transformers' configuration class."""
    architecture: str
    """llama.cpp's name of the architecture."""
    changes: Mapping[str, Any] = MappingProxyType({})


_ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_RECURRENT = {
    "num_hidden_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}
_SCALES = {
    "attention_multiplier": 0.02,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.3,
    "logits_scaling": 4.0,
}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "long_factor": [1.0 + number / 8 for number in range(32)],
    "short_factor": [1.0 + number / 32 for number in range(32)],
    "original_max_position_embeddings": 32,
    "factor": 4.0,
    "attention_factor": 1.19,
}
MODELS: dict[str, Model] = {
    "llama": Model("LlamaConfig", "llama", {"tie_word_embeddings": False}),
    "llama, tied": Model("LlamaConfig", "llama", {"tie_word_embeddings": True}),
    "llama with biases": Model("LlamaConfig", "llama", {"attention_bias": True, "mlp_bias": True}),
    "mixtral": Model("MixtralConfig", "llama", _LOCAL),
    "qwen2": Model("Qwen2Config", "qwen2", {"tie_word_embeddings": True}),
    "qwen2moe": Model(
        "Qwen2MoeConfig", "qwen2moe", {**_ROUTED, "shared_expert_intermediate_size": 256}
    ),
    # transformers' reader assumes heads of width 128 in Qwen 3, as in all published models.
    "qwen3": Model("Qwen3Config", "qwen3", {"head_dim": 128, "tie_word_embeddings": False}),
    "qwen3moe": Model("Qwen3MoeConfig", "qwen3moe", {**_ROUTED, "norm_topk_prob": True}),
    "qwen35": Model("Qwen3_5TextConfig", "qwen35", _RECURRENT),
    "qwen35moe": Model(
        "Qwen3_5MoeTextConfig",
        "qwen35moe",
        {**_RECURRENT, **_ROUTED, "shared_expert_intermediate_size": 256},
    ),
    "gemma": Model("GemmaConfig", "gemma"),
    "gemma2": Model("Gemma2Config", "gemma2", {"query_pre_attn_scalar": 64, "sliding_window": 6}),
    "gemma3": Model(
        "Gemma3TextConfig", "gemma3", {"query_pre_attn_scalar": 64, "sliding_window": 6}
    ),
    "phi3": Model("Phi3Config", "phi3"),
    "phi3, long": Model("Phi3Config", "phi3", {"rope_parameters": _LONG}),
    "granite": Model("GraniteConfig", "granite", _SCALES),
    "granitemoe": Model("GraniteMoeConfig", "granitemoe", {**_SCALES, **_LOCAL}),
    "gpt-oss": Model(
        "GptOssConfig", "gpt-oss", {**_LOCAL, "sliding_window": 6, "num_hidden_layers": 4}
    ),
    "minimax-m2": Model(
        "MiniMaxM2Config",
        "minimax-m2",
        {**_LOCAL, "rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5}},
    ),
    "lfm2": Model(
        "Lfm2Config",
        "lfm2",
        {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    ),
    "mamba": Model("MambaConfig", "mamba", {"state_size": 16}),
    "falcon, many groups": Model(
        "FalconConfig", "falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}
    ),
    "falcon, one": Model("FalconConfig", "falcon", {"num_ln_in_parallel_attn": 1}),
    "stablelm": Model("StableLmConfig", "stablelm", {"use_qkv_bias": True}),
    "stablelm, parallel": Model("StableLmConfig", "stablelm", {"use_parallel_residual": True}),
    "starcoder2": Model("Starcoder2Config", "starcoder2"),
    "nemotron": Model("NemotronConfig", "nemotron"),
    "bloom": Model("BloomConfig", "bloom", {"n_layer": 2, "n_head": 4}),
    "gpt2": Model("GPT2Config", "gpt2", {"n_embd": 256, "n_layer": 2, "n_head": 4}),
}


def tiny_model(name: str, **changes: Any) -> Any:
    """One of ``MODELS`` in float32, with weights large enough to matter, and varied norms."""
    made = MODELS[name]
    values = {**SIZES, **made.changes, **changes}
    if made.architecture == "falcon":
        del values["head_dim"]
    config = getattr(transformers, made.config)(**values)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1 and not parameter_name.endswith(("A_log", "dt_bias")):
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif parameter.ndim == 3:  # experts, which are not initialised
                parameter.copy_(torch.randn_like(parameter) * config.initializer_range)
    return model.eval()


def write_gguf(
    path: Path,
    model: Any,
    kind: Callable[[str], Kind],
    metadata: Mapping[str, float | str] | None = None,
    extra: Mapping[str, np.ndarray[Any, Any]] | None = None,
    tokens: Sequence[str] | None = None,
) -> str:
    """Write ``model``; ``kind`` gives the type of a tensor by llama.cpp's name. ``metadata`` is
    added to the model's, ``extra`` are further float32 tensors; ``tokens`` begin with three special
    ones, the last of which ends an answer. Returns the path."""
    architecture = architecture_of(model)
    writer = gguf.GGUFWriter(path, architecture)
    said = {f"{architecture}.{key}": value for key, value in configured(model).items()}
    for key, value in (said | dict(metadata or {})).items():
        add = {bool: "bool", str: "string", int: "uint32", float: "float32", list: "array"}
        getattr(writer, f"add_{add[type(value)]}")(key, value)
    _write_tokenizer(writer, tokens or TOKENS)
    for name, value in converted(model).items():
        _write_tensor(writer, name, value.numpy(), kind)
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def architecture_of(model: Any) -> str:
    """llama.cpp's name of the model's architecture."""
    names = {made.config: made.architecture for made in MODELS.values()}
    return names[type(model.config).__name__]


_KEPT = ("ssm_conv1d", "shortconv.conv", "ffn_gate_inp", "ssm_a.", "ssm_dt.", "position_embd")
"""Parts of names of tensors that llama.cpp does not quantize, or whose rows are too short."""


def all_as(kind: Kind) -> Callable[[str], Kind]:
    """Stores every matrix as ``kind``, except those of ``_KEPT``."""
    return lambda name: Kind.F32 if any(part in name + "." for part in _KEPT) else kind


def as_q4_k_m(name: str) -> Kind:
    """Q6_K for some matrices, Q4_K for most, as in the widespread Q4_K_M files."""
    better = any(part in name for part in ("attn_v", "down", "token"))
    return all_as(Kind.Q6_K if better else Kind.Q4_K)(name)


_SCALE_PLACES = {
    Kind.Q4_1: (0, 2), Kind.Q5_1: (0, 2),
    Kind.Q2_K: (80, 82), Kind.Q3_K: (108,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,), Kind.TQ1_0: (52,), Kind.TQ2_0: (64,),
}  # fmt: skip
"""Offsets of the float16 scales in a block; other types have one at the beginning."""
_SCALES_OF = {
    Kind.IQ4_XS: (2e-5,),
    Kind.Q4_K: (2e-4, 1.5e-3),
    Kind.Q5_K: (1e-4, 1.5e-3),
    Kind.Q6_K: (3e-5,),
}


def random_blocks(rows: int, columns: int, kind: Kind, seed: int) -> np.ndarray[Any, Any]:
    """Blocks of random codes whose values are as large as weights; the package can only write few
    of the types that it reads."""
    dice = np.random.default_rng(seed)
    inputs, size = gguf.GGML_QUANT_SIZES[kind]
    shape = (rows, columns // inputs)
    blocks = dice.integers(0, 256, (*shape, size), dtype=np.uint8)

    def halves(scale: float) -> np.ndarray[Any, Any]:
        drawn = scale * dice.uniform(0.5, 1.5, (*shape, 1))
        return drawn.astype(np.float16).view(np.uint8)

    if kind == Kind.MXFP4:
        blocks[..., 0] = dice.integers(118, 124, shape)
    elif kind == Kind.NVFP4:
        blocks[..., :4] = dice.integers(30, 60, (*shape, 4))
    elif kind == Kind.IQ1_M:  # a scale in the upper four bits of four 16-bit words
        words = blocks[..., 48:56].copy().view(np.uint16) & 0x0FFF
        bits = halves(1e-3).view(np.uint16) >> np.array([0, 4, 8, 12], dtype=np.uint16)
        blocks[..., 48:56] = (words | (bits & 15) << 12).astype(np.uint16).view(np.uint8)
    else:
        places = _SCALE_PLACES.get(kind, (0,))
        for at, scale in zip(places, _SCALES_OF.get(kind, (1e-3,) * len(places)), strict=True):
            blocks[..., at : at + 2] = halves(scale)
    return blocks.reshape(rows, -1)


_WRITTEN = (
    Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0,
)  # fmt: skip
"""Types that the package can write from given numbers."""


def _write_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    values: np.ndarray[Any, Any],
    kind: Callable[[str], Kind],
) -> None:
    chosen = kind(name)
    if values.ndim == 1 or chosen == Kind.F32:
        writer.add_tensor(name, values.astype(np.float32))
        return
    if chosen in _WRITTEN:
        data = gguf.quants.quantize(values, chosen)
    else:
        rows = int(np.prod(values.shape[:-1]))
        data = random_blocks(rows, values.shape[-1], chosen, len(name) + rows)
        data = data.reshape(*values.shape[:-1], -1)
    writer.add_tensor(name, data, raw_dtype=chosen)


_NAMES = (
    ("transformer.word_embeddings_layernorm", "word_embeddings_layernorm"),
    ("transformer.h.", "h."),
    (".linear_attn.dt_bias", ".linear_attn.dt_proj.bias"),
    (".self_attn.sinks", ".self_attn.sinks.weight"),
    (".mlp.e_score_correction_bias", ".mlp.e_score_correction.bias"),
    (".block_sparse_moe.router.", ".block_sparse_moe.router.layer."),
)


def converted(model: Any) -> dict[str, Tensor]:
    """The model's weights by llama.cpp's names, in the layout of the converter."""
    config, architecture = model.config, architecture_of(model)
    (kind,) = [kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture]
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    found: dict[str, Tensor] = {}
    for own, value in model.state_dict().items():
        if own == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if ".experts." in own:
            found |= _experts(own, value, architecture)
            continue
        spelled = own
        for before, after in _NAMES:
            spelled = spelled.replace(before, after)
        known = (names.get_name(each, (".weight", ".bias")) for each in (spelled, own))
        target = next(name for name in known if name is not None)
        found[target] = _as_converted(target, value, config, architecture).contiguous()
    rope = getattr(config, "rope_parameters", None) or {}
    for length in ("long", "short"):
        if f"{length}_factor" in rope:
            found[f"rope_factors_{length}.weight"] = torch.tensor(rope[f"{length}_factor"])
    return found


def _experts(own: str, value: Tensor, architecture: str) -> dict[str, Tensor]:
    block, leaf = own.split(".")[2], "bias" if own.endswith("_bias") else "weight"
    odd = architecture == "gpt-oss"  # inputs before outputs, gate and up interleaved
    value = value.transpose(1, 2) if odd and leaf == "weight" else value
    if "gate_up" not in own:
        return {f"blk.{block}.ffn_down_exps.{leaf}": value.contiguous()}
    half = value.shape[1] // 2
    gate, up = (value[:, ::2], value[:, 1::2]) if odd else (value[:, :half], value[:, half:])
    parts = {"gate": gate, "up": up}
    return {
        f"blk.{block}.ffn_{name}_exps.{leaf}": part.contiguous() for name, part in parts.items()
    }


def _as_converted(name: str, value: Tensor, config: Any, architecture: str) -> Tensor:
    part = name.split(".", 2)[-1] if name.startswith("blk.") else name
    if architecture in ("llama", "granite", "granitemoe") and part.startswith(
        ("attn_q.", "attn_k.")
    ):
        heads = config.num_attention_heads if part[5] == "q" else config.num_key_value_heads
        halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
        return halves.swapaxes(1, 2).reshape(value.shape)
    if architecture == "bloom" and part.startswith("attn_qkv."):
        apart = value.reshape(config.n_head, 3, -1, *value.shape[1:])
        return apart.swapaxes(0, 1).reshape(value.shape)
    if architecture == "falcon" and part.startswith("attn_qkv."):
        groups, heads = config.num_kv_heads, config.num_attention_heads
        groups = groups if config.new_decoder_architecture else 1
        apart = value.view(groups, heads // groups + 2, -1, value.shape[-1])
        rows = [apart[:, :-2], apart[:, -2:-1], apart[:, -1:]]
        return torch.cat([each.reshape(-1, value.shape[-1]) for each in rows])
    if architecture == "gpt2" and part.startswith(("attn_qkv", "attn_output", "ffn_")):
        return value.T if value.ndim == 2 and "norm" not in part else value
    if architecture in ("qwen35", "qwen35moe"):
        value = _tiled(part, value, config)
    if part.startswith("ssm_a") and not part.startswith("ssm_alpha"):
        return -torch.exp(value)
    if part.startswith(("ssm_conv1d.weight", "shortconv.conv.")):
        return value.squeeze(1)
    with_one = ("gemma", "gemma2", "gemma3", "nemotron", "qwen35", "qwen35moe")
    if architecture in with_one and part.endswith("norm.weight") and part != "ssm_norm.weight":
        return value + 1
    return value


def _tiled(part: str, value: Tensor, config: Any) -> Tensor:
    """Reorder value heads of Qwen 3.5: the first of each key head, then the second, and so on."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads

    def tile(rows: Tensor) -> Tensor:
        apart = rows.reshape(keys, values // keys, -1, *rows.shape[1:])
        return apart.transpose(0, 1).reshape(rows.shape)

    if part.startswith("ssm_out."):
        return tile(value.T.contiguous()).T
    if part.startswith(("attn_gate.", "ssm_alpha.", "ssm_beta.", "ssm_dt.", "ssm_a")):
        return tile(value)
    if part.startswith(("attn_qkv.", "ssm_conv1d.")):
        before = 2 * keys * config.linear_key_head_dim
        return torch.cat([value[:before], tile(value[before:])])
    return value


_SAYS_ROTATION = (
    "llama", "granite", "granitemoe", "phi3", "stablelm", "nemotron", "minimax-m2", "qwen35",
    "qwen35moe",
)  # fmt: skip
_GRANITE = {
    "vocab_size": "vocab_size", "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}  # fmt: skip
_QWEN_35 = {
    "ssm.conv_kernel": "linear_conv_kernel_dim", "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads", "ssm.time_step_rank": "linear_num_value_heads",
}  # fmt: skip
_OWN: dict[str, dict[str, str]] = {
    "llama": {"vocab_size": "vocab_size"},
    "gemma2": {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")},
    "granite": _GRANITE,
    "granitemoe": _GRANITE,
    "nemotron": {"vocab_size": "vocab_size"},
    "lfm2": {"vocab_size": "vocab_size", "shortconv.l_cache": "conv_L_cache"},
    "stablelm": {"use_parallel_residual": "use_parallel_residual"},
    "qwen35": _QWEN_35,
    "qwen35moe": _QWEN_35,
}
"""Further metadata keys, and the names of transformers' settings with their values."""


def configured(model: Any) -> Metadata:
    """The converter's metadata of the model; keys are without the architecture's prefix."""
    config, architecture = model.config, architecture_of(model)
    said: Metadata = {
        "context_length": getattr(config, "max_position_embeddings", config.hidden_size),
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
    }
    if architecture == "mamba":
        return said | {
            "context_length": 1 << 20, "feed_forward_length": 0, "attention.head_count": 0,
            "ssm.conv_kernel": config.conv_kernel, "ssm.inner_size": config.intermediate_size,
            "ssm.state_size": config.state_size, "ssm.time_step_rank": config.time_step_rank,
            "ssm.dt_b_c_rms": False, "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
        }  # fmt: skip
    said["attention.head_count"] = config.num_attention_heads
    width = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    said["feed_forward_length"] = 4 * config.hidden_size if architecture == "falcon" else width
    by_rms = {"rms_norm_eps": "rms_", "norm_eps": "rms_"}
    for name in (
        "rms_norm_eps",
        "norm_eps",
        "layer_norm_eps",
        "norm_epsilon",
        "layer_norm_epsilon",
    ):
        if hasattr(config, name):
            said[f"attention.layer_norm_{by_rms.get(name, '')}epsilon"] = getattr(config, name)
            break
    if architecture == "nemotron":
        said["attention.layer_norm_epsilon"] = config.norm_eps
        said["rope.scaling.type"] = "none"
    if architecture == "falcon":
        groups = config.num_kv_heads if config.new_decoder_architecture else 1
        return said | {"attention.head_count_kv": groups, "tensor_data_layout": "jploski"}
    if architecture in ("bloom", "gpt2"):
        return said | {"feed_forward_length": 4 * config.hidden_size}
    said["attention.head_count_kv"] = config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if architecture not in ("granite", "granitemoe", "phi3", "stablelm"):
        said |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    if architecture not in ("stablelm", "gemma", "gemma2"):
        said["rope.freq_base"] = rope["rope_theta"]
    if architecture in _SAYS_ROTATION:
        partial = rope.get("partial_rotary_factor", 1.0)
        said["rope.dimension_count"] = int(partial * head_dim)
    original = rope.get("original_max_position_embeddings", 4096)
    if rope["rope_type"] == "yarn":
        said |= {
            "rope.scaling.type": "yarn", "rope.scaling.factor": rope["factor"],
            "rope.scaling.original_context_length": original,
            "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0,
        }  # fmt: skip
    if architecture == "phi3":
        said |= {"rope.scaling.original_context_length": original, "attention.sliding_window": 0}
        if "attention_factor" in rope:
            said["rope.scaling.attn_factor"] = rope["attention_factor"]
    said |= {key: getattr(config, name) for key, name in _OWN.get(architecture, {}).items()}
    if architecture in ("gemma2", "gemma3", "gpt-oss"):
        said["attention.sliding_window"] = config.sliding_window
    if architecture == "lfm2":
        kinds = config.layer_types
        said["attention.head_count_kv"] = [2 if kind == "full_attention" else 0 for kind in kinds]
    if architecture.startswith("qwen35"):
        values = config.linear_num_value_heads * config.linear_value_head_dim
        kinds = [kind == "linear_attention" for kind in config.layer_types]
        said |= {
            "ssm.inner_size": values, "attention.recurrent_layers": kinds,
            "full_attention_interval": 4, "rope.dimension_sections": [11, 11, 10, 0],
        }  # fmt: skip
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        said |= {"expert_count": experts, "expert_used_count": config.num_experts_per_tok}
        size = getattr(config, "moe_intermediate_size", config.intermediate_size)
        if architecture not in ("llama", "granitemoe"):
            said["expert_feed_forward_length"] = size
        if shared := getattr(config, "shared_expert_intermediate_size", None):
            said["expert_shared_feed_forward_length"] = shared
    return said


def _write_tokenizer(writer: gguf.GGUFWriter, tokens: Sequence[str]) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    plain = len(tokens) - 3
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * plain)
    writer.add_token_merges([])
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
