"""Which tensors of a GGUF file make up a parameter, and how they lie there.

The names are those of the package ``gguf``, which llama.cpp's converter uses. What the converter
does to a tensor on the way is undone here: rows of heads in another order, norms with their 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from torch import Tensor

_RESPELLED = (
    (r"\.dt_bias$", ".dt_proj.bias"),
    (r"\.sinks$", ".sinks.weight"),
    (r"\.e_score_correction_bias$", ".e_score_correction.bias"),
    (r"\.router\.weight$", ".router.layer.weight"),
    (r"^transformer\.(?=word_embeddings_layernorm|h\.\d+\.post_attention)", ""),
)
"""Parameters that the package knows by another name, where it does not know them by their own."""
_EXPERTS = re.compile(r"\.(\d+)\..*experts\.(gate_up|down)_proj(_bias)?$")
_ROTATED = frozenset({"llama", "granite", "granitemoe"})
"""Whose heads lie as llama.cpp rotates them: neighbours, not halves."""
_WITH_ONE = frozenset({"gemma", "gemma2", "gemma3", "nemotron", "qwen35", "qwen35moe"})
"""Whose norms' weights have 1 added."""


def sources(
    parameters: list[str], architecture: str, layers: int, there: Mapping[str, object]
) -> dict[str, list[str]]:
    """The tensors of each parameter, by transformers' names; what is not ``there`` is left out.

    One for most; of experts the gates' and the others', in this order.
    """
    (kind,) = [kind for kind, name in MODEL_ARCH_NAMES.items() if name == architecture]
    known = get_tensor_name_map(kind, layers)
    found = {}
    for parameter in parameters:
        if experts := _EXPERTS.search(parameter):
            number, part, bias = experts.groups()
            leaf = "bias" if bias else "weight"
            both = [f"blk.{number}.ffn_{each}_exps.{leaf}" for each in ("gate", "up")]
            names = both if part == "gate_up" else [f"blk.{number}.ffn_down_exps.{leaf}"]
            fused = f"blk.{number}.ffn_gate_up_exps.{leaf}"
            names = [fused] if part == "gate_up" and fused in there else names
        else:
            spellings = [parameter]
            for pattern, other in _RESPELLED:
                spellings += [re.sub(pattern, other, parameter)]
            mapped = (known.get_name(each, (".weight", ".bias")) for each in spellings)
            names = [name for name in mapped if name is not None and name in there][:1]
        if all(name in there for name in names) and names:
            found[parameter] = names
    return found


@dataclass(frozen=True, slots=True)
class Undoing:
    """What makes a parameter of a tensor; None: nothing is to be done."""

    rows: Tensor | None = None
    """Its rows, in the parameter's order."""
    columns: Tensor | None = None
    """The same of what it reads."""
    value: Callable[[Tensor], Tensor] | None = None
    """Of its numbers, which are floats."""


def undoing(tensor: str, rows: int, architecture: str, config: Any) -> Undoing:
    """``rows`` are the tensor's."""
    part = tensor.split(".", 2)[-1] if tensor.startswith("blk.") else tensor
    name = part.rpartition(".")[0] or part
    order = torch.arange(rows)
    if architecture in _ROTATED and name in ("attn_q", "attn_k"):
        return Undoing(order.view(-1, config.head_dim // 2, 2).transpose(1, 2).flatten())
    if architecture == "bloom" and name == "attn_qkv":
        return Undoing(order.view(3, config.n_head, -1).transpose(0, 1).flatten())
    if architecture == "falcon" and name == "attn_qkv":
        return Undoing(_in_groups(order, config.num_attention_heads, config.num_kv_heads))
    if architecture in ("qwen35", "qwen35moe") and (found := _recurrent(name, order, config)):
        return found
    if name == "ssm_a":
        return Undoing(value=_log_of_negative)
    if architecture in _WITH_ONE and part.endswith("norm.weight") and name != "ssm_norm":
        return Undoing(value=lambda value: value.float() - 1)
    return Undoing()


def _log_of_negative(value: Tensor) -> Tensor:
    return torch.log(-value.float())


def _in_groups(order: Tensor, heads: int, groups: int) -> Tensor:
    """Falcon's: queries of a group, its key and its value."""
    dim = len(order) // (heads + 2 * groups)
    parts = torch.split(order, [heads * dim, groups * dim, groups * dim])
    return torch.cat([part.view(groups, -1, dim) for part in parts], dim=1).flatten()


def _recurrent(name: str, order: Tensor, config: Any) -> Undoing | None:
    """Qwen 3.5's value heads, which lie as ggml repeats key heads: each one's first, and so on."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    before = 2 * keys * config.linear_key_head_dim if name in ("attn_qkv", "ssm_conv1d") else 0

    def by_key(places: Tensor) -> Tensor:
        return places.view(values // keys, keys, -1).transpose(0, 1).flatten()

    if name == "ssm_out":
        return Undoing(columns=by_key(torch.arange(values * config.linear_value_head_dim)))
    if name in ("attn_gate", "attn_qkv", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ssm_dt", "ssm_a"):
        rows = torch.cat([order[:before], by_key(order[before:])])
        return Undoing(rows, value=_log_of_negative if name == "ssm_a" else None)
    return None
