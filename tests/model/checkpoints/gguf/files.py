"""Tiny models as GGUF files, written by llama.cpp's own package as its converter would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from torch import Tensor

from tests.model.tiny import VOCAB

Kind = gguf.GGMLQuantizationType

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

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": False}),
    "llama, tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
    # transformers' reader takes Qwen 3's heads to be 128 wide, as in all that were published.
    "qwen3": ("Qwen3Config", {"head_dim": 128, "tie_word_embeddings": False}),
    "gemma2": ("Gemma2Config", {"query_pre_attn_scalar": 64, "sliding_window": 6}),
    "gemma3": ("Gemma3TextConfig", {"query_pre_attn_scalar": 64, "sliding_window": 6}),
}
_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}


def tiny_model(name: str, **changes: Any) -> Any:
    """One of ``MODELS`` in float32, its weights of a size that answers depend on; norms vary."""
    class_name, extra = MODELS[name]
    config = getattr(transformers, class_name)(**{**SIZES, **extra, **changes})
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def write_gguf(
    path: Path,
    model: Any,
    kind: Callable[[str], Kind],
    metadata: Mapping[str, float | str] | None = None,
    extra: Mapping[str, np.ndarray[Any, Any]] | None = None,
    tokens: Sequence[str] | None = None,
) -> str:
    """``kind`` says how a tensor is stored, by llama.cpp's name. ``metadata`` is set beside what
    the model says, ``extra`` are further tensors of float32; ``tokens`` begin with three special
    ones, the last of which ends an answer."""
    config = model.config
    architecture = _ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _write_configuration(writer, config)
    _write_tokenizer(writer, tokens or TOKENS)
    for key, value in (metadata or {}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        module, _, leaf = name.rpartition(".")
        target = names.get_name(module)
        assert target is not None, name
        values = _as_converted(name, value, config).numpy()
        _write_tensor(writer, f"{target}.{leaf}", values, kind)
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def all_as(kind: Kind) -> Callable[[str], Kind]:
    """Every matrix of that kind."""
    return lambda name: kind


def as_q4_k_m(name: str) -> Kind:
    """Some in Q6_K, most in Q4_K, as in the files most people load."""
    return Kind.Q6_K if any(part in name for part in ("attn_v", "down", "token")) else Kind.Q4_K


def random_blocks(rows: int, columns: int, kind: Kind, seed: int) -> np.ndarray[Any, Any]:
    """Blocks of random codes whose values are of the size of weights; the package writes no
    k-quants."""
    dice = np.random.default_rng(seed)
    size = {Kind.Q4_K: 144, Kind.Q6_K: 210}[kind]
    blocks = dice.integers(0, 256, (rows, columns // 256, size), dtype=np.uint8)
    scales = {Kind.Q4_K: ((0, 2e-4), (2, 1.5e-3)), Kind.Q6_K: ((208, 3e-5),)}[kind]
    for at, scale in scales:
        drawn = (scale * dice.uniform(0.5, 1.5, (rows, columns // 256, 1))).astype(np.float16)
        blocks[..., at : at + 2] = drawn.view(np.uint8)
    return blocks.reshape(rows, -1)


def _write_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    values: np.ndarray[Any, Any],
    kind: Callable[[str], Kind],
) -> None:
    if values.ndim == 1:
        writer.add_tensor(name, values.astype(np.float32))
        return
    chosen = kind(name)
    if chosen in (Kind.Q4_K, Kind.Q6_K):
        rows, columns = values.shape
        data = random_blocks(rows, columns, chosen, len(name) + rows)
    else:
        data = gguf.quants.quantize(values, chosen)
    writer.add_tensor(name, data, raw_dtype=chosen)


def _as_converted(name: str, value: Tensor, config: Any) -> Tensor:
    """As llama.cpp's converter has it: Llama's heads with their halves row by row, Gemma's norms
    with their 1."""
    if config.model_type == "llama" and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
        return halves.swapaxes(1, 2).reshape(value.shape)
    if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
        return value + 1
    return value


def _write_configuration(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_vocab_size(config.vocab_size)
    elif config.model_type != "qwen2":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if config.model_type.startswith("gemma"):
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])


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
