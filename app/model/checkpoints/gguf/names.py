"""Where tensors of a GGUF file belong in transformers' models, and what is undone on the way."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import NamedTuple

_WHOLE = MappingProxyType(
    {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
)
_LAYER = MappingProxyType(
    {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
)
_GEMMA = MappingProxyType(
    {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }
)
_GEMMAS = frozenset({"gemma2", "gemma3"})
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)")

ROPE_FACTORS = "rope_freqs.weight"
"""By what the frequencies of positions are divided; Llama 3 and later."""


class Place(NamedTuple):
    parameter: str
    """transformers' name."""
    rotated: bool = False
    """Rows of queries or keys that lie as llama.cpp rotates them: neighbours, not halves."""
    less_one: bool = False
    """A norm's weight with 1 added."""


def place_of(tensor: str, architecture: str) -> Place | None:
    """None for a name that the architecture does not have."""
    module, _, leaf = tensor.rpartition(".")
    if leaf not in ("weight", "bias"):
        return None
    gemma = architecture in _GEMMAS
    block = _BLOCK.fullmatch(module)
    if block is None:
        name = _WHOLE.get(module)
    else:
        number, part = block.groups()
        name = (_LAYER | _GEMMA if gemma else _LAYER).get(part)
        name = name and f"model.layers.{number}.{name}"
    if name is None:
        return None
    return Place(
        f"{name}.{leaf}",
        rotated=architecture == "llama" and name.endswith(("q_proj", "k_proj")),
        less_one=gemma and module.endswith("norm"),
    )
