"""What a GGUF file's metadata says of its model, as a configuration of transformers.

Whatever a file states has to be understood: a key that nobody takes is refused by name, since what
it changes would change answers. (transformers' own table knows fewer keys and skips the rest: it
would serve a Llama 3.1 without its scaled positions.)
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from app.core.errors import UnsupportedModel
from app.model.checkpoints.gguf.file import GgufFile


class _Keys:
    """The metadata of one architecture; knows which keys were taken."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        prefix = f"{file.architecture}."
        self._left = {
            key.removeprefix(prefix): value
            for key, value in file.metadata.items()
            if key.startswith(prefix)
        }

    def take(self, key: str, *default: Any) -> Any:
        """Raises ``UnsupportedModel`` where it is not there and has no default."""
        if key not in self._left and not default:
            raise UnsupportedModel(
                f"{self._file.path} does not say {self._file.architecture}.{key}"
            )
        return self._left.pop(key, *default)

    def expect(self, key: str, value: Any) -> None:
        """Raises ``UnsupportedModel`` where it is there and not ``value``."""
        found = self._left.pop(key, value)
        if found != value:
            raise UnsupportedModel(
                f"{self._file.path} has {self._file.architecture}.{key} = {found}, which is served "
                f"for {value} alone"
            )

    def finish(self) -> None:
        """Raises ``UnsupportedModel`` where a key was not taken."""
        if self._left:
            key, value = next(iter(self._left.items()))
            raise UnsupportedModel(
                f"{self._file.path} has {self._file.architecture}.{key} = {str(value)[:40]}, which "
                "is not understood here: its answers could be wrong"
            )


def configuration(file: GgufFile) -> PretrainedConfig:
    """Raises ``UnsupportedModel`` for an architecture, or a statement on it, not known here."""
    build = _ARCHITECTURES.get(file.architecture)
    if build is None:
        raise UnsupportedModel(
            f"{file.path} is of architecture {file.architecture}; GGUF files of "
            f"{', '.join(_ARCHITECTURES)} are served, others from safetensors alone"
        )
    keys = _Keys(file)
    values = build(keys, _common(keys, file))
    keys.finish()
    config: PretrainedConfig = AutoConfig.for_model(**values)
    return config


def _common(keys: _Keys, file: GgufFile) -> dict[str, Any]:
    """What all architectures have; their order of keys follows the specification of GGUF."""
    hidden, heads = keys.take("embedding_length"), keys.take("attention.head_count")
    head_dim = keys.take("attention.key_length", hidden // heads)
    keys.expect("attention.value_length", head_dim)
    keys.expect("rope.dimension_count", head_dim)
    keys.expect("attention.causal", True)
    keys.expect("expert_count", 0)
    keys.expect("expert_used_count", 0)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise UnsupportedModel(f"{file.path} has no tensor token_embd.weight")
    vocabulary = embedding.shape[0]
    keys.expect("vocab_size", vocabulary)
    special = {
        f"{name}_token_id": file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        for name in ("bos", "eos")
    }
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": keys.take("block_count"),
        "intermediate_size": keys.take("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.take("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": keys.take("context_length"),
        "rms_norm_eps": keys.take("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "pad_token_id": None,
        **special,
    }


def _rope(keys: _Keys, theta: float = 10000.0) -> dict[str, Any]:
    """``rope_parameters``; llama.cpp spells those of Llama 3 as a tensor (see ``loading``)."""
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": keys.take("rope.freq_base", theta),
    }
    kind = keys.take("rope.scaling.type", "none")
    if kind == "linear":
        rope |= {"rope_type": "linear", "factor": keys.take("rope.scaling.factor")}
    elif kind == "yarn":
        rope |= {
            "rope_type": "yarn",
            "factor": keys.take("rope.scaling.factor"),
            "original_max_position_embeddings": keys.take("rope.scaling.original_context_length"),
        }
        for key in ("yarn_ext_factor", "yarn_attn_factor", "attn_factor"):
            keys.expect(f"rope.scaling.{key}", 1.0)
        for name in ("beta_fast", "beta_slow"):
            value = keys.take(f"rope.scaling.yarn_{name}", None)
            rope |= {} if value is None else {name: value}
        keys.take("rope.scaling.finetuned", None)  # tells how it was trained
    elif kind != "none":
        raise UnsupportedModel(f"positions scaled by {kind} are not read from GGUF files")
    return rope


def _llama(keys: _Keys, common: dict[str, Any]) -> dict[str, Any]:
    return common | {"model_type": "llama", "rope_parameters": _rope(keys)}


def _qwen2(keys: _Keys, common: dict[str, Any]) -> dict[str, Any]:
    del common["head_dim"]  # there it is the hidden size by the heads
    return common | {"model_type": "qwen2", "rope_parameters": _rope(keys)}


def _qwen3(keys: _Keys, common: dict[str, Any]) -> dict[str, Any]:
    return common | {"model_type": "qwen3", "rope_parameters": _rope(keys)}


def _gemma2(keys: _Keys, common: dict[str, Any]) -> dict[str, Any]:
    return common | {
        "model_type": "gemma2",
        "query_pre_attn_scalar": _query_scale(common, largest=46),
        "attn_logit_softcapping": keys.take("attn_logit_softcapping"),
        "final_logit_softcapping": keys.take("final_logit_softcapping"),
        "sliding_window": keys.take("attention.sliding_window"),
        "rope_parameters": _rope(keys),
    }


def _gemma3(keys: _Keys, common: dict[str, Any]) -> dict[str, Any]:
    local = {"rope_type": "default", "rope_theta": keys.take("rope.freq_base_swa", 10000.0)}
    pattern, layers = (
        keys.take("attention.sliding_window_pattern", 6),
        range(common["num_hidden_layers"]),
    )
    if isinstance(pattern, int):
        pattern = [number % pattern != pattern - 1 for number in layers]
    return common | {
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": _query_scale(common, largest=62),
        "final_logit_softcapping": keys.take("final_logit_softcapping", None),
        "sliding_window": keys.take("attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if pattern[number] else "full_attention" for number in layers
        ],
        "rope_parameters": {
            "full_attention": _rope(keys, 1_000_000.0),
            "sliding_attention": local,
        },
    }


def _query_scale(common: dict[str, Any], largest: int) -> int:
    """A file does not say it: llama.cpp, too, tells the 27B by its number of layers."""
    if common["num_hidden_layers"] == largest:
        return int(common["hidden_size"] // common["num_attention_heads"])
    return int(common["head_dim"])


_ARCHITECTURES: MappingProxyType[str, Callable[[_Keys, dict[str, Any]], dict[str, Any]]] = (
    MappingProxyType(
        {
            "llama": _llama,
            "qwen2": _qwen2,
            "qwen3": _qwen3,
            "gemma2": _gemma2,
            "gemma3": _gemma3,
        }
    )
)
"""Mistral's files say that they are llama's."""
